"""A job of sessions, and what it must publish: a plain computation over its records, step by step."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, session
from persistent.storage import MemoryStorage

Row = dict[str, Any]
Session = tuple[str, int, int, int, int, int]
"""Key, start, end, and the values."""


class Visits(PersistentTask):
    """Counts, sums and the largest value, per key and session."""

    name = "sessions"
    key = "key"

    def __init__(self, gap: int = 10, cut: int = 50, **options: Any) -> None:
        self.gap, self.cut, self.options = gap, cut, options

    def persistent_state(self) -> WindowState:
        window = session(self.gap, cut=self.cut)
        return WindowState(record(rows=Count(), total=Sum(), most=Max()), window, **self.options)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"rows": 1, "total": batch["value"], "most": batch["value"]})


@dataclass
class Run:
    """A job over rows, whose clock stays ``behind`` the largest timestamp; ``sink`` has what it published."""

    rows: Sequence[Row]
    task: Visits = field(default_factory=Visits)
    behind: int = 0
    step_rows: int = 3
    storage: Any = field(default_factory=lambda: MemoryStorage(f"sessions-{uuid.uuid4().hex}"))
    sink: Any = field(default_factory=MemorySink)

    def pipeline(self, rows: Sequence[Row] | None = None, **options: Any) -> Pipeline:
        source = MemorySource(
            self.rows if rows is None else rows, timestamp="ts", ordered=True, max_out_of_orderness=self.behind
        )
        made = {"sink": self.sink, "step_rows": self.step_rows, "max_future": "40000 days", **options}
        return Pipeline(source=source, task=self.task, checkpoint=self.storage, **made)

    def run(self, rows: Sequence[Row] | None = None, *, engine: Any = "embedded", **options: Any) -> Any:
        return self.pipeline(rows, **options).run(engine=engine, end_of_input=rows is None)

    def published(self) -> list[Session]:
        return sessions_in(self.sink.rows())


def sessions_in(rows: Sequence[Row]) -> list[Session]:
    """Sessions as plain values, in order."""
    names = ("rows", "total", "most")
    return sorted(
        (row["key"], _ms(row["window_start"]), _ms(row["window_end"]), *(row[name] for name in names)) for row in rows
    )


def settled(rows: Sequence[Row], final: int) -> list[Row]:
    """The rows of sessions that were final at a clock: no new sink of a job that starts from there is given them."""
    return [row for row in rows if _ms(row["window_end"]) <= final]


def _ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def kept_of(run: Run, stops: Sequence[int] = (), count: int | None = None) -> list[Row]:
    """The records that are not before the clock of the step before theirs, less the allowed lateness. ``stops``: how
    many of them each run has read before the last. ``count``: of so many of the first records."""
    kept: list[Row] = []
    clock, allowed = 0, run.task.options.get("allowed_lateness", 0)
    for start, stop in pairwise([0, *sorted(stops), len(run.rows)]):
        for first in range(start, stop, run.step_rows):
            step = run.rows[first : min(first + run.step_rows, stop)]
            kept += [
                row
                for row in step[: len(run.rows) if count is None else max(0, count - first)]
                if row["ts"] >= clock - allowed
            ]
            clock = max(clock, *(row["ts"] - run.behind for row in step))
    return kept


def held(rows: Iterable[Row], until: int | None = None) -> list[Session]:
    """What a reader holds after the rows that checkpoints up to ``until`` have published: what is taken back is gone,
    and was there as it is told."""
    table: set[Session] = set()
    for row in sorted(rows, key=lambda row: (row["revision"], not row["retracted"])):
        if until is not None and row["revision"] > until:
            break
        (one,) = sessions_in([row])
        if row["retracted"]:
            table.remove(one)
            continue
        assert not [other for other in table if other[0] == one[0] and other[1] < one[2] and one[1] < other[2]], one
        table.add(one)
    return sorted(table)


def expected(rows: Sequence[Row], gap: int, cut: int) -> list[Session]:
    """The sessions of records: twenty plain lines."""
    found: list[Session] = []
    for key in {row["key"] for row in rows}:
        some: list[Row] = []
        for row in [*sorted((row for row in rows if row["key"] == key), key=lambda row: row["ts"]), None]:
            last = some[-1]["ts"] if some else None
            if row is not None and (last is None or (row["ts"] - last < gap and row["ts"] // cut == last // cut)):
                some.append(row)
                continue
            values = [one["value"] for one in some]
            end = min(last + gap, (last // cut + 1) * cut)
            found.append((key, some[0]["ts"], end, len(values), sum(values), max(values)))
            some = [row] if row is not None else []
    return sorted(found)


def disordered(seed: int, count: int, behind: int, gap: int) -> list[Row]:
    """Rows whose times go on, with disorder, ties, pauses of exactly the gap and keys that go quiet."""
    rng = random.Random(seed)
    rows: list[Row] = []
    now = rng.randrange(30)
    for _ in range(count):
        now += rng.choice((0, 0, 1, 3, gap - 1, gap, gap + 1, 3 * gap))
        time = max(0, now - rng.choice((0, 0, rng.randrange(behind + 1), behind)))
        row = {"ts": time, "key": rng.choice("abc"[: 1 + (now // 60) % 3]), "value": rng.randrange(-5, 10)}
        rows += [row, row] if rng.random() < 0.1 else [row]
    return rows


def straggling(seed: int, count: int, behind: int, gap: int, allowed: int) -> list[Row]:
    """Rows of which many come when the sessions that they change are published; some come too late."""
    rng = random.Random(seed)
    rows: list[Row] = []
    now = rng.randrange(30)
    for _ in range(count):
        now += rng.choice((0, 1, 2, gap // 2, gap, 2 * gap))
        ago = rng.choice((0, rng.randrange(behind + 1), behind + rng.randrange(allowed + gap), behind + allowed // 2))
        row = {"ts": max(0, now - ago), "key": rng.choice("aab"), "value": rng.randrange(-5, 10)}
        rows += [row, row] if rng.random() < 0.1 else [row]
    return rows


@contextmanager
def run_of(rows: Sequence[Row], **options: Any) -> Iterator[Run]:
    made = Run(rows, **options)
    try:
        yield made
    finally:
        made.storage.clear()
