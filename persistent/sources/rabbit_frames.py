"""A journaled message is a frame: the broker's facts about it as JSON, and its body.

version   1 byte
length    4 bytes, big-endian, of the JSON
JSON      {"id": ..., "key": ..., "sent": ms, "headers": {...}}; absent means not given, or not UTF-8;
          "dead": why it cannot be read
body      unchanged
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from persistent.clients.rabbit_headers import Undecodable
from persistent.errors import SourceError
from persistent.log.writer import RECORD_BYTES_MAX

_HEAD: Final = struct.Struct(">BI")
_VERSION: Final = 1
_CUT_BYTES: Final = 1 << 20
_ENTRY_BYTES: Final = 64 << 20
_YEAR_10000_MS: Final = 253_402_300_800_000
FIXED: Final[Mapping[str, pa.DataType]] = {
    "_message_id": pa.string(),
    "_routing_key": pa.string(),
    "_sent": pa.timestamp("ms", "UTC"),
}
"""The columns of every message: the id from its publisher, its routing key, and the publisher's time of sending."""


def fitted(properties: Any, routing_key: str | bytes, body: bytes, place: str, *, cuts: bool) -> bytes:
    """A message of pika as a frame that a journal accepts. A message that is too large is a dead letter with the
    beginning of its body if ``cuts``, otherwise SourceError."""
    frame = framed(properties, routing_key, body)
    if len(frame) <= RECORD_BYTES_MAX:
        return frame
    why = f"a message has {len(frame):,} bytes, and a journal accepts at most {RECORD_BYTES_MAX:,}"
    if not cuts:
        raise SourceError(
            f"{place}: {why}. It stays in the queue, and so do those after it: take it out, put it into a file, and "
            'the name of the file into a message; or give on_oversized="dead-letter", which keeps only its first '
            f"{_CUT_BYTES:,} bytes"
        )
    return framed(properties, routing_key, body[:_CUT_BYTES], f"{why}: all but its first {_CUT_BYTES:,} bytes is lost")


def framed(properties: Any, routing_key: str | bytes, body: bytes, dead: str | None = None) -> bytes:
    """A message of pika as a frame. Headers that are not numbers, texts, bytes or booleans are null. ``dead``: why it
    is a dead letter."""
    headers = {} if properties.headers is None else properties.headers
    facts = {
        "id": _utf8(properties.message_id),
        "key": _utf8(routing_key),
        "sent": None if properties.timestamp is None else properties.timestamp * 1_000,
        "headers": {name: _plain(value) for name, value in headers.items()},
        "dead": headers.reason if isinstance(headers, Undecodable) else dead,
    }
    text = json.dumps({name: value for name, value in facts.items() if value is not None}).encode()
    return _HEAD.pack(_VERSION, len(text)) + text + body


def in_entries(frames: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The frames in parts that fit one entry of a journal: ``prefetch`` messages can be larger than that."""
    begin = size = 0
    for number, frame in enumerate(frames, 1):
        size += len(frame)
        if size >= _ENTRY_BYTES or number == len(frames):
            yield frames[begin:number]
            begin, size = number, 0


def _utf8(value: str | bytes | None) -> str | None:
    """None for bytes that are not UTF-8: with replaced bytes, two different ids could become equal."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return _utf8(value)
    if isinstance(value, bool | float | str):
        return value
    return int(value) if isinstance(value, int) else None


def taken_apart(frames: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The JSON of each message, and its body. ValueError for a frame of another version."""
    messages, bodies = [], []
    for frame in frames:
        version, length = _HEAD.unpack_from(frame) if len(frame) >= _HEAD.size else (0, 0)
        if version != _VERSION:
            raise ValueError(f"a record is not a message of version {_VERSION}")
        begin = _HEAD.size + length
        messages.append(json.loads(frame[_HEAD.size : begin]))
        bodies.append(frame[begin:])
    return messages, bodies


def columns_of(rows: Sequence[Mapping[str, Any]], headers: pa.Schema) -> list[pa.Array]:
    """The columns of ``FIXED``, then those of ``headers``; null where the publisher gave none, or another type."""
    fixed = [
        pa.array([_text(row.get("id")) for row in rows], pa.string()),
        pa.array([_text(row.get("key")) for row in rows], pa.string()),
        pa.array([_sent(row.get("sent")) for row in rows], pa.int64()).cast(FIXED["_sent"]),
    ]
    return fixed + [
        pa.array([_cast(row["headers"].get(field.name), field.type) for row in rows], field.type) for field in headers
    ]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _sent(value: Any) -> int | None:
    """None for a time that no Python time fits: the publisher has given milliseconds as seconds."""
    is_time = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _YEAR_10000_MS
    return value if is_time else None


def _cast(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of this type holds it; None if it does not fit."""
    if isinstance(value, float) and not pa.types.is_floating(kind):
        # Some publishers send every number as a float.
        is_whole = pa.types.is_integer(kind) and value.is_integer() and abs(value) < 1 << 53
        value = int(value) if is_whole else None
    if value is None or isinstance(value, bool) != pa.types.is_boolean(kind):
        return None
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
