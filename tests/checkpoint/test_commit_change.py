"""An operation looks and decides, fences, looks and decides again, writes, and puts one manifest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import persistent.driver
import persistent.operations
from persistent import CorruptCheckpoint, Fenced, Pipeline, Refused, StillRunning
from persistent.checkpoint.commit_change import Decision, Manifests, commit_change, look_at_all
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import commits_of
from persistent.checkpoint.running import put_mark
from persistent.names import Attempt, manifest_name, new_nonce
from persistent.operations import collect_garbage, compact, lift_limit, pin, restart, rollback, savepoint, set_back
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.crash.sweep import Deaths, anywhere
from tests.crash.worlds import CrashJob, World
from tests.operations.conftest import _quiet, folder
from tests.operations.twins import (
    OPEN,
    TOTALS,
    VISITS,
    bases,
    check_sound,
    content,
    die_everywhere,
    ended,
    newest,
    twin,
)

__all__ = ["_quiet", "folder"]

MANY = replace(TOTALS, name="many", rows=TOTALS.rows * 4, step_rows=2)


def unfinished(world: World) -> World:
    """A world in which the job has read the first 20 records."""
    job, world.job = world.job, replace(world.job, rows=world.job.rows[:20])
    world.run()
    world.job = job
    return world


def damaged(world: World) -> World:
    """A world without a readable newest manifest."""
    name = manifest_name(newest(world).id)
    data = bytearray(world.checkpoint.read(name).to_pybytes())
    data[len(data) // 2] ^= 1
    world.checkpoint.delete(name)
    world.checkpoint.write(name, bytes(data))
    return world


def littered(world: World) -> World:
    """A world with a run that no checkpoint names."""
    world.checkpoint.write(f"d/Visits/e0-c1-{new_nonce()}.arrow", b"left")
    return world


def ran(world: World) -> World:
    world.run()
    return world


def pinned(world: World) -> World:
    pin(ran(world).checkpoint, 0)
    return world


def limited(world: World) -> World:
    """A world whose clock was set back, and which has run since."""
    set_back(ran(world).checkpoint, not_after=20, outputs="retract")
    return ran(world)


def pipeline_at(world: World, place: Any) -> Pipeline:
    made = world.pipeline()
    made.storage = place
    return made


Operation = Callable[[World, Any], Any]

OPERATIONS: dict[str, tuple[CrashJob, Callable[[World], World], Operation]] = {
    "pin": (OPEN, ran, lambda world, place: pin(place, 0)),
    "unpin": (OPEN, pinned, lambda world, place: pin(place, 0, remove=True)),
    "collect": (OPEN, lambda world: littered(ran(world)), lambda world, place: collect_garbage(place)),
    "compact": (MANY, unfinished, lambda world, place: compact(pipeline_at(world, place))),
    "rollback": (VISITS, ran, lambda world, place: rollback(place, 2, outputs="retract")),
    "rollback over a damaged manifest": (
        VISITS,
        lambda world: damaged(ran(world)),
        lambda world, place: rollback(place, 2, outputs="retract"),
    ),
    "set back": (VISITS, ran, lambda world, place: set_back(place, not_after=20, outputs="retract")),
    "lift the limit": (VISITS, limited, lambda world, place: lift_limit(place)),
    "restart": (OPEN, ran, lambda world, place: restart(pipeline_at(world, place), 20, outputs="retract")),
}
"""Each operation: the job, the world that it is done in, and how."""


def state_of(world: World) -> Any:
    """What the newest manifest says of the job; None if it cannot be read."""
    try:
        manifest = newest(world)
    except CorruptCheckpoint:
        return None
    runs = [(run.rows, run.first, run.last) for run in manifest.state_runs()]
    return content(manifest), manifest.not_after, runs


@pytest.mark.parametrize("operation", OPERATIONS)
@anywhere
def test_killed_anywhere_it_has_happened_or_has_not(operation: str, folder: Path, deaths: Deaths) -> None:
    """I7 for operators: half an operation would be a state that never was."""
    job, prepared, do = OPERATIONS[operation]
    world = prepared(World(job, folder))
    before, after = state_of(world), twin(world)
    do(after, after.checkpoint)
    done = state_of(after)
    after.run()
    expected = after.outcome()

    def check(other: World, story: str) -> None:
        assert state_of(other) in (before, done), story
        if state_of(other) != done or operation == "collect":
            do(other, other.checkpoint)
        assert state_of(other) == done, story
        other.run()
        assert other.outcome() == expected, story
        check_sound(other)

    assert die_everywhere(world, lambda place: do(world, place), check, deaths) >= 8


def test_every_operation_puts_its_manifest_here() -> None:
    """An operation with a fence and a put of its own would be tried by no death above."""
    (operations,), (driver,) = persistent.operations.__path__, persistent.driver.__path__
    kin = [Path(driver) / "start_from.py", Path(driver) / "migration.py"]
    for module in (*Path(operations).glob("*.py"), *kin):
        own = re.findall(r"\.(?:fence|put)\(", module.read_text())
        # A savepoint is put into a log of its own, which nobody else writes.
        assert own == ([".put("] if module.stem == "savepoints" else []), module.stem


def unchanged(manifests: Manifests) -> dict[str, Any]:
    """The fields of a compaction that changes nothing."""
    old = manifests.newest.manifest
    bases = {**old.bases, manifests.attempt.id: old.committed_ms}
    return {"commits": commits_of(bases), "nodes": old.nodes, "sources": old.sources}


def test_it_decides_again_once_nobody_else_commits(folder: Path) -> None:
    """What was decided by a manifest that is no longer the newest would undo what a driver did meanwhile."""
    world = ended(replace(OPEN, rows=OPEN.rows[:-2]), folder)
    log, seen = Log(world.checkpoint), list[int]()

    def decide(manifests: Manifests) -> Decision:
        seen.append(manifests.newest.manifest.id)
        if len(seen) == 1:
            world.job = OPEN
            world.run()
        return Decision("compaction", unchanged(manifests))

    manifest = commit_change(log, decide, take_over=True).manifest
    assert manifest.parent is not None and manifest.parent[0] == seen[1] > seen[0] + 1
    assert verify(world.checkpoint).ok


def test_refused_at_first_it_leaves_no_fence_and_refused_again_no_change(folder: Path) -> None:
    """An operation that cannot be done must not stop a job."""
    world = ended(OPEN, folder)
    log, calls = Log(world.checkpoint), list[Manifests]()

    def refuse(manifests: Manifests) -> Decision:
        calls.append(manifests)
        if len(calls) in (1, 3):
            raise Refused("no")
        return Decision("rollback")

    before = log.ids()
    with pytest.raises(Refused):
        commit_change(log, refuse)
    assert log.ids() == before
    with pytest.raises(Refused):
        commit_change(log, refuse)
    assert log.ids() == [*before, before[-1] + 1] and newest(world).kind == "fence"


def test_another_driver_that_comes_between_ends_it(folder: Path) -> None:
    """Files written under an epoch that is fenced are garbage, and must not be named."""
    world = ended(OPEN, folder)
    log = Log(world.checkpoint)

    def decide(manifests: Manifests) -> Decision:
        def write(attempt: Attempt) -> dict[str, Any]:
            log.fence(manifests.newest, new_nonce())
            return unchanged(manifests)

        return Decision("compaction", write=write)

    with pytest.raises(Fenced, match="was committed by another driver"):
        commit_change(log, decide)
    assert newest(world).kind == "fence"


@pytest.mark.parametrize("harm", ["none", "damaged", "lost", "lost before"])
def test_a_rollback_copies_nothing_unless_a_later_manifest_is_lost(harm: str, folder: Path) -> None:
    """Every file of a kept checkpoint is live; but what a lost manifest keeps is unknown, and its driver may still be
    deleting the rest."""
    world = ended(OPEN, folder)
    target = Log(world.checkpoint).read(bases(world)[2]).manifest
    highest = newest(world).id
    if harm == "damaged":
        damaged(world)
    elif harm != "none":
        world.checkpoint.delete(manifest_name(highest))
        world.checkpoint.write(f"p/{highest:020d}.json", b"")
    if harm == "lost before":
        # It continues above the lost manifest, and keeps what that may not have kept.
        rollback(world.checkpoint, bases(world)[-1], outputs="retract")
    files = set(world.runs())
    manifest = rollback(world.checkpoint, target.id, outputs="retract").manifest
    added = set(world.runs()) - files
    assert target.files() and len(added) == (0 if harm == "none" else len(target.files()))
    assert manifest.files() == (target.files() if harm == "none" else added)
    assert (manifest.id == manifest.epoch == highest + 1) == (harm == "damaged")
    for _ in range(3):
        world.run()
    check_sound(world)


def test_only_what_a_kept_checkpoint_names_is_safe(folder: Path) -> None:
    """A driver that sleeps may delete the rest under a rollback that names it."""
    world = ended(VISITS, folder)
    manifests = look_at_all(Log(world.checkpoint))
    one = manifests.entries[bases(world)[2]].manifest
    assert manifests.keeps(one) and one.files()
    newest_alone = replace(manifests, entries={})
    assert newest_alone.keeps(one), "damaged, and kept: nothing is collected"
    forgotten = replace(manifests.newest, manifest=structs.replace(manifests.newest.manifest, commits=(), nodes={}))
    assert not replace(manifests, newest=forgotten).keeps(one)


def test_a_running_job_is_not_written_to(folder: Path) -> None:
    """Two writers are told apart by the fence: but the one that is fenced off was somebody's job."""
    world = ended(OPEN, folder)
    place: Any = world.checkpoint
    assert isinstance(place, MemoryStorage)
    epoch = newest(world).epoch
    mark = put_mark(place, epoch, "driver")
    before = dict(place._files)
    writers: dict[str, Any] = {
        "compact": lambda **options: compact(world.pipeline(), **options),
        "pin": lambda **options: pin(place, 0, **options),
        "collect": lambda **options: collect_garbage(place, **options),
        "rollback": lambda **options: rollback(place, 0, outputs="again", **options),
    }
    for name, write in writers.items():
        with pytest.raises(StillRunning, match=r"process \d+ on .*, since .*Z\. Stop it .*--take-over"):
            write()
        assert place._files == before, name
    assert collect_garbage(place, dry_run=True) == ()
    savepoint(place, "monday")
    for name, write in writers.items():
        other = twin(world)
        place, world = other.checkpoint, other
        assert mark in [f"r/{one}" for one in place.list("r")] or name == "rollback"
        # Once one has fenced the driver off, it is no longer in the way of the next.
        write(take_over=name == "compact")
        assert newest(world).epoch == epoch + 1 + list(writers).index(name), name
    assert verify(place).ok
