"""A journaled message is a frame: the broker's facts about it as JSON, and its body. Headers are decoded one by one.

version   1 byte
length    4 bytes, big-endian, of the JSON
JSON      {"id": ..., "key": ..., "sent": ms, "headers": {...}}; absent means not given, or not UTF-8;
          "dead": why it cannot be read
body      unchanged

The client loses its connection over a header that no Python value fits, such as a timestamp in milliseconds or a NaN:
the broker delivers the message again, for ever. It also cuts floats down to integers. A message never ends a run here:
a value that is not a number, a text, bytes or a boolean is None, and undecodable headers say why.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.connect.formats.message_columns import DEAD_BYTES_MAX, MessageColumns, WholeColumns, first_records
from persistent.connect.formats.schemas import from_option
from persistent.connect.formats.values import value_format
from persistent.connect.log.source import planned_batches
from persistent.connect.source import DeadRecord, Records, Split
from persistent.errors import SourceChanged, SourceError
from persistent.messaging.log.cursor import LogBatch, grouped
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import RECORD_BYTES_MAX

_FRAME: Final = struct.Struct(">BHL")
"""The kind of a frame, its channel and the size of its content; one more byte ends it."""
_HEADER_FRAME: Final = 2
_CONTENT_BYTES: Final = 12
"""The size of a header frame before its properties."""
_FLAGS: Final = struct.Struct(">H")
_SIZE: Final = struct.Struct(">L")
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_PLAIN: Final[Mapping[bytes, struct.Struct]] = {
    kind: struct.Struct(f">{code}")
    for kind, code in {
        b"t": "?",
        b"b": "b",
        b"B": "B",
        b"U": "h",
        b"s": "h",
        b"u": "H",
        b"I": "i",
        b"i": "I",
        b"L": "q",
        b"l": "q",
        b"f": "f",
        b"d": "d",
    }.items()
}
"""Booleans, integers and floats."""
_OTHER: Final = {b"D": 5, b"T": 8, b"V": 0}
"""Decimals, timestamps and nothing, with their size."""
_SIZED: Final = (b"S", b"x", b"F", b"A")
"""Texts, bytes, tables and arrays."""


class Undecodable(dict[str, Any]):
    """The headers of a message that cannot be decoded: none, and the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def decode_headers(encoded: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """The headers in a table, and the offset behind it. A header whose name is not UTF-8 is left out; a text that is
    not UTF-8 is bytes.

    >>> decode_headers(b"\\x00\\x00\\x00\\x0b\\x01aT\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff", 0)
    ({'a': None}, 15)
    """
    offset, size = offset + _SIZE.size, _SIZE.unpack_from(encoded, offset)[0]
    end = offset + size
    headers: dict[str, Any] = {}
    try:
        while offset < end:
            begin = offset + 1
            offset = begin + encoded[offset]
            name = _header_text(encoded[begin:offset])
            value, offset = _decode_value(encoded, offset)
            if isinstance(name, str):
                headers[name] = value
        if offset > end:
            raise ValueError("a header is longer than all of them")
    except (ValueError, IndexError, struct.error) as error:
        return Undecodable(f"its headers cannot be decoded: {error}"), end
    return headers, end


def _decode_value(encoded: bytes, offset: int) -> tuple[Any, int]:
    kind, offset = encoded[offset : offset + 1], offset + 1
    if kind in _PLAIN:
        return _PLAIN[kind].unpack_from(encoded, offset)[0], offset + _PLAIN[kind].size
    if kind in _OTHER:
        return None, offset + _OTHER[kind]
    if kind not in _SIZED:
        raise ValueError(f"{kind!r} is not a type of AMQP 0-9-1")
    offset, size = offset + _SIZE.size, _SIZE.unpack_from(encoded, offset)[0]
    data, offset = encoded[offset : offset + size], offset + size
    return {b"S": _header_text(data), b"x": data}.get(kind), offset


def _header_text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def read_frame(decode: Callable[[bytes], tuple[int, Any]], data: bytes) -> tuple[int, Any]:
    """The size of the first frame in ``data``, and the frame: as ``decode`` of the client returns them, but with these
    headers."""
    if len(data) < _FRAME.size or data[0] != _HEADER_FRAME:
        return decode(data)
    kind, channel, size = _FRAME.unpack_from(data)
    end = _FRAME.size + size
    if len(data) <= end:
        return 0, None
    content = data[_FRAME.size : end]
    properties, headers = _taken_out(content[_CONTENT_BYTES:])
    rest = content[:_CONTENT_BYTES] + properties
    _, frame = decode(_FRAME.pack(kind, channel, len(rest)) + rest + data[end : end + 1])
    frame.properties.headers = headers
    return end + 1, frame


def _taken_out(properties: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Encoded properties without their headers, and the headers."""
    flags = _FLAGS.unpack_from(properties)[0]
    if not flags & _HEADERS:
        return properties, None
    begin = _FLAGS.size
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        begin += 1 + properties[begin] if flags & flag else 0
    headers, end = decode_headers(properties, begin)
    return _FLAGS.pack(flags & ~_HEADERS) + properties[_FLAGS.size : begin] + properties[end:], headers


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


TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))


class JournaledMessages(MessageColumns):
    """The messages in ``journal`` as columns: those of their bodies, and beside them the broker's facts about each.
    ``place``: names the source in errors."""

    def __init__(
        self,
        place: str,
        journal: SegmentedLog,
        format: str,
        schema: pa.Schema | Mapping[str, Any] | None,
        headers: pa.Schema | Mapping[str, Any] | None,
        time: tuple[str, str | None],
    ) -> None:
        self._journal = journal
        self._headers = pa.schema([]) if headers is None else from_option(headers)
        added = [*(pa.field(name, kind) for name, kind in FIXED.items()), *self._headers, TIME]
        values = value_format(format, infers=schema is None)
        super().__init__(place, values, schema, added, time, noun="message")

    def sample(self, start: int) -> Sequence[bytes]:
        """The first bodies, however large the step and however many its workers."""
        return self._taken_apart(first_records(self._journal, start))[1]

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        """The records of a split."""
        for span in split.spans:
            batches = planned_batches(self._journal, span.start, span.stop, self._place, "but the journal ends at")
            for group in grouped(batches):
                yield self._decoded(group, recorded)

    def _decoded(self, batches: Sequence[LogBatch], recorded: Mapping[str, Any]) -> Records:
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
        return self.records(gathering, recorded, dead)

    def _taken_apart(self, frames: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
        try:
            return taken_apart(frames)
        except ValueError as error:
            raise SourceChanged(
                f"{self._place}: {self._journal.storage.url} is another log: {error}. Give the source a journal of "
                "its own"
            ) from error
