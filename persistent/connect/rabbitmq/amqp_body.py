"""The body of an AMQP 1.0 message, which is the format of the records of a stream.

A message is a sequence of sections: each a descriptor, then its value (OASIS AMQP 1.0, 3.2). The body is one or more
sections of data, whose bytes are concatenated, or one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from persistent.connect.formats.message_columns import DEAD_BYTES_MAX
from persistent.connect.formats.values import MessageValue
from persistent.connect.rabbitmq.stream_connection import Chunk
from persistent.connect.source import DeadRecord

_DATA: Final = 0x75
_SEQUENCE: Final = 0x76
_VALUE: Final = 0x77
_BEFORE: Final = range(0x70, 0x75)
"""Header, delivery annotations, message annotations, properties, application properties."""
_FOOTER: Final = 0x78
_NONE_OF_IT: Final = 'the record is not an AMQP 1.0 message. If its bytes are the value, give encoding="raw"'
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""The size of a value, by the first half of its constructor."""
_SIZED: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
"""The width of the size of a value."""
_BYTES: Final = (0xA0, 0xB0, 0xA1, 0xB1)
"""The constructors of binaries and strings."""
_NULL: Final = 0x40


def message_of(body: bytes) -> bytes:
    """A message with one section of data.

    >>> message_of(b"hi").hex(" ")
    '00 53 75 b0 00 00 00 02 68 69'
    """
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


def body_of(message: bytes) -> bytes | None:
    """The body of a message; None if it has none, which some clients write as no bytes at all. ValueError if the bytes
    are not a message, or its body is of another kind.

    >>> body_of(message_of(b"hi")), body_of(b"\\x00\\x53\\x77\\x40")
    (b'hi', None)
    """
    # Nearly all messages have nothing but data.
    if message[:4] == b"\x00\x53\x75\xb0" and int.from_bytes(message[4:8], "big") == len(message) - 8:
        return message[8:]
    if message[:4] == b"\x00\x53\x75\xa0" and len(message) > 4 and message[4] == len(message) - 5:
        return message[5:]
    sections: list[bytes | None] = []
    at = 0
    while at < len(message):
        code, at = _descriptor(message, at)
        start, stop = _value(message, at)
        if code in (_DATA, _VALUE):
            if message[at] == _NULL and code == _VALUE:
                sections.append(None)
            elif message[at] in _BYTES:
                sections.append(message[start:stop])
            else:
                raise ValueError("the body of the message is neither bytes nor a text")
        elif code == _SEQUENCE:
            raise ValueError("the body of the message is an AMQP sequence")
        elif code not in _BEFORE and code != _FOOTER:
            raise ValueError(_NONE_OF_IT)
        at = stop
    parts = [part for part in sections if part is not None]
    return b"".join(parts) if parts else None


def _descriptor(message: bytes, at: int) -> tuple[int, int]:
    """The code of a section, and where its value begins."""
    if message[at : at + 2] == b"\x00\x53" and len(message) > at + 3:
        return message[at + 2], at + 3
    if message[at : at + 2] == b"\x00\x80" and len(message) > at + 10:
        return int.from_bytes(message[at + 2 : at + 10], "big"), at + 10
    raise ValueError(_NONE_OF_IT)


def _value(message: bytes, at: int) -> tuple[int, int]:
    """Where the content of a value begins and ends."""
    kind = message[at] >> 4
    start = at + 1
    if kind in _FIXED:
        stop = start + _FIXED[kind]
    elif kind in _SIZED:
        width = _SIZED[kind]
        size = int.from_bytes(message[start : start + width], "big")
        start, stop = start + width, start + width + size
    else:
        raise ValueError(_NONE_OF_IT)
    if stop > len(message):
        raise ValueError(_NONE_OF_IT)
    return start, stop


class StreamRecords:
    """Records of a stream as columns. ``dead``: those that are not messages. ``size``: the bytes of all."""

    def __init__(self) -> None:
        self.values: list[MessageValue] = []
        self.offsets: list[int] = []
        self.dead: list[DeadRecord] = []
        self.size = 0
        self._times: list[int] = []

    def take(self, chunk: Chunk, start: int, stop: int, is_amqp: bool) -> None:
        """Add the records of a chunk from ``start`` to ``stop``. ValueError if it cannot be decoded."""
        messages = chunk.messages()
        low, high = max(start - chunk.first, 0), max(stop - chunk.first, 0)
        messages = messages[low:high]
        values: list[MessageValue] = []
        offsets: list[int] = []
        for offset, message in enumerate(messages, chunk.first + low):
            try:
                values.append(body_of(message) if is_amqp else message)
            except ValueError as error:
                self.dead.append(DeadRecord(0, offset, str(error), message[:DEAD_BYTES_MAX]))
            else:
                offsets.append(offset)
        self.values += values
        self.offsets += offsets
        self._times += [chunk.timestamp] * len(values)
        self.size += sum(map(len, messages))

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """The times at which the broker wrote these rows."""
        times = self._times if len(rows) == len(self._times) else [self._times[row] for row in rows]
        return pa.array(times, pa.timestamp("ms", "UTC"))
