"""A wide column holds totals that exceed 64 bits: as Python integers in memory, as decimals without places in Arrow.

all values fit int64    an int64 column
some do not             an object column of Python integers; ``narrow`` converts it back once all fit

So a total that leaves 64 bits slows down only the columns it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import WIDE_INTEGER
from monoids.column import Column, Columns
from monoids.groupby.segments import overflow
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import IntegerMonoid, decoded_as
from monoids.values import INT64_MAX, INT64_MIN

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
