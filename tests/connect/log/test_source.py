"""A log as a source: the contract of sources, and what only a log can meet."""

from __future__ import annotations

import json
import pickle
import random
import uuid
from os import truncate
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    InvalidPipeline,
    LogSource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RetentionGap,
    SegmentedLog,
    SourceChanged,
    SourceError,
)
from persistent.connect.source import Budget, SourceState
from persistent.log import LogPosition
from persistent.storage import LocalStorage, MemoryStorage
from persistent.storage.places import Reach
from persistent.testing import SourceSuite
from tests.proof.disk import SimulatedDisk, SimulatedFiles


def fill(log: SegmentedLog, numbers: range) -> None:
    """Entries of one to four records, in segments of some entries."""
    with log.writer() as adding:
        left = list(numbers)
        while left:
            taken, left = left[: 1 + left[0] % 4], left[1 + left[0] % 4 :]
            rows = [json.dumps({"n": n, "text": "x" * (n % 7)}).encode() for n in taken]
            adding.append_many(rows, [n // 3 for n in taken])


class TestLog(SourceSuite):
    """A log on a local disk, and one that grows."""

    @pytest.fixture(autouse=True)
    def _made(self, tmp_path: Path) -> None:
        self.made = SegmentedLog(tmp_path / "log", segment_bytes=1_024)
        fill(self.made, range(40))

    def source(self) -> LogSource:
        return LogSource(self.made.storage.url)

    def append(self) -> None:
        begin = self.made.ends().next_number
        fill(self.made, range(begin, begin + 7))


class TestCutStore(SourceSuite):
    """A log in memory whose beginning is gone, of bytes."""

    @pytest.fixture(autouse=True)
    def _made(self) -> None:
        self.made = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
        fill(self.made, range(40))
        self.made.truncate(self.made.position_of(17))

    def source(self) -> LogSource:
        return LogSource(self.made, format="bytes")


@pytest.fixture
def log() -> SegmentedLog:
    made = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    fill(made, range(30))
    return made


def planned(source: LogSource, state: SourceState | None = None, rows: int = 100) -> Any:
    return source.plan(state or SourceState({}), Budget(rows))


def read(source: LogSource, plan: Any) -> list[int]:
    return [
        row["n"]
        for split in plan.splits
        for records in source.read(split, plan.recorded)
        for row in records.batch.to_pylist()
    ]


def test_the_time_of_the_log_is_a_column(log: SegmentedLog) -> None:
    """It is the event time where no other is said."""
    source = LogSource(log)
    plan = planned(source)
    (records,) = source.read(plan.splits[0], plan.recorded)
    assert records.timestamps.tolist() == [n // 3 for n in range(30)] and records.offsets.tolist() == list(range(30))
    assert records.batch.schema.names == ["n", "text", "_timestamp"]
    timed = LogSource(log, timestamp="n", timestamp_unit="s")
    (records,) = timed.read(plan.splits[0], planned(timed).recorded)
    assert records.timestamps.tolist() == [1_000 * n for n in range(30)]


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("latest", 30), (4, 12), ("1970-01-01T00:00:00.009Z", 27)]
)
def test_a_new_checkpoint_begins_where_it_is_told(log: SegmentedLog, start: Any, first: int) -> None:
    """By the time of the log, inclusively."""
    source = LogSource(log, start=start, schema={"n": "int64"})
    assert read(source, planned(source)) == list(range(first, 30))


def test_a_gap_is_told_or_counted(log: SegmentedLog) -> None:
    """Records that were cut off before they were read are lost, and somebody must know."""
    state = SourceState({"log": 5}, planned(LogSource(log)).recorded)
    log.truncate(log.position_of(9))
    with pytest.raises(RetentionGap, match="4 offsets were deleted before they were read"):
        planned(LogSource(log), state)
    for on_gap, first in (("earliest", 9), ("latest", 30)):
        source = LogSource(log, on_gap=on_gap)
        plan = planned(source, state)
        assert read(source, plan) == list(range(first, 30)) and plan.skipped == {"log": first - 5}


def test_what_is_cut_off_under_a_plan_is_planned_again(log: SegmentedLog) -> None:
    """The plan was never committed: what it would have read is a gap."""
    source = LogSource(log, on_gap="earliest")
    plan = planned(source)
    assert not source.has_forgotten(plan.splits, plan.recorded)
    log.truncate(log.position_of(9))
    with pytest.raises(RetentionGap, match="The next run plans the step again"):
        read(source, plan)
    assert source.has_forgotten(plan.splits, plan.recorded)
    assert not LogSource(log).has_forgotten(plan.splits, plan.recorded)


def test_another_log_is_not_read_on(log: SegmentedLog) -> None:
    """It has other records at the same positions."""
    source = LogSource(log)
    plan = planned(source)
    log.storage.clear()  # type: ignore[attr-defined]
    with pytest.raises(SourceChanged, match="this one is missing"):
        LogSource(log.storage).confirm(plan.recorded)
    other = SegmentedLog(log.storage)
    fill(other, range(50))
    for act in (lambda one: planned(one, SourceState(plan.end, plan.recorded)), lambda one: read(one, plan)):
        with pytest.raises(SourceChanged, match="the checkpoint has read another log there"):
            act(LogSource(other))
    assert LogSource(other).from_clock(plan.recorded, 4).positions == {"log": 12}


def test_a_log_that_moved_is_read_on(tmp_path: Path) -> None:
    """Its id tells that it is the same one."""
    fill(SegmentedLog(tmp_path / "one"), range(9))
    source = LogSource(tmp_path / "one")
    plan = planned(source, rows=4)
    (tmp_path / "one").rename(tmp_path / "two")
    moved = LogSource(tmp_path / "two")
    assert read(moved, planned(moved, SourceState(plan.end, plan.recorded))) == [4, 5, 6, 7, 8]


def test_what_a_loss_of_power_hides_was_read_all_the_same() -> None:
    """The checkpoint has counted it, and the next writer shows it again."""
    calls = SimulatedFiles(SimulatedDisk())
    log = SegmentedLog(LocalStorage("/log", disk=calls))
    adding = log.writer()
    for n in range(5):
        adding.append(json.dumps({"n": n}).encode(), time=0)
    state = SourceState(planned(LogSource(log)).end, planned(LogSource(log)).recorded)
    hidden = 0
    for disk in calls.disk.survivors(random.Random(0), 50):
        left = SegmentedLog(LocalStorage("/log", disk=SimulatedFiles(disk)))
        hidden += left.ends().next_number < 5
        plan = planned(LogSource(left), state)
        assert plan.end == {"log": 5} and not plan.splits
        fill(left, range(5, 7))
        assert read(LogSource(left), planned(LogSource(left), state)) == [5, 6]
    assert hidden


@pytest.mark.parametrize("lost", ["committed", "planned"])
def test_records_under_numbers_that_were_read_are_not_passed_over(lost: str, tmp_path: Path) -> None:
    """The power took what was not synced, and others have its numbers: the first of them would count as read."""
    log = SegmentedLog(tmp_path / "log", sync="never")
    adding = log.writer()
    sizes = []
    for n in range(10):
        adding.append(json.dumps({"n": n}).encode(), time=0)
        (left,) = (tmp_path / "log" / "o").iterdir()
        sizes.append(left.stat().st_size)
    plan = planned(LogSource(log))
    left.chmod(0o600)
    truncate(left, sizes[4])
    fill(log, range(5, 13))
    state = SourceState(plan.end, plan.recorded)
    source = LogSource(log)
    for _ in range(2):
        with pytest.raises(SourceChanged, match="record 9 is no longer the one that was read"):
            source.confirm(plan.recorded) if lost == "planned" else planned(source, state)
    earlier = {name: value for name, value in plan.recorded.items() if name != "last"}
    again = planned(LogSource(log), SourceState(plan.end, earlier))
    assert read(source, again) == [10, 11, 12] and again.recorded["last"][0] == 12
    assert planned(source, SourceState({"log": 7}, plan.recorded)).end == {"log": 13}


def test_what_was_read_and_cut_off_is_not_missed(log: SegmentedLog) -> None:
    """Retention takes what has been read: that is what it is for."""
    plan = planned(LogSource(log))
    log.truncate(LogPosition(10**6, 0, 0))
    fill(log, range(30, 33))
    assert read(LogSource(log), planned(LogSource(log), SourceState(plan.end, plan.recorded))) == [30, 31, 32]


def test_a_step_that_was_planned_is_read_though_its_end_is_hidden() -> None:
    """The loss of power came between plan and commit: the run would fail until somebody opens the log to write."""
    calls = SimulatedFiles(SimulatedDisk())
    log = SegmentedLog(LocalStorage("/log", disk=calls))
    adding = log.writer()
    for n in (0, 4):
        adding.append_many([json.dumps({"n": one}).encode() for one in range(n, n + 4)], [0] * 4)
    first = planned(LogSource(log), rows=6)
    second = planned(LogSource(log), SourceState(first.end, first.recorded))
    hidden = 0
    for disk in calls.disk.survivors(random.Random(0), 50):
        left = SegmentedLog(LocalStorage("/log", disk=SimulatedFiles(disk)))
        hidden += left.ends().next_number == 4
        assert read(LogSource(left), second) == [6, 7]
    assert hidden


def test_what_is_no_json_is_a_dead_letter() -> None:
    """It costs only itself."""
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as adding:
        adding.append_many([b'{"n": 1}', b"no", b'{"n": 3}'], [1, 2, 3])
    source = LogSource(log)
    plan = planned(source)
    (records,) = source.read(plan.splits[0], plan.recorded)
    assert records.offsets.tolist() == [0, 2] and records.timestamps.tolist() == [1, 3]
    assert [(dead.offset, dead.data) for dead in records.dead] == [(1, b"no")]


def test_it_says_what_it_cannot_do(log: SegmentedLog) -> None:
    """Each would show late, as no rows or as wrong ones."""
    with pytest.raises(InvalidPipeline, match="'avro' is not known"):
        LogSource(log, format="avro")
    with pytest.raises(InvalidPipeline, match="start"):
        LogSource(log, start="yesterday")
    with pytest.raises(InvalidPipeline, match="_timestamp is a field of the records, and a column"):
        planned(LogSource(log, schema={"_timestamp": "int64"}))
    plan = planned(LogSource(log))
    with pytest.raises(InvalidPipeline, match="format='bytes': the checkpoint was made with format='json'"):
        planned(LogSource(log, format="bytes"), SourceState(plan.end, plan.recorded))
    empty = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with empty.writer() as adding:
        adding.append(b"")
    with pytest.raises(SourceError, match="Give schema="):
        planned(LogSource(empty))


def test_a_log_that_is_not_there_is_missed_or_waited_for(tmp_path: Path, log: SegmentedLog) -> None:
    """A mistyped path would be a log without records: no rows, and no error."""
    source = LogSource(tmp_path / "typo")
    with pytest.raises(SourceError, match=r"LogSource\('.*typo'\): no log exists; check the path.* follow=True"):
        planned(source)
    assert not (tmp_path / "typo").exists()
    waiting = source.plan(SourceState({}), Budget(10), follow=True)
    assert not waiting.splits and "typo'): no log exists yet" in source.warnings()[0]
    # Who has waited for it and has not seen it does no better without.
    with pytest.raises(SourceError, match="no log exists"):
        planned(source, SourceState(waiting.end, waiting.recorded))
    made = SegmentedLog(tmp_path / "typo")
    with made.writer():
        # One without records is there.
        assert not planned(source).splits and source.warnings() == ()
    fill(made, range(3))
    plan = planned(source, SourceState(waiting.end, waiting.recorded))
    assert read(source, plan) == [0, 1, 2]
    # One that was read and is gone is told as before.
    with pytest.raises(SourceChanged, match="this one is missing"):
        planned(LogSource(tmp_path / "other"), SourceState(plan.end, plan.recorded))


def test_who_can_reach_it(tmp_path: Path, log: SegmentedLog) -> None:
    """A cluster would find an empty folder on each of its machines."""
    assert LogSource(tmp_path).reach is Reach.MACHINE and LogSource(log).reach is Reach.PROCESS
    assert pickle.loads(pickle.dumps(LogSource(tmp_path))).log.storage.url == str(tmp_path)


class Counting(PersistentTask):
    """Counts."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def test_a_job_goes_on_and_says_how_far(log: SegmentedLog) -> None:
    """New records, a retention and an end are all there is to a log."""
    source = LogSource(log)
    job = Pipeline(source=source, task=Counting(), checkpoint=f"memory://{uuid.uuid4()}", step_rows=8)
    job.run(engine="embedded")
    log.truncate(LogPosition(10**6, 0, 0))
    fill(log, range(30, 37))
    report = job.run(engine="embedded")
    assert report.rows == 7 and job.state().to_pylist()[0]["value"] == 37
    assert source.reached(SourceState({"log": 37}, {"begins": {"log": 30}})).is_all


@pytest.mark.parametrize(("on_gap", "lost"), [("earliest", 4), ("latest", 25)])
def test_the_report_names_what_was_skipped(log: SegmentedLog, on_gap: str, lost: int, tmp_path: Path) -> None:
    """Whoever does not look at the metrics would believe that every record has counted."""

    class Counting(PersistentTask):
        key = ()

        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    def run(**options: Any) -> Any:
        source = LogSource(log, on_gap=on_gap, schema={"n": "int64"})
        pipeline = Pipeline(source=source, task=Counting(), checkpoint=tmp_path / "checkpoint", step_rows=5)
        return pipeline.run(engine="embedded", **options)

    with pytest.raises(ZeroDivisionError):
        run(on_step=lambda step: 1 // 0)
    log.truncate(log.position_of(9))
    (text,) = [text for text in run().notes if "skipped" in text]
    assert f"{lost} positions of source 'log' were skipped and count nowhere" in text and f"{lost} of log" in text
    assert not [text for text in run().notes if "skipped" in text], "told once, by the run that skipped them"
