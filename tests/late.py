"""What a job with lateness publishes, and what it must come to: a plain computation over the records, step by step."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState
from persistent.storage import MemoryStorage
from persistent.time.window import Window, tumbling

Row = dict[str, Any]
KEYS = ("a", "b", "c")


class Late(PersistentTask):
    """Counts and sums per key and window, with the options of its state."""

    name = "late"
    key = "key"

    def __init__(self, window: Window, **options: Any) -> None:
        self.window, self.options = window, options

    def persistent_state(self) -> WindowState:
        return WindowState(record(rows=Count(), total=Sum(), most=Max()), self.window, **self.options)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"rows": 1, "total": batch["value"], "most": batch["value"]})


@dataclass
class Run:
    """A job over rows, in steps of ``step_rows``; ``sink`` has what it published."""

    rows: Sequence[Row]
    window: Window = field(default_factory=lambda: tumbling(10))
    options: dict[str, Any] = field(default_factory=dict)
    step_rows: int = 3
    storage: Any = field(default_factory=lambda: MemoryStorage(f"late-{uuid.uuid4().hex}"))
    sink: Any = field(default_factory=MemorySink)

    def pipeline(self, rows: Sequence[Row] | None = None, **options: Any) -> Pipeline:
        source = MemorySource(self.rows if rows is None else rows, timestamp="ts", ordered=True)
        return Pipeline(
            source=source,
            task=Late(self.window, **self.options),
            sink=self.sink,
            checkpoint=self.storage,
            max_future="40000 days",
            **{"step_rows": self.step_rows, **options},
        )

    def run(
        self, rows: Sequence[Row] | None = None, engine: Any = "embedded", spark: Any = None, **options: Any
    ) -> Any:
        return self.pipeline(rows).run(spark, engine=engine, **{"end_of_input": True, **options})

    def published(self) -> list[Row]:
        """The rows in the order of their revisions, with the window in milliseconds."""
        rows = [{**row, "window": (ms(row["window_start"]), ms(row["window_end"]))} for row in self.sink.rows()]
        return sorted(rows, key=lambda row: (row.get("revision") or 0, not row.get("retracted", False)))

    def final(self) -> dict[tuple[str, int], Row]:
        """What a reader holds after all rows: the largest revision, with retractions applied."""
        found: dict[tuple[str, int], Row] = {}
        late = self.options.get("late", "accumulate")
        for row in self.published():
            place = (row["key"], row["window"][0])
            values = {name: row[name] for name in ("rows", "total", "most") if name in row}
            if row.get("retracted"):
                assert found.pop(place) == values, f"{row} takes back what was not there"
                continue
            assert late != "retract" or place not in found, f"{row} stands beside another"
            found[place] = values
        return found


def ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def expected(run: Run, emit: str = "close") -> tuple[dict[tuple[str, int], Row], int]:
    """What the published table must come to, and how many records are late: twenty plain lines."""
    window, allowed = run.window, run.options.get("allowed_lateness", 0)
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    clock = late = 0
    for first in range(0, len(run.rows), run.step_rows):
        step = run.rows[first : first + run.step_rows]
        for row in step:
            numbers = range(window.first_number(row["ts"]), window.last_number(row["ts"]) + 1)
            taking = [number for number in numbers if window.end_of(number) > clock - allowed]
            late += bool(numbers) and not taking
            for number in taking:
                found[row["key"], window.start_of(number)].append(row["value"])
        clock = max(clock, *(row["ts"] for row in step))
    names = ("rows", "total", "most")
    sums = {place: (len(values), sum(values), max(values)) for place, values in found.items()}
    return {place: dict(zip(names, values)) for place, values in sums.items()}, late


def disordered(seed: int, count: int, behind: int) -> list[Row]:
    """Rows whose times go on, with disorder, ties at the borders of windows, duplicates and keys that go quiet."""
    rng = random.Random(seed)
    rows: list[Row] = []
    now = rng.randrange(30)
    for _ in range(count):
        now += rng.choice((0, 1, 1, 3, 10, rng.randrange(40)))
        time = max(0, now - rng.choice((0, 0, 1, rng.randrange(behind + 1))))
        if rng.random() < 0.3:
            time -= time % 10
        row = {"ts": time, "key": rng.choice(KEYS[: 1 + (now // 50) % 3]), "value": rng.randrange(-5, 10)}
        rows += [row, row] if rng.random() < 0.1 else [row]
    return rows


@contextmanager
def run_of(rows: Sequence[Row], **options: Any) -> Iterator[Run]:
    made = Run(rows, **options)
    try:
        yield made
    finally:
        made.storage.clear()
