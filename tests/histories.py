"""Jobs with a history."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from monoids import Sum
from persistent import (
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Retention,
)
from persistent.errors import UnknownCheckpoint
from persistent.state.state import PersistentState

ROWS = [
    {"ts": 3 * number if number % 7 else 3 * number - 8, "page": "abc"[number % 3], "n": number}
    for number in range(4, 90)
]
"""Every seventh stands eight milliseconds out of order."""


class Totals(PersistentTask):
    """Numbers by page, seen back to fifty milliseconds before the clock."""

    key = "page"

    def __init__(self, state: PersistentState | None = None) -> None:
        self.state = state or NonWindowState(Sum(), interval_ms=10, history=50)

    def persistent_state(self) -> PersistentState:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def pipeline(task: PersistentTask | None = None, url: str = "", **options: Any) -> Pipeline:
    given = {"step_rows": 6, "retention": Retention(last=100), "discard_closed": "sink" not in options}
    options = {**given, **options}
    source = MemorySource(options.pop("rows", ROWS), timestamp="ts", max_out_of_orderness=8)
    return Pipeline(source=source, task=task or Totals(), checkpoint=url or f"memory://{uuid.uuid4().hex}", **options)


def totals(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row["page"]] += row["n"]
    return dict(counted)


def shown(table: Any) -> dict[str, int]:
    return {row["page"]: row["value"] for row in table.to_pylist()}


def _is_known(job: Pipeline, clock: int) -> bool:
    try:
        job.state(as_of=clock)
    except UnknownCheckpoint:
        return False
    return True
