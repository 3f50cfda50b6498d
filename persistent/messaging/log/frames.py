"""A frame is a self-verifying piece of a segment: a header of 64 bytes, then its content, padded to words.

    magic 4 | kind 1 | zero 3 | entry 4 | records 4 | mark bytes 4 | content bytes 4
    number 8 | durable 8 | first time 8 | last time 8 | CRC-32 of all else 8
    content:  times 8n | offsets 4(n+1) | records | mark | zeros

``number`` counts the records of the log before it. ``durable``: how many bytes of the file were on the disk and
acknowledged when the frame was written. A fault before byte ``durable`` is damage. The CRC begins with the id of the
log and the number of the segment, so a frame is valid only in its own place.

A log position is the place of a record: its segment, the entry in the segment, and the slot in the entry.

Positions are ordered as tuples are. A reader that begins at a position receives that record first, or else the first
one after it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from persistent.errors import CorruptLog

HEADER_BYTES = 64
CONTENT_BYTES_MAX = 1 << 30
"""The largest content of a frame, because offsets have 32 bits."""
_MAGIC = b"PLG\x01"
_HEADER = struct.Struct("<4sB3xIIIIQQqqQ")
_CHECKED_BYTES = HEADER_BYTES - 8
_WORD = 8
_TIME_BYTES = 8
_OFFSET_BYTES = 4


class Kind(IntEnum):
    """HEAD begins a segment and SEAL ends it; LAST ends the log too. DATA is an entry. NOTE records what is durable."""

    HEAD = 1
    DATA = 2
    NOTE = 3
    SEAL = 4
    LAST = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame. ``start`` and ``stop``: its bytes in the segment."""

    kind: Kind
    entry: int
    count: int
    number: int
    durable: int
    first: int
    last: int
    mark_bytes: int
    start: int
    stop: int

    def times(self, data: pa.Buffer) -> Any:
        """The times of its records, int64."""
        return np.frombuffer(data, np.int64, self.count, self.start + HEADER_BYTES)

    def offsets(self, data: pa.Buffer) -> Any:
        return np.frombuffer(data, np.int32, self.count + 1, self._offsets)

    def records(self, data: pa.Buffer) -> pa.BinaryArray:
        """Its records, without a copy."""
        start = self._offsets + _OFFSET_BYTES * (self.count + 1)
        offsets = data.slice(self._offsets, start - self._offsets)
        records: pa.BinaryArray = pa.Array.from_buffers(
            pa.binary(), self.count, [None, offsets, data.slice(start, self._size(data))]
        )
        return records

    def mark(self, data: pa.Buffer) -> bytes:
        start = self._offsets + _OFFSET_BYTES * (self.count + 1) + self._size(data)
        mark: bytes = data.slice(start, self.mark_bytes).to_pybytes()
        return mark

    def checksum(self, data: pa.Buffer) -> int:
        """The CRC-32 of the frame and of its place."""
        return int.from_bytes(data.slice(self.start + _CHECKED_BYTES, 8).to_pybytes(), "little")

    @property
    def _offsets(self) -> int:
        return self.start + HEADER_BYTES + _TIME_BYTES * self.count

    def _size(self, data: pa.Buffer) -> int:
        return int(self.offsets(data)[-1])

    def fits(self, data: pa.Buffer) -> bool:
        """Whether its content has the sizes of its header, so that nothing outside of it is read."""
        before = self._offsets + _OFFSET_BYTES * (self.count + 1)
        if before > self.stop:
            return False
        offsets = self.offsets(data)
        size = int(offsets[-1])
        rising = self.count == 0 or bool((offsets[1:] >= offsets[:-1]).all())
        return offsets[0] == 0 and rising and self.stop == before + _padded(size + self.mark_bytes, before)


def seed_of(log: str, segment: int) -> int:
    """The initial value of the CRC of the frames of a segment."""
    return zlib.crc32(f"{log} {segment}".encode())


def encode(
    kind: Kind,
    seed: int,
    *,
    entry: int,
    number: int,
    durable: int,
    times: Any = (),
    records: pa.BinaryArray | None = None,
    last: int = 0,
    mark: bytes = b"",
) -> list[bytes | memoryview | pa.Buffer]:
    """The parts of a frame, in order. ``last``: the last time of a frame without records."""
    offsets, data = _columns(records)
    count = len(offsets) - 1
    times = np.ascontiguousarray(times, np.int64)
    before = _TIME_BYTES * count + _OFFSET_BYTES * (count + 1)
    size = before + _padded(len(data) + len(mark), before)
    first, last = (int(times[0]), int(times[-1])) if count else (last, last)
    padding = bytes(size - before - len(data) - len(mark))
    content: list[Any] = [memoryview(times).cast("B"), memoryview(offsets).cast("B"), memoryview(data), mark + padding]
    fields = (_MAGIC, kind, entry, count, len(mark), size, number, durable, first, last)
    header = _HEADER.pack(*fields, 0)[:_CHECKED_BYTES]
    checksum = zlib.crc32(header, seed)
    for part in content:
        checksum = zlib.crc32(part, checksum)
    return [header + checksum.to_bytes(8, "little"), *(part for part in content if len(part))]


