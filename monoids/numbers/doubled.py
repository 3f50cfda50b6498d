"""A doubled float is the sum of two, of 106 bits together, times a power of two; and it knows if it rounds for sure.

    value == (high + low) * 2**exponents        high == the float nearest to high + low, 0 or from 0.5 to 1 in size

Each operation errs by less than 2**-98 of its result, if its operands do. So up to 32 of them, one after the other,
err by less than 2**-92: ``rounded`` says for which rows that is enough to know the nearest float.

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
    """The nearest float to ``a + b``, and what is left."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Column, b: Column) -> tuple[Column, Column]:
    """The nearest float to ``a * b``, and what is left."""
    total = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return total, ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Column) -> tuple[Column, Column]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


@dataclass(frozen=True)
class Doubled:
    """A column of them. ``exact``: of which rows it is known that they have no error at all."""

    high: Column
    low: Column
    exponents: Column
    exact: Column | bool = False

    @classmethod
    def of(cls, high: Column, low: Column, exponents: Column, exact: Column | bool = False) -> Doubled:
        """The sum of two floats, the second much the smaller; the first is no subnormal."""
        high, low = two_sum(high, low)
        powers = ((high.view(np.int64) >> 52) & 0x7FF) - 1022
        factors = ((1023 - powers) << 52).view(np.float64)
        return cls(high * factors, low * factors, exponents + powers, exact)

    def __mul__(self, other: Doubled) -> Doubled:
        high, low = two_product(self.high, other.high)
        low = low + (self.high * other.low + self.low * other.high)
        return Doubled.of(high, low, self.exponents + other.exponents)

    def __truediv__(self, other: Doubled) -> Doubled:
        """NaN where divided by 0."""
        first = self.high / other.high
        high, low = two_product(first, other.high)
        second = (((self.high - high) - low) + (self.low - first * other.low)) / other.high
        return Doubled.of(first, second, self.exponents - other.exponents)

    def over(self, whole: Column) -> Doubled:
        """Divided by floats; it is seen where that is exact, as often of short numbers, which may be halfway cases."""
        first = self.high / whole
        high, low = two_product(first, whole)
        rest, left = two_sum(self.high - high, -low)
        rest, more = two_sum(rest, self.low)
        second = (rest + (left + more)) / whole
        high, low = two_product(second, whole)
        exact = self.exact & (left == 0) & (more == 0) & (high == rest) & (low == 0)
        return Doubled.of(first, second, self.exponents, exact)

    def root(self) -> Doubled:
        """The square root; NaN below 0."""
        odd = self.exponents & 1
        high, low = self.high * (1.0 + odd), self.low * (1.0 + odd)
        first = np.sqrt(high)
        square, rest = two_product(first, first)
        second = (((high - square) - rest) + low) / (2 * first)
        return Doubled.of(first, np.where(high == 0, 0.0, second), (self.exponents - odd) >> 1)

    def rounded(self) -> tuple[Column, Column]:
        """The nearest floats, infinite beyond the largest; and for which rows they certainly are that."""
        margin = np.abs(self.high) * _ERROR
        sure = (self.high + (self.low + margin) == self.high) & (self.high + (self.low - margin) == self.high)
        sure |= self.exact
        sure &= (self.exponents >= _SMALLEST) | (self.high == 0)
        with np.errstate(over="ignore"):
            return np.ldexp(self.high, self.exponents), sure
