"""A shop: rows that may grow, one checkpoint, one sink."""

from __future__ import annotations

import uuid
from typing import Any

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage


class Visits(PersistentTask):
    """Visits by page, in windows of ten milliseconds."""

    key = "page"
    window = 10

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(self.window))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Shop:
    """Rows that may grow, one checkpoint, one sink."""

    def __init__(self, rows: int = 12, task: type[PersistentTask] = Visits, **options: Any) -> None:
        self.rows = [self.row(number) for number in range(rows)]
        self.storage = MemoryStorage(uuid.uuid4().hex)
        self.sink = MemorySink()
        self.task = task
        self.options = {"step_rows": 4, **options}

    def row(self, number: int) -> dict[str, Any]:
        return {"ts": number * 3, "page": "ab"[number % 2], "n": number}

    def add(self, rows: int) -> None:
        self.rows += [self.row(number) for number in range(len(self.rows), len(self.rows) + rows)]

    def pipeline(self, storage: Any = None, task: PersistentTask | None = None) -> Pipeline:
        return Pipeline(
            source=MemorySource(self.rows),
            task=task or self.task(),
            sink=self.sink,
            checkpoint=storage or self.storage,
            **self.options,
        )

    def run(self, **options: Any) -> Any:
        return self.pipeline().run(engine=Embedded(threads=1), **options)

    def manifests(self) -> list[Manifest]:
        log = Log(self.storage)
        return [log.read(id).manifest for id in log.ids()]

    def counted(self) -> dict[Any, int]:
        """What the sink shows, by key and window start."""
        return {(row["page"], row["window_start"].microsecond // 1000): row["value"] for row in self.sink.rows()}

    def expected(self) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for row in self.rows:
            place = row["page"], row["ts"] // 10 * 10
            found[place] = found.get(place, 0) + 1
        return found
