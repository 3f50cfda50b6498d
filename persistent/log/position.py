"""A log position is the place of a record: its segment, the entry in the segment, and the slot in the entry.

Positions are ordered as tuples are. A reader that begins at a position receives that record first, or else the first
one after it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from persistent.errors import CorruptLog

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
