"""The numeric monoids Sum, Count and Mean of the non-None values, columnar throughout.

Their elements are int64 (``Sum()``, ``Count()``), float64 (``Sum(float)``), or a pair of them (``Mean()``).
Integers never wrap: a total outside int64 is wide, and presenting it raises OverflowError. Sums of decimals and of
unbounded integers have modules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.column import Column, Columns, concat, is_constant, repeat
from monoids.fixed import (
    ONE,
    add_float64,
    add_int64,
    canonical_floats,
    sum_float64,
    sum_int64,
)
from monoids.monoid import Group, Monoid, check_schema
from monoids.numbers.integers import decoded_as, decoded_float, int64
from monoids.numbers.products import FloatMonoid, float_column
from monoids.numbers.unbounded import UnboundedSum
from monoids.numbers.wide import DecimalSum, WideIntegers, add_wide, is_wide, narrow
from monoids.scalars import is_missing, may_be_missing
from monoids.values import INT64_MAX, ValueType, value_type

_KINDS = frozenset({"int", "float", "decimal"})


@overload
def Sum(type: type[int] = int) -> IntegerSum: ...
@overload
def Sum(type: type[int] = int, *, unbounded: Literal[True]) -> UnboundedSum: ...
@overload
def Sum(type: type[float]) -> FloatSum: ...
@overload
def Sum(type: pa.DataType) -> Any: ...
def Sum(type: Any = int, *, unbounded: bool = False) -> IntegerSum | UnboundedSum | DecimalSum | FloatSum:
    """The sum of the non-None values; 0 without input.

    ``Sum()``: of integers, and bools as 0 and 1; a Group. Inputs and results are int64. A running total may leave
    int64; presenting it then raises OverflowError. TypeError for a float, even NaN. ``Sum(int, unbounded=True)``: of
    integers of any size; a Group. ``Sum(pa.decimal128(precision, scale))``: of decimals; a Group of 38 digits.
    ``Sum(float)``: of floats, by the rules of IEEE 754. The error of n values is at most n * 2**-53 times the sum of
    their magnitudes. The sum is infinite beyond the floats, and NaN if any value is NaN or infinities of both signs
    meet. There is one zero. ``ExactSum()`` is exact.

    >>> total = Sum()
    >>> total.combine(total.lift(2), total.lift(None))
    2
    """
    value = value_type("Sum", type, _KINDS)
    if unbounded is not False and (unbounded is not True or value.kind != "int"):
        raise TypeError("Sum(unbounded=...) applies to integers: write Sum(int, unbounded=True)")
    match value.kind:
        case "decimal":
            return DecimalSum(type)
        case "float":
            return FloatSum()
        case _:
            return UnboundedSum() if unbounded else IntegerSum()


class IntegerSum(WideIntegers, Group[int]):
    """``Sum()``: one int64 column, which is wide where a total does not fit."""

    identity = 0
    name = "Sum"

    def parameters(self) -> dict[str, Any]:
        return {"type": "int64"}

    @property
    def type(self) -> ValueType:
        return _INTEGER

    def combine(self, a: int, b: int) -> int:
        return a + b

    def fold(self, elements: Sequence[int]) -> int:
        return sum(elements)

    def inverse(self, a: int) -> int:
        return -a

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (values,) = columns
        if len(starts) == len(values):
            return columns
        if not is_wide(values):
            try:
                return (sum_int64(self, values, starts),)
            except OverflowError:
                pass  # some totals are wide
        return (add_wide(values, starts),)

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        if is_wide(a[0]) or is_wide(b[0]):
            return (narrow(a[0].astype(object) + b[0]),)
        totals = a[0] + b[0]
        if (((a[0] ^ totals) & (b[0] ^ totals)) < 0).any():
            return (a[0].astype(object) + b[0],)
        return (totals,)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = None if is_wide(columns[0]) else add_int64(columns[0], cells, counts, held)
        return None if totals is None else (totals,)


class Count(IntegerSum):
    """The number of non-None values of any kind (NaN is a value). A Group.

    >>> Count().lift("anything"), Count().lift(None)
    (1, 0)
    """

    name = "Count"

    def parameters(self) -> dict[str, Any]:
        return {}

    def lift(self, value: Any) -> int:
        return 0 if is_missing(value) else 1

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, pa.ChunkedArray):
            return concat([self.lift_columns(chunk) for chunk in values.chunks or [pa.nulls(0)]])
        if isinstance(values, pa.Array):
            return self._lift_arrow(values)
        if isinstance(values, np.ma.MaskedArray):
            return (np.where(np.ma.getmaskarray(values), 0, *self.lift_columns(values.data)),)
        if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
            return (1 - np.isnat(values).astype(np.int64),)
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            return repeat(ONE, len(values))
        if not any(map(may_be_missing, set(map(type, values)))):
            return repeat(ONE, len(values))
        return (np.fromiter((not is_missing(value) for value in values), np.int64, len(values)),)

    def _lift_arrow(self, values: pa.Array) -> Columns:
        """In dictionaries, run-end encoded arrays and unions, Arrow's null count misses some nulls."""
        kind = values.type
        if pa.types.is_run_end_encoded(kind):
            return self._lift_arrow(pc.run_end_decode(values))
        if pa.types.is_dictionary(kind) and values.dictionary.null_count:
            return self._lift_arrow(values.dictionary_decode())
        if pa.types.is_union(kind):
            return self.lift_columns(values.to_pylist())
        if not values.null_count:
            return repeat(ONE, len(values))
        return (values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64),)


