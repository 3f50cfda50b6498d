"""An id names one occurrence among many, and its hash stands for it. It is a plain key, or a nested tuple of keys.

    hash_id(seed, id) == hash_key(seed, *the parts of id, in order)

Mappings and struct arrays count as the tuples of their values. An id that is None, or has a part that is None, has no
hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list, type_of
from monoids.column import Column
from monoids.hashing import hash_key, hash_keys, key_column
from monoids.monoid import is_column
from monoids.scalars import scalar
from monoids.text import Words
from monoids.values import ARROW_TYPES


def hash_id(seed: int, key: Any) -> int | None:
    """The 64-bit hash of one id. TypeError for a value that cannot be a key."""
    flat = _flat(key)
    return None if any(part is None for part in flat) else hash_key(seed, *flat)


def hash_ids(seed: int, keys: Any, length: int) -> tuple[Words, Column | None]:
    """The hash of each of ``length`` ids, and which rows have one (None: all).

    A column of ids is an array, a struct array or a list. The parts of a tuple or mapping are columns, or values for
    every row. Anything else is one id for every row. ValueError for a column of another length.
    """
    columns = _key_columns(keys, length)
    if columns is None:
        hashes = [hash_id(seed, key) for key in keys]
        return np.array([id_hash or 0 for id_hash in hashes], np.uint64), np.array(
            [id_hash is not None for id_hash in hashes], np.bool_
        )
    present: Column | None = None
    for column in columns:
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            present = valid if present is None else present & valid
    return hash_keys((pa.array(np.full(length, seed, np.int64)), *columns), length), present


def _flat(key: Any) -> list[Any]:
    """The parts of one id, flattened."""
    if isinstance(key, pa.Scalar):
        key = key.as_py()
    if isinstance(key, Mapping):
        key = tuple(key.values())
    if isinstance(key, (tuple, list)) and not isinstance(key, pa.MonthDayNano):
        return [part for item in key for part in _flat(item)]
    return [scalar(key)]


def _key_columns(keys: Any, length: int) -> list[pa.Array] | None:
    """The parts of ids as key columns; None for a list whose rows differ in type or shape."""
    if not is_column(keys) and not isinstance(keys, list):
        return _one_for_all(keys, length)
    if len(keys) != length:
        raise ValueError(f"a column of {len(keys)} ids for {length} rows")
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.StructArray):
        return _part_columns(keys.flatten(), length)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "OU":
        keys = keys.tolist()
    if isinstance(keys, pa.Array) and _is_read_one_by_one(keys.type):
        keys = python_list(keys)
    return _listed(keys, length) if isinstance(keys, list) else [_key_column(keys)]


def _is_read_one_by_one(type_: pa.DataType) -> bool:
    """Whether only the values of such a column, not its type, decide which rows can be ids."""
    return bool(pa.types.is_nested(type_) or pa.types.is_decimal256(type_) or pa.types.is_interval(type_))


def _key_column(keys: Any) -> pa.Array:
    try:
        return key_column(keys)
    except pa.ArrowInvalid as error:
        kind = type_of(keys)
        if kind == "uint64":
            raise OverflowError(f"an id is outside 64-bit integers: give ids as strings ({error})") from error
        raise ValueError(f"ids of type {kind} cannot be keys: {error}") from error


def _one_for_all(key: Any, length: int) -> list[pa.Array]:
    """As ``_key_columns``, for one id for every row, or a tuple or mapping of columns."""
    if isinstance(key, (tuple, Mapping)):
        joined = _part_columns(key if isinstance(key, tuple) else tuple(key.values()), length)
        if joined is None:
            raise TypeError("a part of the ids is a list of mixed types: give it as an array, or all ids as one list")
        return joined
    flat = _flat(key)
    hash_key(*flat)  # raises the TypeError that says what can be a key
    return [key_column(pa.array([value])).take(pa.array(np.zeros(length, np.int64))) for value in flat]


def _listed(keys: list[Any], length: int) -> list[pa.Array] | None:
    """As ``_key_columns``, for a list."""
    types = set(map(type, keys))
    if types == {tuple} and len(set(map(len, keys))) == 1:
        return _part_columns([list(column) for column in zip(*keys)], length)
    if len(types - {type(None)}) > 1 or not types <= {*ARROW_TYPES, Decimal, type(None)}:
        return None
    known = [ARROW_TYPES[kind] for kind in types if kind in ARROW_TYPES]
    try:
        column = pa.array(keys, *known)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return None  # hash_key accepts each value, or names the refused value and the remedy
    return None if pa.types.is_decimal256(column.type) else [key_column(column)]


def _part_columns(parts: Sequence[Any], length: int) -> list[pa.Array] | None:
    """The key columns of all parts; None if a part has none."""
    columns: list[pa.Array] = []
    for part in parts:
        of_part = _key_columns(part, length)
        if of_part is None:
            return None
        columns += of_part
    return columns
