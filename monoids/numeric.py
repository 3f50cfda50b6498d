"""The numeric monoids: Sum, Count, Min, Max and Mean of the values that are not None, columnar throughout.

Their elements are int64 (``Sum()``, ``Count()``), float64 (``Sum(float)``), a pair of them (``Mean()``), or a
value or None (``Min``, ``Max``). Integers never wrap: a total outside int64 raises OverflowError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any, ClassVar, overload

import numpy as np
import pyarrow as pa

from monoids.monoid import Column, Columns, Group, Monoid, is_constant, object_column, repeat
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, ValueType, value_type


@overload
def Sum() -> IntegerSum: ...
@overload
def Sum(type: type[int]) -> IntegerSum: ...
@overload
def Sum(type: type[float]) -> FloatSum: ...
@overload
def Sum(type: pa.DataType) -> Any: ...
def Sum(type: Any = int) -> IntegerSum | FloatSum:
    """The sum: of integers (and bools, as 0 and 1) a Group in int64; ``Sum(float)`` within rounding.

    >>> total = Sum()
    >>> total.combine(total.lift(2), total.lift(None))
    2
    """
    value = value_type("Sum", type, frozenset({"int", "float"}))
    return IntegerSum() if value.kind == "int" else FloatSum()


def Min(type: Any = int) -> Monoid[Any]:
    """The smallest value, None of none. NaN is above all numbers, strings compare by code point.

    >>> Min(str).combine("b", "a")
    'a'
    """
    return _extreme("Min", type, _FixedMin, _ObjectMin)


def Max(type: Any = int) -> Monoid[Any]:
    """The largest value, None of none. NaN is above all numbers, strings compare by code point.

    >>> Max().combine(3, Max().identity)
    3
    """
    return _extreme("Max", type, _FixedMax, _ObjectMax)


def _extreme(owner: str, type: Any, fixed: type[_Extreme], objects: type[_Extreme]) -> Monoid[Any]:
    value = value_type(owner, type, ALL_KINDS)
    return fixed(value) if value.kind in _STORED else objects(value)


class IntegerSum(Group[int]):
    """``Sum()``: one int64 column."""

    identity = 0
    commutative = True
    name = "Sum"
    schema = pa.schema([pa.field("element", pa.int64(), nullable=False)])
    output_type = pa.int64()

    def parameters(self) -> dict[str, Any]:
        return {"type": "int64"}

    def __repr__(self) -> str:
        return f"{self.name}()"

    def combine(self, a: int, b: int) -> int:
        """``a + b``. OverflowError outside int64."""
        total = a + b
        if not INT64_MIN <= total <= INT64_MAX:
            raise _overflow(self)
        return total

    def inverse(self, a: int) -> int:
        """``-a``. OverflowError for -2**63, which int64 holds and its negative it does not."""
        return self.combine(0, -a)

    def lift(self, value: Any) -> int:
        """TypeError for a float, OverflowError outside int64."""
        return 0 if value is None else int(_INTEGER.accept(value))

    def lift_columns(self, values: Any) -> Columns:
        column = _INTEGER.column(values)
        return ((column.fill_null(0) if column.null_count else column).to_numpy(),)

    def pack(self, elements: Sequence[int]) -> Columns:
        return (np.array(elements, np.int64),)

    def unpack(self, columns: Columns) -> list[int]:
        return list(columns[0].tolist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (_sum_int64(self, columns[0], starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = _add_int64(columns[0], cells, counts, held)
        return None if totals is None else (totals,)

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(columns[0])

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        return (arrays[0].to_numpy(),)


class Count(IntegerSum):
    """How many values are not None, whatever they are (NaN is a value). A Group.

    >>> Count().lift("anything"), Count().lift(None)
    (1, 0)
    """

    name = "Count"

    def parameters(self) -> dict[str, Any]:
        return {}

    def lift(self, value: Any) -> int:
        return 0 if value is None else 1

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            if not values.null_count:
                return repeat(_ONE, len(values))
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            return (
                np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks]).astype(np.int64),
            )
        if isinstance(values, np.ma.MaskedArray):
            return (1 - np.ma.getmaskarray(values).astype(np.int64),)
        if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
            return (1 - np.isnat(values).astype(np.int64),)
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            return repeat(_ONE, len(values))
        if type(None) not in set(map(type, values)):
            return repeat(_ONE, len(values))
        return (np.fromiter((value is not None for value in values), np.int64, len(values)),)


class FloatSum(Monoid[float]):
    """``Sum(float)``: one float64 column. Not a Group: infinities and NaN cannot be taken back."""

    identity = 0.0
    commutative = True
    exact = False
    name = "Sum"
    schema = pa.schema([pa.field("element", pa.float64(), nullable=False)])
    output_type = pa.float64()

    def parameters(self) -> dict[str, Any]:
        return {"type": "double"}

    def __repr__(self) -> str:
        return "Sum(float)"

    def combine(self, a: float, b: float) -> float:
        return a + b

    def lift(self, value: Any) -> float:
        return 0.0 if value is None else float(_FLOAT.accept(value))

    def lift_columns(self, values: Any) -> Columns:
        return (_floats(_FLOAT, values, 0.0)[0],)

    def pack(self, elements: Sequence[float]) -> Columns:
        return (np.array(elements, np.float64),)

    def unpack(self, columns: Columns) -> list[float]:
        return list(columns[0].tolist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (_sum_float64(columns[0], starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return (_add_float64(columns[0], cells, counts, held),)

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(_canonical(columns[0]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(_canonical(columns[0]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        return (arrays[0].to_numpy(),)


class Mean(Monoid[tuple[int, float]]):
    """The mean of the values that are not None, None of none: their count and their sum, within rounding.

    >>> mean = Mean()
    >>> mean.present(mean.combine(mean.lift(1), mean.lift(2)))
    1.5
    """

    identity = (0, 0.0)
    commutative = True
    exact = False
    name = "Mean"
    schema = pa.schema([pa.field("count", pa.int64(), nullable=False), pa.field("sum", pa.float64(), nullable=False)])
    output_type = pa.float64()

    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        return (a[0] + b[0], a[1] + b[1])

    def lift(self, value: Any) -> tuple[int, float]:
        return (0, 0.0) if value is None else (1, float(_MEAN.accept(value)))

    def present(self, element: tuple[int, float]) -> float | None:
        count, total = element
        return total / count if count else None

    def lift_columns(self, values: Any) -> Columns:
        numbers, valid = _floats(_MEAN, values, 0.0)
        return (repeat(_ONE, len(numbers))[0] if is_constant(valid) else valid.astype(np.int64), numbers)

    def pack(self, elements: Sequence[tuple[int, float]]) -> Columns:
        counts = np.array([count for count, _ in elements], np.int64)
        return (counts, np.array([total for _, total in elements], np.float64))

    def unpack(self, columns: Columns) -> list[tuple[int, float]]:
        return list(zip(columns[0].tolist(), columns[1].tolist()))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (_sum_int64(self, columns[0], starts), _sum_float64(columns[1], starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        numbers = _add_int64(columns[0], cells, counts, held)
        return None if numbers is None else (numbers, _add_float64(columns[1], cells, counts, held))

    def present_columns(self, columns: Columns) -> pa.Array:
        counts, totals = columns
        none = counts == 0
        with np.errstate(over="ignore"):
            means = totals / np.where(none, 1, counts)
        return pa.array(_canonical(means), mask=none)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0]), pa.array(_canonical(columns[1]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        return (arrays[0].to_numpy(), arrays[1].to_numpy())


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
        return None if value is None else self.type.accept(value)


def _smaller(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a != a or b < a else a


def _larger(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a == a and (b != b or b > a) else a


class _FixedExtreme(_Extreme):
    """An extreme in two columns: the values, as numbers of fixed width, and whether there is one.

    Where there is none, the number is the one that never wins, so that reducing needs no mask.
    """

    _kernel: ClassVar[np.ufunc]
    _losers: ClassVar[Mapping[str, Any]]

    def __init__(self, type: ValueType) -> None:
        super().__init__(type)
        self.schema = pa.schema([pa.field("element", type.arrow)])

    def lift_columns(self, values: Any) -> Columns:
        return self.from_arrow([self.type.column(values)])

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self.from_arrow([pa.array(elements, self.type.arrow)])

    def unpack(self, columns: Columns) -> list[Any]:
        elements = self.to_arrow(columns)[0].to_pylist()
        if self.type.kind == "datetime" and self.type.arrow.tz is not None:
            return [element and element.astimezone(UTC) for element in elements]
        return list(elements)

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        values, valid = columns
        if len(starts) == len(values):
            return columns
        reduced = self._kernel.reduceat(values, starts)
        if is_constant(valid):
            return (reduced, np.broadcast_to(valid[:1], len(starts)))
        return (reduced, np.logical_or.reduceat(valid, starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        values, valid = columns
        best = np.full(len(counts), self._losers[self.type.kind], values.dtype)
        self._kernel.at(best, cells, values)
        if is_constant(valid):
            return (best[held], np.broadcast_to(valid[:1], len(held)))
        found = np.zeros(len(counts), np.bool_)
        found[cells[valid]] = True
        return (best[held], found[held])

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.to_arrow(columns)[0]

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        values, valid = columns
        present = (is_constant(valid) and valid[0]) or valid.all()
        return [pa.array(values, mask=None if present else ~valid).view(self.type.arrow)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        array = arrays[0].view(_STORED[self.type.kind])
        valid = repeat(_TRUE, len(array))[0]
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            array = array.fill_null(pa.scalar(self._losers[self.type.kind], array.type))
        values = array.to_numpy(zero_copy_only=False)
        return (_canonical(values) if self.type.kind == "float" else values, valid)


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


class _ObjectExtreme(_Extreme):
    """An extreme of strings, bytes or decimals: one column of Python objects."""

    _best: ClassVar[Callable[..., Any]]

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return (object_column(self.type.column(values).to_pylist()),)
        return super().lift_columns(values)

    def fold(self, elements: Sequence[Any]) -> Any:
        return type(self)._best((element for element in elements if element is not None), default=None)

    def _watched_fold(self, elements: Sequence[Any]) -> Any:
        return self.fold(elements)


class _ObjectMin(_ObjectExtreme):
    name = "Min"
    _best = staticmethod(min)

    def combine(self, a: Any, b: Any) -> Any:
        return _smaller(a, b)


class _ObjectMax(_ObjectExtreme):
    name = "Max"
    _best = staticmethod(max)

    def combine(self, a: Any, b: Any) -> Any:
        return _larger(a, b)


# Kernels.

_ONE: Columns = (np.ones(1, np.int64),)
_TRUE: Columns = (np.ones(1, np.bool_),)
_STORED: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.int32(),
    "datetime": pa.int64(),
}
_INTEGER = value_type("Sum", int, frozenset({"int", "float"}))
_FLOAT = value_type("Sum", float, frozenset({"int", "float"}))
_MEAN = ValueType("Mean()", "float", pa.float64(), frozenset({"float"}))


def _overflow(monoid: Monoid[Any]) -> OverflowError:
    return OverflowError(
        f"{monoid!r}: a total is outside 64-bit integers; use Sum(float), or a monoid of Python integers"
    )


def _sum_int64(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment. Sums that wrap on their way to a total that fits are right."""
    rows = len(values)
    if len(starts) == rows:
        return values
    if is_constant(values):
        sizes = np.diff(starts, append=rows)
        if not INT64_MIN <= int(values[0]) * int(sizes.max()) <= INT64_MAX:
            raise _overflow(monoid)
        return sizes if values[0] == 1 else sizes * values[0]
    largest = max(int(values.max()), -int(values.min()))
    if largest * rows > INT64_MAX and largest * int(np.diff(starts, append=rows).max()) > INT64_MAX:
        return _sum_int64_halves(monoid, values, starts)
    return np.asarray(np.add.reduceat(values, starts))