class FloatSum(FloatMonoid):
    """``Sum(float)``: one float64 column. Not a Group: infinities and NaN cannot be subtracted."""

    identity = 0.0
    name = "Sum"
    accepted = value_type("Sum", float, _KINDS)

    def combine(self, a: float, b: float) -> float:
        return a + b

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (sum_float64(columns[0], starts),)

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        with np.errstate(invalid="ignore", over="ignore"):
            return (a[0] + b[0],)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return (add_float64(columns[0], cells, counts, held),)


class Mean(Monoid[tuple[int, float]]):
    """The mean of the non-None values; None without input. Holds their count and their sum, with rounding.

    The sum is that of ``Sum(float)``: the mean of n inputs errs by at most (n + 1) * 2**-53 times the mean of their
    magnitudes. A sum beyond the floats is infinite, and so is the mean; ``Moments()`` is exact. A NaN makes the mean
    NaN, and so do infinities of both signs. The count is int64; OverflowError outside.

    >>> mean = Mean()
    >>> mean.present(mean.combine(mean.lift(1), mean.lift(2)))
    1.5
    """

    identity = (0, 0.0)
    commutative = True
    takes_constants = True
    exact = False
    name = "Mean"
    schema = pa.schema([pa.field("count", pa.int64(), nullable=False), pa.field("sum", pa.float64(), nullable=False)])
    output_type = pa.float64()

    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        """OverflowError for a count outside int64."""
        return (int64(self, a[0] + b[0]), a[1] + b[1])

    def lift(self, value: Any) -> tuple[int, float]:
        return (0, 0.0) if is_missing(value) else (1, float(_MEAN.accept(value)))

    def decode(self, data: bytes) -> tuple[int, float]:
        element = decoded_as(self, data, tuple)
        if len(element) != 2 or element[0].__class__ is not int or not 0 <= element[0] <= INT64_MAX:
            raise ValueError(f"{self!r}: the encoded element is {element!r:.60}, not a count and a sum")
        decoded_float(self, element[1])
        if element[0] == 0 and element != self.identity:
            raise ValueError(f"{self!r}: the encoded element is {element!r:.60}: a sum without inputs")
        return element

    def present(self, element: tuple[int, float]) -> float | None:
        count, total = element
        return total / count if count else None

    def lift_columns(self, values: Any) -> Columns:
        numbers, valid = float_column(_MEAN, values, 0.0)
        return (repeat(ONE, len(numbers))[0] if is_constant(valid) else valid.astype(np.int64), numbers)

    def pack(self, elements: Sequence[tuple[int, float]]) -> Columns:
        counts = np.array([count for count, _ in elements], np.int64)
        return (counts, np.array([total for _, total in elements], np.float64))

    def unpack(self, columns: Columns) -> list[tuple[int, float]]:
        return list(zip(columns[0].tolist(), (columns[1] + 0.0).tolist()))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return (sum_int64(self, columns[0], starts), sum_float64(columns[1], starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        numbers = add_int64(columns[0], cells, counts, held)
        return None if numbers is None else (numbers, add_float64(columns[1], cells, counts, held))

    def present_columns(self, columns: Columns) -> pa.Array:
        counts, totals = columns
        none = counts == 0
        with np.errstate(over="ignore"):
            means = totals / np.where(none, 1, counts)
        return pa.array(canonical_floats(means), mask=none)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0]), pa.array(canonical_floats(columns[1]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError also for a count below 0, and for a sum without inputs."""
        check_schema(self, arrays)
        counts, totals = (array.to_numpy() for array in arrays)
        if len(counts) and (counts.min() < 0 or (totals[counts == 0] != 0).any()):
            raise ValueError(f"{self!r}: a stored element has a count below 0, or a sum without inputs")
        return (counts, totals)


_INTEGER = value_type("Sum", int, _KINDS)
_MEAN = ValueType("Mean()", "float", pa.float64(), frozenset({"float"}))
