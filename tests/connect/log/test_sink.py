"""A log as a sink: the contract of sinks on both kinds of stores, and what only a log can meet."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Sum
from persistent import (
    Fenced,
    InvalidPipeline,
    LogSink,
    LogSource,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SegmentedLog,
    SinkMismatch,
)
from persistent.connect.log import sink as sink_log
from persistent.connect.sink import Claim
from persistent.messaging.log import writer
from persistent.storage import LocalStorage, MemoryStorage, Storage
from persistent.storage.local import OsDisk
from persistent.testing import SinkSuite
from persistent.testing.faults import AskingStorage
from persistent.testing.sink_driver import OnOperation, SinkDriver


class SteppedDisk(OsDisk):
    """Takes a step before each change."""

    def __init__(self, step: OnOperation) -> None:
        self._step = step

    def write(self, descriptor: int, data: memoryview) -> int:
        self._step("write")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        # Only a loss of power needs it, and here processes die.
        self._step("fsync")

    def link(self, old: str, new: str) -> None:
        self._step(f"link {new}")
        super().link(old, new)


class SteppedStorage(AskingStorage):
    """Takes a step before each request, and travels without it."""

    def __reduce__(self) -> Any:
        return lambda inner: inner, (self.inner,)


def rows(log: SegmentedLog) -> list[dict[str, Any]]:
    return [json.loads(text) for batch in log.read() for text in batch.records.to_pylist()]


class TestLocalDisk(SinkSuite):
    """A log that grows."""

    kills_one_in = 7

    def make(self, place: Any, step: OnOperation) -> LogSink:
        return LogSink(LocalStorage(place / "log", disk=SteppedDisk(step)))

    def rows(self, place: Any) -> list[dict[str, Any]]:
        return rows(SegmentedLog(place / "log"))


class TestStore(SinkSuite):
    """A log of whole segments."""

    kills_one_in = 3

    def place(self, folder: Path) -> Storage:
        return MemoryStorage(f"log-sink-{folder}")

    def make(self, place: Storage, step: OnOperation) -> LogSink:
        if step.__name__ == "_no_step":
            return LogSink(place)
        return LogSink(SteppedStorage(place, lambda verb, name: step(f"{verb} {name}")))

    def rows(self, place: Storage) -> list[dict[str, Any]]:
        return rows(SegmentedLog(place))


def storage() -> MemoryStorage:
    return MemoryStorage(uuid.uuid4().hex)


def nothing(what: str) -> None:
    """No step."""


def driver(place: Storage, **claim: Any) -> SinkDriver:
    made = SinkDriver(LogSink(place), storage(), nothing, **claim)
    made.claim()
    return made


def test_a_batch_is_one_entry() -> None:
    """A reader between two of its rows would take it for whole."""
    place = storage()
    first = driver(place)
    first.publish(1, 0, first.stage(1, [1, 2]) + first.stage(1, [3]))
    (batch,) = [batch for batch in SegmentedLog(place).read() if len(batch)]
    assert [json.loads(text)["value"] for text in batch.records.to_pylist()] == [1, 2, 3]
    assert {json.loads(text)["revision"] for text in batch.records.to_pylist()} == {1}
    assert json.loads(batch.mark) == {"job": first.job, "number": 1}
    first.sink.close()  # type: ignore[union-attr]


def test_drivers_that_take_turns_agree() -> None:
    """Each fences the other, and looks again at what is there before it decides."""
    place = storage()
    one, other = driver(place), driver(place)
    for number in range(1, 7):
        publishing = one if number % 2 else other
        staged = publishing.stage(number, [number])
        publishing.publish(number, number - 1, staged)
    with pytest.raises(Fenced, match="is at batch 6, beyond our 3"):
        one.publish(3, 2, one.stage(3, [3]))
    assert [row["value"] for row in rows(SegmentedLog(place))] == [1, 2, 3, 4, 5, 6]


def test_a_rollback_appends_and_takes_nothing_back() -> None:
    """A log has readers that have seen it; a driver that slept must still not add to it."""
    place = storage()
    first = driver(place)
    first.publish(1, 0, first.stage(1, [1]))
    owed = first.batch(2, 1, first.stage(2, [2]))
    asleep = first.stage(3, [3])
    assert "retract" not in first.sink.abilities
    from persistent.connect.sink import Retreat

    back = Retreat(first.job, 5, None, (owed,), owed.key, 5, owed.url)
    for _ in range(2):
        LogSink(place).undo(back)
    with pytest.raises(Fenced):
        first.publish(3, 2, asleep)
    last = driver(place)
    last.publish(6, 5, last.stage(6, [6]))
    assert [row["value"] for row in rows(SegmentedLog(place))] == [1, 2, 6]
    assert LogSink(place).newest(first.job) == 6 and LogSink(place).newest("b" * 32) == -1


def test_a_log_of_another_program_is_refused() -> None:
    """Its records would stand among the results."""
    place = storage()
    with SegmentedLog(place).writer() as adding:
        adding.append_many([b"x"], mark=b"[1]")
    with pytest.raises(SinkMismatch, match="the mark of this log is not that of a job"):
        LogSink(place).claim(Claim("a" * 32))


def test_a_log_that_is_deleted_under_way_is_missed() -> None:
    """It would begin again, without what was published."""
    place = storage()
    first = driver(place)
    first.publish(1, 0, first.stage(1, [1]))
    staged = first.stage(2, [2])
    place.clear()
    with pytest.raises(SinkMismatch, match="was deleted during the run"):
        SinkDriver(LogSink(place), storage(), nothing).sink.deliver(first.batch(2, 1, staged))  # type: ignore[union-attr]


def test_a_row_that_is_too_large_is_refused_where_it_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the commit nobody could leave it out."""
    monkeypatch.setattr(sink_log, "RECORD_BYTES_MAX", 1_000)
    monkeypatch.setattr(writer, "RECORD_BYTES_MAX", 1_000)
    sink = LogSink(storage())
    sink.check(pa.table({"text": ["a" * 800]}), ())
    with pytest.raises(InvalidPipeline, match="row 1 is a record of 911 bytes, and a log accepts at most 1,000"):
        sink.check(pa.table({"text": ["a", "a" * 900]}), ())


