"""Pins keep, and only what nobody keeps is collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from persistent import CorruptCheckpoint, NoCheckpoint, Retention, StillRunning, StorageError, UnknownCheckpoint
from persistent.checkpoint.log import Log
from persistent.checkpoint.names import manifest_name
from persistent.checkpoint.running import put_mark
from persistent.checkpoint.successor import new_nonce
from persistent.operations import collect_garbage, compact, pin, rollback, savepoint, upgrade
from persistent.verify import verify
from tests.crash.sweep import calm
from tests.crash.worlds import LONG, World
from tests.operations.twins import OPEN, VISITS, bases, check_sound, content, die_everywhere, ended, newest, twin

MORE = replace(LONG, rows=LONG.rows + tuple({"ts": 60 + i, "page": "ab"[i % 2], "n": i} for i in range(15)))


def go_on(world: World, job: Any = MORE) -> None:
    """The same job, with more to read."""
    world.job = job
    world.run()


def test_a_pin_outlives_steps_fences_and_rollbacks(folder: Path) -> None:
    """Who pins a checkpoint before an upgrade wants it back after it, whatever has happened since."""
    world = ended(LONG, folder)
    id = bases(world)[0]
    expected = world.pipeline().state(at=id)
    assert pin(world.checkpoint, id).manifest.pins == (id,)
    go_on(world)
    assert id < newest(world).oldest and newest(world).pins == (id,)
    collect_garbage(world.checkpoint)
    rollback(world.checkpoint, bases(world)[-1], outputs="retract")
    assert verify(world.checkpoint).ok
    assert world.pipeline().state(at=id).equals(expected)
    rollback(world.checkpoint, id, outputs="retract")
    assert world.pipeline().state().equals(expected)
    world.run()
    assert world.outcome() == calm(MORE, folder).outcome
    check_sound(world)


def test_what_is_unpinned_is_collected(folder: Path) -> None:
    """A pin forgotten holds its files for ever; one taken out must not."""
    world = ended(LONG, folder)
    id = bases(world)[0]
    files = Log(world.checkpoint).read(id).manifest.files()
    pin(world.checkpoint, id)
    go_on(world, replace(MORE, rows=MORE.rows[:-1], end_of_input=False))
    assert files <= set(world.runs())
    pin(world.checkpoint, id, remove=True)
    go_on(world)
    assert newest(world).pins == () and id not in newest(world).bases
    collect_garbage(world.checkpoint)
    assert not files & set(world.runs())
    assert manifest_name(id)[2:] not in world.checkpoint.list("m")
    check_sound(world)


def test_bad_pins_are_refused_and_nothing_is_changed(folder: Path) -> None:
    """A pin on an id that is gone would promise what nobody can keep."""
    world = ended(VISITS, folder)
    id = bases(world)[-1]
    pin(world.checkpoint, id)
    before = dict(world.checkpoint._files)  # type: ignore[attr-defined]
    assert pin(world.checkpoint, id).manifest.id == newest(world).id
    with pytest.raises(UnknownCheckpoint, match="keeps no checkpoint 99; it keeps 0, 2"):
        pin(world.checkpoint, 99)
    with pytest.raises(UnknownCheckpoint, match=f"checkpoint 0 is not pinned; pinned: {id}"):
        pin(world.checkpoint, 0, remove=True)
    with pytest.raises(NoCheckpoint):
        pin("memory://nothing-there", 0)
    assert world.checkpoint._files == before  # type: ignore[attr-defined]


def test_a_dry_run_tells_what_is_then_deleted(folder: Path) -> None:
    """Who asks first must be told the truth."""
    world = ended(VISITS, folder)
    for epoch in (0, 1, 7):
        world.checkpoint.write(f"d/Visits/e{epoch}-c1-{new_nonce()}.arrow", b"left")
    world.checkpoint.write("d/Visits/notes.txt", b"of a person")
    put_mark(world.checkpoint, 0, "00ff")
    operations_before = dict(world.checkpoint._files)  # type: ignore[attr-defined]
    told = collect_garbage(world.checkpoint, dry_run=True)
    assert world.checkpoint._files == operations_before  # type: ignore[attr-defined]
    assert len([name for name in told if name.startswith("d/Visits/e")]) == 2
    assert collect_garbage(world.checkpoint) == told
    assert not set(told) & {f"d/Visits/{name}" for name in world.checkpoint.list("d/Visits")}
    assert "notes.txt" in world.checkpoint.list("d/Visits")
    assert collect_garbage(world.checkpoint, dry_run=True) == ()
    assert world.checkpoint.list("r") == []


def test_what_a_kept_checkpoint_names_is_never_collected(folder: Path) -> None:
    """The one thing that a collection must not do."""
    world = ended(LONG, folder)
    states = {id: world.pipeline().state(at=id) for id in bases(world)}
    collect_garbage(world.checkpoint)
    assert {id: world.pipeline().state(at=id) for id in states} == states
    assert world.outcome() == calm(LONG, folder).outcome
    assert verify(world.checkpoint).ok


def test_where_a_kept_manifest_is_corrupt_nothing_is_collected(folder: Path) -> None:
    """What it names is not known: everything might be."""
    world = ended(VISITS, folder)
    name = manifest_name(bases(world)[1])
    world.checkpoint.delete(name)
    world.checkpoint.write(name, b"torn")
    runs, ids = world.runs(), Log(world.checkpoint).ids()
    with pytest.raises(CorruptCheckpoint, match=name):
        collect_garbage(world.checkpoint)
    assert world.runs() == runs
    assert Log(world.checkpoint).ids() == ids, "a fence was left, though nothing was done"


def test_files_of_an_operator_that_is_no_more_are_collected(folder: Path) -> None:
    """Its folder is looked into by nobody else: it would lie there for ever."""
    world = ended(VISITS, folder)
    log = Log(world.checkpoint)
    entry = log.newest()
    assert entry is not None
    gone = f"d/Gone/e1-c1-{new_nonce()}.arrow"
    world.checkpoint.write(gone, b"old")
    old = entry.manifest
    named = replace(
        old,
        id=old.id + 1,
        kind="fence",
        epoch=old.epoch + 1,
        nonce=new_nonce(),
        parent=(old.id, entry.sha256),
        operators={**old.operators, "Gone": replace(old.operators["Visits"], runs=())},
    )
    log.put(named)
    assert gone in collect_garbage(world.checkpoint)


@pytest.mark.parametrize("what", ["pin", "unpin", "collect"])
def test_killed_anywhere_it_can_be_repeated(what: str, folder: Path) -> None:
    """I7 for operators."""
    world = ended(OPEN, folder)
    id = bases(world)[0]
    if what == "unpin":
        pin(world.checkpoint, id)
    world.checkpoint.write(f"d/Visits/e0-c1-{new_nonce()}.arrow", b"left")
    expected = world.outcome()
    do: Any = {
        "pin": lambda place: pin(place, id),
        "unpin": lambda place: pin(place, id, remove=True),
        "collect": collect_garbage,
    }[what]
    before = content(newest(world))
    after = twin(world)
    do(after.checkpoint)

    def check(other: World, story: str) -> None:
        assert content(newest(other)) in (before, content(newest(after))), story
        if content(newest(other)) == before:
            do(other.checkpoint)
        assert content(newest(other)) == content(newest(after)), story
        other.run()
        assert other.outcome() == expected, story
        check_sound(other)

    assert die_everywhere(world, do, check) >= 8


# -- a job that runs --------------------------------------------------------------------------------------------------


def test_a_running_job_is_not_written_to(folder: Path) -> None:
    """Two writers are told apart by the fence: but the one that is fenced off was somebody's job."""
    world = ended(OPEN, folder)
    place: Any = world.checkpoint
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
    assert upgrade(place).manifest.id == newest(world).id
    for name, write in writers.items():
        other = twin(world)
        place, world = other.checkpoint, other
        assert mark in [f"r/{one}" for one in place.list("r")] or name == "rollback"
        # Once one has fenced the driver off, it is no longer in the way of the next.
        write(take_over=name == "compact")
        assert newest(world).epoch == epoch + 1 + list(writers).index(name), name
    assert verify(place).ok


