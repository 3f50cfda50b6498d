"""A copy has every byte of its checkpoint under names of its own, and a job that goes on meanwhile is followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from persistent.checkpoint.copies import (
    Target,
    check_kept,
    checkpoint_at,
    copied,
    copied_while_running,
    newest_of,
    renumbered,
    renumbered_source,
    verified_runs,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SeenColumns, SeenPart, SourcePart
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import Run
from persistent.codec.sealed import encode_table
from persistent.errors import CorruptCheckpoint, NoCheckpoint, Refused, UnknownCheckpoint
from persistent.names import Attempt, manifest_name, new_nonce
from persistent.storage import MemoryStorage
from tests.checkpoint.samples import manifest, run, with_one
from tests.single import only


def written(storage: MemoryStorage, name: str, size: int) -> Run:
    """A run that is there, of ``size`` rows."""
    data, sha256 = encode_table(pa.table({"n": pa.array(range(size), pa.int64())}))
    one = replace(run(name, rows=size), bytes=len(data), sha256=sha256)
    storage.write(one.name, data)
    return one


def with_runs(storage: MemoryStorage, id: int, **changes: Any) -> Manifest:
    """A manifest with two runs of state and one of an index."""
    runs = tuple(written(storage, f"e0-c{id}-{name}", size) for name, size in (("a", 10), ("b", 1_000)))
    index = written(storage, f"e0-c{id}-i", 5)
    one = manifest(id, **changes)
    return with_one(one, node=replace(only(one.nodes), runs=runs), source=replace(only(one.sources), index=(index,)))


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    yield MemoryStorage(new_nonce())


def job(storage: MemoryStorage, *manifests: Manifest) -> Log:
    """The log of these manifests, the first of which is 0."""
    log = Log(storage)
    log.create(manifests[0])
    for one in manifests[1:]:
        log.put(one)
    return log


def elsewhere(entry: Entry) -> Target:
    return Target(MemoryStorage(new_nonce()), Attempt(3, 41))


def test_a_copy_has_all_bytes_under_other_names(storage: MemoryStorage) -> None:
    """A run left out is state lost on the day the copy is needed; one under its old name is collected with the job."""
    one = with_runs(storage, 1)
    target, told = elsewhere(Entry(one, "", 0)), []
    found = copied(storage, one, target, lambda done, all: told.append((done, all)))
    assert len(found.all_runs()) == 3
    for old, new in zip(one.all_runs(), found.all_runs(), strict=True):
        assert new == replace(old, name=new.name)
        assert new.name.startswith("d/Visits/e3-c41-") and new.name.endswith(".arrow")
        assert target.storage.read(new.name).to_pybytes() == storage.read(old.name).to_pybytes()
    assert len({new.name for new in found.all_runs()}) == 3
    sizes = [each.bytes for each in one.all_runs()]
    assert told == [(sum(sizes[: count + 1]), sum(sizes)) for count in range(3)]
    first = replace(one, nodes=found.nodes, sources=found.sources)
    assert found == first and copied(storage, one, target).id == 1


def test_every_run_is_verified_on_the_way(storage: MemoryStorage) -> None:
    """A loss that is copied is kept for good."""
    one = with_runs(storage, 1)
    for old in one.all_runs():
        data = storage.read(old.name).to_pybytes()
        for wrong, says in (
            (data + b"x", f"has {len(data) + 1:,} bytes, but {len(data):,} according to checkpoint 1"),
            (data[:40] + bytes([data[40] ^ 1]) + data[41:], "SHA-256 differs"),
        ):
            storage.delete(old.name)
            storage.write(old.name, wrong)
            with pytest.raises(CorruptCheckpoint, match=f"{old.name}: .*{says}"):
                list(verified_runs(storage, one))
        storage.delete(old.name)
        with pytest.raises(CorruptCheckpoint, match=f"{old.name}: missing, although checkpoint 1 names it"):
            list(verified_runs(storage, one))
        storage.write(old.name, data)
    assert [(found, bytes(data)) for found, data in verified_runs(storage, one)] == [
        (each, storage.read(each.name).to_pybytes()) for each in one.all_runs()
    ]


def test_a_checkpoint_is_found_by_its_id(storage: MemoryStorage) -> None:
    """A savepoint of another checkpoint than the one that was asked for would be a silent step in time."""
    log = job(
        storage, manifest(), *(manifest(id) for id in (1, 2)), manifest(3, oldest=2, commits=((0, 0), (2, 0), (3, 0)))
    )
    assert newest_of(log) == checkpoint_at(log, None) == checkpoint_at(log, 3) == log.read(3)
    assert checkpoint_at(log, 2) == log.read(2) and checkpoint_at(log, 0) == log.read(0)
    newest = newest_of(log).manifest
    for id in (1, 4, -1):
        with pytest.raises(UnknownCheckpoint, match=rf"keeps no checkpoint {id}; it keeps 0, 2, 3$"):
            checkpoint_at(log, id)
        with pytest.raises(UnknownCheckpoint):
            check_kept(log, newest, id)
    check_kept(log, newest, 2)
    with pytest.raises(UnknownCheckpoint, match=r"keeps no checkpoint 5; it keeps 0$"):
        checkpoint_at(job(MemoryStorage(new_nonce()), manifest()), 5)


def test_a_checkpoint_that_is_collected_meanwhile_is_kept_no_more() -> None:
    """Whoever asks for it is told which are kept, not of damage that there is not."""

    class Collected(MemoryStorage):
        def read(self, name: str) -> pa.Buffer:
            if name == manifest_name(1) and name in [f"m/{listed}" for listed in self.list("m")]:
                log.put(manifest(3, oldest=2, commits=((2, 0), (3, 0))))
                self.delete(name)
            return super().read(name)

    log = job(Collected(new_nonce()), *(manifest(id) for id in (0, 1, 2)))
    with pytest.raises(UnknownCheckpoint, match=r"keeps no checkpoint 1; it keeps 2, 3$"):
        checkpoint_at(log, 1)


def test_a_checkpoint_that_is_damaged_is_told(storage: MemoryStorage) -> None:
    """It is kept: that it cannot be read is a loss, and a copy has it."""
    log = job(storage, *(manifest(id) for id in (0, 1, 2)))
    data = storage.read(manifest_name(1)).to_pybytes()
    storage.delete(manifest_name(1))
    storage.write(manifest_name(1), data[:-1])
    with pytest.raises(CorruptCheckpoint, match="SHA-256"):
        checkpoint_at(log, 1)


def test_where_nothing_is_there_is_nothing_to_copy(storage: MemoryStorage) -> None:
    """A wrong URL must not be taken for an empty job."""
    with pytest.raises(NoCheckpoint, match=r"there is no checkpoint here; check the URL"):
        copied_while_running(Log(storage), None, elsewhere)


def test_a_job_that_is_always_faster_is_not_followed_for_ever(storage: MemoryStorage) -> None:
    """The copy would take all that the store can do, and never end."""
    log = job(storage, with_runs(storage, 0))
    tried: list[int] = []

    def overtaken(entry: Entry) -> Target:
        tried.append(entry.manifest.id)
        later = with_runs(storage, entry.manifest.id + 1, oldest=entry.manifest.id + 1)
        log.put(replace(later, kind="checkpoint"))
        storage.delete(entry.manifest.all_runs()[1].name)
        return elsewhere(entry)

    with pytest.raises(Refused, match=r"the job commits faster than a checkpoint can be read \(10 attempts\)"):
        copied_while_running(log, None, overtaken)
    assert tried == list(range(10))


def test_a_job_that_goes_on_once_is_followed(storage: MemoryStorage) -> None:
    """Its files are collected under our eyes: then the newest is copied, not half of the one before."""
    log = job(storage, with_runs(storage, 0))

    def overtaken(entry: Entry) -> Target:
        if entry.manifest.id == 0:
            log.put(with_runs(storage, 1, oldest=1))
            storage.delete(entry.manifest.all_runs()[0].name)
        return elsewhere(entry)

    told: list[int] = []
    assert copied_while_running(log, None, overtaken, lambda done, all: told.append(done)).id == 1
    assert len(told) == 3


def test_what_is_lost_though_it_is_kept_is_told_at_once(storage: MemoryStorage) -> None:
    """To look for a newer one would hide the loss."""
    log = job(storage, with_runs(storage, 0))
    storage.delete(newest_of(log).manifest.all_runs()[2].name)
    tried: list[int] = []

    def target(entry: Entry) -> Target:
        tried.append(entry.manifest.id)
        return elsewhere(entry)

    with pytest.raises(CorruptCheckpoint, match="missing, although checkpoint 0 names it"):
        copied_while_running(log, None, target)
    assert tried == [0]


@pytest.mark.parametrize(
    ("published", "begun", "expected"),
    [
        (0, (), [1, 1, 1, 0]),
        (1, (), [0, 1, 1, 0]),
        (2, (), [0, 0, 1, 0]),
        (3, (), [0, 0, 0, 0]),
        (0, (1,), [1, 1, 1, 0]),
        (0, (2,), [1, 2, 2, 0]),
        (0, (2, 3), [1, 2, 2, 0]),
        (0, (3,), [1, 1, 2, 0]),
        (1, (3,), [0, 1, 2, 0]),
        (2, (3,), [0, 0, 1, 0]),
        (2, (2,), [0, 1, 2, 1]),
        (3, (2,), [0, 1, 1, 1]),
    ],
)
def test_runs_are_numbered_anew_in_as_few_steps_as_it_takes(
    published: int, begun: tuple[int, ...], expected: list[int]
) -> None:
    """One number for two that were apart, and what was published is published again, or a fold takes in older runs."""
    runs = tuple(run(str(id), first=id, last=id, low=400 if id in begun else 0) for id in (1, 2, 3))
    found = renumbered(NodePart({}, runs=runs, published=published))
    assert [*(one.last for one in found.runs), found.published] == expected
    assert [replace(one, first=old.first, last=old.last) for one, old in zip(found.runs, runs, strict=True)] == [*runs]
    assert [one.first for one in found.runs] == [one.last for one in found.runs]


def test_runs_numbered_from_0_have_nothing_before_them() -> None:
    """A job that was itself started from a copy: nothing of it is being folded."""
    runs = (run("a", first=0, last=0), run("b", first=1, last=1))
    assert [one.last for one in renumbered(NodePart({}, runs=runs, published=1)).runs] == [0, 0]
    assert [one.last for one in renumbered(NodePart({}, runs=runs)).runs] == [0, 1]


def test_what_was_seen_is_numbered_anew_too() -> None:
    """A job begins at 1: runs from before it would be folded as if they lay ahead."""
    plain = SourcePart("MemorySource", ("memory",), {"memory": (0, 7)})
    assert renumbered_source(plain) is plain
    runs = (run("a", first=3, last=4), run("b", first=7, last=7))
    found = renumbered_source(replace(plain, seen=SeenPart(SeenColumns((), "n"), 10, 20, runs)))
    expected = renumbered(NodePart({}, runs=runs)).runs
    assert expected != runs and found == replace(plain, seen=SeenPart(SeenColumns((), "n"), 10, 20, expected))