def _sum_int64_halves(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment by halves of 32 bits, which cannot wrap below 2**31 rows."""
    low = np.add.reduceat(values & 0xFFFFFFFF, starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    if high.min() < -(2**31) or high.max() >= 2**31:
        raise _overflow(monoid)
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def _add_int64(values: Column, cells: Column, counts: Column, held: Column) -> Column | None:
    """The sum of each held cell; None where a total might not fit."""
    if not len(values):
        return values[:0]
    one = values[:1] if is_constant(values) else values
    if max(int(one.max()), -int(one.min())) * int(counts.max()) > INT64_MAX:
        return None
    if is_constant(values):
        return counts[held] if values[0] == 1 else counts[held] * values[0]
    totals = np.zeros(len(counts), np.int64)
    np.add.at(totals, cells, values)
    return totals[held]


def _add_float64(values: Column, cells: Column, counts: Column, held: Column) -> Column:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.bincount(cells, weights=values, minlength=len(counts))[held]


def _sum_float64(values: Column, starts: Column) -> Column:
    if len(starts) == len(values):
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.add.reduceat(values, starts))


def _floats(type: ValueType, values: Any, null: float) -> tuple[Column, Column]:
    """A column as float64, ``null`` where there is no value; and whether there is one."""
    column = type.column(values)
    if not column.null_count:
        return column.to_numpy(), repeat(_TRUE, len(column))[0]
    return column.fill_null(null).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)


def _canonical(values: Column) -> Column:
    """Floats with one zero and one NaN."""
    floats = np.asarray(values + 0.0)
    holes = np.isnan(floats)
    if holes.any():
        floats[holes] = math.nan
    return floats
