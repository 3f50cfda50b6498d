"""A pair is an input of two named parts. Each part is a column, or one value for every row.

One pair is a tuple or list of two, or a mapping with both names; None means no pair. A column of pairs is an Arrow
struct array with these two fields (or, slower, a list array or a NumPy array of objects), or a list of pairs. For
``lift_rows``, a mapping or tuple may also hold columns: two, or one beside a value for every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list
from monoids.monoid import is_column
from monoids.scalars import is_missing, scalar, shown

Names = tuple[str, str]


def pair(value: Any, names: Names) -> tuple[Any, Any]:
    """The two parts of one pair, as Python values; (None, None) for None.

    TypeError for a value that is not a pair, ValueError for a mapping with other names.

    >>> pair({"y": 2, "x": 1}, ("x", "y")), pair((1, 2), ("x", "y")), pair(None, ("x", "y"))
    ((1, 2), (1, 2), (None, None))
    """
    if is_missing(value):
        return (None, None)
    first, second = _parts(value, names)
    return (scalar(first), scalar(second))


def pair_columns(values: Any, names: Names, length: int | None = None) -> tuple[Any, Any]:
    """The two parts as columns of equal length: Arrow arrays, NumPy arrays or lists. Null and None pass through.

    ``values`` is a column of pairs; with ``length``, anything that ``lift_rows`` takes for that many rows. A number for
    every row becomes a NumPy array of stride 0, any other value for every row a list. Where there is no pair, both
    parts are null. ValueError for a column of another length; otherwise raises as ``pair`` does.

    >>> pair_columns([(1, 2), None, {"x": 3, "y": 4}], ("x", "y"))
    ([1, None, 3], [2, None, 4])
    """
    if is_column(values):
        if length is not None and len(values) != length:
            raise ValueError(f"pairs ({', '.join(names)}): a column of {len(values)} pairs for {length} rows")
        return _from_list(values, names) if isinstance(values, list) else _from_column(values, names)
    if length is None:
        raise _no_pair(values, names)
    parts = (None, None) if values is None else _parts(values, names)
    first, second = (_column(part, name, length) for part, name in zip(parts, names))
    return first, second


def holds_columns(values: Any) -> bool:
    """Whether ``values`` is a pair with at least one part that is a column."""
    parts = values.values() if isinstance(values, Mapping) else values if isinstance(values, (tuple, list)) else ()
    return any(map(is_column, parts))


def _parts(value: Any, names: Names) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        if value.keys() != set(names):
            keys = ", ".join(map(str, value)) or "none"
            raise ValueError(f"a pair has the fields {names[0]} and {names[1]}, not {keys}")
        return value[names[0]], value[names[1]]
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise _no_pair(value, names)
    return value[0], value[1]


def _column(part: Any, name: str, length: int) -> Any:
    """One part as a column of ``length`` rows."""
    if is_column(part):
        if len(part) != length:
            raise ValueError(f"field {name!r} was given a column of {len(part)} values for {length} rows")
        return part
    value = scalar(part)
    try:
        number = np.array(value)
    except OverflowError:
        return [value] * length
    return np.broadcast_to(number, length) if number.ndim == 0 and number.dtype.kind in "bif" else [value] * length


def _from_list(values: list[Any], names: Names) -> tuple[list[Any], list[Any]]:
    if set(map(type, values)) == {tuple} and set(map(len, values)) == {2}:
        first, second = zip(*values)
        return list(first), list(second)
    pairs = [pair(value, names) for value in values]
    return [first for first, _ in pairs], [second for _, second in pairs]


def _from_column(values: Any, names: Names) -> tuple[Any, Any]:
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind != "O":
            raise _no_pair(values, names)
        return _from_list(values.tolist(), names)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.NullArray):
        return values, values
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return _from_list(python_list(values), names)
    if not isinstance(values, pa.StructArray):
        raise _no_pair(values, names)
    parts = dict(zip((field.name for field in values.type), values.flatten()))
    return _parts(parts, names)


def _no_pair(value: Any, names: Names) -> TypeError:
    first, second = names
    description = f"a column of {value.type}" if isinstance(value, (pa.Array, pa.ChunkedArray)) else shown(value)
    return TypeError(
        f"a pair is a tuple ({first}, {second}) or a mapping of {first} and {second}, in columns a struct array with"
        f" these fields, not {description}"
    )
