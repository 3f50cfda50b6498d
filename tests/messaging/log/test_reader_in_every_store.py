"""A reader keeps its rules in every store of offsets: LevelDB, SQLite, a folder on a disk, a folder at a URL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistent.errors import CorruptLog, StillRunning
from persistent.log import LogReader, SegmentedLog
from persistent.messaging.offsets import load_state
from persistent.offsets import LevelDbOffsets, OffsetStore, SqliteOffsets, StoredOffsets
from persistent.storage import MemoryStorage


@pytest.fixture
def log() -> SegmentedLog:
    made = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with made.writer() as adding:
        for number in range(6):
            adding.append(b"%d" % number)
    return made


@pytest.fixture(params=["leveldb", "sqlite", "disk", "URL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OffsetStore]:
    if request.param == "leveldb":
        pytest.importorskip("plyvel")
        made: OffsetStore = LevelDbOffsets(tmp_path / "offsets")
    elif request.param == "sqlite":
        made = SqliteOffsets(tmp_path / "offsets.db")
    else:
        made = StoredOffsets(tmp_path / "offsets" if request.param == "disk" else f"memory://{uuid.uuid4().hex}")
    yield made
    made.close()


def numbers(reading: LogReader) -> list[int]:
    return [int(text) for batch in reading.read() for text in batch.records.to_pylist()]


def position(store: OffsetStore) -> str:
    return load_state(store, "one")[1].position


def test_an_id_that_is_absent_begins_and_nothing_is_written_until_it_reads(
    log: SegmentedLog, store: OffsetStore
) -> None:
    """The store is made when it is needed; a look fixes no position."""
    with log.reader("one", store) as reading:
        assert reading.position == log.ends().first
    assert store.load("one") == (0, b"")
    assert numbers(log.reader("one", store)) == list(range(6))


def test_the_next_position_is_stored_at_a_clean_end(log: SegmentedLog, store: OffsetStore) -> None:
    """That of the last record would give it again; none at all, everything since the last flush."""
    with log.reader("one", store) as reading:
        batches = list(reading.read())
    assert position(store) == str(batches[-1].next)
    with log.reader("one", store) as reading:
        assert numbers(reading) == []


@pytest.mark.parametrize(("mark", "flushed", "again"), [("after", 2, [2, 3, 4, 5]), ("before", 0, [3, 4, 5])])
def test_after_a_crash_what_was_not_flushed_is_read_again_or_never(
    mark: str, flushed: int, again: list[int], log: SegmentedLog, store: OffsetStore
) -> None:
    """Marked after: at least once, from the last flush on. Marked before: at most once, whatever was flushed."""
    reading = log.reader("one", store, mark=mark, lease="1 ms")
    for number, batch in enumerate(reading.read()):
        if mark == "after" and number == flushed - 1:
            reading.mark(batch)
            reading.flush()
        if number == 2:
            break
    # Killed: nobody closes it, and its lease passes.
    assert load_state(store, "one")[1].token == 1
    passed = log.reader("one", store)
    while True:
        try:
            assert numbers(passed) == again
            break
        except StillRunning:
            continue


def test_one_reader_an_id_and_a_position_that_only_goes_forward(log: SegmentedLog, store: OffsetStore) -> None:
    """Two would store each other's positions, and go back in turns."""
    with log.reader("one", store) as first:
        batches = list(first.read())
        with pytest.raises(StillRunning):
            numbers(log.reader("one", store, initial="latest"))
        first.mark(batches[0])
        first.flush()
        assert position(store) == str(batches[-1].next)


def test_a_position_that_is_corrupt_is_no_beginning(log: SegmentedLog, store: OffsetStore) -> None:
    """All would be read again, silently."""
    assert store.swap("one", 0, b"garbage")
    with pytest.raises(CorruptLog, match="read under another id"):
        log.reader("one", store)
