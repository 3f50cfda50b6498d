"""A writer tells what is written only when it is, and is the only one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.errors import Fenced, InvalidPipeline, Refused, StorageError
from persistent.log import BEGINNING, SegmentedLog
from persistent.messaging.log import writer
from persistent.storage import LocalStorage, MemoryStorage
from persistent.storage.local import OsDisk
from tests.messaging.log.logs import KINDS, place, positions, values


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request.param, tmp_path)


class Disk(OsDisk):
    """Counts syncs of files; ``pause`` is waited for in each, and ``fails`` raises."""

    def __init__(self) -> None:
        self.syncs = 0
        self.pause: threading.Event | None = None
        self.fails = False

    def fsync(self, descriptor: int) -> None:
        if "/o/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            self.syncs += 1
            if self.pause is not None:
                self.pause.wait(60)
            if self.fails:
                raise OSError(5, "Input/output error")
        super().fsync(descriptor)


def test_an_entry_is_there_when_its_append_returns(url: str) -> None:
    """Who acknowledges a message then loses it otherwise."""
    log = SegmentedLog(url)
    with log.writer() as adding:
        assert values(log) == []
        for number in range(3):
            position = adding.append(b"%d" % number)
            assert values(log, position) == [b"%d" % number]
    assert values(SegmentedLog(url)) == [b"0", b"1", b"2"]


def test_positions_rise_whatever_happens_to_segments(url: str) -> None:
    """A position that is there twice names two records."""
    log = SegmentedLog(url, segment_bytes=1_024)
    told = []
    for _ in range(3):
        with log.writer() as adding:
            told += [adding.append(bytes(300)) for _ in range(5)]
    assert told == positions(log) == sorted(set(told)) and told[-1].segment > 3


def test_threads_share_a_sync(tmp_path: Path) -> None:
    """A log would take as many messages a second as its disk takes syncs."""
    disk = Disk()
    log = SegmentedLog(LocalStorage(tmp_path, disk=disk))
    adding = log.writer()
    disk.pause = threading.Event()
    before = disk.syncs
    told: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: told.append(adding.append(b"%d" % n)), daemon=True)  # type: ignore[misc]
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    while len(adding._waiting) < 19:
        assert any(thread.is_alive() for thread in threads)
    disk.pause.set()
    for thread in threads:
        thread.join(60)
    assert disk.syncs - before == 2 and sorted(told) == positions(log) and len(set(told)) == 20


@pytest.mark.parametrize(("sync", "syncs"), [("always", 7), (3, 2), ("never", 0), ("1 h", 0)])
def test_a_policy_says_how_often_it_syncs(sync: Any, syncs: int, tmp_path: Path) -> None:
    """A promise that is paid too often, or not at all."""
    disk = Disk()
    log = SegmentedLog(LocalStorage(tmp_path, disk=disk), sync=sync)
    adding = log.writer()
    before = disk.syncs
    for number in range(7):
        adding.append(b"%d" % number)
    assert disk.syncs - before == syncs and len(values(log)) == 7
    adding.sync()
    assert disk.syncs - before == (syncs if sync == "always" else syncs + 1)
    adding.close()


def test_with_a_time_the_last_entry_is_synced_too(tmp_path: Path) -> None:
    """Nothing comes after it that would bring it to the disk."""
    disk = Disk()
    adding = SegmentedLog(LocalStorage(tmp_path, disk=disk), sync="1 ms").writer()
    before = disk.syncs
    adding.append(b"last")
    for _ in range(6_000):
        if disk.syncs > before:
            break
        threading.Event().wait(0.01)
    assert disk.syncs > before
    adding.close()


def test_some_at_once_are_put_together_where_nothing_grows() -> None:
    """On S3 each acknowledged entry is a file."""
    storage = MemoryStorage(f"puts-{id(object())}")
    storage.clear()
    log = SegmentedLog(storage)
    adding = log.writer()
    adding.append_many([b"0", b"1", b"2"])
    assert len(storage.list("s")) == 1 and values(log) == [b"0", b"1", b"2"]
    adding.append(b"3")
    assert len(storage.list("s")) == 2 and values(log) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("sync", [3, "never", "1 s"])
def test_what_is_acknowledged_is_put_where_nothing_grows(sync: Any) -> None:
    """It would be in the memory of the writer alone, and gone with its process."""
    storage = MemoryStorage(f"acknowledged-{sync}")
    storage.clear()
    with pytest.raises(InvalidPipeline, match=r"would be lost with the process\. Omit sync="):
        SegmentedLog(storage, sync=sync).writer()
    assert not storage.list("s") and storage.list("c") == ["0" * 20]


def test_retention_comes_while_a_writer_lives(url: str) -> None:
    """On a store each flush seals a segment, and none of them is full: the disk would run full of them."""
    log = SegmentedLog(url, segment_bytes=1_024, keep_bytes=4_000)
    adding = log.writer()
    for _ in range(60):
        adding.append(bytes(50))
    ends = log.ends()
    assert 4 <= ends.next_number - ends.first_number <= 5_500 / 50 * 0.5 and ends.first_number


def test_retention_comes_for_many_small_segments() -> None:
    """A few bytes at a time, it would take years until the first is cut off."""
    storage = MemoryStorage("retention-of-small-segments")
    storage.clear()
    adding = SegmentedLog(storage, keep_bytes=1).writer()
    for _ in range(writer._ROLLS_MAX):
        adding.append(b"x")
    assert len(storage.list("s")) == 1


def test_a_second_writer_fences_the_first(url: str) -> None:
    """Both would write, each over what the other was told."""
    log = SegmentedLog(url)
    first = log.writer()
    first.append(b"one")
    second = log.writer()
    second.append(b"two")
    with pytest.raises(Fenced, match="another writer has taken over this log"):
        first.append(b"three")
    with pytest.raises(StorageError, match=r"has failed before .Fenced.*Open a new one"):
        first.append(b"four")
    first.close()
    second.append(b"five")
    assert values(log) == [b"one", b"two", b"five"]


def test_times_never_go_back(url: str) -> None:
    """The index by time would pass over records."""
    log = SegmentedLog(url)
    with log.writer() as adding:
        adding.append_many([b"a", b"b"], [5, 5])
        for times in ([4], [7, 6], [-1]):
            with pytest.raises(Refused, match="never go back\\. Nothing of this entry was written"):
                adding.append_many([b"x"] * len(times), times)
        adding.append(b"c", time=5)
        adding.append(b"now")
        adding.append(b"now")
    times = np.concatenate([batch.times for batch in log.read()])
    assert times[:3].tolist() == [5, 5, 5] and (np.diff(times) >= 0).all() and values(log)[:3] == [b"a", b"b", b"c"]
    with log.writer() as adding, pytest.raises(Refused, match="comes after"):
        adding.append(b"x", time=5)


def test_a_clock_that_goes_back_holds_the_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is set back now and then, and a log must not stop for it."""
    now = iter([100, 90, 110])
    monkeypatch.setattr(writer, "wall_ms", lambda: next(now))
    log = SegmentedLog(url)
    with log.writer() as adding:
        for text in (b"a", b"b", b"c"):
            adding.append(text)
    assert [int(batch.times[0]) for batch in log.read()] == [100, 100, 110]


