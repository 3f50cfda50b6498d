"""A double-double is the sum of two floats, with 106 bits, times a power of two; it reports whether it rounds surely.

    value == (high + low) * 2**exponents        high == the float nearest to high + low, 0 or from 0.5 to 1 in size

If the operands err by less than 2**-98, so does the result of each operation. So up to 32 operations in sequence err
by less than 2**-92, and ``rounded`` reports the rows for which that is enough to know the nearest float.

Source: T. J. Dekker, A floating-point technique for extending the available precision (1971).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monoids.column import Column

_ERROR = 2.0**-92
_SPLITTER = 2.0**27 + 1
_SMALLEST = -1021


def two_sum(a: Column, b: Column) -> tuple[Column, Column]:
    """The nearest float to ``a + b``, and the remainder."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Column, b: Column) -> tuple[Column, Column]:
    """The nearest float to ``a * b``, and the remainder."""
    total = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return total, ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Column) -> tuple[Column, Column]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


@dataclass(frozen=True)
class DoubleDouble:
    """A column of double-doubles. ``exact``: the rows that are known to have no error at all."""

    high: Column
    low: Column
    exponents: Column
    exact: Column | bool = False

    @classmethod
    def of(cls, high: Column, low: Column, exponents: Column, exact: Column | bool = False) -> DoubleDouble:
        """The sum of two floats, the second much the smaller; the first is not subnormal."""
        high, low = two_sum(high, low)
        powers = ((high.view(np.int64) >> 52) & 0x7FF) - 1022
        factors = ((1023 - powers) << 52).view(np.float64)
        return cls(high * factors, low * factors, exponents + powers, exact)

    def __mul__(self, other: DoubleDouble) -> DoubleDouble:
        high, low = two_product(self.high, other.high)
        low = low + (self.high * other.low + self.low * other.high)
        return DoubleDouble.of(high, low, self.exponents + other.exponents)

    def __truediv__(self, other: DoubleDouble) -> DoubleDouble:
        """NaN for division by 0."""
        first = self.high / other.high
        high, low = two_product(first, other.high)
        second = (((self.high - high) - low) + (self.low - first * other.low)) / other.high
        return DoubleDouble.of(first, second, self.exponents - other.exponents)

    def over(self, whole: Column) -> DoubleDouble:
        """Division by floats. Detects exact quotients, which are common for short numbers and may be halfway cases."""
        first = self.high / whole
        high, low = two_product(first, whole)
        rest, left = two_sum(self.high - high, -low)
        rest, more = two_sum(rest, self.low)
        second = (rest + (left + more)) / whole
        high, low = two_product(second, whole)
        exact = self.exact & (left == 0) & (more == 0) & (high == rest) & (low == 0)
        return DoubleDouble.of(first, second, self.exponents, exact)

    def root(self) -> DoubleDouble:
        """The square root; NaN below 0."""
        odd = self.exponents & 1
        high, low = self.high * (1.0 + odd), self.low * (1.0 + odd)
        first = np.sqrt(high)
        square, rest = two_product(first, first)
        second = (((high - square) - rest) + low) / (2 * first)
        return DoubleDouble.of(first, np.where(high == 0, 0.0, second), (self.exponents - odd) >> 1)

    def rounded(self) -> tuple[Column, Column]:
        """The nearest floats, infinite beyond the largest; and the rows for which they are certain."""
        margin = np.abs(self.high) * _ERROR
        sure = (self.high + (self.low + margin) == self.high) & (self.high + (self.low - margin) == self.high)
        sure |= self.exact
        sure &= (self.exponents >= _SMALLEST) | (self.high == 0)
        with np.errstate(over="ignore"):
            return np.ldexp(self.high, self.exponents), sure
