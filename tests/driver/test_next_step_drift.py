"""A partition that is far ahead waits for the slowest that has something to read, which never waits."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent import (
    FileSource,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    Pipeline,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SourcePart
from persistent.connect.source import Budget, SourcePlan, SourceState, Span, Split
from persistent.driver.next_step import too_far_ahead
from persistent.driver.report import StepReport
from persistent.storage import MemoryStorage
from persistent.verify import verify, verify_source
from tests.driver.shop import Visits
from tests.few import examples
from tests.single import only
from tests.topics import Topic, TopicSource


class Shop:
    """A job with a limit to drift."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.storage, self.sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
        given = {"step_rows": 4, "max_drift": 20, **options}
        self.steps: list[Manifest] = []
        self.pipeline = Pipeline(source=source, task=Visits(), sink=self.sink, checkpoint=self.storage, **given)

    def run(self, **options: Any) -> Any:
        return self.pipeline.run(engine="embedded", on_step=self.seen, **options)

    def seen(self, step: StepReport) -> None:
        self.steps.append(Log(self.storage).read(step.id).manifest)

    def published(self) -> list[tuple[str, int, int]]:
        rows = self.sink.rows()
        return sorted((row["page"], int(row["window_start"].timestamp() * 1_000), row["value"]) for row in rows)


# -- the rule ------------------------------------------------------------------------------------------------------


def plan(*reads: str, more: tuple[str, ...] = ()) -> SourcePlan:
    return SourcePlan(tuple(Split(one, (Span(0, 0, 1),)) for one in reads), {}, {}, more=more)


def part(**largest: int) -> SourcePart:
    return SourcePart("T", tuple(largest), {}, largest=largest)


def test_the_border_is_not_ahead() -> None:
    """Exactly as far ahead as allowed is allowed."""
    parts = {"t": part(a=50, b=30, c=51)}
    found = too_far_ahead({"t": plan("a", "b", "c")}, parts, {"t": 0}, 0, 20)
    assert found == {"t": {"c"}}
    assert too_far_ahead({"t": plan("a", "b", "c")}, parts, {"t": 0}, 0, 21) == {}


def test_a_partition_with_nothing_to_read_holds_nobody_back() -> None:
    """It may stay empty for ever. One without a split of this step may have something all the same."""
    parts = {"t": part(a=90, b=30)}
    assert too_far_ahead({"t": plan("a")}, parts, {"t": 0}, 0, 20) == {}
    assert too_far_ahead({"t": plan("a", more=("b",))}, parts, {"t": 0}, 0, 20) == {"t": {"a"}}
    assert too_far_ahead({"t": plan()}, parts, {"t": 0}, 0, 20) == {}


def test_each_source_is_compared_by_its_own_clock() -> None:
    """The disorder that a source allows keeps its clock behind its timestamps."""
    parts = {"t": part(a=60), "u": part(a=50)}
    both = {"t": plan("a"), "u": plan("a")}
    assert too_far_ahead(both, parts, {"t": 0, "u": 11}, 0, 20) == {"t": {"a"}}
    assert too_far_ahead(both, parts, {"t": 1, "u": 11}, 0, 20) == {}


def test_a_partition_behind_the_clock_or_without_a_record_counts_as_being_at_the_clock() -> None:
    """Its records are late, or of a time that nobody knows: waiting for the day they come from gains nothing."""
    parts = {"t": part(a=60, b=5), "u": SourcePart("U", ("n",), {})}
    both = {"t": plan("a", "b"), "u": plan("n")}
    assert too_far_ahead(both, parts, {"t": 0, "u": 0}, 40, 20) == {}
    assert too_far_ahead(both, parts, {"t": 0, "u": 0}, 39, 20) == {"t": {"a"}}


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_the_state_does_not_hold_the_hours_of_a_fast_partition() -> None:
    """A regression of other systems: after a stop, the partition with few records is read to its end, and the state
    holds its whole backlog until the clock comes there."""

    def backlog() -> TopicSource:
        return TopicSource(Topic(slow=list(range(200)), fast=list(range(0, 200, 20))))

    def drift(shop: Shop) -> int:
        return max(only(one.sources).largest["fast"] - only(one.sources).largest["slow"] for one in shop.steps)

    free, bound = Shop(backlog(), max_drift=None), Shop(backlog())
    for shop in (free, bound):
        shop.run(end_of_input=True)
    assert bound.published() == free.published() and len(free.published()) == 30
    assert drift(free) > 150 and drift(bound) <= 20 + 2 * 20, "the limit, and the two records of a step"
    assert all(one.accounts["slow"].late == one.accounts["fast"].late == 0 for one in bound.steps)


