"""The encoding is a tagged, canonical form of plain Python values as bytes.

    decode(encode(value)) == value, and has the same type all the way down
    encode(a) == encode(b)   iff a and b are equal, and of equal types all the way down

Where ``==`` is coarser or finer than what a reader sees, the encoding follows the reader: -0.0 and 0.0 differ, and so
do ``Decimal("1.0")`` and ``Decimal("1.00")``; all NaN floats are one, which decodes to ``math.nan`` itself. An aware
datetime is encoded as its instant and decodes in UTC. ``1``, ``1.0`` and ``True`` differ.
Sets and dicts are sorted by encoded bytes.

A value is a tag byte, then a payload. Lengths and counts are unsigned LEB128, minimal. Nothing is unpickled.

Nesting, integers and hash collisions are bounded both ways; ``decoding``, which reads the bytes, says why.
"""

from __future__ import annotations

import base64
import json
import math
import numbers
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from monoids.decoding import (
    COLLISIONS_MAX,
    DEPTH_MAX,
    EPOCH,
    INTEGER_BYTES_MAX,
    MICROSECOND,
    NAN_BYTES,
    check_collisions,
    decimal_in_scientific_text,
    decode,
)

__all__ = ["COLLISIONS_MAX", "DEPTH_MAX", "INTEGER_BYTES_MAX", "decode", "encode", "order_key", "to_json"]


def encode(value: Any) -> bytes:
    """A plain value as canonical bytes. TypeError for any other object, ValueError if nested too deeply.

    >>> encode({"b", "a"}) == encode({"a", "b"})
    True
    >>> encode(1) == encode(True)
    False
    """
    out = bytearray()
    _encode(value, out, 0)
    return bytes(out)


def _encode(value: Any, out: bytearray, depth: int) -> None:
    write = _WRITERS.get(type(value))
    if write is None:
        raise TypeError(_not_plain(value))
    if depth > DEPTH_MAX:
        raise ValueError(f"the value nests containers deeper than {DEPTH_MAX}, so it cannot be encoded")
    write(value, out, depth)


def _not_plain(value: Any) -> str:
    kind = type(value)
    where = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    remedy = (
        ("write value.item() to make it a Python number" if not value.ndim else "write tuple(array.tolist())")
        if isinstance(value, np.generic | np.ndarray)
        else "build it from plain Python values (numbers, str, bytes, dates, tuple, list, set, dict),"
        " or define encode(self, element) and decode(self, data) in the monoid"
    )
    return f"an object of type {where} has no canonical encoding: {remedy}"


# Writers, one per type.


def _write_length(length: int, out: bytearray) -> None:
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)


def _write_none(value: None, out: bytearray, depth: int) -> None:
    out += b"N"


def _write_bool(value: bool, out: bytearray, depth: int) -> None:
    out += b"T" if value else b"F"


def _write_integer(tag: bytes, value: int, out: bytearray) -> None:
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    if size > INTEGER_BYTES_MAX:
        raise ValueError(f"an integer of {size} bytes cannot be encoded: the limit is {INTEGER_BYTES_MAX}")
    out += tag
    _write_length(size, out)
    out += value.to_bytes(size, "big", signed=True)


def _write_int(value: int, out: bytearray, depth: int) -> None:
    _write_integer(b"i", value, out)


def _write_float(value: float, out: bytearray, depth: int) -> None:
    out += b"f"
    out += struct.pack(">d", value) if value == value else NAN_BYTES


def _write_bytes(tag: bytes, data: bytes, out: bytearray) -> None:
    out += tag
    _write_length(len(data), out)
    out += data


def _write_str(value: str, out: bytearray, depth: int) -> None:
    _write_bytes(b"s", value.encode("utf-8", "surrogatepass"), out)


def _write_binary(value: bytes, out: bytearray, depth: int) -> None:
    _write_bytes(b"b", value, out)


def _write_decimal(value: Decimal, out: bytearray, depth: int) -> None:
    _write_bytes(b"d", decimal_in_scientific_text(value).encode("ascii"), out)


def _write_date(value: date, out: bytearray, depth: int) -> None:
    _write_integer(b"D", value.toordinal(), out)


def _write_time(value: time, out: bytearray, depth: int) -> None:
    if value.tzinfo is not None:
        raise TypeError("a time of day with a time zone has no canonical encoding: use a datetime, or drop tzinfo")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    _write_integer(b"t", seconds * 1_000_000 + value.microsecond, out)


