"""A sketch takes exact numbers as its arguments, and hashes as its inputs: one word for each value, and none for None.

    hash_column(values)[i] == hash_value(values[i])     in a column, in a list, or alone

The rules are those of keys. ``1``, ``1.0`` and ``True`` are different values; integers of any width are the same value.
-0.0 is 0.0, all NaN are one value, decimals are equal whatever their scale, naive times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import from_numpy, plain_array, python_list
from monoids.column import Column
from monoids.hashing import hash_keys, key_column
from monoids.scalars import nanosecond, scalar, shown
from monoids.text import Words

Hash = Callable[[pa.Array], Column]
"""The hash of every value of a key column without nulls."""

_CHUNK_ROWS = 1 << 15


def key_hash(column: pa.Array) -> Words:
    """The versioned hash of ``monoids.hashing``."""
    return hash_keys([column], len(column))


def hash_value(value: Any, hash: Hash, owner: str) -> int | None:
    """The hash of one value; None for None. Raises as ``hash_column`` does."""
    words, valid = hash_column([value], hash, owner)
    return int(words[0]) if valid is None else None


def hash_column(values: Any, hash: Hash, owner: str) -> tuple[Column, Column | None]:
    """The hash of every value (Arrow array, NumPy array or list), and which are not null (None: all).

    The hash of a null is 0. TypeError for values that cannot be keys, OverflowError for integers outside int64,
    ValueError for values that their type cannot hold; each names ``owner``.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"{owner} takes a column of one dimension, not {values.ndim}")
        if values.dtype.kind in "OSU" and not isinstance(values, np.ma.MaskedArray):
            values = values.tolist()
        else:
            values = from_numpy(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_union(values.type):
        values = python_list(values)
    if isinstance(values, list):
        return _hash_list(values, hash, owner)
    if isinstance(values, pa.ChunkedArray):
        if pa.types.is_dictionary(values.type) and values.num_chunks > 1:
            return _concatenated([hash_column(chunk, hash, owner) for chunk in values.chunks])
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if pa.types.is_dictionary(values.type) and not values.dictionary.null_count:
        return _hash_dictionary(values, hash, owner)
    return _hash_keys(_key_column(values, owner), hash)


def _key_column(values: pa.Array, owner: str) -> pa.Array:
    try:
        values = plain_array(values)
        if pa.types.is_decimal256(values.type):  # the values decide, as they do for single values
            values = values.cast(pa.decimal128(38, values.type.scale))
        return key_column(values)
    except TypeError as error:
        raise TypeError(f"{owner} takes values that can be keys: {error}") from error
    except pa.ArrowInvalid as error:
        fault = OverflowError if pa.types.is_integer(values.type) else ValueError
        raise fault(f"{owner} cannot hold a value of a column of {values.type}: {error}") from error


def _hash_keys(column: pa.Array, hash: Hash) -> tuple[Column, Column | None]:
    if not column.null_count:
        return _hash_chunks(column, hash), None
    valid = np.asarray(column.is_valid())
    present = _hash_chunks(column.drop_null().cast(pa.int64() if pa.types.is_null(column.type) else column.type), hash)
    hashes = np.zeros(len(column), present.dtype)
    hashes[valid] = present
    return hashes, valid


def _hash_chunks(column: pa.Array, hash: Hash) -> Column:
    """Hashes one chunk at a time, which stays in the cache through all steps."""
    if len(column) <= _CHUNK_ROWS:
        return hash(column)
    first = hash(column[:_CHUNK_ROWS])
    hashes = np.empty(len(column), first.dtype)
    hashes[:_CHUNK_ROWS] = first
    for start in range(_CHUNK_ROWS, len(column), _CHUNK_ROWS):
        hashes[start : start + _CHUNK_ROWS] = hash(column[start : start + _CHUNK_ROWS])
    return hashes


def _hash_dictionary(values: pa.DictionaryArray, hash: Hash, owner: str) -> tuple[Column, Column | None]:
    hashes, _ = _hash_keys(_key_column(values.dictionary, owner), hash)
    if not values.null_count:
        return hashes[np.asarray(values.indices)], None
    valid = np.asarray(values.is_valid())
    spread = np.zeros(len(values), hashes.dtype)
    spread[valid] = hashes[np.asarray(values.indices.drop_null())]
    return spread, valid


def _concatenated(parts: Sequence[tuple[Column, Column | None]]) -> tuple[Column, Column | None]:
    """The hashes of several columns, concatenated."""
    hashes = np.concatenate([hashes for hashes, _ in parts])
    if all(valid is None for _, valid in parts):
        return hashes, None
    return hashes, np.concatenate([np.ones(len(part), bool) if valid is None else valid for part, valid in parts])


def _hash_list(values: Sequence[Any], hash: Hash, owner: str) -> tuple[Column, Column | None]:
    """Hashes a list of values of mixed types: one column for each type, and for each number of decimals."""
    rows: dict[tuple[str, Any], list[int]] = {}
    plain = [scalar(value) for value in values]
    for row, value in enumerate(plain):
        if value is not None:
            kind = _kind(value, owner)
            rows.setdefault((kind, value.as_tuple().exponent if kind == "decimal" else 0), []).append(row)
    hashes = hash(pa.array([], pa.int64()))
    hashes = np.zeros(len(plain), hashes.dtype)
    for (kind, _), places in rows.items():
        hashes[places], _ = _hash_keys(_column_of(kind, [plain[row] for row in places], owner), hash)
    if sum(map(len, rows.values())) == len(plain):
        return hashes, None
    return hashes, np.array([value is not None for value in plain], bool)


def _kind(value: Any, owner: str) -> str:
    for type_, kind in _KINDS:
        if isinstance(value, type_):
            return kind
    raise TypeError(
        f"{owner} takes int, float, bool, str, bytes, date, datetime and Decimal, not {shown(value)}"
        f" ({type(value).__name__})"
    )


def _column_of(kind: str, values: list[Any], owner: str) -> pa.Array:
    """Python values of one kind as a key column."""
    try:
        match kind:
            case "str":
                data = pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.binary())
                return data.view(pa.string())
            case "datetime":
                fine = [value for value in values if nanosecond(value)]
                if fine:
                    raise ValueError(f"{owner} cannot hold {fine[0]!r}: it is finer than microseconds")
                moments = [value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC) for value in values]
                return pa.array(moments, pa.timestamp("us", "UTC"))
            case "bytes":
                return pa.array(list(map(bytes, values)), pa.binary())
            case "decimal":
                return key_column(pa.array(values))
            case _:
                return key_column(pa.array(values, _ARROW[kind], from_pandas=False))
    except OverflowError as error:
        raise OverflowError(f"{owner} takes integers of 64 bits: {error}") from error
    except (pa.ArrowInvalid, TypeError) as error:
        raise ValueError(f"{owner} cannot hold one of {shown(values[:3])}: {error}") from error


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (str, "str"),
    ((bytes, bytearray, memoryview), "bytes"),
    (Decimal, "decimal"),
    (datetime, "datetime"),
    (date, "date"),
)
_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "date": pa.date32()}