def test_the_slowest_is_read_in_full_shares_while_others_wait() -> None:
    """Half of each step would be empty otherwise."""
    topic = Topic(a=[0, 100, 101, 102], b=[0, *range(1, 30)])
    shop = Shop(TopicSource(topic))
    shop.run()
    read = [{name: account.read for name, account in one.accounts.items()} for one in shop.steps[:3]]
    assert read == [{"a": 2, "b": 2}, {"a": 2, "b": 6}, {"a": 2, "b": 10}]
    assert shop.steps[-1].accounts["a"].read == 4, "when the other has nothing more, it is read"


def test_a_source_that_is_ahead_waits_for_another_source() -> None:
    """The positions of each are its own; one that waits is not read, and its state stays as it was."""
    fast = MemorySource([{"ts": 50 * n, "page": "fast"} for n in range(20)], max_out_of_orderness=1)
    slow = MemorySource([{"ts": n, "page": "slow"} for n in range(120)], max_out_of_orderness=1)
    shop = Shop({"fast": fast, "slow": slow})
    report = shop.run(end_of_input=True)
    steps = [(one.accounts["fast/memory"].read, one.accounts["slow/memory"].read) for one in shop.steps]
    assert steps[:3] == [(4, 4), (4, 8), (4, 12)]
    assert (report.rows, report.late) == (140, 0) and steps[-1] == (20, 120)
    assert verify(shop.storage).ok
    found = verify_source(shop.pipeline, Log(shop.storage).newest())  # type: ignore[arg-type]
    assert found.ok


def test_files_that_wait_still_hold_the_clock(tmp_path: Any) -> None:
    """A file that comes meanwhile, with times before those that were read, would be late: it is listed although nothing
    is read."""
    files = tmp_path / "in"
    files.mkdir()
    (files / "1.csv").write_text("ts,page\n" + "".join(f"{time},f\n" for time in (0, 90)))
    topic = Topic(slow=[0, 1])
    sources = {
        "files": FileSource(str(files / "*.csv"), timestamp="ts", timestamp_unit="ms"),
        "topic": TopicSource(topic),
    }
    shop = Shop(sources)
    shop.run()
    (files / "2.csv").write_text("ts,page\n" + "".join(f"{time},f\n" for time in (31, 95)))
    topic.add("slow", *range(2, 80))
    report = shop.run()
    assert report.late == 0 and report.rows == 80
    waits = [one for one in shop.steps if one.accounts["files/files"].read == 2]
    assert waits[-1].sources["topic"].positions["slow"] >= 68 and {one.clock.watermark for one in waits[1:]} == {1}


def test_a_job_never_stands() -> None:
    """However small the limit, and whatever shares the partitions have of a step."""
    topic = Topic(**{f"p{n}": list(range(n, 100, 7)) for n in range(5)}, empty=[])
    shop = Shop(TopicSource(topic), max_drift=1, step_rows=1)
    shop.run()
    assert {name: one.read for name, one in shop.steps[-1].accounts.items()} == {
        name: len(rows) for name, rows in topic.partitions.items()
    }
    assert shop.run().steps == 0


