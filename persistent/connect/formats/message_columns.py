"""The columns of a message source: those of the decoded values, and metadata beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from persistent.connect import options
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats.schemas import from_json, from_option, settled, to_json
from persistent.connect.formats.timestamps import milliseconds, require_readable, why_none
from persistent.connect.formats.values import MessageValue, ValueFormat, widest
from persistent.connect.source import DeadRecord, Records
from persistent.errors import InvalidPipeline, SourceError
from persistent.messaging.log.segmented import SegmentedLog

SAMPLE_ROWS: Final = 1_000
"""The number of values of each partition that are sampled to infer the columns."""
DEAD_BYTES_MAX: Final = 1 << 20
BATCH_ROWS: Final = 50_000
BATCH_BYTES: Final = 64 << 20


class Gathering(Protocol):
    """Messages as columns."""

    @property
    def values(self) -> Sequence[MessageValue]: ...

    @property
    def offsets(self) -> Sequence[int] | Integers: ...

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """The added column ``name``, of these rows."""


@dataclass(frozen=True)
class WholeColumns:
    """Messages whose ``added`` columns are whole arrays."""

    values: Sequence[MessageValue]
    offsets: Integers
    added: Mapping[str, pa.Array]

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        column = self.added[name]
        return column if len(rows) == len(column) else column.take(pa.array(rows, pa.int64()))


class MessageColumns:
    """The columns of one source. ``place``, ``noun``: the source, and one of its values, in errors. ``schema``: the
    columns of the values, if the user declares them; ``added``: the columns that the source adds; ``time``: the column
    with the event time, and its unit. ``waits``: the columns may stay unknown while no value defines them.
    InvalidPipeline if two columns would have one name."""

    def __init__(
        self,
        place: str,
        format: ValueFormat,
        schema: pa.Schema | Mapping[str, Any] | None,
        added: Iterable[pa.Field],
        time: tuple[str, str | None],
        *,
        noun: str = "value",
        waits: bool = False,
    ) -> None:
        self.format = format
        self.is_given = schema is not None
        self._place, self._noun, self._waits = place, noun, waits
        self._added = pa.schema(added)
        self._schema = None if schema is None else from_option(schema)
        self._timestamp, self._unit = time
        options.require_type("timestamp", self._timestamp, str, "'ts'")
        options.require_unit(self._unit)
        self._whole(pa.schema([]) if self._schema is None else self._schema)

    def times(self) -> dict[str, Any]:
        """The recorded options that determine how every value is read."""
        return {"timestamp": self._timestamp, "timestamp_unit": self._unit, "format": self.format.name}

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        """InvalidPipeline for options that a job must not change."""
        options.require_recorded(recorded, self.times())

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns of the batches. A plan without splits may not know those of the values yet."""
        return self._whole(from_json(recorded.get("schema", [])))

    def _whole(self, values: pa.Schema) -> pa.Schema:
        names = [*values.names, *self._added.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            remedy = ": omit it from schema=" if self.is_given else ""
            raise InvalidPipeline(
                f"{self._place}: {', '.join(twice)} is a field of the {self._noun}s, and a column that the source adds"
                f"{remedy}"
            )
        return pa.schema([*values, *self._added])

    def described(
        self, recorded: Mapping[str, Any], reads: bool, samples: Callable[[], Iterable[Sequence[MessageValue]]]
    ) -> dict[str, Any]:
        """What a plan records about the values. ``recorded``: what the checkpoint has recorded; ``reads``: whether the
        plan reads any."""
        return {**self.times(), **(self.recorded(recorded, samples) if reads or self.is_given or self._waits else {})}

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
        if schema is None:
            return {**fixed}
        require_readable(self._whole(schema), self._timestamp, self._unit)
        return {**fixed, "schema": to_json(schema)}

    def _inferred(self, samples: Iterable[Sequence[MessageValue]]) -> pa.Schema | None:
        schemas = []
        try:
            for values in samples:
                schema = self.format.infer(values)
                if schema is not None:
                    schemas.append(schema)
        except Unreadable as error:
            raise SourceError(
                f"{self._place}: {error}. Give schema=, and such {self._noun}s are dead letters"
            ) from error
        if not schemas and self._waits:
            return None
        if not schemas:
            raise SourceError(f"{self._place}: no {self._noun} defines the columns. Give schema=")
        # Settled for all partitions at once: a field that is null in one may have a type in another.
        return settled(widest(schemas), self._place)

    def records(self, messages: Gathering, recorded: Mapping[str, Any], dead: Sequence[DeadRecord] = ()) -> Records:
        """The records of messages. ``dead``: others that have no value to decode."""
        schema, values = from_json(recorded["schema"]), messages.values
        decoded = self.format.decode(values, schema, recorded)
        rows = decoded.rows
        columns = [*decoded.batch.columns, *(messages.column(name, rows) for name in self._added.names)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._whole(schema))
        offsets = np.asarray(messages.offsets, np.int64)
        bad = [
            DeadRecord(0, int(offsets[row]), reason, (values[row] or b"")[:DEAD_BYTES_MAX])
            for row, reason in decoded.dead
        ]
        if dead:
            bad = sorted([*bad, *dead], key=lambda record: record.offset)
        time = batch.column(self._timestamp)
        times = milliseconds(time, self._unit)
        why = partial(why_none, time, self._timestamp, self._unit)
        kept = offsets if len(rows) == len(offsets) else offsets[list(rows)]
        return Records(0, batch, times, kept, bad, why, ignored=decoded.ignored)


def first_records(log: SegmentedLog, start: int) -> list[Any]:
    """The records of a log from number ``start`` on, at most ``SAMPLE_ROWS``."""
    values: list[Any] = []
    for batch in log.read(log.position_of(start)):
        values += batch.records[: SAMPLE_ROWS - len(values)].to_pylist()
        if len(values) >= SAMPLE_ROWS:
            break
    return values


METADATA: Final[Mapping[str, pa.DataType]] = {
    "_timestamp": pa.timestamp("ms", "UTC"),
    "_key": pa.binary(),
    "_headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "_timestamp": methodcaller("timestamp"),
    "_key": methodcaller("key"),
    "_headers": methodcaller("headers"),
}
_value, _offset = methodcaller("value"), methodcaller("offset")


class Gathered:
    """Messages as columns: their ``values``, ``offsets`` and the requested ``metadata``. ``size``: the bytes of all
    that is kept."""

    def __init__(self, metadata: Sequence[str]) -> None:
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        self.size = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in metadata}

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_full(self) -> bool:
        """Whether these are enough for one batch."""
        return len(self.values) >= BATCH_ROWS or self.size >= BATCH_BYTES

    def add(self, messages: Sequence[Any]) -> None:
        """Add messages of a Kafka client."""
        values = list(map(_value, messages))
        self.values += values
        self.offsets += map(_offset, messages)
        self.size += sum(map(len, filter(None, values)))
        for name, column in self._columns.items():
            cells = list(map(_READ[name], messages))
            column += cells
            self.size += _SIZE[name](cells)

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """A column of metadata, of some rows."""
        cells = self._columns[name]
        chosen = cells if len(rows) == len(cells) else [cells[row] for row in rows]
        return pa.array(_SHAPED[name](chosen), METADATA[name])