def test_what_no_log_takes_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be found when it is read."""
    monkeypatch.setattr(writer, "RECORD_BYTES_MAX", 10)
    monkeypatch.setattr(writer, "CONTENT_BYTES_MAX", 100)
    with SegmentedLog(url).writer() as adding:
        for records, said in (
            ([], "at least one record"),
            ([b"a", None], "record 1 is None"),
            ([b"a", b"b" * 11], "record 1 has 11 bytes, and a log accepts at most 10"),
            ([b"a"] * 9, "an entry holds at most 100 bytes"),
        ):
            with pytest.raises(Refused, match=said):
                adding.append_many(records)
        with pytest.raises(Refused, match="2 records have 1 times"):
            adding.append_many([b"a", b"b"], [1])
        assert adding.append(b"b" * 10).entry == 0


def test_an_entry_is_there_whole(url: str) -> None:
    """Rows and mark in one entry are there once, or not at all."""
    log = SegmentedLog(url)
    with log.writer() as adding:
        adding.append_many(pa.array([b"a", b"b", b"c"], pa.binary())[1:], mark=b"m1")
        adding.append_many([], mark=b"m2")
        assert (adding.mark, adding.number) == (b"m2", 2)
    assert [(batch.records.to_pylist(), batch.mark) for batch in log.read()] == [([b"b", b"c"], b"m1"), ([], b"m2")]


def test_a_failed_sync_ends_the_writer(tmp_path: Path) -> None:
    """The kernel forgets what it could not write, and reports the next sync as done."""
    disk = Disk()
    log = SegmentedLog(LocalStorage(tmp_path, disk=disk))
    adding = log.writer()
    adding.append(b"one")
    disk.fails = True
    with pytest.raises(StorageError, match="The device fails"):
        adding.append(b"two")
    disk.fails = False
    with pytest.raises(StorageError, match="the fate of what it was adding is unknown\\. Open"):
        adding.append(b"three")
    assert values(log) == [b"one"]
    adding.close()
    with log.writer() as again:
        again.append(b"four")
    assert values(log)[0] == b"one" and values(log)[-1] == b"four" and b"three" not in values(log)


def test_the_end_of_a_log_is_its_end(url: str) -> None:
    """Followers leave, and nobody would read what comes."""
    log = SegmentedLog(url)
    adding = log.writer()
    adding.append(b"last")
    adding.end()
    with pytest.raises(Refused, match="it has ended the log"):
        adding.append(b"more")
    adding.close()
    with pytest.raises(Refused, match="the log has ended: nothing can be added"):
        log.writer()
    assert values(log) == [b"last"] and log.ends().ended


def test_a_closed_writer_takes_nothing(url: str) -> None:
    """It would be acknowledged, and nowhere."""
    adding = SegmentedLog(url).writer()
    adding.close()
    adding.close()
    for act in (lambda: adding.append(b"x"), adding.sync, adding.end):
        with pytest.raises(Refused, match="it was closed"):
            act()


def test_a_forked_process_has_no_writer(tmp_path: Path) -> None:
    """Both have one file, one epoch and one number to give: entries would be there twice, or in one another."""
    log = SegmentedLog(tmp_path / "log")
    with log.writer() as adding:
        adding.append(b"one")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for act in (lambda: adding.append(b"child"), adding.sync, adding.end):
                try:
                    act()
                    said.append("nothing")
                except Refused as error:
                    said.append(str(error))
            adding.close()
            os.write(write, "\n".join([*said, str(adding.is_current())]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        said = os.read(read, 10_000).decode().split("\n")
        assert all("this writer belongs to process" in one for one in said[:3]) and said[3] == "False"
        adding.append(b"two")
    assert values(SegmentedLog(tmp_path / "log")) == [b"one", b"two"]


def test_what_was_written_is_acknowledged_though_the_writer_has_ended_since(url: str) -> None:
    """Refused says that nothing was written: who tries again would have the record twice."""
    log = SegmentedLog(url)
    adding = log.writer()
    flush = adding._flush

    def flushed(group: Any, **options: Any) -> None:
        flush(group, **options)
        # Another thread closes the writer before this one has the lock again.
        adding._ended_by = "it was closed"

    adding._flush = flushed  # type: ignore[method-assign]
    assert adding.append(b"one") == BEGINNING and values(log) == [b"one"]
    with pytest.raises(Refused, match="it was closed"):
        adding.append(b"two")


@pytest.mark.parametrize(
    "times",
    [
        [1_000, -(2**63)],
        np.array(["2020-01-01", "NaT"], "datetime64[ms]"),
        [1_000.5, 2_000.0],
        [1_000, None],
        np.array([1_000, 2**63], np.uint64),
        [1_000, 2**70],
    ],
)
def test_what_is_no_time_is_refused(times: Any, url: str) -> None:
    """A time that is not a number passes for the smallest one, and the index by time is wrong from then on."""
    log = SegmentedLog(url)
    with log.writer() as adding:
        adding.append(b"one", time=1_000)
        with pytest.raises(Refused, match="Nothing of this entry was written"):
            adding.append_many([b"two", b"three"], times)
        adding.append_many([b"four"], np.array([1_000], np.int32))
    assert values(log) == [b"one", b"four"] and log.number_at(1_000) == 0


def test_a_retention_that_fails_costs_no_append(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The entry is written: who is told otherwise appends it again. The next segment tries once more."""
    log = SegmentedLog(url, segment_bytes=1_024, keep_bytes=1)
    with log.writer() as adding:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log._folder, "cut", lambda cut: raised(StorageError("no space")))
            for number in range(120):
                adding.append(b"%d" % number * 100)
        assert "retention has failed, so the log keeps more than it should: no space" in caplog.text
        assert len(values(log)) == 120
        for number in range(120):
            adding.append(b"%d" % number * 100)
    assert len(values(log)) < 120


def raised(error: Exception) -> None:
    raise error
