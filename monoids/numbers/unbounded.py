"""The sum of integers of any size: ``Sum(int, unbounded=True)``, a Group that never overflows.

As columns, an integer is the sum of an int64 and a table of digits. The stored form is canonical: everything in the
int64 if it fits, without digits; otherwise everything in digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged
from monoids.fixed import add_int64, sum_int64
from monoids.groupby.cells import cell_ranks
from monoids.monoid import Group, check_schema, python_values
from monoids.numbers.digits import (
    DIGITS_SCHEMA,
    Addend,
    DigitLimits,
    ints_of_table,
    no_digits,
    sum_segments,
    sum_sorted,
    table_from_arrow,
    table_of_ints,
    table_to_arrow,
)
from monoids.numbers.integers import decoded_as
from monoids.scalars import is_missing
from monoids.values import INT64_MAX, INT64_MIN, ValueType

SLOTS_MAX = 1 << 12
"""The most 32-bit digits of an integer: one a row of 12 bytes takes at most 16 KiB."""


class UnboundedSum(Group[int]):
    """``Sum(int, unbounded=True)``: the exact sum of the non-None integers; 0 without input.

    Inputs are integers of any practical size, and bools; TypeError for a float (even NaN) or a Decimal. OverflowError
    for an input of more than 131,006 bits (39,436 decimal digits). A total has 64 bits more, so inputs cannot overflow
    it. Presented as an int; as a column, a string of decimal digits, since Arrow has no integers of any size.

    >>> from monoids import Sum
    >>> total = Sum(int, unbounded=True)
    >>> total.combine(total.lift(2**64), total.lift(-1))
    18446744073709551615
    """

    identity = 0
    commutative = True
    name = "Sum"
    schema = pa.schema([pa.field("small", pa.int64(), nullable=False), *DIGITS_SCHEMA])

    def parameters(self) -> dict[str, Any]:
        return {"type": "int", "unbounded": True}

    def __repr__(self) -> str:
        return "Sum(int, unbounded=True)"

    def combine(self, a: int, b: int) -> int:
        """OverflowError beyond 131,070 bits."""
        return self.fold((a, b))

    def fold(self, elements: Sequence[int]) -> int:
        """The sum. OverflowError beyond 131,070 bits; intermediate sums may exceed them."""
        total = sum(elements)
        _LIMITS.check((total,))
        return total

    def inverse(self, a: int) -> int:
        return -a

    def lift(self, value: Any) -> int:
        if is_missing(value):
            return 0
        number = int(value if isinstance(value, (int, np.integer)) else _INTEGER.accept(value))
        if number.bit_length() > _INPUT_BITS:
            raise OverflowError(f"{self!r} takes integers of {_INPUT_BITS} bits, not one of {number.bit_length()}")
        return number

    def decode(self, data: bytes) -> int:
        element = decoded_as(self, data, int)
        try:
            _LIMITS.check((element,))
        except OverflowError as error:
            raise ValueError(f"the encoded element: {error}") from error
        return element

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, list) or (isinstance(values, np.ndarray) and values.dtype.kind == "O"):
            return self.pack([self.lift(value) for value in python_values(values)])
        if _has_uint64(values):
            return _lift_uint64(values)
        column = _INTEGER.column(values)
        small = (column.fill_null(0) if column.null_count else column).to_numpy()
        return (small, no_digits(len(small)))

    def pack(self, elements: Sequence[int]) -> Columns:
        fits = [INT64_MIN <= element <= INT64_MAX for element in elements]
        small = [element if small else 0 for element, small in zip(elements, fits)]
        large = [(0 if small else element,) for element, small in zip(elements, fits)]
        return (np.array(small, np.int64), table_of_ints(large, _LANES))

    def unpack(self, columns: Columns) -> list[int]:
        small, table = columns
        if not table.entries:
            return list(small.tolist())
        return [element + large for element, (large,) in zip(small.tolist(), ints_of_table(table, _LANES))]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        small, table = columns
        if len(starts) == len(small):
            return columns
        if not table.entries:
            try:
                return (sum_int64(self, small, starts), no_digits(len(starts)))
            except OverflowError:
                pass  # some totals need digits
        return _canonical(sum_sorted((small,), table, starts, _explode, _LIMITS))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        small, table = columns
        if not table.entries:
            totals = add_int64(small, cells, counts, held)
            if totals is not None:
                return (totals, no_digits(len(held)))
        segments = cell_ranks(cells, len(counts), held)
        sums = sum_segments((small,), table, segments, len(held), _explode, _LIMITS)
        return None if sums is None else _canonical(sums)

    def present_columns(self, columns: Columns) -> pa.Array:
        small, table = columns
        return pa.array(small).cast(pa.string()) if not table.entries else super().present_columns(columns)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        small, table = columns
        return [pa.array(small), *table_to_arrow(table)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        small = arrays[0].to_numpy()
        table = table_from_arrow(arrays[1:], _LIMITS)
        if np.any((table.lengths > 0) & (small != 0)) or np.any(_small(table)[0] & (table.lengths > 0)):
            raise ValueError(f"{self!r}: a stored integer is split between its int64 and its digits")
        return (small, table)


def _explode(values: Column) -> list[Addend]:
    """An int64, or a uint64, as two digits."""
    low, high = values & values.dtype.type(0xFFFFFFFF), values >> values.dtype.type(32)
    return [Addend(None, np.zeros(len(values), np.int64), [low.view(np.int64), high.view(np.int64)])]


def _has_uint64(values: Any) -> bool:
    """Whether the values are a column of unsigned integers, which may exceed int64."""
    if isinstance(values, np.ndarray):
        return bool(values.dtype.newbyteorder("=") == np.uint64)
    value_type = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return bool(value_type == pa.uint64())


def _lift_uint64(values: Any) -> Columns:
    column = _UNSIGNED.column(values)
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    if not len(numbers) or numbers.max() <= INT64_MAX:
        return (numbers.view(np.int64), no_digits(len(numbers)))
    return _canonical(sum_sorted((numbers,), no_digits(len(numbers)), np.arange(len(numbers)), _explode, _LIMITS))


def _canonical(table: Ragged) -> Columns:
    fits, small = _small(table)
    kept = np.repeat(~fits, table.lengths)
    slots, digits = table.flat()
    return (small, Ragged.of(np.where(fits, 0, table.lengths), (slots[kept], digits[kept])))


def _small(table: Ragged) -> tuple[Column, Column]:
    """Which rows fit int64, and their values; 0 for the other rows."""
    slots, digits = table.flat()
    rows = np.repeat(np.arange(len(table)), table.lengths)
    leading = np.zeros((4, len(table)), np.int64)
    leading[np.minimum(slots, 3), rows] = digits
    first, second, third, more = leading
    # Between the largest int64 of two balanced digits and 2**63, and below -2**63, the third digit decides.
    below = (second == -(2**31)) & (first < 0)
    fits = (more == 0) & (third == below)
    return fits, np.where(fits, (second << 32) + first, 0)


_INTEGER = ValueType("Sum(int, unbounded=True)", "int", pa.int64(), frozenset({"int"}))
_UNSIGNED = ValueType("Sum(int, unbounded=True)", "int", pa.uint64(), frozenset({"int"}))
_LANES = (0,)
_LIMITS = DigitLimits("Sum(int, unbounded=True)", (0, SLOTS_MAX))
_INPUT_BITS = 32 * SLOTS_MAX - 2 - 64
