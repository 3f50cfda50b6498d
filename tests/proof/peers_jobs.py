"""The same files through whole pipelines: small steps, drivers that die between two of them, and restarts.

Each record counts under a digest of its values. So in the end the state holds every record that a source reads, once;
the dead letters are the others, and the account has both.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pyarrow as pa

from monoids import Count
from persistent import FileSource, NonWindowState, PersistentTask, Pipeline
from persistent.engines.embedded import Embedded

_NAMES = itertools.count()
_EVER_MS = 10**15


def _digest(message: Any) -> str:
    values = message.value
    return sha256(repr([(name, values[name]) for name in values]).encode("utf-8", "surrogatepass")).hexdigest()


class Digests(PersistentTask):
    """How many records have the same values."""

    name = "digests"
    key: Any = {"row": _digest}

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class _Dies(BaseException):
    """What befalls a driver between two steps."""


def through_a_job(source: Callable[[], FileSource], drawn: random.Random) -> tuple[Counter[str], Pipeline]:
    """How often each digest was counted, through as many deaths as are drawn."""
    storage, rows = f"memory://peers-{next(_NAMES)}", drawn.choice([3, 10, 50])
    for lives in itertools.count():
        job = Pipeline(
            source=source(),
            task=Digests(),
            checkpoint=storage,
            on_error="dead-letter",
            step_rows=rows,
            max_future=_EVER_MS,
        )

        def on_step(report: Any, lives: int = lives) -> None:
            if lives < 2 and drawn.random() < 0.3:
                raise _Dies

        try:
            job.run(engine=Embedded(threads=drawn.choice([1, 2, 3])), end_of_input=True, on_step=on_step)
        except _Dies:
            continue
        table = job.state()
        return Counter(dict(zip(table["row"].to_pylist(), table["value"].to_pylist(), strict=True))), job
    raise AssertionError


def digests(batch: pa.RecordBatch, timestamps: Any) -> Iterator[str | None]:
    """The digest of each record as a message; None if no task can read it, or if its time is none or before 1970."""
    for row, timestamp in enumerate(timestamps.tolist()):
        try:
            values = {name: _python(batch.column(place).slice(row, 1)) for place, name in enumerate(batch.schema.names)}
        except (ValueError, OverflowError):
            yield None
            continue
        yield _digest(_Shown(values)) if timestamp >= 0 else None


class _Shown:
    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value


def _python(column: pa.Array) -> Any:
    kind = column.type
    return (column.cast(pa.timestamp(kind.unit, "UTC")) if pa.types.is_timestamp(kind) else column).to_pylist()[0]
