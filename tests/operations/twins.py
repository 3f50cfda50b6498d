"""A twin is a copy of a world, so that an operation is tried on it in many ways; and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import collect_garbage
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.crash.sweep import Deaths
from tests.crash.sweep import deaths as every_death
from tests.crash.worlds import JOBS, CrashJob, World
from tests.faults import FaultyStorage, Killed, Operations
from tests.single import only

VISITS, TOTALS, OPEN = (next(job for job in JOBS if job.name == name) for name in ("visits", "totals", "open"))


def ended(job: CrashJob, folder: Path) -> World:
    """A world in which the job has run to its end."""
    world = World(job, folder)
    world.run()
    return world


def twin(world: World) -> World:
    """The same world once more, to be changed on its own."""
    other = World(world.job, world.folder)
    for ours, theirs in ((world.checkpoint, other.checkpoint), (world.sink, other.sink)):
        assert isinstance(ours, MemoryStorage) and isinstance(theirs, MemoryStorage)
        theirs._files.update(ours._files)
    return other


def newest(world: World) -> Manifest:
    """The newest manifest of a world."""
    entry = Log(world.checkpoint).newest()
    assert entry is not None
    return entry.manifest


def bases(world: World) -> list[int]:
    """The checkpoints that are kept, oldest first."""
    return sorted(newest(world).bases)


def content(manifest: Manifest) -> tuple[Any, ...]:
    """What a manifest says of the job, whatever its files are called."""
    return manifest.clock, only(manifest.sources).positions, manifest.accounts, manifest.pins


def check_sound(world: World) -> None:
    """Every byte verifies; and once garbage is collected, every file is named."""
    found = verify(world.checkpoint)
    assert found.ok, found.findings
    collect_garbage(world.checkpoint)
    found = verify(world.checkpoint)
    assert not found.findings, found.findings
    assert collect_garbage(world.checkpoint, dry_run=True) == ()


def die_everywhere(
    world: World, operation: Callable[[FaultyStorage], Any], check: Callable[[World, str], None], deaths: Deaths
) -> int:
    """Do the operation on twins of the world, killed in each of these ways; ``check`` each. How many ways there are."""
    calm = Operations()
    operation(FaultyStorage(twin(world).checkpoint, calm))
    for death in deaths(calm.log):
        other = twin(world)
        operations = Operations(death.at, death.how)
        with suppress(Killed):
            operation(FaultyStorage(other.checkpoint, operations))
        check(other, f"{death.how} operation {death.at}: {calm.log[death.at]}")
        other.close()
    return len(list(every_death(calm.log)))


def refusals(error: type[BaseException], *calls: Callable[[], Any]) -> Iterator[str]:
    """What each call says as it refuses."""
    for call in calls:
        try:
            call()
        except error as refused:
            yield str(refused)
        else:
            raise AssertionError(f"{call} was not refused")
