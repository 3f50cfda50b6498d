"""A sink driver calls a sink as the drivers of a job do, in their order, without a job."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from persistent.connect.outlet import outlet
from persistent.connect.sink import Claim, OutputBatch, Retreat, Sink
from persistent.names import Staged, attempt_name
from persistent.storage.protocol import Storage
from persistent.testing.faults import AskingStorage

KEY = ("page", "window_start", "window_end")
_TIME = pa.timestamp("ms", "UTC")
_MINUTE_MS = 60_000

OnOperation: TypeAlias = Callable[[str], None]
"""Called before an operation, with its description; it can raise, or block for a while."""


class SinkDriver:
    """A driver of ``job`` over a sink. ``storage``: its checkpoint's; ``step``: called before each operation there."""

    def __init__(
        self,
        sink: Sink,
        storage: Storage,
        step: OnOperation,
        epoch: int = 1,
        *,
        job: str = "a" * 32,
        heir_of: str = "",
        inherited: int = 0,
    ) -> None:
        self.sink = sink
        self.job = job
        self.epoch = epoch
        self.url = storage.url
        self._claim = Claim(
            job,
            heir_of=(heir_of,) if heir_of else (),
            inherited=inherited,
            schema=outputs([]).schema,
            key=KEY,
            url=storage.url,
        )
        self._step = step
        self._outlet = outlet(sink, AskingStorage(storage, lambda verb, name: step(f"{verb} {name}")))

    def claim(self) -> None:
        self._step("claim")
        self._outlet.claim(self._claim)

    def stage(self, id: int, values: Sequence[int]) -> list[Staged]:
        """Stage a row for each value."""
        self._step("stage")
        return [self._outlet.stage(outputs(values), id, attempt_name(self.epoch, id, uuid.uuid4().hex), KEY)]

    def batch(self, id: int, before: int, staged: Sequence[Staged]) -> OutputBatch:
        return OutputBatch(self.job, id, before, 0, id, self.url, KEY, tuple(staged), self._outlet.read)

    def publish(self, id: int, before: int, staged: Sequence[Staged]) -> None:
        self._step("publish")
        self._outlet.publish([self.batch(id, before, staged)], None)

    def sweep(self, live: Sequence[Staged], id: int) -> None:
        self._step("sweep")
        self._outlet.sweep([staged.name for staged in live], self.epoch, id)

    def go_back(self, first: int, id: int, owed: Sequence[OutputBatch] = ()) -> None:
        """Take over after rollback ``id``, which takes back the outputs published under ``first`` and above."""
        self._step("mark")
        self._outlet.mark(first, id)
        self._step("sweep")
        self._outlet.sweep([staged.name for batch in owed for staged in batch.staged], self.epoch, id)
        self._step("retract")
        self._outlet.take_back(first, id)
        self._step("publish")
        self._outlet.publish(owed, Retreat(self.job, id, first, tuple(owed), KEY, id, self.url))
        self.tidy()

    def tidy(self) -> None:
        self._step("tidy")
        self._outlet.tidy()


def outputs(values: Sequence[int]) -> pa.Table:
    """Outputs of windows, a row for each value."""
    starts = pa.array([value * _MINUTE_MS for value in values], pa.int64())
    ends = pa.array([(value + 1) * _MINUTE_MS for value in values], pa.int64())
    return pa.table(
        {
            "page": pa.array([f"page {value}" for value in values], pa.string()),
            "window_start": starts.cast(_TIME),
            "window_end": ends.cast(_TIME),
            "value": pa.array(values, pa.int64()),
        }
    )
