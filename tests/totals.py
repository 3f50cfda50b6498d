"""Totals near the end of int64, and what is published of them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa

from monoids import Monoid
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
)
from persistent.checkpoint.log import Log
from persistent.engines.embedded import Embedded

_NAMES = count()


class One(Monoid[Any]):
    """A user's monoid that knows no sum of two different values."""

    identity = None
    output_type = pa.int64()
    commutative = True

    def combine(self, a: Any, b: Any) -> Any:
        if None not in (a, b) and a != b:
            raise ValueError(f"{a} and {b} are not one")
        return b if a is None else a


class Totals(PersistentTask):
    name = "totals"
    key: Any = "k"

    def __init__(self, monoid: Monoid[Any], window: Any = None) -> None:
        self.monoid, self.window = monoid, window

    def persistent_state(self) -> Any:
        return WindowState(self.monoid, self.window) if self.window else NonWindowState(self.monoid)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["v"])


def rows(*values: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"ts": 1_000 + number, "k": key, "v": value} for number, (key, value) in enumerate(values)]


def pipeline(given: list[dict[str, Any]], monoid: Monoid[Any], window: Any = None, **options: Any) -> Pipeline:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
    source = MemorySource(pa.Table.from_pylist(given, schema), timestamp="ts", ordered=True)
    options = {"checkpoint": f"memory://results-{next(_NAMES)}", "sink": MemorySink(), "step_rows": 2, **options}
    return Pipeline(source=source, task=Totals(monoid, window), **options)


def run(job: Pipeline, **options: Any) -> Any:
    return job.run(engine=Embedded(threads=1), **{"end_of_input": True, **options})


def newest(job: Pipeline) -> Any:
    return Log(job.storage).newest().manifest  # type: ignore[union-attr]


HIGH, LOW, MINUTE = 2**63 - 1, -(2**63), 60_000


def published(job: Pipeline) -> dict[Any, Any]:
    assert isinstance(job.sink, MemorySink)
    return {row["k"]: row["value"] for row in job.sink.rows()}