class Totals(PersistentTask):
    """Totals by page."""

    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def test_one_job_feeds_another(tmp_path: Path) -> None:
    """Jobs that must not wait for each other share a log."""
    log = SegmentedLog(tmp_path / "log")
    source = MemorySource([{"ts": n, "page": "ab"[n % 2], "n": n} for n in range(10)])
    first = Pipeline(source=source, task=Totals(), sink=LogSink(log), checkpoint=storage())
    first.run(engine="embedded", end_of_input=True)

    class Sums(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, message.value["value"])

    second = Pipeline(source=LogSource(tmp_path / "log"), task=Sums(), checkpoint=storage())
    second.run(engine="embedded")
    assert sorted((row["page"], row["value"]) for row in second.state().to_pylist()) == [("a", 20), ("b", 25)]


@pytest.mark.parametrize("sync", ["never", 3, "1 s"])
def test_a_log_that_loses_what_it_has_published_is_refused(sync: Any, tmp_path: Path) -> None:
    """The checkpoint counts its outputs as published, and nobody would write them again."""
    with pytest.raises(InvalidPipeline, match="Omit its sync="):
        LogSink(SegmentedLog(tmp_path, sync=sync))


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_more_than_an_entry_holds_is_several(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused after the commit, and every run from then on failed alike."""
    monkeypatch.setattr(writer, "CONTENT_BYTES_MAX", 1_000)
    place = LocalStorage(tmp_path / "log") if kind == "file" else storage()
    first = driver(place)
    staged = first.stage(1, list(range(25))) + first.stage(1, list(range(25, 40)))
    for fails in (2, 1, 3):
        sink = LogSink(place)
        count, real = iter(range(100)), writer.LogWriter.append_many

        def dies(self: Any, *args: Any, count: Any = count, fails: int = fails, real: Any = real, **words: Any) -> Any:
            if next(count) == fails:
                raise KeyboardInterrupt
            return real(self, *args, **words)

        with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
            dying.setattr(writer.LogWriter, "append_many", dies)
            sink.deliver(first.batch(1, 0, staged))
        assert sink.newest(first.job) == 0
    for _ in range(2):
        LogSink(place).deliver(first.batch(1, 0, staged))
    assert [row["value"] for row in rows(SegmentedLog(place))] == list(range(40))
    assert LogSink(place).newest(first.job) == 1
    again = first.stage(2, [99])
    first.publish(2, 1, again)
    assert [row["value"] for row in rows(SegmentedLog(place))] == [*range(40), 99]


def test_a_sink_does_not_write_where_a_source_reads_through_a_link(tmp_path: Path) -> None:
    """The results would be counted as input, again and again: the run never ends."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    source = LogSource(tmp_path / "logs" / "a", format="bytes")
    with pytest.raises(InvalidPipeline, match="writes where"):
        Pipeline(
            source=source,
            task=Totals(),
            sink=LogSink(tmp_path / "link" / "a"),
            checkpoint=f"memory://{uuid.uuid4()}",
        ).run(engine="embedded")
    assert LogSink(storage()).address.startswith("log memory://")
