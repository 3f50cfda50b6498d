"""A takeover loses nothing that was acknowledged, wherever the writer before it stands."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from persistent.errors import Fenced, Refused
from persistent.log import SegmentedLog
from persistent.log.folder import LogFolder
from persistent.log.segments import SoFar
from persistent.log.tails import OpenTail, PutTail
from persistent.log.takeover import last_mark, take_over
from persistent.storage import LocalStorage, MemoryStorage
from persistent.testing.faults import DEATHS, FaultyStorage, Killed, Operations
from persistent.testing.pauses import AskingStorage, Once
from tests.log.logs import KINDS, place, values


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_writer_was_told_is_there(kind: str, tmp_path: Path) -> None:
    """It never closes."""
    log = SegmentedLog(place(kind, tmp_path))
    log.writer().append(b"one")
    log.writer().append(b"two")
    log.writer()
    assert values(log) == [b"one", b"two"]
    with log.writer() as adding:
        adding.append(b"three")
    assert values(log) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("how", DEATHS)
def test_killed_at_every_request(how: str) -> None:
    """On a store an entry is a put, and a put may be done and not answered."""
    at = 0
    while True:
        storage = MemoryStorage(f"takeover-{how}-{at}")
        storage.clear()
        operations = Operations(at=at, how=how)
        told, asked = [], []
        with suppress(Killed):
            for number in range(3):
                adding = SegmentedLog(FaultyStorage(storage, operations)).writer()
                for text in (b"%d a" % number, b"%d b" % number):
                    asked.append(text)
                    adding.append(text)
                    told.append(text)
        log = SegmentedLog(storage)
        found = values(log)
        assert found[: len(told)] == told and found in (asked, told)
        with log.writer() as adding:
            adding.append(b"after")
        assert values(log) == [*found, b"after"]
        if not operations.dead:
            break
        at += 1
    assert at > 20


@pytest.mark.parametrize("how", ["lost", "lost-undone"])
def test_a_lost_answer_is_asked_for(how: str) -> None:
    """A put that is done twice would be an entry twice; or a writer would take itself for another."""
    for at in range(60):
        storage = MemoryStorage(f"lost-{how}-{at}")
        storage.clear()
        log = SegmentedLog(FaultyStorage(storage, Operations(at=at, how=how)))
        told = []
        with suppress(Exception), log.writer() as adding:
            for number in range(4):
                adding.append(b"%d" % number)
                told.append(b"%d" % number)
        found = values(SegmentedLog(storage))
        assert found[: len(told)] == told and found == sorted(set(found))


def test_overtaken_at_every_request() -> None:
    """A writer that sleeps wakes up between any two requests."""
    at, happened = 0, True
    while happened:
        storage = MemoryStorage(f"overtaken-{at}")
        storage.clear()
        count = iter(range(10_000))
        told: list[bytes] = []

        def overtake(storage: MemoryStorage = storage, told: list[bytes] = told) -> None:
            with SegmentedLog(storage).writer() as adding:
                adding.append(b"other")
                told.append(b"other")

        once = Once(lambda verb, name, count=count, at=at: next(count) == at, overtake)  # type: ignore[misc]
        with suppress(Fenced):
            adding = SegmentedLog(AskingStorage(storage, once)).writer()
            for number in range(3):
                adding.append(b"%d" % number)
                told.append(b"%d" % number)
        found = values(SegmentedLog(storage))
        assert [text for text in found if text in told] == told, f"overtaken at {at}: {told}, {found}"
        assert len(set(found)) == len(found)
        at, happened = at + 1, once.happened
    assert at > 10


def test_a_tail_is_left_after_its_segment_was_sealed_by_another(tmp_path: Path) -> None:
    """Its name is taken by what the other has found."""
    folder = LogFolder(LocalStorage(tmp_path))
    folder.make()
    tail = take_over(folder, each=True)
    assert isinstance(tail, OpenTail)
    tail.add(np.array([1]), pa.array([b"one"]), b"mark")
    tail.flush(sync=True)
    assert last_mark(folder) == b"mark"
    other = take_over(LogFolder(LocalStorage(tmp_path)), each=True)
    assert (other.segment, other.so_far) == (2, SoFar(0, 1, 1, b"mark", tail.size))
    for act in (tail.roll, tail.end):
        with pytest.raises(Fenced):
            act()
    other.close()
    assert last_mark(folder) == b"mark" and folder.storage.list("o") == []


def test_an_empty_segment_fences_on_a_store() -> None:
    """The writer before would put its next entry where this one puts its own."""
    storage = MemoryStorage("fences")
    storage.clear()
    first = take_over(LogFolder(storage), each=True)
    second = take_over(LogFolder(storage), each=True)
    assert isinstance(first, PutTail) and (first.segment, second.segment) == (1, 2)
    first.add([1], pa.array([b"x"]), b"")
    with pytest.raises(Fenced):
        first.flush(sync=True)
    assert values(SegmentedLog(storage)) == []


def test_an_ended_log_is_not_taken_over(tmp_path: Path) -> None:
    """Killed between the end and its name, it has ended all the same."""
    log = SegmentedLog(tmp_path / "log")
    adding = log.writer()
    adding.append(b"last")
    (name,) = (tmp_path / "log" / "o").iterdir()
    adding.end()
    (sealed,) = (tmp_path / "log" / "s").iterdir()
    sealed.rename(name)
    with pytest.raises(Refused, match="has ended"):
        log.writer()
    assert log.ends().ended and values(log) == [b"last"]
