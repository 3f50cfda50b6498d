"""A job that is rolled back while its sink can only append, and what a reader then holds."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from monoids import Count, Sum, record
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline, Retention, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.operations import rollback
from persistent.storage import MemoryStorage

FIRST = [("d", 8), ("a", 1), ("b", 2), ("a", 3)]
ABANDONED = [("a", 5), ("c", 7), ("d", 1), ("a", 9)]
INSTEAD = [("b", 4), ("a", 6)]


class Totals(PersistentTask):
    """How many numbers a page has, and their sum. ``changes``: None for windows, each published once."""

    key = "page"

    def __init__(self, changes: str | None) -> None:
        self.changes = changes

    def persistent_state(self) -> Any:
        monoid = record(n=Count(), sum=Sum())
        if self.changes is None:
            return WindowState(monoid, tumbling(1))
        return NonWindowState(monoid, emit="change", changes=self.changes)

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"]:
            state.update(message.timestamp, {"n": 1, "sum": message.value["n"]})


class Rolled:
    """The job. ``sink``: makes its sink, for each run."""

    def __init__(self, sink: Callable[[], Any], changes: str | None, storage: Any = None) -> None:
        self.sink, self.changes = sink, changes
        self.storage = storage or MemoryStorage(uuid.uuid4().hex)

    def pipeline(self, numbers: Iterable[tuple[str, int]], **options: Any) -> Pipeline:
        rows = [{"ts": ts, "page": page, "n": n} for ts, (page, n) in enumerate(numbers)]
        source = MemorySource(rows, timestamp="ts", ordered=True)
        given = {"source": source, "sink": self.sink(), "checkpoint": self.storage, "step_rows": 1}
        given |= {"retention": Retention(last=50), **options}
        return Pipeline(**{"task": Totals(self.changes), **given})

    def run(self, numbers: Iterable[tuple[str, int]], **options: Any) -> None:
        self.pipeline(numbers, **options).run(engine="embedded", end_of_input=False)

    @property
    def newest(self) -> int:
        entry = Log(self.storage).newest()
        assert entry is not None
        return entry.manifest.base

    def go_back(self) -> int:
        """Run, run on, and go back to between the two; returns the target."""
        self.run(FIRST)
        target = self.newest
        self.run(FIRST + ABANDONED)
        rollback(self.storage, target, outputs="retract")
        return target


def held(rows: Iterable[Mapping[str, Any]], changes: str) -> dict[str, tuple[int, int]]:
    """What a reader holds: it adds and subtracts rows, or lets the newest of each key count."""
    if changes == "retract":
        signed: Counter[tuple[str, int, int]] = Counter()
        for row in rows:
            signed[row["page"], row["n"], row["sum"]] += -1 if row["retracted"] else 1
        assert set(signed.values()) <= {0, 1}, signed
        return {page: (n, total) for (page, n, total), times in signed.items() if times}
    newest = {row["page"]: row for row in sorted(rows, key=lambda row: (row["revision"], not row["retracted"]))}
    return {page: (row["n"], row["sum"]) for page, row in newest.items() if not row["retracted"]}


def totals(numbers: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """What it should hold."""
    sums: dict[str, tuple[int, int]] = {}
    for page, n in numbers:
        count, total = sums.get(page, (0, 0))
        sums[page] = count + 1, total + n
    return sums