_DECIMALS_MAX = 30


def fraction(owner: str, name: str, value: Any, low: str, high: str, *, ends: bool = False) -> Fraction:
    """An argument between ``low`` and ``high``, exclusive unless ``ends``.

    TypeError for a float, which is not exactly the number as written; ValueError outside the range.

    >>> fraction("CountMin", "error", "0.001", "0", "1")
    Fraction(1, 1000)
    """
    remedy = f"write {name}='0.01', a decimal fraction as text"
    if not isinstance(value, (str, Decimal)):
        raise TypeError(f"{owner}({name}={value!r}): {remedy}")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{owner}({name}={value!r}) is not a number: {remedy}") from None
    if not number.is_finite() or not _is_between(number, Decimal(low), Decimal(high), ends):
        raise ValueError(f"{owner}({name}={value!r}) is not between {low} and {high}: {remedy}")
    if number.as_tuple().exponent < -_DECIMALS_MAX:  # type: ignore[operator]
        raise ValueError(f"{owner}({name}={value!r}) has more than {_DECIMALS_MAX} decimals: {remedy}")
    return Fraction(number)


def _is_between(number: Decimal, low: Decimal, high: Decimal, ends: bool) -> bool:
    return low <= number <= high if ends else low < number < high


def integer(owner: str, name: str, value: Any, low: int, high: int) -> int:
    """An argument from ``low`` to ``high``, inclusive. TypeError for anything but an int, ValueError outside."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{owner}({name}={value!r}): write an integer, {name}={max(low, min(high, 1000))}")
    if not low <= value <= high:
        raise ValueError(f"{owner}({name}={value!r}): write an integer from {low} to {high}")
    return value
