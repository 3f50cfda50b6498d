"""Records are spread over as many workers as their work is worth, by what the step before has taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monoids import Count
from persistent import MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.connect.source import Budget
from persistent.driver import workbench
from persistent.driver.next_step import _budget
from persistent.engines.embedded import Embedded
from persistent.names import new_nonce
from persistent.storage import MemoryStorage
from persistent.testing import ManualClock
from persistent.worker.job import MapSplit
from tests.driver.test_commit_and_next_step_of_several_sources import bench


class Visits(PersistentTask):
    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Timed(Embedded):
    """Takes so long to map the splits of a step, and keeps how many they were."""

    def __init__(self, clock: ManualClock, ms: int) -> None:
        super().__init__(threads=4)
        self.clock, self.ms, self.splits = clock, ms, list[int]()

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        splits = sum(isinstance(item, MapSplit) for item in items)
        if splits:
            self.splits.append(splits)
            self.clock.advance(self.ms)
        return super().map(function, items)


@pytest.mark.parametrize(
    ("ms", "splits"),
    [(1, [4, 1, 1, 1]), (10, [4, 2, 1, 1]), (30, [4, 4, 4, 4]), (60_000, [4, 4, 4, 4]), (0, [4, 4, 4, 4])],
)
def test_what_is_mapped_at_once_is_not_spread_over_workers(
    ms: int, splits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each split costs a run and its files: a small step took a third longer on two workers than on one. Where each
    record takes long, all of them are needed."""
    monkeypatch.setattr(workbench, "SPLIT_SECONDS", 0.02)
    rows = [{"ts": time, "page": "ab"[time % 2]} for time in range(400)]
    storage, sink = MemoryStorage(new_nonce()), MemorySink()
    with ManualClock() as clock:
        engine = Timed(clock, ms)
        source = MemorySource(rows, timestamp="ts", timestamp_unit="ms", ordered=True)
        pipeline = Pipeline(source=source, task=Visits(), sink=sink, checkpoint=storage, step_rows=100)
        pipeline.run(engine=engine, end_of_input=True)
    assert engine.splits == splits
    assert sorted((row["page"], row["value"]) for row in sink.rows()) == [("a", 200), ("b", 200)]
    storage.clear()


def test_the_plan_of_a_source_is_told_how_many_records_are_worth_a_split() -> None:
    assert _budget(bench(split_rows=25), 64, 0) == Budget(32, False, 2, split_rows=25)
