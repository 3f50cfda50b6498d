"""A job whose keys have a time to live, and what it must come to: a plain computation over its records."""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.reading import state_table
from persistent.storage import MemoryStorage

Row = dict[str, Any]
Values = tuple[int, int, int]
MODES = (("close", "update"), ("change", "update"), ("change", "retract"))
EARLY = (("close", "update", 7), ("close", "retract", 25))
"""When results are published, how, and each how many ms before the end."""


class Devices(PersistentTask):
    """Counts, sums and the largest value of each key, while it lives."""

    name = "devices"
    key = "key"

    def __init__(self, ttl: int = 10, mode: tuple[Any, ...] = MODES[1]) -> None:
        self.ttl, self.mode = ttl, mode

    def persistent_state(self) -> NonWindowState:
        emit, changes, *early = self.mode
        more = {"early": f"{early[0]} ms"} if early else {}
        monoid = record(rows=Count(), total=Sum(), most=Max())
        return NonWindowState(monoid, ttl=f"{self.ttl} ms", emit=emit, changes=changes, **more)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"rows": 1, "total": batch["value"], "most": batch["value"]})


@dataclass
class Run:
    """A job over rows, whose clock stays ``behind`` the largest timestamp; ``sink`` has what it published."""

    rows: Sequence[Row]
    task: Devices = field(default_factory=Devices)
    behind: int = 0
    step_rows: int = 3
    storage: Any = field(default_factory=lambda: MemoryStorage(f"lives-{uuid.uuid4().hex}"))
    sink: Any = field(default_factory=MemorySink)

    def pipeline(self, rows: Sequence[Row] | None = None, **options: Any) -> Pipeline:
        source = MemorySource(
            self.rows if rows is None else rows, timestamp="ts", ordered=True, max_out_of_orderness=self.behind
        )
        made = {"sink": self.sink, "checkpoint": self.storage, "step_rows": self.step_rows, **options}
        return Pipeline(source=source, task=self.task, max_future="40000 days", **made)

    def run(self, rows: Sequence[Row] | None = None, *, engine: Any = "embedded", **options: Any) -> Any:
        return self.pipeline(rows, **options).run(engine=engine, end_of_input=rows is None)

    def state(self, **asked: Any) -> dict[str, Values]:
        table = state_table(self.pipeline(), **asked)
        return {row["key"]: (row["rows"], row["total"], row["most"]) for row in table.to_pylist()}

    def shown(self) -> dict[str, Values]:
        return shown_in(self.sink.rows())


@dataclass
class Plain:
    """The records that count up to a clock, and how many lives have ended."""

    ttl: int
    behind: int
    kept: list[Row] = field(default_factory=list)
    clock: int = 0
    closed: int = 0
    late: int = 0
    expired: int = 0

    def step(self, rows: Sequence[Row]) -> None:
        counted = [row for row in rows if row["ts"] + self.ttl > self.clock]
        self.kept, self.late = [*self.kept, *counted], self.late + len(rows) - len(counted)
        ends = [life[-1]["ts"] + self.ttl for key in self.keys() for life in self.lives(key)]
        self.expired += sum(self.closed < end <= self.clock for end in ends)
        self.closed = self.clock
        self.clock = max(self.clock, *(row["ts"] - self.behind for row in counted), 0)

    def keys(self) -> set[str]:
        return {row["key"] for row in self.kept}

    def lives(self, key: str) -> list[list[Row]]:
        own = sorted((row for row in self.kept if row["key"] == key), key=lambda row: row["ts"])
        cuts = [number + 1 for number, (a, b) in enumerate(pairwise(own)) if b["ts"] - a["ts"] >= self.ttl]
        return [own[start:stop] for start, stop in pairwise([0, *cuts, len(own)])]

    def state(self) -> dict[str, Values]:
        last = {key: self.lives(key)[-1] for key in self.keys()}
        values = {key: [row["value"] for row in life] for key, life in last.items()}
        return {
            key: (len(values[key]), sum(values[key]), max(values[key]))
            for key, life in last.items()
            if life[-1]["ts"] + self.ttl > self.clock
        }


def plain(rows: Sequence[Row], ttl: int, behind: int, step_rows: int, stops: Sequence[int] = ()) -> Plain:
    """What runs come to that end at these places, and the last one at the end."""
    found = Plain(ttl, behind)
    for start, stop in pairwise([0, *sorted(min(one, len(rows)) for one in stops), len(rows)]):
        for first in range(start, stop, step_rows):
            found.step(rows[first : min(first + step_rows, stop)])
        found.step([])
    return found


def shown_in(rows: Sequence[Row], *, strict: bool = True) -> dict[str, Values]:
    """What readers see: of each key the row with the largest revision, unless it is taken back. ``strict``: each row
    that is taken back is one that was shown, as it was."""
    shown: dict[str, Values] = {}
    for row in sorted(rows, key=lambda row: (row["revision"], not row["retracted"])):
        values = (row["rows"], row["total"], row["most"])
        if row["retracted"]:
            assert shown.pop(row["key"], None) == values or not strict, f"{row} takes back what is not shown"
        else:
            shown[row["key"]] = values
    return shown


def rows_in(sink: Any) -> list[Row]:
    """The rows of a table of SQLite."""
    database = sqlite3.connect(sink.path)
    database.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in database.execute(f"SELECT * FROM {sink.table}")]
    finally:
        database.close()


def devices(seed: int, count: int, behind: int, ttl: int) -> list[Row]:
    """Rows whose times go on, with disorder, ties, pauses of exactly the time to live, keys that go quiet and come
    back, and clocks that jump."""
    rng = random.Random(seed)
    rows: list[Row] = []
    now = rng.randrange(30)
    for _ in range(count):
        now += rng.choice((0, 0, 1, 1, 3, ttl - 1, ttl, ttl + 1, 2 * ttl, 5 * ttl if rng.random() < 0.3 else 1))
        time = max(0, now - rng.choice((0, 0, 0, rng.randrange(behind + 1), behind, ttl)))
        row = {"ts": time, "key": rng.choice("abcd"[: 1 + (now // 40) % 4]), "value": rng.randrange(-5, 10)}
        rows += [row, row] if rng.random() < 0.1 else [row]
    return rows


@contextmanager
def run_of(rows: Sequence[Row], **options: Any) -> Iterator[Run]:
    made = Run(rows, **options)
    try:
        yield made
    finally:
        made.storage.clear()
