"""Partitions join, forget and fall silent: no record is read twice, and none is passed over without being counted."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Count
from persistent import MemorySink, NonWindowState, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account
from persistent.connect import offsets
from persistent.connect.offsets import Kept, OffsetPlans, require_skew
from persistent.connect.source import Budget, SourcePlan, SourceState, Span, Split
from persistent.driver import step_effects
from persistent.errors import OtherJob, RetentionGap, SourceChanged
from persistent.operations import restart, rollback
from persistent.storage import MemoryStorage
from persistent.verify import verify, verify_source
from tests.faults import Killed
from tests.single import only
from tests.topics import Topic, TopicSource


class ByPage(PersistentTask):
    """Records by page, which is the partition."""

    key = "page"

    def __init__(self, state: Any = None) -> None:
        self.state = state or NonWindowState(Count())

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def job(source: TopicSource, storage: MemoryStorage | None = None, **options: Any) -> Pipeline:
    storage = storage or MemoryStorage(uuid.uuid4().hex)
    return Pipeline(source=source, checkpoint=storage, **{"task": ByPage(), "step_rows": 4, **options})


def counted(pipeline: Pipeline) -> dict[str, int]:
    return {row["page"]: row["value"] for row in pipeline.state().to_pylist()}


def newest(pipeline: Pipeline) -> Manifest:
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    return entry.manifest


def test_every_partition_is_read_once_whatever_the_steps() -> None:
    """A partition that is not there when the job begins joins it later; its position is its own."""
    topic = Topic(a=[1, None, 3, 4, None], b=[2])
    source = TopicSource(topic)
    one = job(source)
    one.run(engine="embedded")
    assert counted(one) == {"a": 3, "b": 1}
    assert only(newest(one).sources).positions == {"a": 5, "b": 1}
    topic.add("c", 5, 6)
    topic.add("a", 7)
    one.run(engine="embedded")
    assert counted(one) == {"a": 4, "b": 1, "c": 2}
    manifest = newest(one)
    assert only(manifest.sources).partitions == ("a", "b", "c")
    assert {name: account.read for name, account in manifest.accounts.items()} == {"a": 4, "b": 1, "c": 2}
    assert one.run(engine="embedded").steps == 0
    assert verify(one.storage).ok
    assert verify_source(one, Log(one.storage).newest()).ok  # type: ignore[arg-type]


def test_state_is_read_without_the_source() -> None:
    """A dashboard must not need the broker: which partitions there are stands in the checkpoint."""
    topic = Topic(a=[1, 2])
    one = job(TopicSource(topic))
    one.run(engine="embedded")
    there = Topic()
    assert counted(job(TopicSource(there), one.storage)) == {"a": 2}  # type: ignore[arg-type]


def test_a_source_with_other_positions_is_another_job() -> None:
    """An offset is no place in a list of files."""

    class Other(TopicSource):
        codec = "ordinal-offset/1"

    topic = Topic(a=[1])
    one = job(TopicSource(topic))
    one.run(engine="embedded")
    with pytest.raises(OtherJob, match="its positions: offset/1, this pipeline's: ordinal-offset/1"):
        job(Other(topic), one.storage).run(engine="embedded")  # type: ignore[arg-type]


def test_a_gap_stops_the_job_unless_it_may_be_passed_over() -> None:
    """Records that were deleted before they were read are a wrong number, and nobody saw it."""
    topic = Topic(a=[1, 2, 3], b=[1])
    one = job(TopicSource(topic))
    one.run(engine="embedded")
    topic.add("a", 4, 5, 6, 7)
    topic.first["a"] = 5
    with pytest.raises(RetentionGap, match=r"topic t, partition a: the next offset to read is 3, .* is 5: 2 off"):
        one.run(engine="embedded")
    assert counted(one) == {"a": 3, "b": 1}
    on = job(TopicSource(topic, on_gap="earliest"), one.storage)  # type: ignore[arg-type]
    on.run(engine="embedded")
    assert counted(on) == {"a": 5, "b": 1}
    assert newest(on).accounts["a"].skipped == 2 and newest(on).accounts["a"].read == 5
    assert newest(on).accounts["b"] == Account(1, 1, mix=newest(on).accounts["b"].mix)
    assert verify(on.storage).ok
    found = verify_source(on, Log(on.storage).newest())  # type: ignore[arg-type]
    assert found.ok and "retention has deleted records" in str(found.findings[0])


def test_what_is_passed_over_is_counted_even_if_nothing_is_left() -> None:
    """The gap is committed with the position, or the next driver would count it once more."""
    topic = Topic(a=[1])
    source = TopicSource(topic, on_gap="latest")
    one = job(source)
    one.run(engine="embedded")
    topic.add("a", 2, 3, 4)
    topic.first["a"] = 3
    assert one.run(engine="embedded").steps == 1
    assert newest(one).accounts["a"].skipped == 3 and only(newest(one).sources).positions == {"a": 4}
    assert one.run(engine="embedded").steps == 0
    topic.add("a", 9)
    one.run(engine="embedded")
    assert counted(one) == {"a": 2}


def test_a_partition_that_joins_has_a_gap_too() -> None:
    """Its first records may be gone before the job has seen it."""
    topic = Topic(a=[1])
    one = job(TopicSource(topic))
    one.run(engine="embedded")
    topic.add("b", 2, 3)
    topic.first["b"] = 1
    with pytest.raises(RetentionGap, match="partition b: the next offset to read is 0"):
        one.run(engine="embedded")


def test_where_the_job_begins_is_no_gap() -> None:
    """What was deleted before the job was there was never promised to it."""
    topic = Topic(a=[1, 2, 3], b=[1, 2])
    topic.first["a"] = 2
    one = job(TopicSource(topic))
    one.run(engine="embedded")
    assert counted(one) == {"a": 1, "b": 2} and newest(one).accounts["a"].skipped == 0
    late = job(TopicSource(topic, start="latest"))
    late.run(engine="embedded")
    topic.add("a", 7)
    late.run(engine="embedded")
    assert counted(late) == {"a": 1}
    assert verify_source(late, Log(late.storage).newest()).ok  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["gone", "shorter"])
def test_another_topic_of_the_same_name_is_refused(change: str) -> None:
    """Its offsets mean other records."""
    one = job(TopicSource(Topic(a=[1, 2], b=[1])))
    one.run(engine="embedded")
    other = Topic(a=[1, 2]) if change == "gone" else Topic(a=[1], b=[1])
    says = (
        "has read partition b, which does not exist"
        if change == "gone"
        else "up to offset 2, but the partition ends at 1"
    )
    with pytest.raises(SourceChanged, match=says):
        job(TopicSource(other), one.storage).run(engine="embedded")  # type: ignore[arg-type]


def test_a_plan_whose_records_are_gone_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can never be run; with ``step_rows`` too the job would be stuck for ever."""
    topic = Topic(a=[1, 2])
    one = job(TopicSource(topic, on_gap="earliest"))
    one.run(engine="embedded")
    topic.add("a", 3, 4, 5, 6, 7)
    monkeypatch.setattr(step_effects, "_run_items", _die)
    with pytest.raises(Killed):
        one.run(engine="embedded")
    monkeypatch.undo()
    topic.first["a"] = 4
    with pytest.raises(RetentionGap):
        job(TopicSource(topic), one.storage).run(engine="embedded")  # type: ignore[arg-type]
    one.run(engine="embedded")
    assert counted(one) == {"a": 5} and newest(one).accounts["a"].skipped == 2
    assert verify(one.storage).ok


