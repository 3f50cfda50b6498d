"""Decoding turns the canonical bytes of a plain value, which ``encoding`` writes, back into the value.

Any bytes lead to a value or a ValueError, in time and memory proportional to their length: every length is checked
against the bytes left, and nesting, integers and hash collisions are bounded. ``encode`` keeps the same bounds, so
everything it writes can be read.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, NoReturn

DEPTH_MAX = 100
"""The nesting limit of containers."""

INTEGER_BYTES_MAX = 1 << 20
"""The largest integer: 2.5 million digits. Printing or parsing one takes time quadratic in its length."""

COLLISIONS_MAX = 1 << 12
"""The limit of items of a set, or keys of a dict, that share a hash: inserting n of them takes time quadratic in n."""

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
_DECIMAL_CONTEXT = Context(capitals=1)
NAN_BYTES = struct.pack(">d", math.nan)


def decode(data: bytes) -> Any:
    """The inverse of ``encode``. ValueError, with the byte offset, for bytes that ``encode`` does not write.

    >>> from monoids.encoding import encode
    >>> decode(encode((1, "é", None)))
    (1, 'é', None)
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        reader.fail(f"{len(data) - reader.at} bytes follow the value")
    return value


def check_collisions(items: Collection[Any]) -> None:
    """ValueError if more than COLLISIONS_MAX of the items share a hash."""
    if len(items) > COLLISIONS_MAX and max(Counter(map(hash, items)).values()) > COLLISIONS_MAX:
        raise ValueError(f"more than {COLLISIONS_MAX} items of a set or keys of a dict share one hash")


def decimal_in_scientific_text(value: Decimal) -> str:
    """The text of a decimal with a capital ``E``. ``str`` follows the caller's decimal context instead."""
    return _DECIMAL_CONTEXT.to_sci_string(value)


class _Corrupt(ValueError):
    """An error that already names its place."""


class _Reader:
    """The bytes being decoded, and the offset reached. Every length is checked before it is used."""

    def __init__(self, data: bytes) -> None:
        self.data = bytes(data)
        self.at = 0

    def fail(self, fault: str) -> NoReturn:
        raise _Corrupt(f"corrupt encoding at byte {self.at} of {len(self.data)}: {fault}")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            self.fail(f"{size} bytes are announced, {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def length(self) -> int:
        length = shift = 0
        while True:
            byte = self.take(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 56:
                self.fail("a length of more than 8 bytes")
        if byte == 0 and shift > 7:
            self.fail("a length that is not minimal")
        return length

    def count(self, bytes_least: int) -> int:
        count = self.length()
        if count * bytes_least > len(self.data) - self.at:
            self.fail(f"{count} items are announced, {len(self.data) - self.at} bytes are left")
        return count

    def integer(self) -> int:
        size = self.length()
        if size > INTEGER_BYTES_MAX:
            self.fail(f"an integer of {size} bytes")
        data = self.take(size)
        value = int.from_bytes(data, "big", signed=True)
        if len(data) != (value if value >= 0 else ~value).bit_length() // 8 + 1:
            self.fail("an integer that is not minimal")
        return value

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            self.fail(f"containers nest deeper than {DEPTH_MAX}")
        start = self.at
        tag = self.take(1)
        read = _READERS.get(tag)
        if read is None:
            self.at = start
            self.fail(f"unknown tag {tag!r}")
        try:
            return read(self, depth)
        except _Corrupt:
            raise
        except (ArithmeticError, TypeError, ValueError) as error:
            self.at = start
            self.fail(f"no value of tag {tag!r}: {error}")

    def next_key(self, last: bytes, depth: int) -> tuple[Any, bytes]:
        """The next item of a set or key of a dict, with its bytes, which must be greater than ``last``."""
        start = self.at
        value = self.value(depth + 1)
        data = self.data[start : self.at]
        if data <= last:
            self.at = start
            self.fail("items of a set or keys of a dict are not in ascending order")
        return value, data


def _read_float(reader: _Reader, depth: int) -> float:
    data = reader.take(8)
    (value,) = struct.unpack(">d", data)
    if value != value:
        if data != NAN_BYTES:
            reader.fail("a NaN that is not the canonical one")
        return math.nan
    return float(value)


def _read_str(reader: _Reader, depth: int) -> str:
    return reader.take(reader.length()).decode("utf-8", "surrogatepass")


def _read_decimal(reader: _Reader, depth: int) -> Decimal:
    text = reader.take(reader.length()).decode("ascii")
    value = Decimal(text)
    if decimal_in_scientific_text(value) != text:
        reader.fail("a Decimal that is not in canonical form")
    return value


def _read_time(reader: _Reader, depth: int) -> time:
    moment = datetime.min + reader.integer() * MICROSECOND
    if moment.date() != date.min:
        reader.fail("a time of day beyond 24 hours")
    return moment.time()


def _read_tuple(reader: _Reader, depth: int) -> tuple[Any, ...]:
    return tuple(_read_list(reader, depth))


def _read_list(reader: _Reader, depth: int) -> list[Any]:
    return [reader.value(depth + 1) for _ in range(reader.count(1))]


def _read_set(reader: _Reader, depth: int) -> set[Any]:
    members: list[Any] = []
    last = b""
    for _ in range(reader.count(1)):
        item, last = reader.next_key(last, depth)
        members.append(item)
    check_collisions(members)
    items = set(members)
    if len(items) != len(members):
        reader.fail("two items of a set are equal")
    return items


def _read_dict(reader: _Reader, depth: int) -> dict[Any, Any]:
    keys: list[Any] = []
    values: list[Any] = []
    last = b""
    for _ in range(reader.count(2)):
        key, last = reader.next_key(last, depth)
        keys.append(key)
        values.append(reader.value(depth + 1))
    check_collisions(keys)
    entries = dict(zip(keys, values))
    if len(entries) != len(keys):
        reader.fail("two keys of a dict are equal")
    return entries


_READERS: Mapping[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"F": lambda reader, depth: False,
    b"T": lambda reader, depth: True,
    b"i": lambda reader, depth: reader.integer(),
    b"f": _read_float,
    b"s": _read_str,
    b"b": lambda reader, depth: reader.take(reader.length()),
    b"d": _read_decimal,
    b"D": lambda reader, depth: date.fromordinal(reader.integer()),
    b"t": _read_time,
    b"m": lambda reader, depth: EPOCH + reader.integer() * MICROSECOND,
    b"z": lambda reader, depth: (EPOCH + reader.integer() * MICROSECOND).replace(tzinfo=UTC),
    b"p": lambda reader, depth: reader.integer() * MICROSECOND,
    b"(": _read_tuple,
    b"[": _read_list,
    b"<": _read_set,
    b">": lambda reader, depth: frozenset(_read_set(reader, depth)),
    b"{": _read_dict,
}
