"""The columns of a message source: those of the decoded values, and metadata beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from persistent.errors import SourceError
from persistent.sources.metadata import with_metadata
from persistent.sources.protocol import DeadRecord, Records
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import from_json, settled, to_json
from persistent.sources.timestamps import milliseconds, require_readable, why_none
from persistent.sources.values import MessageValue, ValueFormat, widest

SAMPLE_ROWS: Final = 1_000
"""The number of values of each partition that are sampled to infer the columns."""
_DEAD_BYTES_MAX: Final = 1 << 20


class Gathering(Protocol):
    """Messages as columns."""

    values: list[MessageValue]
    offsets: list[int]

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """A column of metadata, of some rows."""


class MessageColumns:
    """The columns of one source, which errors call ``place``. ``schema``: of the values, as given; ``metadata``: the
    names of the columns beside them; ``time``: the column with the event time, and its unit."""

    def __init__(
        self,
        place: str,
        format: ValueFormat,
        schema: pa.Schema | None,
        metadata: Sequence[str],
        time: tuple[str, str | None],
    ) -> None:
        self.format = format
        self.metadata = tuple(metadata)
        self.is_given = schema is not None
        self._place = place
        self._schema = schema
        self._timestamp, self._unit = time

    def times(self) -> dict[str, Any]:
        """The recorded options that determine how every value is read."""
        return {"timestamp": self._timestamp, "timestamp_unit": self._unit, "format": self.format.name}

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns of the batches. A plan without splits may not know those of the values yet."""
        return with_metadata(from_json(recorded.get("schema", [])), self.metadata)

    def recorded(
        self, recorded: Mapping[str, Any], samples: Callable[[], Iterable[Sequence[MessageValue]]]
    ) -> dict[str, Any]:
        """The recorded columns of the values: as given, as recorded, or as inferred from ``samples``. Those are the
        first values of each partition, however large the step and however many its workers."""
        fixed = self.format.fixed(recorded)
        known = self.format.columns(fixed)
        if known is not None:
            schema = known
        elif self._schema is not None:
            schema = self._schema
        elif "schema" in recorded:
            schema = from_json(recorded["schema"])
        else:
            schema = self._inferred(samples())
        require_readable(with_metadata(schema, self.metadata), self._timestamp, self._unit)
        return {**fixed, "schema": to_json(schema)}

    def _inferred(self, samples: Iterable[Sequence[MessageValue]]) -> pa.Schema:
        found = []
        try:
            for values in samples:
                schema = self.format.infer(values)
                if schema is not None:
                    found.append(schema)
        except Unreadable as error:
            raise SourceError(f"{self._place}: {error}. Give schema=, and such values are dead letters") from error
        if not found:
            raise SourceError(f"{self._place}: no value defines the columns. Give schema=")
        # Only of all partitions: what is null in one may have a type in another.
        return settled(widest(found), self._place)

    def records(self, found: Gathering, recorded: Mapping[str, Any], dead: Sequence[DeadRecord] = ()) -> Records:
        """The records of messages. ``dead``: others that have no value to decode."""
        schema, values = from_json(recorded["schema"]), found.values
        decoded = self.format.decode(values, schema, recorded)
        rows = decoded.rows
        columns = [*decoded.batch.columns, *(found.column(name, rows) for name in self.metadata)]
        batch = pa.RecordBatch.from_arrays(columns, schema=with_metadata(schema, self.metadata))
        offsets = np.array(found.offsets, np.int64)
        bad = [
            DeadRecord(0, found.offsets[row], reason, (values[row] or b"")[:_DEAD_BYTES_MAX])
            for row, reason in decoded.dead
        ]
        if dead:
            bad = sorted([*bad, *dead], key=lambda one: one.offset)
        time = batch.column(self._timestamp)
        times = milliseconds(time, self._unit)
        why = partial(why_none, time, self._timestamp, self._unit)
        return Records(0, batch, times, offsets if len(rows) == len(offsets) else offsets[list(rows)], bad, why)