def test_the_rows_of_a_step_depend_on_the_positions_alone() -> None:
    """With ``step_rows`` another run, killed or not, has the same steps."""

    def backlog() -> Topic:
        return Topic(a=[*range(0, 300, 10)], b=[*range(60)], c=[*range(100, 130)])

    once = Shop(TopicSource(backlog()))
    once.run()
    one_by_one = Shop(TopicSource(backlog()))
    while one_by_one.pipeline.run(engine="embedded", on_step=lambda step: stop_after(one_by_one, step)).steps:
        pass
    assert [only(one.sources).positions for one in one_by_one.steps] == [
        only(one.sources).positions for one in once.steps
    ]


def stop_after(shop: Shop, step: StepReport) -> None:
    shop.seen(step)
    signal.raise_signal(signal.SIGTERM)


BACKLOGS = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 8), max_size=16), min_size=1, max_size=4
).map(lambda found: {name: running(steps) for name, steps in found.items()})


def running(steps: list[int]) -> list[int | None]:
    """Ascending timestamps with these steps between them."""
    times: list[int | None] = []
    for step in steps:
        times.append((times[-1] or 0) + step if times else step)
    return times


@settings(max_examples=examples(40), deadline=None)
@given(BACKLOGS, st.integers(1, 60), st.sampled_from([1, 3, 8, None]))
def test_any_backlog_is_counted_whole_and_none_runs_ahead(
    backlog: Mapping[str, list[int | None]], drift: int, step_rows: int | None
) -> None:
    """Each step reads only partitions that are within the limit of the slowest that it could read; and the result is
    that of plain counting."""
    shop = Shop(TopicSource(Topic(**backlog)), max_drift=drift, step_rows=step_rows)
    shop.run(end_of_input=True)
    expected: dict[tuple[str, int], int] = {}
    for name, times in backlog.items():
        for time in times:
            assert time is not None
            expected[name, time // 10 * 10] = expected.get((name, time // 10 * 10), 0) + 1
    assert shop.published() == sorted((*place, count) for place, count in expected.items())
    for before, after in pairwise(shop.steps):
        at = only(before.sources).positions
        unread = [name for name, times in backlog.items() if at.get(name, 0) < len(times)]
        clock = {name: max(only(before.sources).largest.get(name, 0), before.clock.watermark) for name in unread}
        for name in unread:
            is_read = only(after.sources).positions[name] > at.get(name, 0)
            assert not is_read or clock[name] - min(clock.values()) <= drift


# -- plans of sources --------------------------------------------------------------------------------------------------


def test_a_source_reads_nothing_of_a_partition_that_is_ahead() -> None:
    """Its position stays, and the clock waits for what is left there."""
    rows = [{"ts": time, "page": "a"} for time in (30, 10, 20)]
    source = MemorySource(rows)
    whole = source.plan(SourceState({}), Budget(2))
    assert whole.unread == {"memory"}
    waits = source.plan(SourceState({"memory": (0, 0)}, whole.recorded), Budget(2, ahead=frozenset({"memory"})))
    assert (waits.splits, waits.end, waits.cap) == ((), {"memory": (0, 0)}, {"memory": 10})
    topic = TopicSource(Topic(a=[1, 2, 3], b=[4, 5, 6], c=[7]))
    plan = topic.plan(SourceState({}), Budget(4, ahead=frozenset({"b"})))
    assert {one.partition for one in plan.splits} == {"a", "c"} and plan.end == {"a": 3, "b": 0, "c": 1}
    assert plan.unread == {"a", "b", "c"} and plan.cap.keys() == {"a", "b", "c"}
    tiny = topic.plan(SourceState({}), Budget(1))
    assert tiny.unread == {"a", "b", "c"}, "also what a small step leaves out"


@pytest.mark.parametrize("value", [0, -1, "far", 1.5])
def test_a_limit_that_makes_no_sense_is_refused(value: Any) -> None:
    """At zero, two partitions of one time would take turns by the millisecond."""
    with pytest.raises(InvalidPipeline, match="max_drift"):
        Shop(TopicSource(Topic(a=[1])), max_drift=value)