def _die(*arguments: Any) -> None:
    raise Killed("before the map")


def test_the_watermark_waits_for_a_silent_partition_until_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """One quiet partition would hold every window open; one that is only behind must."""
    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    topic = Topic(a=[5, 25], b=[7], c=[])
    sink = MemorySink()
    source = TopicSource(topic, idle_timeout_ms=1_000)
    one = job(source, task=ByPage(WindowState(Count(), tumbling(10))), sink=sink)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 0
    now[0] += 0.5
    topic.add("a", 31)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 0 and only(newest(one).sources).idle == ()
    now[0] += 0.6
    one.run(engine="embedded")
    assert only(newest(one).sources).idle == ("b", "c")
    assert newest(one).clock.watermark == 31
    assert len(sink.rows()) == 3
    topic.add("b", 12, 33)
    one.run(engine="embedded")
    assert newest(one).accounts["b"].late == 1 and newest(one).clock.watermark == 31
    assert only(newest(one).sources).idle == ("c",)


def test_time_before_this_driver_is_not_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog that waits at the broker after a long stop would be late as a whole."""
    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    topic = Topic(a=[5], b=[6])
    task = ByPage(WindowState(Count(), tumbling(10)))
    one = job(TopicSource(topic, idle_timeout_ms=1_000), task=task, discard_closed=True)
    one.run(engine="embedded")
    now[0] += 10_000
    topic.add("a", 95)
    again = job(TopicSource(topic, idle_timeout_ms=1_000), one.storage, task=task, discard_closed=True)  # type: ignore[arg-type]
    again.run(engine="embedded")
    assert newest(again).clock.watermark == 6 and only(newest(again).sources).idle == ()


def test_a_partition_that_joins_counts_once_it_has_a_record() -> None:
    """Empty, it would hold every window open; it never sets the clock back."""
    topic = Topic(a=[50])
    one = job(TopicSource(topic), task=ByPage(WindowState(Count(), tumbling(10))), discard_closed=True)
    one.run(engine="embedded")
    topic.add("b")
    topic.add("a", 61)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 61 and only(newest(one).sources).idle == ("b",)
    topic.add("b", 70)
    topic.add("a", 85)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 70 and only(newest(one).sources).idle == ()
    topic.add("a", 99)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 70
    topic.add("b", 20, 90)
    one.run(engine="embedded")
    assert newest(one).clock.watermark == 90 and newest(one).accounts["b"].late == 1


def test_a_partition_that_joins_with_a_backlog_is_waited_for() -> None:
    """Its records were there before the clock moved: none of them is late."""
    topic = Topic(a=[50])
    one = job(TopicSource(topic), task=ByPage(WindowState(Count(), tumbling(10))), discard_closed=True, step_rows=8)
    one.run(engine="embedded")
    topic.add("b", *range(50, 150))
    topic.add("a", *range(150, 160))
    one.run(engine="embedded")
    assert newest(one).accounts["b"].late == 0 and newest(one).accounts["b"].processed == 100


def test_what_a_transaction_holds_back_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind an open transaction are there, and cannot be read yet: idle, the partition would lose them."""
    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    topic = Topic(a=[5, 102], b=[7, 8, 9])
    topic.held["b"] = 2
    source = TopicSource(topic, idle_timeout_ms=1_000)
    one = job(source, task=ByPage(WindowState(Count(), tumbling(10))), discard_closed=True)
    one.run(engine="embedded")
    now[0] += 5
    one.run(engine="embedded")
    assert only(newest(one).sources).idle in ((), ("a",)) and newest(one).clock.watermark == 7
    topic.held.clear()
    one.run(engine="embedded")
    assert newest(one).accounts["b"].late == 0


