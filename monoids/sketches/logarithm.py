"""An integer logarithm of floats: the number of a bucket whose members differ from its number by a bounded error.

    bucket(x) <= bucket(y)                            if x <= y
    |number(bucket(x)) - x| <= error * |x|            for every finite x

Each octave, the numbers from 2**n to 2**(n + 1), is cut the same way. The significand of x is an integer s with
2**52 <= s < 2**53, and x = s * 2**m. Its buckets begin at the integers B[0] = 2**52 < B[1] < ..., and S[j] represents
all s with B[j] <= s < B[j + 1]:

    S[j] = floor(B[j] * (1 + error))                  so S[j] <= (1 + error) * s, for B[j] <= s
    B[j + 1] = floor(S[j] / (1 - error)) + 1          so (1 - error) * s <= S[j], for s <= B[j + 1] - 1

That is the whole proof: integers and one fraction, no rounding and no library's logarithm, so the same bits on every
machine. The last bucket of an octave ends with it, and S[j] is a significand of the same octave, so number() is
exactly a float; for subnormal numbers it is the nearest float, which may add 2**-1075 to the error. An octave has
log(2) / log((1 + error) / (1 - error)) buckets, rounded up, the least possible.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
BucketNumbers = np.ndarray[Any, np.dtype[np.int32]]

_OCTAVES = 2098
_BITS = 52
_ONE = 1 << _BITS
_LEAST_EXPONENT = 1074
_NORMAL_MIN = -1000


class LogarithmicBuckets:
    """The buckets for one relative error.

    Bucket 0 holds zero, ``-b`` the negatives of ``b``, ``last - 1`` infinity, ``last`` NaN.
    """

    def __init__(self, error: Fraction) -> None:
        starts, standing = _cut(error)
        self.per_octave = len(standing)
        self.infinity = _OCTAVES * self.per_octave + 1
        self.first, self.last = -self.infinity, self.infinity + 1
        self._starts, self._standing = starts, standing
        self._bounds = np.array([*starts[1:], 1 << 53], np.int64)
        self._numbers = np.array(standing, np.float64)
        narrowest = min((b - a for a, b in pairwise(starts)), default=_ONE)
        self._shift = narrowest.bit_length() - 1
        cells = np.arange(_ONE >> self._shift, dtype=np.int64) << self._shift
        self._first_of = (np.searchsorted(np.array(starts), cells + _ONE, side="right") - 1).astype(np.int32)

    def bucket(self, x: float) -> int:
        """The bucket of a number."""
        if x != x:
            return self.last
        if x == 0:
            return 0
        if math.isinf(x):
            bucket = self.infinity
        else:
            significand, exponent = math.frexp(abs(x))
            octave = exponent - 1 + _LEAST_EXPONENT
            whole = int(math.ldexp(significand, _BITS + 1))
            bucket = octave * self.per_octave + bisect_right(self._starts, whole)
        return bucket if x > 0 else -bucket

    def number(self, bucket: int) -> float:
        """The number that represents a bucket."""
        if bucket == self.last:
            return math.nan
        size = abs(bucket)
        if size == self.infinity:
            return math.copysign(math.inf, bucket)
        if not size:
            return 0.0
        octave, within = divmod(size - 1, self.per_octave)
        exponent = octave - _LEAST_EXPONENT - _BITS
        normal = max(exponent, _NORMAL_MIN)
        # Two products, of which only the last may round: not all libraries round subnormal results of ldexp.
        number = self._standing[within] * math.ldexp(1.0, normal) * math.ldexp(1.0, exponent - normal)
        return math.copysign(number, bucket)

    # Columns.

    def bucket_columns(self, numbers: Floats) -> BucketNumbers:
        """The bucket of each number."""
        bits = np.ascontiguousarray(numbers, np.float64).view(np.int64)
        octaves, significands = (bits >> _BITS) & 0x7FF, bits & (_ONE - 1)
        strange = (octaves == 0) | (octaves == 0x7FF)
        octaves += _LEAST_EXPONENT - 1023
        significands |= _ONE
        within = self._first_of[(significands - _ONE) >> self._shift]
        within += significands >= self._bounds[within]
        buckets: BucketNumbers = (octaves * self.per_octave + within + 1).astype(np.int32)
        np.negative(buckets, out=buckets, where=bits < 0)
        if strange.any():
            places = np.flatnonzero(strange)
            buckets[places] = self._special_buckets(numbers[places])
        return buckets

    def _special_buckets(self, numbers: Floats) -> BucketNumbers:
        """The buckets of zeros, subnormal numbers, infinities and NaN."""
        buckets = np.zeros(len(numbers), np.int32)
        buckets[np.isnan(numbers)] = self.last
        infinite = np.isinf(numbers)
        buckets[infinite] = np.where(numbers[infinite] > 0, self.infinity, -self.infinity)
        small = np.flatnonzero(np.isfinite(numbers) & (numbers != 0))
        if len(small):
            shift = 64 * self.per_octave
            scaled = self.bucket_columns(numbers[small] * 2.0**64)
            buckets[small] = np.where(scaled > 0, scaled - shift, scaled + shift)
        return buckets

    def number_columns(self, buckets: BucketNumbers) -> Floats:
        """The number that represents each bucket."""
        sizes = np.abs(buckets)
        octaves, within = np.divmod(np.clip(sizes - 1, 0, self.infinity - 2), self.per_octave)
        exponents = octaves - _LEAST_EXPONENT - _BITS
        normal = np.maximum(exponents, _NORMAL_MIN)
        numbers: Floats = self._numbers[within] * np.ldexp(1.0, normal) * np.ldexp(1.0, exponents - normal)
        numbers = np.copysign(numbers, buckets)
        numbers[sizes == 0] = 0.0
        infinite = sizes == self.infinity
        numbers[infinite] = np.copysign(np.inf, buckets[infinite])
        numbers[buckets == self.last] = math.nan
        return numbers


def _cut(error: Fraction) -> tuple[list[int], list[int]]:
    """The first significand of each bucket of an octave, and the significand that represents it."""
    up, down, unit = error.denominator + error.numerator, error.denominator - error.numerator, error.denominator
    starts, standing = [], []
    start, end = _ONE, 2 * _ONE
    while start < end:
        stands = min(start * up // unit, end - 1)
        starts.append(start)
        standing.append(stands)
        start = stands * unit // down + 1
    return starts, standing
