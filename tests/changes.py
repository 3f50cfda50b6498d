"""What a job publishes as it changes, and what its table must come to after every step: a plain computation."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline, WindowState
from persistent.engines import Embedded
from persistent.storage import MemoryStorage
from persistent.time.window import Window

Row = dict[str, Any]
Place = tuple[str, int | None]
"""A key, and the start of its window; None without windows."""
Table = dict[Place, tuple[int, int, int]]


class Changing(PersistentTask):
    """Counts, sums and maxima per key, and per window if there are any, with the options of their state."""

    name = "changing"
    key = "key"

    def __init__(self, window: Window | None, options: dict[str, Any]) -> None:
        self.window, self.options = window, {"emit": "change", **options}

    def persistent_state(self) -> Any:
        monoid = record(rows=Count(), total=Sum(), most=Max())
        if self.window is None:
            return NonWindowState(monoid, **self.options)
        return WindowState(monoid, self.window, **self.options)

    def process_batch(self, state: Any, batch: Any) -> None:
        values = batch["value"]
        state.update_batch(batch.timestamps, {"rows": 1, "total": values, "most": values})


@dataclass
class World:
    """A job over rows, in steps of ``step_rows``; its runs share a checkpoint. ``tables``: what stands in the sink
    after each step, with the rows of that step; ``sinks`` may be exchanged between runs."""

    window: Window | None = None
    options: dict[str, Any] = field(default_factory=dict)
    step_rows: int = 3
    sinks: dict[str, MemorySink] = field(default_factory=lambda: {"one": MemorySink()})
    storage: Any = field(default_factory=lambda: MemoryStorage(f"changing-{uuid.uuid4().hex}"))
    steps: list[tuple[int, Table]] = field(default_factory=list)

    def pipeline(self, rows: Sequence[Row], **options: Any) -> Pipeline:
        given = {
            "source": MemorySource(rows, timestamp="ts", ordered=True),
            "task": Changing(self.window, self.options),
            "sink": dict(self.sinks) or None,
            "checkpoint": self.storage,
            "max_future": "40000 days",
            "step_rows": self.step_rows,
        }
        return Pipeline(**{**given, **options})

    def run(self, rows: Sequence[Row], *, engine: Any = None, end_of_input: bool = False, **options: Any) -> Any:
        def on_step(step: Any) -> None:
            is_kept = (
                "one" in self.sinks
                and "task" not in options
                and ("early" in self.options or self.options.get("emit") != "close")
            )
            self.steps.append((step.rows, self.table() if is_kept else {}))

        running = self.pipeline(rows, **options)
        return running.run(engine=engine or Embedded(threads=1), end_of_input=end_of_input, on_step=on_step)

    def rows(self, sink: str = "one") -> list[Row]:
        return published(self.sinks[sink].rows())

    def table(self, sink: str = "one") -> Table:
        retracts = "retract" in (self.options.get("changes"), self.options.get("late"))
        return table_of(self.rows(sink), retracts=retracts)


def published(rows: Sequence[Row]) -> list[Row]:
    """Published rows in the order of their revisions, each with its place."""
    placed = [{**row, "place": (row["key"], _start(row))} for row in rows]
    return sorted(placed, key=lambda row: (row["revision"], not row.get("retracted", False)))


def table_of(rows: Sequence[Row], *, retracts: bool) -> Table:
    """What a reader holds: the largest revision; where rows are taken back, one may stand for each place."""
    found: Table = {}
    for row in rows:
        values = (row["rows"], row["total"], row["most"])
        if row.get("retracted"):
            assert found.pop(row["place"]) == values, f"{row} takes back what was not there"
            continue
        assert not retracts or row["place"] not in found, f"{row} stands beside another"
        found[row["place"]] = values
    return found


def expected(
    rows: Sequence[Row], steps: Sequence[int], window: Window | None = None, allowed: int = 0
) -> Iterator[Table]:
    """What the table must be after each step of so many rows: twenty plain lines."""
    found: dict[Place, list[int]] = defaultdict(list)
    clock = read = 0
    for count in steps:
        step = rows[read : read + count]
        for row in step:
            for place in _places(row, window, clock - allowed):
                found[place].append(row["value"])
        clock, read = max([clock, *(row["ts"] for row in step)]), read + count
        yield {place: (len(values), sum(values), max(values)) for place, values in found.items()}


def _places(row: Row, window: Window | None, final: int) -> list[Place]:
    if window is None:
        return [(row["key"], None)]
    numbers = range(window.first_number(row["ts"]), window.last_number(row["ts"]) + 1)
    return [(row["key"], window.start_of(number)) for number in numbers if window.end_of(number) > final]


def _start(row: Row) -> int | None:
    return round(row["window_start"].timestamp() * 1000) if "window_start" in row else None
