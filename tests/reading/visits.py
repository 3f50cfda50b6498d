"""A job of visits whose state is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa

from monoids import Count, Max, SetUnion, Sum, record
from persistent import (
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)

PAGES = ["/home", "/ä", None, "/long/" + "x" * 40]


class Visits(PersistentTask):
    key: Any = ("page", "status")
    window = tumbling(1_000)

    def persistent_state(self) -> Any:
        return WindowState(record(visits=Count(), who=SetUnion(str), last=Max(float)), self.window)

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value
        state.update(message.timestamp, {"visits": 1, "who": value["who"], "last": value["last"]})


class Totals(PersistentTask):
    key: Any = "number"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["amount"])

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["amount"])


def visits(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "ts": 10_000 + 10 * n,
            "page": PAGES[n % 4],
            "status": 200 + n % 3,
            "who": "abc"[n % 3],
            "last": math.nan if n % 7 == 0 else n / 2,
        }
        for n in range(start, start + count)
    ]


def pipeline_of(rows: Any, place: Path | str, task: PersistentTask | None = None, step_rows: int = 100) -> Pipeline:
    source = MemorySource(rows, timestamp="ts")
    task = task or Visits()
    return Pipeline(source=source, task=task, checkpoint=str(place), discard_closed=True, step_rows=step_rows)


def same(some: pa.Table, rows: list[dict[str, Any]]) -> bool:
    return sorted(map(repr, some.to_pylist())) == sorted(map(repr, rows))