def metadata_fields(names: Sequence[str]) -> list[pa.Field]:
    """The columns of this metadata."""
    return [pa.field(name, METADATA[name]) for name in names]


def checked_metadata(metadata: Any, timestamp: str) -> tuple[str, ...]:
    """The option ``metadata=``, plus the timestamp column if it is one of them."""
    if isinstance(metadata, str) or not set(metadata) <= set(METADATA):
        raise InvalidPipeline(f"metadata={metadata!r}: give a list of some of {', '.join(METADATA)}")
    chosen = {*metadata, timestamp} if timestamp in [*METADATA] else set(metadata)
    return tuple(name for name in METADATA if name in chosen)


def _times(pairs: Sequence[tuple[int, int]]) -> list[int | None]:
    """The times; null for a message that has none."""
    return [time if kind else None for kind, time in pairs]


def _headers(all_headers: Sequence[Any]) -> list[list[dict[str, Any]]]:
    return [[{"key": key, "value": value} for key, value in headers or ()] for headers in all_headers]


def _header_bytes(all_headers: Sequence[Any]) -> int:
    return sum(len(key) + len(value or b"") for headers in all_headers if headers for key, value in headers)


_SHAPED: Final[Mapping[str, Callable[[Any], Any]]] = {"_timestamp": _times, "_key": list, "_headers": _headers}
_SIZE: Final[Mapping[str, Callable[[Any], int]]] = {
    "_timestamp": len,
    "_key": lambda keys: sum(map(len, filter(None, keys))),
    "_headers": _header_bytes,
}
