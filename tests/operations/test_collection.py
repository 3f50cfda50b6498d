"""Pins keep, and only what nobody keeps is collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from persistent import CorruptCheckpoint, Retention, StorageError
from persistent.checkpoint.log import Log
from persistent.checkpoint.running import put_mark
from persistent.driver.evolution import with_nodes
from persistent.names import manifest_name, new_nonce
from persistent.operations import collect_garbage
from persistent.verify import verify
from tests.crash.sweep import calm
from tests.crash.worlds import LONG
from tests.operations.going_on import MORE, go_on
from tests.operations.twins import VISITS, bases, ended, newest
from tests.single import only


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


def test_files_of_a_node_that_is_no_more_are_collected(folder: Path) -> None:
    """Its folder is looked into by nobody else: it would lie there for ever."""
    world = ended(VISITS, folder)
    log = Log(world.checkpoint)
    entry = log.newest()
    assert entry is not None
    gone = f"d/Gone/e1-c1-{new_nonce()}.arrow"
    world.checkpoint.write(gone, b"old")
    old = entry.manifest
    named = replace(
        with_nodes(old, {"Gone": replace(only(old.nodes), runs=())}),
        id=old.id + 1,
        kind="fence",
        epoch=old.epoch + 1,
        nonce=new_nonce(),
        parent=(old.id, entry.sha256),
    )
    log.put(named)
    assert gone in collect_garbage(world.checkpoint)


# -- a job that runs --------------------------------------------------------------------------------------------------


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
