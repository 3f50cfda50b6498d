"""Journaled messages as columns: those of their bodies, and beside them the broker's facts about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.errors import SourceChanged
from persistent.log import LogBatch, SegmentedLog, grouped
from persistent.sources.message_columns import DEAD_BYTES_MAX, MessageColumns, WholeColumns, first_records
from persistent.sources.protocol import DeadRecord, Records, Split
from persistent.sources.rabbit_frames import FIXED, columns_of, taken_apart
from persistent.sources.schemas import from_option
from persistent.sources.values import MessageValue, value_format

TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))


@dataclass
class JournaledMessages:
    """The messages in ``journal``, read by the source's options. ``place``: names the source in errors."""

    place: str
    journal: SegmentedLog
    format: str
    schema_option: pa.Schema | Mapping[str, Any] | None
    headers: pa.Schema | Mapping[str, Any] | None
    timestamp: str
    timestamp_unit: str | None

    def __post_init__(self) -> None:
        self._headers = pa.schema([]) if self.headers is None else from_option(self.headers)
        self._added = pa.schema([*(pa.field(name, kind) for name, kind in FIXED.items()), *self._headers, TIME])
        values = value_format(self.format, infers=self.schema_option is None)
        time = self.timestamp, self.timestamp_unit
        self._columns = MessageColumns(self.place, values, self.schema_option, self._added, time, noun="message")

    def columns(self, recorded: Mapping[str, Any], splits: Sequence[Split]) -> dict[str, Any]:
        """The column facts that a plan with these splits records."""
        return self._columns.described(recorded, bool(splits), partial(self._samples, splits))

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns, from the record of a plan: of the bodies, then of the messages."""
        self.require_recorded(recorded)
        return self._columns.schema(recorded)

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        """InvalidPipeline for options that a job must not change."""
        self._columns.require_recorded(recorded)

    def _samples(self, splits: Sequence[Split]) -> Iterator[list[MessageValue]]:
        """The first bodies, however large the step and however many its workers."""
        yield [*self._taken_apart(first_records(self.journal, splits[0].spans[0].start))[1]]

    def _taken_apart(self, frames: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
        try:
            return taken_apart(frames)
        except ValueError as error:
            raise SourceChanged(
                f"{self.place}: {self.journal.storage.url} is another log: {error}. Give the source a journal "
                "of its own"
            ) from error

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        """The records of a split."""
        for span in split.spans:
            for batches in grouped(self._batches(span.start, span.stop)):
                yield self._records(batches, recorded)

    def _batches(self, start: int, stop: int) -> Iterator[LogBatch]:
        """The records ``start <= number < stop``, cut from their entries."""
        for batch in self.journal.read(self.journal.position_of(start), whole=True) if start < stop else ():
            if len(batch):
                yield batch[: stop - batch.number]
                start = batch.number + len(batch)
            if start >= stop:
                return
        if start < stop:
            raise SourceChanged(
                f"{self.place}: a step was planned up to record {stop:,}, but the journal ends at {start:,}"
            )

    def _records(self, batches: Sequence[LogBatch], recorded: Mapping[str, Any]) -> Records:
        messages, bodies = self._taken_apart(pa.concat_arrays([batch.records for batch in batches]).to_pylist())
        first = batches[0].number
        times = np.concatenate([batch.times for batch in batches])
        alive = np.array([row for row, message in enumerate(messages) if "dead" not in message], np.int64)
        columns = columns_of([messages[row] for row in alive.tolist()], self._headers)
        journaled = pa.array(times[alive], pa.int64()).cast(TIME.type)
        added = dict(zip(self._added.names, [*columns, journaled], strict=True))
        gathering = WholeColumns([bodies[row] for row in alive.tolist()], first + alive, added)
        dead = [
            DeadRecord(0, first + row, message["dead"], bodies[row][:DEAD_BYTES_MAX])
            for row, message in enumerate(messages)
            if "dead" in message
        ]
        return self._columns.records(gathering, recorded, dead)
