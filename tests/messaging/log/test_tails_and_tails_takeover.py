"""A takeover loses nothing that was acknowledged, wherever the writer before it stands."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from persistent.errors import Fenced, Refused, StorageError
from persistent.log import SegmentedLog
from persistent.messaging.log.folder import LogFolder
from persistent.messaging.log.segments import SoFar
from persistent.messaging.log.tails import OpenTail, PutTail, last_mark, take_over
from persistent.storage import LocalStorage, MemoryStorage
from persistent.testing.faults import DEATHS, AskingStorage, FaultyStorage, Killed, Once, Operations
from tests.messaging.log.logs import KINDS, Hooked, place, values


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


def test_a_takeover_that_was_overtaken_seals_nothing(tmp_path: Path) -> None:
    """It would seal what the writer behind it is adding to: what that is told from then on would be lost."""
    storage, other = Hooked(tmp_path / "log"), SegmentedLog(tmp_path / "log")
    SegmentedLog(tmp_path / "log").writer()
    told = []

    def overtake() -> None:
        told.append(other.writer())
        told[0].append(b"one")

    def claimed() -> None:
        storage.before["list", "o"] = overtake

    storage.before["put", "c"] = claimed
    with pytest.raises(Fenced):
        SegmentedLog(storage).writer()
    for number in range(3):
        told[0].append(b"%d" % number)
    told[0].close()
    assert values(other) == [b"one", b"0", b"1", b"2"]


@pytest.mark.parametrize("late", [b"", b"late"])
def test_nobody_seals_the_segment_of_a_new_writer(late: bytes, tmp_path: Path) -> None:
    """Of three: the first has an empty segment, which the second is about to seal when the third takes over."""
    first = SegmentedLog(tmp_path / "log").writer()
    storage, third = Hooked(tmp_path / "log"), SegmentedLog(tmp_path / "log")
    told = []

    def overtake() -> None:
        told.append(third.writer())
        told[0].append(b"one")

    def claimed() -> None:
        storage.before["put", "s"] = overtake
        if late:
            with pytest.raises(Fenced):
                SegmentedLog(tmp_path / "log").writer()
                first.append(late)

    storage.before["put", "c"] = claimed
    with suppress(Fenced):
        SegmentedLog(storage).writer().append(b"second")
    told[0].append(b"two")
    told[0].close()
    assert [one for one in values(third) if one != late] == [b"one", b"two"]


def test_an_end_that_comes_late_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an empty segment would take the place of the segment in which another has written since."""
    log, told, refuse_fenced = SegmentedLog(tmp_path / "log"), [], OpenTail._refuse_fenced
    first = log.writer()

    def looked(tail: OpenTail) -> None:
        refuse_fenced(tail)
        if not told:
            told.append(log.writer())
            told[0].append(b"one")

    monkeypatch.setattr(OpenTail, "_refuse_fenced", looked)
    with pytest.raises(Fenced):
        first.end()
    told[0].append(b"two")
    told[0].close()
    assert values(log) == [b"one", b"two"] and not log.ends().ended


def test_a_segment_that_is_sealed_during_a_takeover_is_found(tmp_path: Path) -> None:
    """Open at the first look and sealed at the second, it would be in neither, and its positions be given again."""
    storage = Hooked(tmp_path / "log")
    first = SegmentedLog(storage, segment_bytes=1_024).writer()
    first.append(bytes(2_000))
    assert first.append(b"one").segment == 2
    at_seal, go_on = threading.Event(), threading.Event()
    storage.before["rename", "o"] = lambda: (at_seal.set(), go_on.wait(60))
    closing = threading.Thread(target=first.close)
    closing.start()
    at_seal.wait(60)
    second = Hooked(tmp_path / "log")

    def claimed() -> None:
        # The first look is for the last sealed segment.
        second.before["list", "o"] = lambda: second.before.update({("list", "o"): sealed})

    def sealed() -> None:
        go_on.set()
        closing.join(60)

    second.before["put", "c"] = claimed
    with SegmentedLog(second).writer() as adding:
        assert adding.append(b"two").segment == 3
    assert values(SegmentedLog(tmp_path / "log"))[1:] == [b"one", b"two"]


def test_a_takeover_right_behind_a_writer_that_closed_makes_no_segment(tmp_path: Path) -> None:
    """Each costs every reader a look; a job that runs each minute would have half a million of them in a year."""
    for number in range(3):
        with SegmentedLog(tmp_path / "log").writer() as adding:
            assert adding.append(b"%d" % number).segment == number + 1
    assert len(list((tmp_path / "log" / "s").iterdir())) == 3 and not list((tmp_path / "log" / "o").iterdir())


@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_writer_whose_log_is_gone_acknowledges_nothing(sync: str, tmp_path: Path) -> None:
    """It would add to a file that nobody finds: the folder was moved, deleted, or replaced by another log."""
    log = SegmentedLog(tmp_path / "log", sync=sync)
    for act in ("moved", "deleted", "replaced"):
        adding = log.writer()
        adding.append(b"one")
        shutil.move(tmp_path / "log", tmp_path / act) if act == "moved" else shutil.rmtree(tmp_path / "log")
        if act == "replaced":
            SegmentedLog(tmp_path / "log").writer().append(b"of another")
        assert not adding.is_current()
        with pytest.raises(StorageError, match="its folder was moved, deleted or replaced while this writer was open"):
            adding.append(b"two")
        adding.close()
    assert values(SegmentedLog(tmp_path / "moved")) == [b"one"]
    assert values(SegmentedLog(tmp_path / "log")) == [b"of another"]


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
