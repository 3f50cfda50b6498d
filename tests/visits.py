"""Visits of pages, and what a run over them says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import (
    MemorySource,
    Message,
    PersistentTask,
    Pipeline,
    RunReport,
    State,
    WindowState,
    tumbling,
)
from persistent.engines.embedded import Embedded
from persistent.storage import Storage

GOOD = [{"ts": 1_700_000_000_000 + 1_000 * n, "page": "ab"[n % 2], "n": n} for n in range(20)]


class Visits(PersistentTask):
    """In windows so long that none is closed before the end of input."""

    key: Any = "page"
    size = "1 h"

    def persistent_state(self) -> Any:
        return WindowState(record(visits=Count(), total=Sum()), tumbling(self.size))

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, {"visits": 1, "total": message.value["n"]})


class Counted(Visits):
    """How many, in a given state."""

    name = "Visits"

    def __init__(self, state: Any) -> None:
        self.state = state

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline_of(
    source: Any, storage: Storage | str, task: PersistentTask | None = None, sink: Any = None, **options: Any
) -> Pipeline:
    if isinstance(source, list):
        source = MemorySource(source, timestamp="ts")
    closed = {"discard_closed": sink is None, **options}
    return Pipeline(source=source, task=task or Visits(), sink=sink, checkpoint=storage, **closed)


def run(pipeline: Pipeline, **options: Any) -> RunReport:
    """On one thread, with the account of every partition checked."""
    report = pipeline.run(engine=Embedded(1), **options)
    for account in report.ledger.values():
        assert account.read == account.processed + account.late + account.dead + account.duplicate
    return report


def visits_of(pipeline: Pipeline) -> int:
    """How many messages the state holds."""
    return sum(row["visits"] for row in pipeline.state().to_pylist())


def says(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    """The message holds every part."""
    text = str(error.value)
    assert [part for part in parts if part not in text] == [], text


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path
