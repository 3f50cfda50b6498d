"""The metadata columns of messages, beside those of their values: the broker's timestamp, the key, the headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

import pyarrow as pa

from persistent.errors import InvalidPipeline

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

    def add(self, messages: Sequence[Any]) -> None:
        """Add messages of a Kafka client."""
        values = list(map(_value, messages))
        self.values += values
        self.offsets += map(_offset, messages)
        self.size += sum(map(len, filter(None, values)))
        for name, column in self._columns.items():
            found = list(map(_READ[name], messages))
            column += found
            self.size += _SIZE[name](found)

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """A column of metadata, of some rows."""
        found = self._columns[name]
        chosen = found if len(rows) == len(found) else [found[row] for row in rows]
        return pa.array(_SHAPED[name](chosen), METADATA[name])


def with_metadata(schema: pa.Schema, metadata: Sequence[str]) -> pa.Schema:
    """The columns of the values and of the metadata. InvalidPipeline if two have the same name."""
    both = [name for name in metadata if name in schema.names]
    if both:
        raise InvalidPipeline(f"{', '.join(both)} is a field of the values, and a column that the source adds")
    return pa.schema([*schema, *(pa.field(name, METADATA[name]) for name in metadata)])


def checked_metadata(given: Any, timestamp: str) -> tuple[str, ...]:
    """The option ``metadata=``, plus the timestamp column if it is one of them."""
    if isinstance(given, str) or not set(given) <= set(METADATA):
        raise InvalidPipeline(f"metadata={given!r}: give a list of some of {', '.join(METADATA)}")
    chosen = {*given, timestamp} if timestamp in METADATA else set(given)
    return tuple(name for name in METADATA if name in chosen)


def _times(found: Sequence[tuple[int, int]]) -> list[int | None]:
    """The times; null for a message that has none."""
    return [time if kind else None for kind, time in found]


def _headers(found: Sequence[Any]) -> list[list[dict[str, Any]]]:
    return [[{"key": key, "value": value} for key, value in headers or ()] for headers in found]


def _header_bytes(found: Sequence[Any]) -> int:
    return sum(len(key) + len(value or b"") for headers in found if headers for key, value in headers)


_SHAPED: Final[Mapping[str, Callable[[Any], Any]]] = {"_timestamp": _times, "_key": list, "_headers": _headers}
_SIZE: Final[Mapping[str, Callable[[Any], int]]] = {
    "_timestamp": len,
    "_key": lambda found: sum(map(len, filter(None, found))),
    "_headers": _header_bytes,
}
