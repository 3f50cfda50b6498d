"""The headers of a message, decoded one by one.

The client loses its connection over a header that no Python value fits, such as a timestamp in milliseconds or a NaN:
the broker delivers the message again, for ever. It also cuts floats down to integers. A message never ends a run here:
a value that is not a number, a text, bytes or a boolean is None, and undecodable headers say why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

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
            name = _text(encoded[begin:offset])
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
    return {b"S": _text(data), b"x": data}.get(kind), offset


def _text(data: bytes) -> str | bytes:
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