def test_a_rollback_to_the_beginning_begins_where_the_job_began() -> None:
    """A new plan would begin where ``start=`` says now: at another end, or behind what was deleted since."""
    topic = Topic(a=[1, 2, 3])
    late = job(TopicSource(topic, start="latest"))
    late.run(engine="embedded")
    topic.add("a", 4, 5, 6)
    late.run(engine="embedded")
    rollback(late.storage, 0, outputs="again")
    late.run(engine="embedded")
    assert counted(late) == {"a": 3} and verify(late.storage).ok
    early = job(TopicSource(topic))
    early.run(engine="embedded")
    rollback(early.storage, 0, outputs="again")
    topic.first["a"] = 2
    with pytest.raises(RetentionGap, match="the next offset to read is 0"):
        early.run(engine="embedded")


def test_a_restart_sees_the_topic_as_it_is_now() -> None:
    """It may have other partitions; and what was deleted since the clock is no part of it."""
    state = NonWindowState(Count(), interval_ms=10, history="1 h")
    topic = Topic(a=[5, 15, 25, 35], b=[6, 16, 26, 36])
    one = job(TopicSource(topic), task=ByPage(state))
    one.run(engine="embedded")
    fewer = job(TopicSource(Topic(a=[5, 15, 25, 26, 35, 36])), one.storage, task=ByPage(state))  # type: ignore[arg-type]
    restart(fewer, 20, outputs="again")
    fewer.run(engine="embedded")
    assert only(newest(fewer).sources).partitions == ("a",) and sum(counted(fewer).values()) == 8
    assert verify_source(fewer, Log(fewer.storage).newest()).ok  # type: ignore[arg-type]
    gone = Topic(a=[5, 15, 25, 35])
    gone.first["a"] = 3
    with pytest.raises(RetentionGap, match="the first kept record of partition a is not before"):
        restart(job(TopicSource(gone), one.storage, task=ByPage(state)), 20, outputs="again")  # type: ignore[arg-type]
    passing = job(TopicSource(gone, on_gap="earliest"), one.storage, task=ByPage(state))  # type: ignore[arg-type]
    restart(passing, 20, outputs="again")


