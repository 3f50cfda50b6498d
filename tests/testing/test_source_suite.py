"""Our sources pass the suite that a user's own has to pass, and each of its rules is broken by a source that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from persistent import FileSource, MemorySource
from persistent.connect.source import Budget, Records, Source, SourcePlan, SourceState, Split
from persistent.testing import SourceSuite
from tests.topics import Topic, TopicSource


class TestMemorySource(SourceSuite):
    @pytest.fixture(autouse=True)
    def _rows(self) -> None:
        self.rows: list[Any] = [{"ts": 7 * n % 30, "n": n} for n in range(23)] + [{"ts": None, "n": 1}, "no mapping"]

    def source(self) -> Source:
        return MemorySource(self.rows)

    def append(self) -> None:
        self.rows += [{"ts": n, "n": n} for n in range(4)]


class _Files(SourceSuite):
    format = "jsonl"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "in"
        self.folder.mkdir()
        for number in range(3):
            self.append_as(f"a{number}")

    def append_as(self, name: str) -> None:
        table = pa.table({"ts": pa.array([5, 3, 9, 4], pa.int64()), "page": ["a", "b", "c", name]})
        path = self.folder / f"{name}.{self.format}"
        if self.format == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, path, row_group_size=2)
            return
        lines = [f'{{"ts":{row["ts"]},"page":"{row["page"]}"}}' for row in table.to_pylist()] + ["nonsense"]
        if self.format == "csv":
            lines = ["ts,page", *(f"{row['ts']},{row['page']}" for row in table.to_pylist()), "x,y,z"]
        path.write_text("\n".join(lines) + "\n")

    def source(self) -> Source:
        return FileSource(self.folder, timestamp="ts", timestamp_unit="ms")

    def append(self) -> None:
        self.append_as("b0")


class TestJsonLines(_Files):
    """JSON lines."""


class TestCsv(_Files):
    format = "csv"


class TestParquet(_Files):
    format = "parquet"


class TestTopic(SourceSuite):
    @pytest.fixture(autouse=True)
    def _topic(self) -> None:
        self.topic = Topic(a=[1, None, 3, 8, 4, 7], b=[2, 2, None, 5], c=[9, 6, 1, 4])

    def source(self) -> Source:
        return TopicSource(self.topic)

    def append(self) -> None:
        self.topic.add("b", 11, None, 12)
        self.topic.add("d", 3)


class _Broken(TopicSource):
    """A topic that keeps the contract, until a rule is broken in a subclass."""

    made = 0

    def __init__(self) -> None:
        super().__init__(Topic(a=[1, 2, 3, 8, 4, 7], b=[2, 2, 3, 5, 9, 9]))
        type(self).made += 1


class Forgetful(_Broken):
    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self.reads = getattr(self, "reads", 0) + 1
        for records in super().read(split, recorded):
            yield replace(records, timestamps=records.timestamps + self.reads)


class Overlapping(_Broken):
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        plan = super().plan(state, budget, follow=follow)
        return replace(plan, splits=plan.splits * (1 + (budget.splits == 3)))


class Lossy(_Broken):
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        plan = super().plan(state, budget, follow=follow)
        return replace(plan, splits=plan.splits[: 4 if budget.rows > 10 else 1])


class Beyond(_Broken):
    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for records in super().read(split, recorded):
            yield replace(records, offsets=records.offsets + 1)


class Greedy(_Broken):
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        return super().plan(state, replace(budget, rows=budget.rows * 2), follow=follow)


class OtherColumns(_Broken):
    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return pa.schema([("ts", pa.int64())])


class Fickle(_Broken):
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        plan = super().plan(state, budget, follow=follow)
        return replace(plan, splits=plan.splits[:: 1 if type(self).made % 2 else -1])


class Silent(_Broken):
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        return replace(super().plan(state, budget, follow=follow), joins=())


class Attached(_Broken):
    """Remembers where it is, and does not ask the checkpoint."""

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        seen = getattr(self, "seen", dict.fromkeys(state.positions, 0))
        plan = super().plan(replace(state, positions=seen), budget, follow=follow)
        self.seen = dict(plan.end)
        return plan


class Deaf(TopicSource):
    """Knows the records that were there when it was first made."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.plans.plan(SourceState({}), Budget(1), topic.kept(), self._begin)

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        return (
            replace(super().plan(state, budget, follow=follow), splits=())
            if state.positions
            else super().plan(state, budget, follow=follow)
        )


