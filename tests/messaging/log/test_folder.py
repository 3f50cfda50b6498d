"""A folder says what there is of a log, and refuses what is none."""

from __future__ import annotations

import uuid

import pytest

from persistent.codec.documents import encode_document
from persistent.errors import CorruptLog, InvalidPipeline, NewerFormat
from persistent.messaging.log.folder import Cut, LogFolder, open_name, sealed_name
from persistent.messaging.log.frames import LogPosition
from persistent.storage import LocalStorage, MemoryStorage


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(f"log-{uuid.uuid4().hex}")


@pytest.fixture
def folder(storage: MemoryStorage) -> LogFolder:
    made = LogFolder(storage)
    made.make()
    return made


def test_a_log_is_made_once(storage: MemoryStorage, folder: LogFolder) -> None:
    """Two that make it at the same time would each write to a log of its own."""
    again = LogFolder(storage)
    assert again.find() and again.id == folder.id and not again.appends
    again.make()
    assert again.id == folder.id and not LogFolder(MemoryStorage(uuid.uuid4().hex)).find()


def test_another_folder_is_refused(storage: MemoryStorage) -> None:
    """A log in the folder of a checkpoint would lie among its files."""
    storage.write("FORMAT", b"")
    with pytest.raises(InvalidPipeline, match="files that are not of a log"):
        LogFolder(storage).find()


def test_a_newer_format_is_named(storage: MemoryStorage) -> None:
    """An older release would read it in its own way."""
    storage.write("c/" + "0" * 20, encode_document({"appends": False, "format": 2, "log": "x"}))
    with pytest.raises(NewerFormat, match="the log has format 2, and this release reads 1"):
        LogFolder(storage).find()


def test_a_log_without_its_first_claim_is_damaged(storage: MemoryStorage, folder: LogFolder) -> None:
    """It would be made anew, beside what there is."""
    folder.claim()
    storage.delete("c/" + "0" * 20)
    with pytest.raises(CorruptLog, match="it names the log"):
        LogFolder(storage).find()


def test_a_log_of_a_local_disk_is_not_written_by_other_means(tmp_path: object) -> None:
    """Two ways of writing do not fence each other."""
    storage = LocalStorage(str(tmp_path))
    LogFolder(storage).make()

    class Other:
        url, list, read = storage.url, staticmethod(storage.list), staticmethod(storage.read)

    with pytest.raises(InvalidPipeline, match="made on a local disk"):
        LogFolder(Other()).find()  # type: ignore[arg-type]


def test_a_claim_fences_all_before(folder: LogFolder) -> None:
    """Two writers would both be told that they wrote."""
    first = folder.claim()
    assert not folder.is_fenced(first)
    second = folder.claim()
    assert (first.epoch, second.epoch) == (1, 2) and folder.is_fenced(first) and not folder.is_fenced(second)
    assert folder.epoch() == 2


def test_the_open_segment_is_the_one_behind_the_sealed(storage: MemoryStorage, folder: LogFolder) -> None:
    """One that was sealed is there under both names for a moment; one of a fenced writer was never acknowledged."""
    storage.write(sealed_name(1), b"")
    storage.write(open_name(1, 3), b"")
    assert folder.layout().open is None
    storage.write(open_name(2, 1), b"")
    storage.write(open_name(2, 2), b"")
    layout = folder.layout()
    assert (layout.open, layout.sealed, layout.segments, layout.newest) == ((2, 2), range(1, 2), range(1, 3), 1)
    assert folder.leftovers(3, 3) == [open_name(2, 1), open_name(2, 2)] and folder.leftovers(2, 4) == [open_name(1, 3)]


def test_a_missing_segment_is_damage(storage: MemoryStorage, folder: LogFolder) -> None:
    """Readers would pass over it."""
    for number in (1, 2, 4):
        storage.write(sealed_name(number), b"")
    with pytest.raises(CorruptLog, match="segment 3 is missing, but segment 4 exists"):
        folder.layout()


def test_the_highest_cut_counts_and_the_newest_segment_stays(storage: MemoryStorage, folder: LogFolder) -> None:
    """What is cut off never comes back; and the next writer must know the number and the time to go on from."""
    for number in (1, 2, 3):
        storage.write(sealed_name(number), b"")
    folder.cut(Cut(20, LogPosition(3, 0, 0)))
    folder.cut(Cut(9, LogPosition(2, 5, 1)))
    assert storage.list("s") == [sealed_name(3)[2:]] and len(storage.list("t")) == 1
    assert folder.layout().cut == Cut(20, LogPosition(3, 0, 0))
    folder.cut(Cut(30, LogPosition(4, 0, 0)))
    layout = folder.layout()
    assert storage.list("s") == [sealed_name(3)[2:]] and (layout.segments, layout.newest) == (range(4, 4), 3)


def test_the_newest_segment_is_missed_where_anything_is_behind_it(storage: MemoryStorage, folder: LogFolder) -> None:
    """Reading would end before it without an error, and the next writer would give its numbers away again."""
    storage.write(sealed_name(1), b"")
    storage.write(open_name(3, 1), b"")
    with pytest.raises(CorruptLog, match=r"segment 2 is missing, but segment 3 exists\. .*read on from position 3-0-0"):
        folder.layout()
    layout = folder.layout(3)
    assert (layout.open, layout.segments.stop) == ((3, 1), 4)


def test_what_the_last_writer_found_is_missed(storage: MemoryStorage, folder: LogFolder) -> None:
    """Without a single segment the log would look as if nothing had ever been written."""
    for number in (1, 2):
        storage.write(sealed_name(number), b"")
    folder.claim()
    for number in (1, 2):
        storage.delete(sealed_name(number))
    again = LogFolder(storage)
    again.make()
    with pytest.raises(CorruptLog, match="segment 1 is missing, but it existed before"):
        again.layout()
    storage.write("c/" + "2".zfill(20), b"damaged")
    again = LogFolder(storage)
    again.make()
    with pytest.raises(CorruptLog, match="the content of the log when its writer began"):
        again.layout()


def test_a_segment_that_is_sealed_and_cut_off_meanwhile_is_not_missed(folder: LogFolder) -> None:
    """A reader would stop for damage that is none."""
    storage = folder.storage
    storage.write(sealed_name(1), b"")
    listed = storage.list
    hurried = []

    def busy(name: str) -> list[str]:
        found = listed(name)
        if name == "s" and not hurried:
            hurried.append(name)
            for number in (2, 3, 4):
                storage.write(sealed_name(number), b"")
            folder.cut(Cut(9, LogPosition(4, 0, 0)))
        return found

    storage.list = busy  # type: ignore[method-assign]
    assert folder.layout().segments == range(4, 5) and hurried


def test_the_cut_of_the_highest_position_counts(storage: MemoryStorage, folder: LogFolder) -> None:
    """Entries with a mark alone have no records: the position goes on and the number does not."""
    storage.write(sealed_name(1), b"")
    for entry in (9, 10):
        folder.cut(Cut(5, LogPosition(1, entry, 0)))
    assert folder.layout().cut == Cut(5, LogPosition(1, 10, 0)) and len(storage.list("t")) == 1