def frames(data: pa.Buffer, seed: int, start: int = 0) -> Iterator[Frame]:
    """The whole frames from byte ``start`` on, up to the first that is not whole."""
    view = memoryview(data)
    while (frame := frame_at(data, view, seed, start)) is not None:
        yield frame
        start = frame.stop


def frame_at(data: pa.Buffer, view: memoryview, seed: int, start: int) -> Frame | None:
    """The frame that begins at ``start``, or None if there is no whole frame."""
    if start + HEADER_BYTES > len(view):
        return None
    magic, kind, entry, count, mark, size, number, durable, first, last, checksum = _HEADER.unpack_from(view, start)
    stop = start + HEADER_BYTES + size
    if magic != _MAGIC or stop > len(view):
        return None
    header_checksum = zlib.crc32(view[start : start + _CHECKED_BYTES], seed)
    if zlib.crc32(view[start + HEADER_BYTES : stop], header_checksum) != checksum or kind not in _KINDS:
        return None
    frame = Frame(Kind(kind), entry, count, number, durable, first, last, mark, start, stop)
    return frame if frame.fits(data) else None


def durable_beyond(data: pa.Buffer, seed: int, start: int) -> int:
    """The highest ``durable`` of the whole frames behind a broken place; 0 without one. Frames begin at words."""
    view = memoryview(data)
    text = bytes(view[start:])
    durable, at = 0, text.find(_MAGIC, _WORD)
    while at >= 0:
        frame = frame_at(data, view, seed, start + at) if at % _WORD == 0 else None
        durable = max(durable, frame.durable if frame else 0)
        at = text.find(_MAGIC, at + 1 if frame is None else frame.stop - start)
    return durable


_KINDS = frozenset(Kind)


def _columns(records: pa.BinaryArray | None) -> tuple[Any, Any]:
    """The offsets from 0 on, int32, and the bytes of the records."""
    if records is None or not len(records):
        return np.zeros(1, np.int32), b""
    _, offsets, data = records.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(records) + 1, _OFFSET_BYTES * records.offset)
    start, stop = int(bounds[0]), int(bounds[-1])
    moved = bounds if start == 0 else bounds - np.int32(start)
    return np.ascontiguousarray(moved), b"" if data is None else data.slice(start, stop - start)


def _padded(size: int, before: int) -> int:
    """``size`` plus the number of zeros that fill up ``before + size`` to a word."""
    return size + -(before + size) % _WORD


_VERSION = 1
_BYTES = struct.Struct(">Bqqq")
_TEXT_PARTS = 3


class LogPosition(NamedTuple):
    """The place of a record.

    >>> LogPosition(1, 9, 9) < LogPosition(2, 0, 0), str(LogPosition(1, 2, 3).after())
    (True, '1-2-4')
    >>> LogPosition.from_bytes(LogPosition(1, 2, 3).to_bytes())
    LogPosition(segment=1, entry=2, slot=3)
    """

    segment: int
    entry: int
    slot: int

    def __str__(self) -> str:
        return f"{self.segment}-{self.entry}-{self.slot}"

    def after(self) -> LogPosition:
        """The position whose first record is the one after this."""
        return self._replace(slot=self.slot + 1)

    def to_bytes(self) -> bytes:
        """25 bytes: a version, then three big-endian integers. They sort in the order of the positions."""
        return _BYTES.pack(_VERSION, *self)

    @staticmethod
    def from_bytes(data: bytes) -> LogPosition:
        """The inverse of ``to_bytes``. CorruptLog for anything else."""
        if len(data) != _BYTES.size or data[0] != _VERSION:
            raise CorruptLog(
                f"{data[:32]!r} is not a position of a log: a position has {_BYTES.size} bytes, the first of "
                f"them {_VERSION}"
            )
        position = LogPosition(*_BYTES.unpack(data)[1:])
        if min(position) < 0:
            raise CorruptLog(f"{data!r} is not a position of a log: {position} is negative")
        return position

    @staticmethod
    def from_text(text: str) -> LogPosition:
        """The inverse of ``str``. CorruptLog for anything else."""
        parts = text.split("-")
        if len(parts) != _TEXT_PARTS or not all(part.isascii() and part.isdecimal() for part in parts):
            raise CorruptLog(f"{text[:80]!r} is not a position of a log, such as 1-0-0")
        return LogPosition(*map(int, parts))


BEGINNING = LogPosition(1, 0, 0)
"""The position of the first record of a log."""
