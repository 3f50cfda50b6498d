"""Totals that exceed 64 bits: wide columns of integers, and the exact sum of decimals.

A wide column holds Python integers in memory, and decimals without places in Arrow. A total that leaves 64 bits slows
down only the columns it is in.

    all values fit int64    an int64 column
    some do not             an object column of Python integers; ``narrow`` converts it back once all fit

``Sum(pa.decimal128(precision, scale))`` is a Group of 38 digits. An element is the sum in units of the last decimal
place, an int: 1.50 with scale 2 is 150. As columns it is two words, low and high, like Arrow's decimal128; high words
that exceed 64 bits are Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import WIDE_INTEGER
from monoids.column import Column, Columns, take
from monoids.fixed import overflow
from monoids.monoid import Group, Monoid, check_schema
from monoids.numbers.integers import IntegerMonoid, decoded_as
from monoids.scalars import is_missing
from monoids.values import INT64_MAX, INT64_MIN, value_type

_LOW = 0xFFFFFFFF
_LIMIT: int = 10**WIDE_INTEGER.precision


class WideIntegers(IntegerMonoid):
    """Integers whose sums may leave 64 bits if they return before they are presented.

    Subclass as ``IntegerMonoid``. ``combine`` and the folds never raise; ``present`` raises outside int64.
    """

    widens = True

    def present(self, element: int) -> int:
        """OverflowError outside int64."""
        if not INT64_MIN <= element <= INT64_MAX:
            raise overflow(self, element)
        return element

    def decode(self, data: bytes) -> int:
        element = decoded_as(self, data, int)
        if not self.is_element(element):
            raise ValueError(f"{self!r}: the encoded element {element!r:.60} is not a total that inputs can have")
        return element

    def is_element(self, number: int) -> bool:
        """Whether an integer is a total that inputs can have."""
        return abs(number) < _LIMIT

    def pack(self, elements: Sequence[int]) -> Columns:
        return (packed(elements),)

    def present_columns(self, columns: Columns) -> pa.Array:
        """OverflowError, naming the first total outside int64."""
        column = narrow(columns[0])
        if is_wide(column):
            raise overflow(self, next(total for total in column.tolist() if not INT64_MIN <= total <= INT64_MAX))
        return pa.array(column)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        column = narrow(columns[0])
        return [_decimals(self, column) if is_wide(column) else pa.array(column)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        if arrays[0].type != WIDE_INTEGER:
            return (arrays[0].to_numpy(),)
        column = _integers(arrays[0])
        if is_wide(column) and not all(map(self.is_element, column.tolist())):
            raise ValueError(f"{self!r}: a stored element is not a total that inputs can have")
        return (column,)


def is_wide(column: Column) -> bool:
    """Whether a column holds Python integers, some of which may not fit 64 bits."""
    return bool(column.dtype == object)


def narrow(column: Column) -> Column:
    """The column as int64 if all of it fits."""
    if not is_wide(column):
        return column
    try:
        return np.asarray(column.astype(np.int64))
    except OverflowError:
        return column


def packed(elements: Sequence[int]) -> Column:
    """Integers as a column."""
    try:
        return np.array(elements, np.int64)
    except OverflowError:
        return np.array(elements, object)


def add_wide(values: Column, starts: Column) -> Column:
    """The sum of each segment, of any size."""
    if is_wide(values):
        return narrow(np.asarray(np.add.reduceat(values, starts)))
    # By 32-bit halves, which cannot wrap below 2**31 rows.
    low = np.add.reduceat(values & _LOW, starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    totals = (high << 32) | (low & _LOW)
    beyond = np.flatnonzero((high < -(2**31)) | (high >= 2**31))
    if not len(beyond):
        return np.asarray(totals)
    wide: Column = totals.astype(object)
    wide[beyond] = [(upper << 32) + (lower & _LOW) for upper, lower in zip(high[beyond].tolist(), low[beyond].tolist())]
    return wide


def words(array: pa.Array) -> tuple[Column, Column]:
    """The low and the high 64 bits of the values of a decimal128 array without nulls."""
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    both = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    return both[:, 0].copy(), both[:, 1].copy()


def of_words(type: pa.DataType, *parts: Column) -> pa.Array:
    """A decimal array from the words of its values, lowest first."""
    together = np.ascontiguousarray(np.stack(parts, axis=1))
    return pa.Array.from_buffers(type, len(together), [None, pa.py_buffer(together)])


def _decimals(monoid: Monoid[Any], column: Column) -> pa.Array:
    beyond = np.flatnonzero((column > INT64_MAX) | (column < INT64_MIN))
    totals = column[beyond].tolist()
    if any(abs(total) >= _LIMIT for total in totals):
        raise OverflowError(f"{monoid!r}: a total has more than {WIDE_INTEGER.precision} digits, which no inputs have")
    rest = column.copy()
    rest[beyond] = 0
    low = rest.astype(np.int64)
    high = low >> 63
    low.view(np.uint64)[beyond] = [total & (2**64 - 1) for total in totals]
    high[beyond] = [total >> 64 for total in totals]
    return of_words(WIDE_INTEGER, low, high)


def _integers(array: pa.Array) -> Column:
    low, high = words(array)
    beyond = np.flatnonzero(high != low >> 63)
    if not len(beyond):
        return low
    column = low.astype(object)
    parts = zip(high[beyond].tolist(), low[beyond].view(np.uint64).tolist())
    column[beyond] = [(upper << 64) + lower for upper, lower in parts]
    return column


PRECISION = 38
_DECIMAL_LIMIT = 10**PRECISION
_WIDE_LIMIT = 10 ** (2 * PRECISION)
_MASK = 0xFFFFFFFF
_WORD = 2**64 - 1
_CONTEXT = Context(prec=PRECISION + 1)
_WIDE_CONTEXT = Context(prec=2 * PRECISION + 1)


class DecimalSum(Group[int]):
    """``Sum(pa.decimal128(precision, scale))``: the sum of the non-None decimals; 0 without input.

    Inputs are Decimals and integers of at most this precision and scale: ValueError for one that does not fit or would
    be rounded, and for NaN and infinities; TypeError for a float. The output has 38 digits and the same scale. A
    running total may have more digits; presenting it then raises OverflowError.

    >>> from monoids import Sum
    >>> money = Sum(pa.decimal128(10, 2))
    >>> money.present(money.combine(money.lift(Decimal("1.50")), money.lift(2)))
    Decimal('3.50')
    """

    identity = 0
    commutative = True
    name = "Sum"
    widens = True

    def __init__(self, type: pa.DataType) -> None:
        self.type = value_type("Sum", type, frozenset({"decimal"}))
        if not pa.types.is_decimal128(type):
            raise TypeError(f"Sum({type}): write Sum(pa.decimal128({min(type.precision, PRECISION)}, {type.scale}))")
        self.type = replace(self.type, title=f"Sum(pa.decimal128({type.precision}, {type.scale}))")
        self.scale: int = type.scale
        self.output_type: pa.DataType = pa.decimal128(PRECISION, type.scale)
        self.schema = pa.schema([pa.field("element", self.output_type, nullable=False)])

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def combine(self, a: int, b: int) -> int:
        return a + b

    def fold(self, elements: Sequence[int]) -> int:
        return sum(elements)

    def inverse(self, a: int) -> int:
        return -a

    def lift(self, value: Any) -> int:
        return 0 if is_missing(value) else int(self.type.accept(value).scaleb(self.scale, _CONTEXT))

    def present(self, element: int) -> Decimal:
        """OverflowError beyond 38 digits."""
        if abs(element) >= _DECIMAL_LIMIT:
            raise self._overflow(element)
        return Decimal(element).scaleb(-self.scale, _CONTEXT)

    def decode(self, data: bytes) -> int:
        element = decoded_as(self, data, int)
        if abs(element) >= _WIDE_LIMIT:
            raise ValueError(f"{self!r}: the encoded element has more than {2 * PRECISION} digits")
        return element

    # Columns: the low and the high word.

    def lift_columns(self, values: Any) -> Columns:
        column = self.type.column(values)
        return words(column.fill_null(Decimal(0)) if column.null_count else column)

    def pack(self, elements: Sequence[int]) -> Columns:
        low = np.array([element & _WORD for element in elements], np.uint64).view(np.int64)
        return (low, packed([element >> 64 for element in elements]))

    def unpack(self, columns: Columns) -> list[int]:
        low, high = columns
        return [(upper << 64) + lower for lower, upper in zip(low.view(np.uint64).tolist(), high.tolist())]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        return _words_of_quarters([np.add.reduceat(part, starts) for part in _quarters(columns)])

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        sums = []
        for part in _quarters(columns):
            totals = np.zeros(len(counts), part.dtype)
            np.add.at(totals, cells, part)
            sums.append(totals[held])
        return _words_of_quarters(sums)

    def present_columns(self, columns: Columns) -> pa.Array:
        """OverflowError, naming the first total that has more than 38 digits."""
        beyond = _beyond(columns)
        if len(beyond):
            raise self._overflow(self.unpack(take(columns, beyond[:1]))[0])
        return of_words(self.output_type, columns[0], narrow(columns[1]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        beyond = _beyond(columns)
        if not len(beyond):
            return [of_words(self.output_type, columns[0], narrow(columns[1]))]
        if any(abs(total) >= _WIDE_LIMIT for total in self.unpack(take(columns, beyond))):
            raise OverflowError(f"{self!r}: a total has more than {2 * PRECISION} digits, which no inputs have")
        low, high = columns
        parts = [packed([upper >> shift for upper in high.tolist()]) for shift in (64, 128)]
        middle = np.array([upper & _WORD for upper in high.tolist()], np.uint64).view(np.int64)
        return [of_words(pa.decimal256(2 * PRECISION, self.scale), low, middle, *parts)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        if pa.types.is_decimal256(arrays[0].type):
            return self._wide_from_arrow(arrays[0])
        columns = words(arrays[0])
        if len(_beyond(columns)):
            raise ValueError(f"{self!r}: a stored element has more than {PRECISION} digits")
        return columns

    def _wide_from_arrow(self, array: pa.Array) -> Columns:
        if not len(array):
            return words(array)
        all_words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 4)[array.offset : array.offset + len(array)]
        low, *rest = all_words.T
        second, third, top = (word.tolist() for word in (rest[0].view(np.uint64), rest[1].view(np.uint64), rest[2]))
        high = [a + (b << 64) + (c << 128) for a, b, c in zip(second, third, top)]
        columns = (low.copy(), packed(high))
        if any(abs(total) >= _WIDE_LIMIT for total in self.unpack(take(columns, _beyond(columns)))):
            raise ValueError(f"{self!r}: a stored element has more than {2 * PRECISION} digits")
        return columns

    def _overflow(self, total: int) -> OverflowError:
        return OverflowError(
            f"{self!r}: the total {Decimal(total).scaleb(-self.scale, _WIDE_CONTEXT)} has more than {PRECISION} digits;"
            " sum fewer decimal places, or units of the last place as integers with Sum(int, unbounded=True)"
        )


def _words_of_quarters(quarters: Sequence[Column]) -> Columns:
    """The two words of sums given as 32-bit quarters."""
    parts, carry = [], np.zeros(len(quarters[0]), np.int64)
    for quarter in quarters[:3]:
        carry = quarter + carry
        parts.append(carry & _MASK)
        carry = carry >> 32
    top = quarters[3] + carry
    if not is_wide(top) and ((top >= 2**31) | (top < -(2**31))).any():
        top = top.astype(object)
    return ((parts[1] << 32) | parts[0], narrow((top << 32) | parts[2]))


def _beyond(columns: Columns) -> Column:
    """The rows with more than 38 digits. The high word decides; only values near the limit are compared whole."""
    low, high = columns
    near = np.flatnonzero((high >= _DECIMAL_LIMIT >> 64) | (high <= -_DECIMAL_LIMIT >> 64))
    totals = zip(low[near].view(np.uint64).tolist(), high[near].tolist())
    is_beyond = [abs((upper << 64) + lower) >= _DECIMAL_LIMIT for lower, upper in totals]
    return near[np.array(is_beyond, np.bool_)]


def _quarters(columns: Columns) -> list[Column]:
    """The value as four 32-bit parts, the last of which is signed: sums of up to 2**31 rows do not wrap."""
    low, high = columns
    return [low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32]
