"""Quantiles counts numbers in buckets so narrow that one number represents its bucket, within a relative error.

    lift(x)[bucket(x)] == 1;  combine adds the counts of each bucket: a Group, exact, in any order
    |number(bucket(x)) - x| <= relative_error * |x|

So a quantile is within the relative error of the true one, the number at that position of the sorted inputs.
``logarithm.py`` has the buckets and the proof.

Source: Masson, Rim, Lee: DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees, 2019,
without collapsing buckets, which would depend on the order of merges.

An integer logarithm of floats: the number of a bucket whose members differ from its number by a bounded error.

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
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Columns, Ragged
from monoids.fixed import ONE
from monoids.groupby.cells import Integers
from monoids.monoid import Group
from monoids.numbers.integers import EntrySum, decoded_as
from monoids.ordered import IntegerKeys
from monoids.scalars import is_missing
from monoids.sketches.inputs import fraction
from monoids.table import Table
from monoids.values import INT64_MAX, INT64_MIN, ValueType

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


BucketCounts = dict[int, int]
"""An element: bucket to count, without zero counts. Bucket numbers ascend with the numbers they hold."""


class Quantiles(Table[BucketCounts], Group[BucketCounts]):
    """Quantiles of numbers, each within ``relative_error`` of the number that a sort would give.

    The quantile q of n numbers is the one at position floor(q * (n - 1)) of the sorted numbers, from 0, without
    interpolation. Zero has a bucket of its own and is exact, -0.0 is 0.0; infinities are exact; NaN sorts above
    infinity. None contributes nothing. Below 2**-1022 (subnormal) the error may grow by half of 2**-1074.

    Presented as a struct of the ``quantiles``: 0.5 is ``p50``, 0.999 is ``p999``; None without numbers. A bucket with a
    negative count, after subtracting too much, is read as empty.

    Memory: 12 bytes for each non-empty bucket, whatever the number of inputs. At 0.01 there are 35 buckets for every
    factor of 2: at most 1,120 for numbers from 1 to 4e9, and 146,863 for all floats.

    >>> delays = Quantiles(relative_error="0.01", quantiles=("0.5", "0.99"))
    >>> total = delays.fold([delays.lift(x) for x in range(1001)])
    >>> delays.present(total)
    {'p50': 500.27091248238963, 'p99': 980.729115559536}
    """

    name = "Quantiles"

    def __init__(
        self,
        relative_error: Any = "0.01",
        *,
        quantiles: Sequence[Any] = ("0.5", "0.9", "0.95", "0.99", "0.999"),
    ) -> None:
        self.relative_error = fraction("Quantiles", "relative_error", relative_error, "0.00001", "0.5", ends=True)
        self.buckets = LogarithmicBuckets(self.relative_error)
        if not isinstance(quantiles, (tuple, list)) or not quantiles:
            raise TypeError(f"Quantiles(quantiles={quantiles!r}): write a tuple, quantiles=('0.5', '0.99')")
        self.quantiles = tuple(_quantile(q) for q in quantiles)
        self.names = tuple(map(_name, self.quantiles))
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Quantiles: a quantile is given twice: {', '.join(self.names)}")
        self.type = ValueType("Quantiles()", "float", pa.float64(), frozenset({"float"}))
        self.output_type: pa.DataType = pa.struct([pa.field(name, pa.float64()) for name in self.names])
        self._counts = EntrySum(self)
        super().__init__(IntegerKeys(np.dtype(np.int32)), self._counts)

    @property
    def identity(self) -> BucketCounts:
        return {}

    def parameters(self) -> dict[str, Any]:
        return {"relative_error": _text(self.relative_error), "quantiles": [_text(q) for q in self.quantiles]}

    def __repr__(self) -> str:
        quantiles = tuple(map(_text, self.quantiles))
        return f"Quantiles({_text(self.relative_error)!r}, quantiles={quantiles!r})"

    def combine(self, a: BucketCounts, b: BucketCounts) -> BucketCounts:
        """OverflowError if a count is outside int64."""
        total = dict(a)
        for bucket, count in b.items():
            total[bucket] = self._counts.combine(total.get(bucket, 0), count)
        return {bucket: count for bucket, count in total.items() if count}

    def inverse(self, a: BucketCounts) -> BucketCounts:
        return {bucket: self._counts.inverse(count) for bucket, count in a.items()}

    def lift(self, value: Any) -> BucketCounts:
        """TypeError for a value that is not a number."""
        return {} if is_missing(value) else {self.buckets.bucket(self.type.accept(value)): 1}

    def present(self, element: BucketCounts) -> dict[str, float] | None:
        buckets = _positive_counts(element)
        if not buckets:
            return None
        return {name: self._at(buckets, q) for name, q in zip(self.names, self.quantiles)}

    def quantile(self, element: BucketCounts, q: Any) -> float | None:
        """One quantile; ``q`` from 0 to 1, as text. None without numbers."""
        buckets = _positive_counts(element)
        return self._at(buckets, _quantile(q)) if buckets else None

    def _at(self, buckets: list[tuple[int, int]], q: Fraction) -> float:
        place = (self._counts.combine(0, sum(count for _, count in buckets)) - 1) * q.numerator // q.denominator
        counted = accumulate(count for _, count in buckets)
        return self.buckets.number(next(bucket for (bucket, _), below in zip(buckets, counted) if below > place))

    def encode(self, element: BucketCounts) -> bytes:
        return encoding.encode((_text(self.relative_error), element))

    def decode(self, data: bytes) -> BucketCounts:
        """ValueError for a sketch with another error, and for bytes that are not a sketch."""
        parts = decoded_as(self, data, tuple)
        if len(parts) != 2 or parts[0].__class__ is not str or parts[1].__class__ is not dict:
            raise ValueError(f"{self!r}: the encoded element is not a sketch of quantiles")
        error, element = parts
        if error != _text(self.relative_error):
            raise ValueError(
                f"{self!r} cannot read a sketch of relative error {error!r:.40}, whose buckets differ: read it with"
                f" Quantiles({error!r:.40}), and create all combined sketches the same way"
            )
        for bucket, count in element.items():
            if bucket.__class__ is not int or not self.buckets.first <= bucket <= self.buckets.last:
                raise ValueError(f"{self!r}: {bucket!r:.60} is not one of its buckets")
            if count.__class__ is not int or not count or not INT64_MIN <= count <= INT64_MAX:
                raise ValueError(f"{self!r}: a count of {count!r:.60} in bucket {bucket}")
        return dict(element)

    # Columns.

    def entries(self, element: BucketCounts) -> tuple[list[int], list[int]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[int], inner: Sequence[int]) -> BucketCounts:
        return dict(zip(keys, inner))

    def lift_columns(self, values: Any) -> Columns:
        column = self.type.column(values)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        numbers = (column.fill_null(0.0) if column.null_count else column).to_numpy()
        ones = np.broadcast_to(ONE[0], len(numbers))
        return self.single(self.buckets.bucket_columns(numbers), valid, (ones,))

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        arrays = [self.quantile_column(table, q) for q in self.quantiles]
        empty = arrays[0].is_null()
        return pa.StructArray.from_arrays(arrays, fields=list(self.output_type), mask=empty)

    def quantile_column(self, table: Ragged, q: Fraction) -> pa.Array:
        """The quantile of every row of a table of elements; null without numbers."""
        keys, counts = table.flat()
        rows = table.spread(np.arange(len(table)))
        positive = np.flatnonzero(counts > 0)
        keys, counts, rows = keys[positive], counts[positive], rows[positive]
        numbers = np.zeros(len(table))
        sizes = np.bincount(rows, minlength=len(table))
        filled = np.flatnonzero(sizes)
        if len(filled):
            starts = (np.cumsum(sizes) - sizes)[filled]
            places = _places(self._counts.reduce_sorted((counts,), starts)[0], q)
            running = np.cumsum(counts)
            running -= np.repeat((running - counts)[starts], sizes[filled])
            before = np.add.reduceat(running <= np.repeat(places, sizes[filled]), starts, dtype=np.int64)
            numbers[filled] = self.buckets.number_columns(keys[starts + before])
        return pa.array(numbers, mask=sizes == 0)

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for a bucket number out of range, and for a count of 0."""
        (table,) = super().from_arrow(arrays)
        keys, counts = table.flat()
        if len(keys) and (keys.min() < self.buckets.first or keys.max() > self.buckets.last or not counts.all()):
            raise ValueError(f"{self!r}: an entry is outside its buckets, or counts 0")
        return (table,)


