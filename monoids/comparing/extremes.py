"""The extremes of one type of value: Min and Max of the values that are not None. NaN is above all numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, is_constant, repeat, take
from monoids.comparing.least_rows import keys_of, least_of_cells, least_of_segments, present_first
from monoids.groupby.segments import TRUE, canonical_floats
from monoids.monoid import Monoid, check_schema, decode_lifted
from monoids.ordered import Ordered
from monoids.scalars import is_missing
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, ValueType, value_type


def Min(type: Any = int) -> Monoid[Any]:
    """The smallest value; None without input. NaN is above all numbers, strings compare by code point.

    >>> Min(str).combine("b", "a")
    'a'
    """
    return _extreme("Min", type, _FixedMin, _WideMin)


def Max(type: Any = int) -> Monoid[Any]:
    """The largest value; None without input. NaN is above all numbers, strings compare by code point.

    >>> Max().combine(3, Max().identity)
    3
    """
    return _extreme("Max", type, _FixedMax, _WideMax)


def _extreme(owner: str, type: Any, fixed: type[_Extreme], wide: type[_Extreme]) -> Monoid[Any]:
    value = value_type(owner, type, ALL_KINDS)
    return fixed(value) if value.kind in _STORED else wide(value)


class _Extreme(Monoid[Any]):
    """``Min`` and ``Max``: the element is a value, or None for none."""

    identity = None
    commutative = True
    idempotent = True

    def __init__(self, type: ValueType) -> None:
        self.type = type
        self.output_type = type.arrow

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def lift(self, value: Any) -> Any:
        return None if is_missing(value) else self.type.accept(value)

    def decode(self, data: bytes) -> Any:
        return decode_lifted(self, data)


def _smaller(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a != a or b < a else a


def _larger(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a == a and (b != b or b > a) else a


class _FixedExtreme(_Extreme):
    """An extreme in two columns: the values, as fixed-width numbers, and a flag for whether there is one.

    Without a value the number is one that never wins, so reducing needs no mask.
    """

    takes_constants = True
    _kernel: ClassVar[np.ufunc]
    _losers: ClassVar[Mapping[str, Any]]

    def __init__(self, type: ValueType) -> None:
        super().__init__(type)
        self.schema = pa.schema([pa.field("element", type.arrow)])

    def lift_columns(self, values: Any) -> Columns:
        return self._of_arrow(self.type.column(values))

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self._of_arrow(pa.array(elements, self.type.arrow))

    def unpack(self, columns: Columns) -> list[Any]:
        (elements,) = self.to_arrow(columns)
        return self.type.moments(elements) if self.type.kind == "datetime" else list(elements.to_pylist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        values, valid = columns
        if len(starts) == len(values):
            return columns
        reduced = self._kernel.reduceat(values, starts)
        if is_constant(valid):
            return (reduced, np.broadcast_to(valid[:1], len(starts)))
        return (reduced, np.logical_or.reduceat(valid, starts))

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        best = self._kernel(a[0], b[0])
        if is_constant(a[1]) and is_constant(b[1]):
            return (best, np.broadcast_to(a[1][:1] | b[1][:1], len(best)))
        return (best, a[1] | b[1])

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        values, valid = columns
        best = np.full(len(counts), self._losers[self.type.kind], values.dtype)
        with np.errstate(invalid="ignore"):
            self._kernel.at(best, cells, values)
        if is_constant(valid):
            return (best[held], np.broadcast_to(valid[:1], len(held)))
        valid_cells = np.zeros(len(counts), np.bool_)
        valid_cells[cells[valid]] = True
        return (best[held], valid_cells[held])

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.to_arrow(columns)[0]

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        values, valid = columns
        present = (is_constant(valid) and valid[0]) or valid.all()
        return [pa.array(values, mask=None if present else ~valid).view(self.type.arrow)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types, and for dates and times that Python cannot hold."""
        check_schema(self, arrays)
        self.type.check_stored(arrays[0])
        return self._of_arrow(arrays[0])

    def _of_arrow(self, array: pa.Array) -> Columns:
        array = array.view(_STORED[self.type.kind])
        valid = repeat(TRUE, len(array))[0]
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            array = array.fill_null(pa.scalar(self._losers[self.type.kind], array.type))
        values = array.to_numpy(zero_copy_only=False)
        return (canonical_floats(values) if self.type.kind == "float" else values, valid)


class _FixedMin(_FixedExtreme):
    name = "Min"
    _kernel = np.fmin
    _losers = {"int": INT64_MAX, "datetime": INT64_MAX, "date": 2**31 - 1, "float": math.nan, "bool": True}

    def combine(self, a: Any, b: Any) -> Any:
        return _smaller(a, b)


class _FixedMax(_FixedExtreme):
    name = "Max"
    _kernel = np.maximum
    _losers = {"int": INT64_MIN, "datetime": INT64_MIN, "date": -(2**31), "float": -math.inf, "bool": False}

    def combine(self, a: Any, b: Any) -> Any:
        return _larger(a, b)


class _WideExtreme(_Extreme):
    """An extreme of strings, bytes or decimals in two columns: the values, and a flag for whether there is one."""

    _descending: ClassVar[bool]

    def __init__(self, type: ValueType) -> None:
        super().__init__(type)
        self.values = Ordered(type)
        self.schema = pa.schema([pa.field("element", self.values.arrow)])

    def lift_columns(self, values: Any) -> Columns:
        column, valid = self.values.store(values)
        return (column, repeat(TRUE, len(column))[0] if valid is None else valid)

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self.lift_columns(list(elements))

    def unpack(self, columns: Columns) -> list[Any]:
        column, valid = columns
        return [value if is_valid else None for value, is_valid in zip(self.values.load(column), valid.tolist())]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        return take(columns, least_of_segments(self._keys(columns), starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return take(columns, least_of_cells(self._keys(columns), cells, len(counts), held))

    def _keys(self, columns: Columns) -> Any:
        column, valid = columns
        yield from present_first(valid)
        yield from keys_of(column, self._descending)

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.values.show(columns[0], _mask(columns[1]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [self.values.to_arrow(columns[0], _mask(columns[1]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        (array,) = arrays
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else repeat(TRUE, len(array))[0]
        return (self.values.from_arrow(array), valid)


def _mask(valid: Column) -> Column | None:
    """Which rows hold a value; None if all do."""
    return None if (is_constant(valid) and valid[0]) or valid.all() else valid


class _WideMin(_WideExtreme):
    name = "Min"
    _descending = False

    def combine(self, a: Any, b: Any) -> Any:
        return _smaller(a, b)


class _WideMax(_WideExtreme):
    name = "Max"
    _descending = True

    def combine(self, a: Any, b: Any) -> Any:
        return _larger(a, b)


_STORED: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.int32(),
    "datetime": pa.int64(),
}
