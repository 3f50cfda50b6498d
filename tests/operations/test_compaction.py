"""A compaction changes how the state lies on the disk, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistent import NoCheckpoint, OtherJob
from persistent.checkpoint import compaction
from persistent.checkpoint.log import Log
from persistent.operations import compact, rollback
from persistent.verify import verify
from tests.crash.sweep import calm
from tests.crash.worlds import JOBS, CrashJob, Outcome, World
from tests.few import paired
from tests.operations.twins import OPEN, TOTALS, bases, check_sound, content, ended, newest, twin
from tests.single import only

FILES = next(job for job in JOBS if job.name == "files")
MANY = replace(TOTALS, name="many", rows=TOTALS.rows * 4, step_rows=2)


def begun(job: CrashJob, folder: Path, rows: int) -> World:
    """A world in which the job has read so many rows, and published what it had by then."""
    world = ended(replace(job, rows=job.rows[:rows]), folder)
    world.job = job
    return world


def end_of(world: World) -> Outcome:
    """What comes of a world that goes on as it is."""
    other = twin(world)
    other.run()
    return other.outcome()


@pytest.mark.parametrize(
    ("job", "bytes_max"),
    paired([OPEN, MANY, replace(MANY, name="running", end_of_input=False)], [1 << 29, 700]),
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_the_state_is_the_same_and_so_is_all_that_follows(
    job: CrashJob, bytes_max: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Associativity licenses it; a run left out, doubled, or mixed with what was published, breaks it."""
    most = 0
    for rows in range(4, len(job.rows), 5):
        world = begun(job, folder, rows)
        expected = end_of(world)
        before, old = world.pipeline().state(), newest(world)
        monkeypatch.setattr(compaction, "_BYTES_MAX", bytes_max)
        manifest = compact(world.pipeline()).manifest
        monkeypatch.undo()
        assert world.pipeline().state().sort_by("page").equals(before.sort_by("page")), rows
        assert content(manifest) == content(old)
        assert (manifest.base, manifest.sinks, manifest.aside) == (old.base, old.sinks, old.aside)
        runs, published = manifest.state_runs(), only(manifest.nodes).published
        assert bytes_max == 700 or len(runs) <= 1 + (published > 0)
        most = max(most, len(runs))
        assert verify(world.checkpoint).ok
        world.run()
        assert world.outcome() == expected, rows
        check_sound(world)
    assert bytes_max > 700 or job is OPEN or most > 2, "nothing was folded shard by shard"


def test_what_was_published_is_not_published_again(folder: Path) -> None:
    """Folded into one, the runs of before and after the last end of the input would all count as changed."""
    world = begun(MANY, folder, 12)
    assert only(newest(world).nodes).published
    # One more row, and not yet the end: a run that was published, and one that was not.
    world.job = replace(MANY, rows=MANY.rows[:13], end_of_input=False)
    world.run()
    world.job = replace(world.job, end_of_input=True)
    expected = end_of(world)
    compact(world.pipeline())
    world.run()
    assert world.outcome() == expected
    assert len(expected.published) == 5, "four keys at the first end, and the one that has changed at the second"


def test_the_index_of_a_file_source_is_folded_too(folder: Path) -> None:
    """Ordinals are places in it: lost or out of order, a file is read twice or never."""
    world = World(FILES, folder)
    place = folder / FILES.name
    world.run()
    for number in range(5, 8):
        (place / f"{number:03d}.jsonl").write_text(f'{{"ts": {40 + number}, "page": "a", "n": 1}}\n')
        world.run()
    assert len(only(newest(world).sources).index) > 1
    manifest = compact(world.pipeline()).manifest
    assert len(only(manifest.sources).index) == 1
    (place / "009.jsonl").write_text('{"ts": 60, "page": "a", "n": 1}\n')
    before = sum(account.read for account in newest(world).accounts.values())
    world.run()
    assert sum(account.read for account in newest(world).accounts.values()) == before + 1
    check_sound(world)


def test_back_behind_a_compaction_and_to_it(folder: Path) -> None:
    """It names files of its own: they are kept as long as it can be gone back to."""
    job = replace(MANY, end_of_input=False)
    expected = calm(job, folder).outcome
    world = begun(job, folder, 20)
    compacted = compact(world.pipeline()).manifest
    id = compacted.id
    assert compacted.kind == "compaction"
    world.run()
    # Once more: only the first compaction names what it has folded.
    compact(world.pipeline())
    check_sound(world)
    for to in (bases(world)[0], id):
        other = twin(world)
        rollback(other.checkpoint, to, outputs="retract")
        other.run()
        assert other.outcome() == expected
        check_sound(other)


def test_nothing_to_fold_is_nothing_done(folder: Path) -> None:
    """A timer that compacts every night must not write a manifest for nothing."""
    world = ended(OPEN, folder)
    compact(world.pipeline())
    before = dict(world.checkpoint._files)  # type: ignore[attr-defined]
    assert compact(world.pipeline()).manifest.id == newest(world).id
    assert world.checkpoint._files == before  # type: ignore[attr-defined]
    with pytest.raises(NoCheckpoint):
        compact(World(OPEN, folder).pipeline())
    other = World(TOTALS, folder)
    other.checkpoint = world.checkpoint
    with pytest.raises(OtherJob):
        compact(other.pipeline())


def test_progress_is_told(folder: Path) -> None:
    """A fold of hours that says nothing looks like one that hangs."""
    world = ended(OPEN, folder)
    told: list[tuple[int, int]] = []
    compact(world.pipeline(), on_progress=lambda done, all: told.append((done, all)))
    assert told and told[-1][0] == told[-1][1] == sum(run.bytes for run in old_runs(world))


def old_runs(world: World) -> Any:
    log = Log(world.checkpoint)
    return only(log.read(newest(world).base).manifest.nodes).runs
