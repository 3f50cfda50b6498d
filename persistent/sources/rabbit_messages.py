"""Journaled messages as columns: those of their bodies, and beside them the broker's facts about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.log import LogBatch, SegmentedLog
from persistent.sources import options
from persistent.sources.protocol import DeadRecord, Records, Split
from persistent.sources.rabbit_frames import FIXED, columns_of, taken_apart
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import from_json, from_option, settled, to_json
from persistent.sources.timestamps import milliseconds, require_readable, why_none
from persistent.sources.values import Decoded, JsonValues, RawValues

TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))
_FORMATS: Final[Mapping[str, type[RawValues] | type[JsonValues]]] = {"json": JsonValues, "bytes": RawValues}
_SAMPLE_ROWS: Final = 1_000
_BATCH_ROWS: Final = 50_000
_DEAD_BYTES_MAX: Final = 1 << 20
_COUNTED: Final = "its state was decoded by that format"


@dataclass
class JournaledMessages:
    """The messages in ``journal``, by the options of these names. ``place``: names the source in errors."""

    place: str
    journal: SegmentedLog
    format: str
    schema_option: pa.Schema | Mapping[str, Any] | None
    headers: pa.Schema | Mapping[str, Any] | None
    timestamp: str
    timestamp_unit: str | None

    def __post_init__(self) -> None:
        options.require_type("timestamp", self.timestamp, str, "'ts'")
        options.require_unit(self.timestamp_unit)
        options.require_choice("format", self.format, tuple(_FORMATS))
        self._values: RawValues | JsonValues = _FORMATS[self.format]()
        self._schema = None if self.schema_option is None else from_option(self.schema_option)
        self._headers = pa.schema([]) if self.headers is None else from_option(self.headers)

    def columns(self, recorded: Mapping[str, Any], splits: Sequence[Split]) -> dict[str, Any]:
        """The column facts that a plan with these splits records."""
        facts = self._facts()
        if splits or self._schema is not None:
            facts["schema"] = to_json(self._fixed_schema(recorded, splits))
        return facts

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns, from the record of a plan."""
        self.require_recorded(recorded)
        return self._whole(from_json(recorded.get("schema", [])))

    def _whole(self, bodies: pa.Schema) -> pa.Schema:
        """The columns of the bodies, then those of the messages."""
        own = [*(pa.field(name, kind) for name, kind in FIXED.items()), *self._headers, TIME]
        names = [*bodies.names, *(field.name for field in own)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidPipeline(
                f"{self.place}: {', '.join(twice)} is a column of the bodies and of the messages: omit it from "
                "schema= or headers="
            )
        return pa.schema([*bodies, *own])

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        """InvalidPipeline for options that a job must not change."""
        options.require_recorded(recorded, self._facts(), {**options.TIMES, "format": _COUNTED})

    def _facts(self) -> dict[str, Any]:
        return {"timestamp": self.timestamp, "timestamp_unit": self.timestamp_unit, "format": self.format}

    def _fixed_schema(self, recorded: Mapping[str, Any], splits: Sequence[Split]) -> pa.Schema:
        if self._schema is not None:
            schema = self._schema
        elif "schema" in recorded:
            schema = from_json(recorded["schema"])
        else:
            schema = self._inferred(splits[0].spans[0].start)
        require_readable(self._whole(schema), self.timestamp, self.timestamp_unit)
        return schema

    def _inferred(self, start: int) -> pa.Schema:
        """The columns of the first bodies, however large the step and however many its workers."""
        frames: list[bytes] = []
        for batch in self.journal.read(self.journal.position_of(start)):
            frames += batch.records[: _SAMPLE_ROWS - len(frames)].to_pylist()
            if len(frames) >= _SAMPLE_ROWS:
                break
        try:
            found = self._values.infer(self._taken_apart(frames)[1])
        except Unreadable as error:
            raise SourceError(f"{self.place}: {error}. Give schema=, and such messages are dead letters") from error
        if found is None:
            raise SourceError(f"{self.place}: no message defines the columns. Give schema=")
        return settled(found, self.place)

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
        schema = from_json(recorded["schema"])
        for span in split.spans:
            waiting: list[LogBatch] = []
            rows = 0
            for batch in self._batches(span.start, span.stop):
                waiting.append(batch)
                rows += len(batch)
                if rows >= _BATCH_ROWS:
                    yield self._records(waiting, schema)
                    waiting, rows = [], 0
            if waiting:
                yield self._records(waiting, schema)

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

    def _records(self, batches: Sequence[LogBatch], schema: pa.Schema) -> Records:
        frames = pa.concat_arrays([batch.records for batch in batches]).to_pylist()
        times = np.concatenate([batch.times for batch in batches])
        first = batches[0].number
        said, bodies = self._taken_apart(frames)
        alive = [row for row, one in enumerate(said) if "dead" not in one]
        there = [bodies[row] for row in alive]
        if isinstance(self._values, RawValues):
            column = pa.array(there, pa.binary())
            decoded = Decoded(pa.RecordBatch.from_arrays([column], schema=schema), range(len(there)))
        else:
            decoded = self._values.decode(there, schema)
        rows = np.asarray(alive, np.int64)[np.asarray(decoded.rows, np.int64)]
        own = columns_of([said[row] for row in rows.tolist()], self._headers)
        journaled = pa.array(times[rows], pa.int64()).cast(TIME.type)
        arrays = [*decoded.batch.columns, *own, journaled]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._whole(schema))
        reasons = {row: one["dead"] for row, one in enumerate(said) if "dead" in one}
        reasons |= {alive[row]: reason for row, reason in decoded.dead}
        dead = [DeadRecord(0, first + row, reasons[row], bodies[row][:_DEAD_BYTES_MAX]) for row in sorted(reasons)]
        time = batch.column(self.timestamp)
        found = milliseconds(time, self.timestamp_unit)
        why = partial(why_none, time, self.timestamp, self.timestamp_unit)
        return Records(0, batch, found, first + rows, dead, why)