def test_thinned_checkpoints_stay(folder: Path) -> None:
    """The policy of retention keeps what no pin does."""
    world = ended(LONG, folder)
    pipeline = world.pipeline()
    pipeline.retention = Retention(last=2, daily=3)
    world.job = MORE
    more = world.pipeline()
    more.retention = pipeline.retention
    more.run(engine="embedded", end_of_input=True)
    kept = bases(world)
    assert len(kept) >= 2
    collect_garbage(world.checkpoint)
    assert bases(world) == kept
    assert verify(world.checkpoint).ok


def test_the_fences_of_a_crash_loop_are_collected(folder: Path) -> None:
    """A job that was started over and over, for a night, would keep a manifest of each start for good."""
    expected = calm(MORE, folder).outcome
    world = ended(LONG, folder)
    log = Log(world.checkpoint)
    for _ in range(100):
        entry = log.newest()
        assert entry is not None
        log.fence(entry, new_nonce())
    go_on(world)
    assert len(log.ids()) <= 2 * len(newest(world).bases) + 20
    assert set(newest(world).bases) <= set(log.ids())
    assert verify(world.checkpoint).ok
    assert world.outcome() == expected


def test_what_is_staged_and_nobody_will_publish_is_collected_too(folder: Path) -> None:
    """Speculation leaves a second file of the same rows in the sink, and where no run follows nobody would see it."""
    world = ended(VISITS, folder)
    before, shown = newest(world), world.sink.list("")
    sink: Any = world.pipeline().sink
    left = sink.stage(pa.table({"page": ["a"]}), before.id, f"e{before.epoch}-c{before.id}-{new_nonce()}")
    place = f"{world.sink.url}/{left.name}"
    assert place not in collect_garbage(world.checkpoint, dry_run=True)
    assert place in collect_garbage(world.checkpoint, sink=sink, dry_run=True)
    assert sink.staged(before.job) == [left.name]
    assert place in collect_garbage(world.checkpoint, sink=sink)
    assert sink.staged(before.job) == [] and world.sink.list("") == shown
    world.sink.delete("_published/JOB")
    world.sink.put_if_absent("_published/JOB", b"another\n")
    with pytest.raises(StorageError, match="results of job another"):
        collect_garbage(world.checkpoint, sink=sink, dry_run=True)
