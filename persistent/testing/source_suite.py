"""A source suite is the set of tests that every source must pass: the same positions give the same records, every time.

    class TestOrders(SourceSuite):
        def source(self): return OrdersSource("orders.db")
        def append(self): add_ten_orders("orders.db")

pytest collects the tests of the class. Each creates its own sources over the same input.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cloudpickle
import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from monoids import Count
from persistent.checkpoint.parts import SourcePart
from persistent.codec.fields import codec_of
from persistent.connect.source import (
    NO_TIMESTAMP,
    Budget,
    Records,
    Source,
    SourcePlan,
    SourceState,
    Split,
)
from persistent.errors import RetentionGap
from persistent.pipeline import Pipeline
from persistent.state.state import NonWindowState, PersistentState
from persistent.storage.memory import MemoryStorage
from persistent.task.task import PersistentTask
from persistent.testing.faults import FaultyStorage, Killed, Operations

_BUDGETS = (
    Budget(1_000_000),
    Budget(1, splits=3),
    Budget(7, splits=2),
    Budget(3, exact=True),
    Budget(50, splits=5),
    Budget(50, splits=5, split_rows=20),
)
_STEPS_MAX = 100_000
_DEATHS = 12


@dataclass(frozen=True)
class _Read:
    """A record as a source gave it: place, time and content; ``value`` is None if the record cannot be decoded."""

    partition: str
    ordinal: int
    offset: int
    timestamp: int | None
    value: str | None


class SourceSuite:
    """Define ``source``; and ``append``, if records can be added. The input has at least ten records."""

    def source(self) -> Source:
        """A new source over the same input, as another process would create it."""
        raise NotImplementedError("a SourceSuite needs source(self), which returns a new source")

    def append(self) -> None:
        """Add some records to the input."""
        raise NotImplementedError

    def test_the_same_positions_give_the_same_records(self) -> None:
        """A step that is repeated after a crash would count other records."""
        source = self.source()
        plan = source.plan(SourceState({}), _BUDGETS[0])
        assert plan.splits, "the input has no records; give the suite at least ten"
        first = _records_of(source, plan)
        assert first == _records_of(source, plan), "the same splits gave other records when they were read again"
        pickled = pickle.loads(cloudpickle.dumps(source))
        assert first == _records_of(pickled, plan), "the same splits gave other records to a pickled source"
        assert len(first) >= 10, f"the input has {len(first)} records; give the suite at least ten"

    def test_every_record_is_read_once_whatever_the_steps(self) -> None:
        """The size of steps and the number of workers must not change a result."""
        expected: list[_Read] | None = None
        for budget in _BUDGETS:
            records = sorted((record for _, _, read in self._steps(budget) for record in read), key=_place)
            places = [_place(record) for record in records]
            twice = sorted({place for place, after in pairwise(places) if place == after})
            assert not twice, f"with {budget}, these records were read twice: {twice[:5]}"
            if expected is None:
                expected = records
            assert records == expected, f"with {budget}: {_difference(expected, records)}"

    def test_a_step_reads_what_lies_between_its_positions(self) -> None:
        """A position stands for exactly the records before it: a restart continues from there."""
        for budget in _BUDGETS:
            for state, plan, read in self._steps(budget):
                codec = codec_of(self.source())
                for record in read:
                    at = codec.of(record.ordinal, record.offset)
                    start = state.positions.get(record.partition, codec.first)
                    assert start <= at < plan.end[record.partition], (
                        f"{record} was read by a step from {start} to {plan.end[record.partition]}"
                    )

    def test_a_step_is_as_large_as_its_budget_says(self) -> None:
        """``step_rows`` promises exactly that number, and bounds the memory of a worker."""
        for _, plan, read in self._steps(Budget(3, exact=True)):
            assert len(read) <= 3, f"an exact budget of 3 rows read {len(read)}: {plan.splits}"

    def test_batches_have_the_columns_of_the_schema(self) -> None:
        """The columns that a task sees must not depend on the batch."""
        source = self.source()
        plan = source.plan(SourceState({}), _BUDGETS[0])
        schema = source.schema(plan.recorded)
        for split in plan.splits:
            for records in source.read(split, plan.recorded):
                assert records.batch.schema.equals(schema), f"{records.batch.schema} instead of {schema}"
                rows = records.batch.num_rows
                assert len(records.timestamps) == len(records.offsets) == rows, (
                    "each row needs a timestamp and an offset"
                )
                assert records.timestamps.dtype == records.offsets.dtype == np.int64
                dead = {letter.offset for letter in records.dead}
                assert not dead & set(records.offsets.tolist()), (
                    "a record that cannot be decoded has the offset of another"
                )

    def test_a_plan_is_the_same_when_it_is_made_again(self) -> None:
        """Two drivers that plan the same step must read the same records."""
        for budget in _BUDGETS:
            first, second = (self.source().plan(SourceState({}), budget) for _ in range(2))
            assert (first.splits, dict(first.end)) == (second.splits, dict(second.end)), f"with {budget}"

    def test_positions_never_go_back_and_partitions_never_leave(self) -> None:
        """A checkpoint of such a step could not be committed."""
        for state, plan, _ in self._steps(Budget(4)):
            assert plan.end.keys() >= state.positions.keys(), "a partition has left"
            new = plan.end.keys() - state.positions.keys() - set(self.source().partitions())
            assert set(plan.joins) == new, f"a plan joins {sorted(plan.joins)}, but these are new: {new}"
            for partition, position in state.positions.items():
                assert position <= plan.end[partition], (
                    f"{partition} went back from {position} to {plan.end[partition]}"
                )
            assert set(plan.cap) <= plan.end.keys() and not set(plan.cap) & set(plan.idle)

    def test_a_source_goes_on_from_what_a_checkpoint_holds(self) -> None:
        """Another process, another day: only the documents of the checkpoint are left."""
        whole = sorted((record for _, _, read in self._steps(_BUDGETS[0]) for record in read), key=_place)
        before: list[_Read] = []
        for state, _, read in self._steps(Budget(5)):
            rest = [
                record
                for _, _, step_records in self._steps(_BUDGETS[0], _through_documents(self.source(), state))
                for record in step_records
            ]
            assert sorted([*before, *rest], key=_place) == whole, f"from {dict(state.positions)}"
            before += read

    def test_new_records_are_read_and_old_ones_stay(self) -> None:
        """Records that were read keep their places; new ones are read once."""
        if type(self).append is SourceSuite.append:
            return
        before = list(self._steps(_BUDGETS[0]))
        state, old = self._end(before), [record for _, _, read in before for record in read]
        source = self.source()
        self.append()
        for after in (source, self.source()):
            new = [record for _, _, read in self._steps(_BUDGETS[0], state, after) for record in read]
            assert new, "records were appended, but none was read"
            whole = sorted((record for _, _, read in self._steps(_BUDGETS[0]) for record in read), key=_place)
            assert sorted([*old, *new], key=_place) == whole, _difference(whole, sorted([*old, *new], key=_place))

    def test_a_plan_reads_the_same_once_more_has_come(self) -> None:
        """A step that is repeated later must not read records that did not exist when it was planned."""
        if type(self).append is SourceSuite.append:
            return
        source = self.source()
        plan = source.plan(SourceState({}), _BUDGETS[0])
        before = _records_of(source, plan)
        self.append()
        for reader in (source, self.source()):
            assert _records_of(reader, plan) == before, "a plan reads records that arrived after it"

    def test_the_watermark_waits_for_what_can_be_read(self) -> None:
        """If a partition with unread records is idle, or has no cap, its own records become late."""
        steps = list(self._steps(Budget(4)))
        for number, (_, plan, _) in enumerate(steps):
            waiting = {record.partition for _, _, read in steps[number + 1 :] for record in read}
            missing = sorted(waiting & plan.end.keys() - (plan.cap.keys() - set(plan.idle)))
            assert not missing, f"partition {', '.join(missing)} has records to read, but the watermark does not wait"

    def test_a_position_of_a_time_comes_before_its_records(self) -> None:
        """A restart from a clock would lose the records that it skips."""
        source = self.source()
        if not source.finds_times:
            return
        steps = list(self._steps(_BUDGETS[0]))
        read = [record for _, _, step_records in steps for record in step_records]
        times = sorted({record.timestamp for record in read if record.timestamp is not None})
        codec = codec_of(source)
        for clock in sorted({0, *times, *(time + 1 for time in times), times[-1] + 1_000_000}):
            for partition in self._end(steps).positions:
                at = source.position_at(partition, clock)
                rest = [record for record in read if record.partition == partition and (record.timestamp or 0) >= clock]
                passed = [record for record in rest if codec.of(record.ordinal, record.offset) < at]
                assert not passed, f"position_at({partition!r}, {clock}) is {at}, behind {passed[:3]}"

    def test_it_continues_at_a_clock_before_its_records(self) -> None:
        """A restart from a clock reads on from there."""
        source, steps = self.source(), list(self._steps(_BUDGETS[0]))
        codec, recorded = codec_of(source), steps[-1][1].recorded
        read = [record for _, _, step_records in steps for record in step_records]
        times = sorted({record.timestamp for record in read if record.timestamp is not None})
        for clock in (0, *times, times[-1] + 1_000_000):
            try:
                begins = source.from_clock(recorded, clock)
            except RetentionGap:
                continue
            if begins is None:
                return
            rest = [record for record in read if (record.timestamp or 0) >= clock]
            at = {partition: begins.positions.get(partition, codec.first) for partition in {r.partition for r in rest}}
            passed = [record for record in rest if codec.of(record.ordinal, record.offset) < at[record.partition]]
            assert not passed, f"from_clock(..., {clock}) continues behind {passed[:3]}"

    def test_a_job_counts_every_record_once_whatever_kills_it(self) -> None:
        """Killed at storage operations throughout the run, and restarted each time."""
        expected = _counted(self._run(MemoryStorage(uuid.uuid4().hex), None))
        operations = Operations()
        self._run(MemoryStorage(uuid.uuid4().hex), operations)
        for death in range(0, operations.count, max(operations.count // _DEATHS, 1)):
            storage = MemoryStorage(uuid.uuid4().hex)
            with suppress(Killed):
                self._run(storage, Operations(at=death))
            assert _counted(self._run(storage, None)) == expected, f"killed at storage operation {death}"

    def _run(self, storage: MemoryStorage, operations: Operations | None) -> Pipeline:
        source = self.source()
        faulty = storage if operations is None else FaultyStorage(storage, operations)
        pipeline = Pipeline(source=source, task=Counting(), checkpoint=faulty, step_rows=4, on_error="dead-letter")
        pipeline.run(engine="embedded")
        return pipeline

    def _steps(
        self, budget: Budget, state: SourceState | None = None, source: Source | None = None
    ) -> Iterator[tuple[SourceState, SourcePlan, list[_Read]]]:
        """All steps from a state on: the state before it, the plan, and the records read."""
        source = source or self.source()
        state = state or SourceState(dict.fromkeys(source.partitions(), codec_of(source).first))
        for _ in range(_STEPS_MAX):
            plan = source.plan(state, budget)
            yield state, plan, _records_of(source, plan)
            moved = dict(plan.end) != dict(state.positions)
            state = _after(state, plan)
            if not plan.splits and not moved:
                return
        raise AssertionError(f"after {_STEPS_MAX:,} plans with {budget} the source still has records to read")

    @staticmethod
    def _end(steps: list[tuple[SourceState, SourcePlan, list[_Read]]]) -> SourceState:
        state, plan, _ = steps[-1]
        return _after(state, plan)


class Counting(PersistentTask):
    """Counts all records."""

    def persistent_state(self) -> PersistentState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def _counted(pipeline: Pipeline) -> tuple[Any, ...]:
    from persistent.checkpoint.log import Log

    entry = Log(pipeline.storage).newest()
    assert entry is not None
    accounts = {name: replace(account, late=0) for name, account in entry.manifest.accounts.items()}
    return pipeline.state().to_pylist(), accounts


def _records_of(source: Source, plan: SourcePlan) -> list[_Read]:
    return [
        record
        for split in plan.splits
        for records in source.read(split, plan.recorded)
        for record in _of_batch(split, records)
    ]


def _of_batch(split: Split, records: Records) -> Iterator[_Read]:
    values = records.batch.to_pylist()
    for value, time, offset in zip(values, records.timestamps.tolist(), records.offsets.tolist()):
        yield _Read(split.partition, records.ordinal, offset, None if time == NO_TIMESTAMP else time, repr(value))
    for dead in records.dead:
        yield _Read(split.partition, dead.ordinal, dead.offset, None, None)


def _place(record: _Read) -> tuple[str, int, int]:
    return record.partition, record.ordinal, record.offset


def _after(state: SourceState, plan: SourcePlan) -> SourceState:
    index = state.index
    if plan.appended is not None:
        parts = [part for part in (index, plan.appended) if part is not None]
        index = pa.concat_tables(parts, promote_options="default")
    return SourceState({**state.positions, **plan.end}, plan.recorded, index, state.largest)


def _through_documents(source: Source, state: SourceState) -> SourceState:
    """The state as a checkpoint restores it: positions by their codec, and JSON."""
    part = SourcePart("", tuple(state.positions), state.positions, state.recorded, codec=codec_of(source).name)
    read = msgspec.json.decode(msgspec.json.encode(part), type=SourcePart)
    return SourceState(read.positions, read.recorded, state.index, state.largest)


def _difference(expected: list[_Read], records: list[_Read]) -> str:
    missing, more = set(expected) - set(records), set(records) - set(expected)
    return f"missing {sorted(missing, key=_place)[:3]}, unexpected {sorted(more, key=_place)[:3]}"
