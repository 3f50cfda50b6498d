"""Limbs are columns of large integers: exact sums and products of whole columns at once, computed in floats.

    integer of a row == sum(limbs[i] * 2**(24 * i))        limbs are floats, at most 2**23 + 1 in magnitude

A column is an array with one row per limb, lowest first. The sign is that of the highest non-zero limb; 0 is all zeros.
Every float computed here stays below 2**53, so it is exact: see ``LIMBS_MAX``.

A double-double is the sum of two floats, with 106 bits, times a power of two; it reports whether it rounds surely.

    value == (high + low) * 2**exponents        high == the float nearest to high + low, 0 or from 0.5 to 1 in size

If the operands err by less than 2**-98, so does the result of each operation. So up to 32 operations in sequence err
by less than 2**-92, and ``rounded`` reports the rows for which that is enough to know the nearest float.

Source: T. J. Dekker, A floating-point technique for extending the available precision (1971).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monoids.column import Column, Ragged

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


BITS = 24
LIMBS_MAX = 64
"""The limit of the shorter factor: a sum of 64 products of two limbs is below 2**53."""

_SCALE = 2.0**BITS
_DIGITS_MAX = 12
_LEADING = 6

Limbs = Column


def carried(sums: Limbs) -> Limbs:
    """Limbs of up to 2**53 as limbs of at most 2**23 + 1, and two more of them. Changes its argument."""
    limbs = np.zeros((len(sums) + 2, sums.shape[1]))
    limbs[:-2] = sums
    for _ in range(3):
        carry = limbs * (1 / _SCALE)
        np.rint(carry, out=carry)
        limbs[1:] += carry[:-1]
        carry *= _SCALE
        limbs -= carry
    return limbs[: int(np.flatnonzero(limbs.any(axis=1)).max(initial=0)) + 1]


def product(a: Limbs, b: Limbs) -> Limbs:
    """The product of each row."""
    if len(a) > len(b):
        a, b = b, a
    sums = np.zeros((len(a) + len(b), a.shape[1]))
    partial = np.empty_like(b)
    for place, limb in enumerate(a):
        np.multiply(limb, b, out=partial)
        sums[place : place + len(b)] += partial
    return carried(sums)


def combination(*terms: tuple[Column | float, Limbs]) -> Limbs:
    """The sum of limbs times their factors. Factors are whole numbers and sum to less than 2**29."""
    sums = np.zeros((max(len(limbs) for _, limbs in terms), terms[0][1].shape[1]))
    for factor, limbs in terms:
        sums[: len(limbs)] += factor * limbs
    return carried(sums)


def leading(limbs: Limbs, exponents: Column | int) -> DoubleDouble:
    """The integers times ``2**exponents`` as pairs of floats, within 2**-104 of each."""
    rows = np.arange(limbs.shape[1])
    padded = np.concatenate((np.zeros((_LEADING, len(rows))), limbs))
    highest = len(padded) - 1 - np.argmax(padded[::-1] != 0, axis=0)
    first, second, third, fourth, fifth, sixth = (padded[highest - back, rows] for back in range(_LEADING))
    high, low = two_sum((first * _SCALE + second) * _SCALE**4, (third * _SCALE + fourth) * _SCALE**2)
    low, rest = two_sum(low, fifth * _SCALE + sixth)
    exact = (rest == 0) & (highest < 2 * _LEADING)
    return DoubleDouble.of(high, low, BITS * (highest - _LEADING - 5) + exponents, exact)


@dataclass(frozen=True)
class Vectors:
    """The integers of some rows of a table of digits, as limbs.

    ``lanes``: for each lane of degree d, the integers in units of ``2**(units * d)``. ``fits``: which rows are small
    enough; the others are 0.
    """

    lanes: Sequence[Limbs]
    units: Column
    fits: Column

    @classmethod
    def of(cls, table: Ragged, bounds: Sequence[int], degrees: Sequence[int]) -> Vectors:
        """The first lanes, with these degrees, where all other lanes are 0; ``bounds`` as in ``digits.DigitLimits``."""
        firsts, ends = np.array(bounds[: len(degrees)]), np.array(bounds[1 : len(degrees) + 1])
        widths = np.repeat(degrees, ends - firsts)
        # Each lane has rows of its own; its cells begin at ``begins``.
        begins = _DIGITS_MAX * (np.cumsum(degrees) - degrees)
        places = np.arange(len(widths)) - np.repeat(firsts, ends - firsts)
        begin_of = np.repeat(begins, ends - firsts)
        slots, digits = table.flat()
        rows = table.spread(np.arange(len(table)))
        fits = np.ones(len(table), np.bool_)
        fits[rows[slots >= len(widths)]] = False
        slots = np.minimum(slots, len(widths) - 1)
        shifts = np.zeros(len(table), np.int64)
        filled = np.flatnonzero(table.lengths)
        if len(filled):
            starts = (np.cumsum(table.lengths) - table.lengths)[filled]
            shifts[filled] = np.minimum.reduceat((places // widths)[slots], starts)
        cells = (begin_of + places)[slots] - widths[slots] * shifts[rows]
        fits[rows[cells >= (begin_of + _DIGITS_MAX * widths)[slots]]] = False
        if not fits.all():
            kept = fits[rows]
            cells, rows, digits = cells[kept], rows[kept], digits[kept]
        dense = np.zeros((_DIGITS_MAX * sum(degrees), len(table)), np.int64)
        dense.reshape(-1)[cells * len(table) + rows] = digits
        used = np.bincount(cells, minlength=len(dense)) > 0
        lanes = []
        for begin, degree in zip(begins.tolist(), degrees):
            size = int(np.flatnonzero(used[begin : begin + _DIGITS_MAX * degree]).max(initial=0)) // 3 + 1
            lanes.append(_of_digits(dense[begin : begin + 3 * size].reshape(size, 3, len(table))))
        return cls(lanes, 32 * shifts, fits)


def _of_digits(digits: Column) -> Limbs:
    """32-bit digits as limbs: three digits are four limbs."""
    first, second, third = digits[:, 0], digits[:, 1], digits[:, 2]
    limbs = np.empty((len(digits), 4, digits.shape[2]))
    limbs[:, 0] = first & 0xFFFFFF
    limbs[:, 1] = (first >> 24) + ((second & 0xFFFF) << 8)
    limbs[:, 2] = (second >> 16) + ((third & 0xFF) << 16)
    limbs[:, 3] = third >> 8
    return carried(limbs.reshape(-1, digits.shape[2]))
