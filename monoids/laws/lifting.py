"""The laws of columnar lifting: inputs lifted as a column give the same elements as one by one.

Where two forms of a column must agree (a slice and its copy, chunks and one array, with and without nulls), the sides
are these two forms, so each law detects the defects of its own kind and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list
from monoids.laws.scalar import NOTHING, M, Sides
from monoids.laws.terms import fresh


def lift_list(monoid: M, xs: list[Any]) -> Sides:
    """unpack(lift_columns(xs)) == [lift(x) for x in xs]"""
    if len({id(x) for x in xs}) * 2 > len(xs):
        return monoid.unpack(monoid.lift_columns(xs)), [monoid.lift(x) for x in xs]
    once = {id(x): monoid.lift(x) for x in {id(x): x for x in xs}.values()}
    return monoid.unpack(monoid.lift_columns(xs)), [once[id(x)] for x in xs]


def lift_arrow(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(column without nulls) == [lift(x) for x in column]"""
    if column is None or column.null_count == len(column):
        return NOTHING
    column = column.drop_null()
    return _lifted(monoid, column), [monoid.lift(x) for x in python_list(column)]


def lift_nulls(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(column and nulls) == lift_rows(column) and lift(None)"""
    if column is None or not _takes_none(monoid):
        return NOTHING
    not_null = column.drop_null()
    # With a null before, between and after them.
    rows = [None, *(row for index in range(len(column)) for row in (index, None))]
    column = column.take(pa.array(rows, pa.int64()))
    lifted = iter(_lifted(monoid, not_null))
    nothing = monoid.unpack(monoid.pack([monoid.lift(None)]))[0]
    return _lifted(monoid, column), [next(lifted) if valid else nothing for valid in _valid(column)]


def lift_slice(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(slice) == lift_rows(its copy)"""
    if column is None:
        return NOTHING
    return _lifted(monoid, sliced_of(column)), _lifted(monoid, column)


def lift_chunks(monoid: M, column: pa.Array | None, cuts: list[int]) -> Sides:
    """lift_rows(chunks of column) == lift_rows(column)"""
    if column is None:
        return NOTHING
    starts = starts_of(len(column), cuts)
    pieces = [column.slice(i, j - i) for i, j in zip(starts, [*starts[1:], len(column)])]
    chunked = pa.chunked_array([column.slice(0, 0), *pieces, column.slice(0, 0)])
    return [_lifted(monoid, chunked)], [_lifted(monoid, column)]


def lift_numpy(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(column as NumPy, strided, backwards) == lift_rows(column)"""
    if column is None or not _fits_numpy(column):
        return NOTHING
    values = np.array(column.to_numpy(zero_copy_only=False))
    strided = np.repeat(values, 2)[::2]
    backwards = values[::-1].copy()[::-1]
    expected = _lifted(monoid, column)
    return [_lifted(monoid, way) for way in (values, strided, backwards)], [expected] * 3


def lift_dictionary(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(column as dictionary) == lift_rows(column)"""
    if column is None or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return NOTHING
    ways = [column.dictionary_encode("mask"), column.dictionary_encode("encode")]
    return [_lifted(monoid, way) for way in ways], [_lifted(monoid, column)] * 2


def lift_widths(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(column of other widths), or TypeError == lift_rows(column)"""
    if column is None or pa.types.is_nested(column.type):
        return NOTHING
    ways = list(_other_widths(column))
    ways += [way.to_numpy() for way in ways if not way.null_count and pa.types.is_integer(way.type)]
    expected = _lifted(monoid, column)
    lifted = [_lifted_or_refused(monoid, way) for way in ways]
    return [expected if way is None else way for way in lifted], [expected] * len(ways)


def input_mutation(monoid: M, column: pa.Array | None) -> Sides:
    """list, NumPy array after lift_columns == before"""
    if column is None:
        return NOTHING
    inputs: list[Any] = [python_list(column)]
    if _fits_numpy(column):
        inputs.append(np.array(column.to_numpy(zero_copy_only=False)))
    before = fresh(inputs)
    for values in inputs:
        monoid.lift_columns(values)
    return inputs, before


def lift_empty(monoid: M, column: pa.Array | None) -> Sides:
    """lift_rows(empty column, slice, chunks) == no elements"""
    if column is None:
        return NOTHING
    ways = (column.slice(0, 0), column.slice(len(column)), pa.chunked_array([], column.type))
    return [_lifted(monoid, way) for way in ways], [[], [], []]


def lift_constant(monoid: M, xs: list[Any]) -> Sides:
    """unpack(lift_rows(x, n)) == [lift(x)] * n"""
    constant = [xs[0]] * len(xs) if _holds_list(xs[0]) else xs[0]
    return monoid.unpack(monoid.lift_rows(constant, len(xs))), [monoid.lift(xs[0])] * len(xs)


def _holds_list(value: Any) -> bool:
    """Whether it would be taken for columns."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return isinstance(value, list) or any(map(_holds_list, parts))


# The same rows in other forms.


def starts_of(rows: int, cuts: list[int]) -> list[int]:
    return sorted({0, *(cut % rows for cut in cuts)})


def sliced_of(column: pa.Array) -> pa.Array:
    """The same rows as a slice of a longer array, with other rows before and after them."""
    rows = len(column)
    others = column.take(pa.array(range(rows - 1, -1, -1), pa.int64()))
    return pa.concat_arrays([others, column, others]).slice(rows, rows)


def _valid(column: pa.Array) -> list[bool]:
    return column.is_valid().to_pylist()  # type: ignore[no-any-return]


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())
_WIDTHS = (_INTEGERS, _TEXTS, _BYTES, (pa.date32(), pa.date64()))


def _other_widths(column: pa.Array) -> Iterator[pa.Array]:
    """The same values in each other type of their kind that holds them."""
    alike = next((types for types in _WIDTHS if column.type in types), ())
    for type_ in alike:
        if type_ != column.type:
            try:
                yield column.cast(type_)
            except pa.ArrowInvalid:
                # Some value does not fit.
                continue


def _fits_numpy(column: pa.Array) -> bool:
    """Whether a NumPy array holds the same values: no nulls, no nesting, no time zones."""
    zoned = pa.types.is_timestamp(column.type) and column.type.tz
    return not (column.null_count or pa.types.is_nested(column.type) or zoned)


def _takes_none(monoid: M) -> bool:
    """Whether ``lift`` accepts None. A user's monoid may refuse it with any exception; then it gets no nulls."""
    try:
        monoid.lift(None)
    except Exception:
        return False
    return True


def _lifted(monoid: M, values: Any) -> list[Any]:
    return monoid.unpack(monoid.lift_rows(values, len(values)))


def _lifted_or_refused(monoid: M, values: Any) -> list[Any] | None:
    """The elements; None if the monoid refuses values of this type, which is not an error."""
    try:
        columns = monoid.lift_rows(values, len(values))
    except (TypeError, ValueError, NotImplementedError):
        return None
    return monoid.unpack(columns)