def test_what_is_passed_over_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A run that says "nothing new" while thousands of records are gone misleads."""
    topic = Topic(a=[1])
    one = job(TopicSource(topic, on_gap="latest"))
    one.run(engine="embedded")
    topic.add("a", 2, 3)
    topic.first["a"] = 2
    with caplog.at_level(logging.WARNING):
        one.run(engine="embedded")
    assert "partition a: skipping 2 offsets" in caplog.text


def test_the_input_has_not_ended_while_a_transaction_holds_records_back(caplog: pytest.LogCaptureFixture) -> None:
    """Its windows would close, and its records be late when it commits."""
    topic = Topic(a=[1, 2, 61_000], b=[3])
    topic.held["a"] = 1
    sink = MemorySink()
    one = job(TopicSource(topic), task=ByPage(WindowState(Count(), tumbling("1 min"))), sink=sink)
    with caplog.at_level(logging.WARNING):
        report = one.run(engine="embedded", end_of_input=True)
    assert (report.rows, report.open_windows, sink.rows()) == (3, 1, [])
    assert "behind an open transaction: the windows stay open. Run again with end_of_input=True" in caplog.text
    topic.held.clear()
    topic.add("a", 59_000)
    report = one.run(engine="embedded", end_of_input=True)
    assert (report.rows, report.late, report.open_windows) == (2, 0, 0)
    assert sorted((row["page"], row["value"]) for row in sink.rows()) == [("a", 1), ("a", 3), ("b", 1)]


@pytest.mark.parametrize("on_gap", ["fail", "earliest"])
def test_records_that_were_read_may_be_deleted(on_gap: str, caplog: pytest.LogCaptureFixture) -> None:
    """To say that they were not read would send somebody looking for a loss that there was not."""
    topic = Topic(a=[1, 2, 3])
    one = job(TopicSource(topic, on_gap=on_gap))
    one.run(engine="embedded")
    topic.first["a"] = 2
    entry = Log(one.storage).newest()
    assert entry is not None
    with caplog.at_level(logging.WARNING):
        found = verify_source(one, entry)
    assert found.ok and "its retention has deleted records" in str(found.findings)
    assert "before they were read" not in f"{found.findings}{caplog.text}"


def test_a_restart_reads_from_the_position_of_the_clock() -> None:
    """A topic of a year would be read from its beginning, to count almost all of it as duplicates."""
    topic = Topic(a=[5, 15, 25, 35], b=[6, 16, 26, 36])
    state = NonWindowState(Count(), interval_ms=10, history="1 h")
    one = job(TopicSource(topic), task=ByPage(state))
    one.run(engine="embedded")
    moved = Topic(a=[5, 25, 15, 35], b=[None, 6, None, 16, 26, 36, 46])
    again = job(TopicSource(moved), one.storage, task=ByPage(state))  # type: ignore[arg-type]
    restart(again, 20, outputs="again")
    assert only(newest(again).sources).positions == {"a": 1, "b": 4}
    again.run(engine="embedded")
    assert counted(again) == {"a": 4, "b": 5}
    assert {name: one.duplicate for name, one in newest(again).accounts.items()} == {"a": 1, "b": 0}
    assert only(newest(again).sources).recorded["begins"] == {"a": 1, "b": 4}


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 60_000), min_size=1),
    st.integers(1, 100_000),
    st.integers(1, 8),
)
def test_a_plan_reads_what_its_budget_allows_and_each_offset_once(
    sizes: dict[str, int], rows: int, workers: int
) -> None:
    """An offset in two splits counts twice; one in none is lost when the position passes it."""
    plans = OffsetPlans("t", on_gap="fail", idle_timeout_ms=None)
    kept = {name: Kept(3, 3 + size) for name, size in sizes.items()}
    plan = plans.plan(SourceState({}), Budget(rows, splits=workers), kept, lambda new: dict.fromkeys(new, 3))
    assert sum(plan.end.values()) - 3 * len(sizes) == min(rows, sum(sizes.values())) == _rows(plan)
    for name in sizes:
        pieces = [(split.spans[0].start, split.spans[0].stop) for split in plan.splits if split.partition == name]
        assert all(start < stop for start, stop in pieces)
        assert [3, *(stop for _, stop in pieces)] == [*(start for start, _ in pieces), plan.end[name]]
    assert len(plan.splits) <= workers + len(sizes)


def _rows(plan: SourcePlan) -> int:
    return sum(span.stop - span.start for split in plan.splits for span in split.spans)


def test_what_is_another_source_by_now_is_not_committed() -> None:
    """A topic that is deleted and made again between the plan and the commit has answered with other records."""

    class Replaced(TopicSource):
        def confirm(self, recorded: Any) -> None:
            raise SourceChanged("made again")

    one = job(Replaced(Topic(a=[1, 2])))
    with pytest.raises(SourceChanged, match="made again"):
        one.run(engine="embedded")
    assert newest(one).base == 0 and counted(one) == {}


def test_only_a_gap_that_may_be_passed_over_replaces_a_plan() -> None:
    """Where a gap is an error, a new plan would only hide which records are gone."""
    splits = [Split("a", (Span(0, 3, 9),)), Split("b", (Span(0, 0, 2),))]
    for on_gap, first, forgotten in (
        ("earliest", 4, True),
        ("latest", 4, True),
        ("earliest", 3, False),
        ("fail", 4, False),
    ):
        plans = OffsetPlans("t", on_gap=on_gap, idle_timeout_ms=None)
        assert plans.has_forgotten(splits, {"a": Kept(first, 9)}) is forgotten


def test_a_source_that_was_read_begins_nowhere_else() -> None:
    """``start=`` is of a new checkpoint: a partition that comes later is read from its first record."""
    plans = OffsetPlans("t", on_gap="fail", idle_timeout_ms=None)
    plan = plans.plan(SourceState({"a": 5}), Budget(100), {"a": Kept(0, 7), "b": Kept(0, 3)}, _not_asked)
    assert [(one.partition, one.spans) for one in plan.splits] == [("a", (Span(0, 5, 7),)), ("b", (Span(0, 0, 3),))]


def _not_asked(partitions: Any) -> dict[str, int]:
    raise AssertionError("where to begin is asked once, of a new checkpoint")


def test_a_large_step_has_a_split_for_each_worker() -> None:
    """Fewer leave workers idle; a small step is not worth a second one."""
    plans = OffsetPlans("t", on_gap="fail", idle_timeout_ms=None)
    for rows, workers, splits in ((40_000, 4, 4), (40_000, 2, 2), (10_000, 4, 1), (10_001, 4, 2), (20_000, 4, 2)):
        plan = plans.plan(SourceState({}), Budget(rows, splits=workers), {"a": Kept(0, rows)}, lambda new: {"a": 0})
        assert len(plan.splits) == splits, (rows, workers)


def test_a_partition_is_idle_when_its_time_is_over_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millisecond early, its next record would be late."""
    now = [0.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    plans = OffsetPlans("t", on_gap="fail", idle_timeout_ms=2_000)
    kept, state = {"a": Kept(0, 5), "b": Kept(0, 9)}, SourceState({"a": 5, "b": 0}, largest={"a": 1, "b": 1})
    for seconds, idle in ((0.0, ()), (1.999, ()), (2.0, ("a",))):
        now[0] = seconds
        assert plans.plan(state, Budget(1), kept, _not_asked).idle == idle


@pytest.mark.parametrize(("first", "is_told"), [(0, False), (3, False), (4, True)])
def test_a_clock_whose_records_may_be_gone_is_refused_or_logged(
    first: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """``on_gap`` lets it continue, which nobody must have to guess from the result."""
    at, kept = {"0": 4}, {"0": Kept(first, 9)}
    plans = OffsetPlans("topic 't'", on_gap="earliest", idle_timeout_ms=None)
    assert plans.from_clock(kept, at, "noon") == {"begins": at, "joined": []}
    assert ("the first kept record of partition 0 is not before noon" in caplog.text) == is_told
    assert ("on_gap='earliest' continues without them" in caplog.text) == is_told
    strict = OffsetPlans("topic 't'", on_gap="fail", idle_timeout_ms=None)
    if is_told:
        with pytest.raises(RetentionGap, match=r"not before noon.* on_gap=\"earliest\" continues"):
            strict.from_clock(kept, at, "noon")
    else:
        strict.from_clock(kept, at, "noon")


def test_a_clock_at_the_beginning_of_time_is_behind_nobody() -> None:
    """There is no record before the first, so none that belongs to the clock."""
    asked: list[Split] = []
    require_skew("it", {"0": 0}, {"0": Kept(0, 5)}, (0, 0), lambda split: asked.append(split) or ())
    assert asked == []