class Hasty(_Broken):
    """Lets the watermark go on without partition b."""

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        plan = super().plan(state, budget, follow=follow)
        return replace(plan, cap={"a": None}, idle=("b",))


class Late(_Broken):
    def position_at(self, partition: str, clock: int) -> int:
        return super().position_at(partition, clock) + 1


class Moody(_Broken):
    """Its second life begins at the end."""

    lives = 0

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        self.start = "earliest" if type(self).made <= 2 else "latest"
        return super().plan(state, budget, follow=follow)


RULES: Sequence[tuple[type[_Broken], Callable[[Any], None], str]] = (
    (Forgetful, SourceSuite.test_the_same_positions_give_the_same_records, "other records when they were read again"),
    (Overlapping, SourceSuite.test_every_record_is_read_once_whatever_the_steps, "were read twice"),
    (Lossy, SourceSuite.test_every_record_is_read_once_whatever_the_steps, "missing"),
    (Beyond, SourceSuite.test_a_step_reads_what_lies_between_its_positions, "was read by a step from"),
    (Greedy, SourceSuite.test_a_step_is_as_large_as_its_budget_says, "an exact budget of 3 rows read 6"),
    (OtherColumns, SourceSuite.test_batches_have_the_columns_of_the_schema, "instead of ts: int64"),
    (Fickle, SourceSuite.test_a_plan_is_the_same_when_it_is_made_again, "with Budget"),
    (Silent, SourceSuite.test_positions_never_go_back_and_partitions_never_leave, "joins"),
    (Attached, SourceSuite.test_a_source_goes_on_from_what_a_checkpoint_holds, "from {"),
    (Hasty, SourceSuite.test_the_watermark_waits_for_what_can_be_read, "b has records to read"),
    (Late, SourceSuite.test_a_position_of_a_time_comes_before_its_records, "behind"),
    (Moody, SourceSuite.test_a_job_counts_every_record_once_whatever_kills_it, "killed at storage operation"),
)


@pytest.mark.parametrize(("broken", "rule", "says"), RULES, ids=[broken.__name__ for broken, _, _ in RULES])
def test_a_broken_source_is_found(broken: type[_Broken], rule: Callable[[Any], None], says: str) -> None:
    """A suite that lets it pass promises what is not there."""
    suite = SourceSuite()
    suite.source = broken  # type: ignore[method-assign]
    broken.made = 0
    with pytest.raises(AssertionError, match=says):
        rule(suite)


def test_a_split_without_an_end_is_found() -> None:
    """It reads up to today's end, each time another."""
    topic = Topic(a=list(range(12)))

    class Open(TopicSource):
        def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
            (span,) = split.spans
            rows = len(topic.partitions[split.partition])
            yield from super().read(structs.replace(split, spans=(structs.replace(span, stop=rows),)), recorded)

    class Suite(SourceSuite):
        def source(self) -> Source:
            return Open(topic)

        def append(self) -> None:
            topic.add("a", 50)

    with pytest.raises(AssertionError, match="arrived after it"):
        Suite().test_a_plan_reads_the_same_once_more_has_come()


def test_a_source_that_never_sees_what_comes_is_found() -> None:
    """The suite appends, and looks whether it is read."""
    topic = Topic(a=list(range(12)))

    class Suite(SourceSuite):
        def source(self) -> Source:
            return Deaf(topic)

        def append(self) -> None:
            topic.add("a", 50)

    with pytest.raises(AssertionError):
        Suite().test_new_records_are_read_and_old_ones_stay()


def test_a_suite_without_a_source_says_so() -> None:
    """It would pass with nothing tested."""
    with pytest.raises(NotImplementedError, match="needs source"):
        SourceSuite().test_the_same_positions_give_the_same_records()
    empty = SourceSuite()
    empty.source = lambda: MemorySource([{"ts": 1}])  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="at least ten"):
        empty.test_the_same_positions_give_the_same_records()