def _write_datetime(value: datetime, out: bytearray, depth: int) -> None:
    offset = value.utcoffset()
    elapsed = value.replace(tzinfo=None) - EPOCH
    if offset is None:
        _write_integer(b"m", elapsed // MICROSECOND, out)
        return
    instant = elapsed - offset
    try:
        EPOCH + instant
    except OverflowError:
        raise ValueError(f"{value!r} is outside the years 1 to 9999 in UTC, so it cannot be encoded") from None
    _write_integer(b"z", instant // MICROSECOND, out)


def _write_timedelta(value: timedelta, out: bytearray, depth: int) -> None:
    _write_integer(b"p", value // MICROSECOND, out)


def _write_sequence(value: tuple[Any, ...] | list[Any], out: bytearray, depth: int) -> None:
    out += b"(" if type(value) is tuple else b"["
    _write_length(len(value), out)
    for item in value:
        _encode(item, out, depth + 1)


def _encoded(value: Any, depth: int) -> bytes:
    out = bytearray()
    _encode(value, out, depth)
    return bytes(out)


def _write_set(value: set[Any] | frozenset[Any], out: bytearray, depth: int) -> None:
    check_collisions(value)
    items = {_encoded(item, depth + 1) for item in value}
    out += b"<" if type(value) is set else b">"
    _write_length(len(items), out)
    for item in sorted(items):
        out += item


def _write_dict(value: dict[Any, Any], out: bytearray, depth: int) -> None:
    check_collisions(value)
    entries = {_encoded(key, depth + 1): item for key, item in value.items()}
    if len(entries) != len(value):
        raise ValueError("a dict with two NaN keys has no canonical encoding: use math.nan as the key")
    out += b"{"
    _write_length(len(entries), out)
    for key in sorted(entries):
        out += key
        _encode(entries[key], out, depth + 1)


_WRITERS: Mapping[type, Callable[[Any, bytearray, int], None]] = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    bytes: _write_binary,
    Decimal: _write_decimal,
    date: _write_date,
    time: _write_time,
    datetime: _write_datetime,
    timedelta: _write_timedelta,
    tuple: _write_sequence,
    list: _write_sequence,
    set: _write_set,
    frozenset: _write_set,
    dict: _write_dict,
}


# What people read.


def to_json(value: Any) -> str:
    """A presented value as canonical JSON: keys sorted, no spaces.

    Tuples become lists, sets sorted lists, bytes base64. Decimals, dates, NaN and infinities become strings, aware
    datetimes strings in UTC. A key that is not a str becomes its JSON text; a mapping in which two keys share one text,
    such as 1 and "1", becomes a sorted list of pairs: [[key, value], ...]. TypeError for any other object.

    >>> to_json({"b": {3, 1}, "a": (1.5, None, b"hi")})
    '{"a":[1.5,null,"aGk="],"b":[1,3]}'
    """
    return _json(value, 0)


def _json(value: Any, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise ValueError(f"the value nests containers deeper than {DEPTH_MAX}, so it cannot be presented as JSON")
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return _json_string(value)
        case numbers.Integral():
            # Through Decimal, because str refuses integers over 4,300 digits.
            return f"{Decimal(int(value)):f}"
        case numbers.Real():
            return json.dumps(float(value)) if math.isfinite(value) else f'"{float(value)}"'
        case tuple() | list():
            return "[" + ",".join(_json(item, depth + 1) for item in value) + "]"
        case set() | frozenset():
            return "[" + ",".join(_json(item, depth + 1) for item in sorted(value, key=order_key)) + "]"
        case Mapping():
            return _json_mapping(value, depth)
        case _:
            return _json_string(_text(value))


def _json_mapping(value: Mapping[Any, Any], depth: int) -> str:
    keys = [key if isinstance(key, str) else _json(key, depth + 1) for key in value]
    items = [_json(item, depth + 1) for item in value.values()]
    if len(set(keys)) == len(keys):
        return "{" + ",".join(f"{_json_string(key)}:{item}" for key, item in sorted(zip(keys, items))) + "}"
    pairs = sorted(zip((_json(key, depth + 1) for key in value), items))
    return "[" + ",".join(f"[{key},{item}]" for key, item in pairs) + "]"


def _json_string(text: str) -> str:
    whole = json.dumps(text, ensure_ascii=False)
    return whole if _encodable(whole) else json.dumps(text)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
        case date() | time():
            return value.isoformat()
        case Decimal():
            return decimal_in_scientific_text(value)
        case timedelta():
            return str(value)
        case _:
            raise TypeError(
                f"a value of type {type(value).__qualname__} cannot be presented as JSON:"
                " let present(self, element) return plain Python values"
            )


def order_key(value: Any) -> tuple[Any, ...]:
    """A sort key that orders any two plain values, each kind in its own order; NaN is above all numbers.

    >>> sorted([(2, "b"), "a", 3, None, (2, "a")], key=order_key)
    [None, 3, 'a', (2, 'a'), (2, 'b')]
    """
    match value:
        case None:
            return (0,)
        case bool() | int() | float() | Decimal():
            return (1, value) if value == value else (2,)
        case str():
            return (3, value)
        case bytes():
            return (4, value)
        case datetime():
            return (5, value) if value.tzinfo is None else (6, value)
        case date():
            return (7, value)
        case timedelta():
            return (8, value)
        case tuple() | list():
            return (9, tuple(order_key(item) for item in value))
        case _:
            return (10, encode(value))