def _positive_counts(element: BucketCounts) -> list[tuple[int, int]]:
    return sorted((bucket, count) for bucket, count in element.items() if count > 0)


def _places(totals: Integers, q: Fraction) -> Integers:
    """floor(q * (total - 1)), exactly: q has a denominator of at most 10**9."""
    whole, rest = np.divmod(totals - 1, q.denominator)
    places: Integers = whole * q.numerator + rest * q.numerator // q.denominator
    return places


def _quantile(q: Any) -> Fraction:
    number = fraction("Quantiles", "quantile", q, "0", "1", ends=True)
    if 10**9 % number.denominator:
        raise ValueError(f"Quantiles: the quantile {q!r} has more than nine decimals")
    return number


def _name(q: Fraction) -> str:
    """The output name: 0.5 is p50, 0.05 is p05, 0.999 is p999, 1 is p100."""
    digits = f"{q.numerator * 10**9 // q.denominator:010d}"
    return "p100" if digits[0] == "1" else f"p{digits[1:].rstrip('0').ljust(2, '0')}"


def _text(number: Fraction) -> str:
    """A decimal fraction as text."""
    scale = next(scale for scale in range(1000) if 10**scale % number.denominator == 0)
    digits = f"{number.numerator * 10**scale // number.denominator:0{scale + 1}d}"
    return digits if not scale else f"{digits[:-scale]}.{digits[-scale:]}"
