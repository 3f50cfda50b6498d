"""Key columns have types that all parts of a state agree on; manifests write them by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import columnar
from monoids.hashing import key_column

_KEY_TYPES = {
    str(type_): type_
    for type_ in (
        pa.null(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    )
}
_CONTAINERS = {list, tuple, set, frozenset, dict}
_DECIMAL = re.compile(r"decimal128\(([1-9][0-9]?), (-?[0-9]{1,2})\)")


def common_key_types(tuples: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The key types that all parts agree on, by their names in manifests. TypeError if they do not agree."""
    known = list(dict.fromkeys([tuple(types) for types in tuples if types]))
    if not known:
        return ()
    if len(known) == 1:
        return tuple([str(type_of(name)) for name in known[0]])
    return tuple(str(type_) for type_ in agreed_types([[type_of(name) for name in types] for types in known]))


def agreed_types(tuples: Sequence[Sequence[pa.DataType]]) -> tuple[pa.DataType, ...]:
    """For each key column, the one type that all parts agree on; null agrees with any. TypeError if they disagree."""
    agreed = list(tuples[0])
    for types in tuples[1:]:
        for column, type_ in enumerate(types):
            if type_ == agreed[column]:
                continue
            if pa.types.is_null(agreed[column]):
                agreed[column] = type_
            elif pa.types.is_decimal(type_) and pa.types.is_decimal(agreed[column]):
                agreed[column] = _common_decimal(agreed[column], type_)
            elif not pa.types.is_null(type_):
                raise TypeError(f"key column {column} holds both {agreed[column]} and {type_}: give it one type")
    return tuple(agreed)


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The decimal type that holds the values of both. Equal values are equal keys, whatever their scale."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale > 38:
        raise TypeError(f"a key column holds both {a} and {b}, more than 38 digits together: give it one type")
    return pa.decimal128(whole + scale, scale)


def type_of(name: str) -> pa.DataType:
    """The Arrow type of a key column from its name in a manifest. ValueError for any other name.

    >>> type_of("decimal128(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _KEY_TYPES:
        raise ValueError(f"{name!r:.60} is not a key type: use one of {', '.join(_KEY_TYPES)}, or decimal128")
    return _KEY_TYPES[name]


def key_array(keys: Any, rows: int, name: str) -> pa.Array:
    """A column (an array, list, generator or Series), or one value for every row, as a key column."""
    keys = columnar(keys)
    if isinstance(keys, list | pa.Array | pa.ChunkedArray | np.ndarray):
        if len(keys) != rows:
            raise ValueError(f"key column {name!r} has {len(keys)} rows, timestamps have {rows}")
        return listed_key(keys, name) if isinstance(keys, list) else readable_key(keys, name)
    return listed_key([keys], name).take(pa.array(np.zeros(rows, np.int64)))


def readable_key(keys: pa.Array | pa.ChunkedArray | np.ndarray, name: str) -> pa.Array:
    """An array as a key column. ValueError for a text that is not UTF-8, which no reader can decode; ArrowInvalid for
    another value that no key has."""
    column = key_column(keys)
    if pa.types.is_string(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"key column {name!r} has a text that is not UTF-8") from error
    return column


def listed_key(keys: Sequence[Any], name: str) -> pa.Array:
    """Python values as a key column. TypeError if they are of several types."""
    kinds = {type(key) for key in keys} - {type(None)}
    for key in keys if kinds & _CONTAINERS else ():
        if type(key) in _CONTAINERS:
            raise TypeError(
                f"key column {name!r}: {repr(key)[:100]} is a {type(key).__name__}, but a key is one value: use "
                "one of them, join them to text, or name a column for each"
            )
    if len(kinds) > 1:
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"key column {name!r} is given values of different types: {named}")
    try:
        return key_column(pa.array(keys))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"key column {name!r}: {error}") from error
