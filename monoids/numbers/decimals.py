"""The exact sum of decimals of one scale: ``Sum(pa.decimal128(precision, scale))``, a Group of 38 digits.

An element is the sum in units of the last decimal place, an int: 1.50 with scale 2 is 150. In columns it is two words
of 64 bits, low and high, as Arrow's decimal128 is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns
from monoids.monoid import Group, check_schema
from monoids.numbers.integers import decoded_as
from monoids.scalars import is_missing
from monoids.values import value_type

PRECISION = 38
_LIMIT = 10**PRECISION
_MASK = 0xFFFFFFFF
_CONTEXT = Context(prec=PRECISION + 1)


class DecimalSum(Group[int]):
    """``Sum(pa.decimal128(precision, scale))``: the sum of the decimals that are not None; 0 of none.

    Inputs are Decimals and integers of at most this precision and scale: ValueError for one that would be rounded or
    does not fit, and for NaN and infinities; TypeError for a float. A total of more than 38 digits raises
    OverflowError. The output has 38 digits, and the same scale.

    >>> from monoids import Sum
    >>> money = Sum(pa.decimal128(10, 2))
    >>> money.present(money.combine(money.lift(Decimal("1.50")), money.lift(2)))
    Decimal('3.50')
    """

    identity = 0
    commutative = True
    name = "Sum"

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
        """``a + b``. OverflowError beyond 38 digits."""
        return self.fold((a, b))

    def fold(self, elements: Sequence[int]) -> int:
        """Their sum. OverflowError beyond 38 digits, whatever it is on the way."""
        total = sum(elements)
        if abs(total) >= _LIMIT:
            raise self._overflow()
        return total

    def inverse(self, a: int) -> int:
        return -a

    def lift(self, value: Any) -> int:
        return 0 if is_missing(value) else self._units(self.type.accept(value))

    def present(self, element: int) -> Decimal:
        return Decimal(element).scaleb(-self.scale, _CONTEXT)

    def decode(self, data: bytes) -> int:
        element = decoded_as(self, data, int)
        if abs(element) >= _LIMIT:
            raise ValueError(f"{self!r}: the encoded element has more than {PRECISION} digits")
        return element

    # Columns: the low and the high word.

    def lift_columns(self, values: Any) -> Columns:
        column = self.type.column(values)
        return _words(column.fill_null(Decimal(0)) if column.null_count else column)

    def pack(self, elements: Sequence[int]) -> Columns:
        data = b"".join(element.to_bytes(16, "little", signed=True) for element in elements)
        words = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, 2)
        return (words[:, 0].copy(), words[:, 1].copy())

    def unpack(self, columns: Columns) -> list[int]:
        low, high = columns
        return [(upper << 64) + lower for lower, upper in zip(low.view(np.uint64).tolist(), high.tolist())]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        return self._joined([np.add.reduceat(part, starts) for part in _quarters(columns)])

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        sums = []
        for part in _quarters(columns):
            totals = np.zeros(len(counts), np.int64)
            np.add.at(totals, cells, part)
            sums.append(totals[held])
        return self._joined(sums)

    def present_columns(self, columns: Columns) -> pa.Array:
        words = np.ascontiguousarray(np.stack(columns, axis=1))
        return pa.Array.from_buffers(self.output_type, len(words), [None, pa.py_buffer(words)])

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [self.present_columns(columns)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        columns = _words(arrays[0])
        if self._beyond(columns):
            raise ValueError(f"{self!r}: a stored element has more than {PRECISION} digits")
        return columns

    def _units(self, value: Decimal) -> int:
        return int(value.scaleb(self.scale, _CONTEXT))

    def _joined(self, quarters: Sequence[Column]) -> Columns:
        """Two words of sums by quarter. OverflowError beyond 38 digits."""
        words, carry = [], np.zeros(len(quarters[0]), np.int64)
        for quarter in quarters[:3]:
            carry = quarter + carry
            words.append(carry & _MASK)
            carry >>= 32
        top = quarters[3] + carry
        high = (top << 32) | words[2]
        low = (words[1] << 32) | words[0]
        if ((top >= 2**31) | (top < -(2**31))).any() or self._beyond((low, high)):
            raise self._overflow()
        return (low, high)

    def _beyond(self, columns: Columns) -> bool:
        """Whether any has more than 38 digits. The high word decides; the few near the limit are compared whole."""
        low, high = columns
        near = np.flatnonzero((high >= _LIMIT >> 64) | (high <= -_LIMIT >> 64))
        return any(abs(total) >= _LIMIT for total in self.unpack((low[near], high[near])))

    def _overflow(self) -> OverflowError:
        return OverflowError(
            f"{self!r}: a total has more than {PRECISION} digits; sum fewer decimal places, or units of the last place"
            " as integers with Sum(int, unbounded=True)"
        )


def _words(column: pa.Array) -> Columns:
    if not len(column):
        return (np.zeros(0, np.int64), np.zeros(0, np.int64))
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    return (words[:, 0].copy(), words[:, 1].copy())


def _quarters(columns: Columns) -> list[Column]:
    """The value in four parts of 32 bits, the last of which has the sign: sums of 2**31 rows do not wrap."""
    low, high = columns
    return [low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32]
