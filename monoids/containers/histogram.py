"""A histogram counts numbers by bucket.

    Histogram(boundaries)       buckets [lower, upper) between given boundaries
    ExponentialHistogram(scale) buckets (lower, upper] whose bounds grow by 2 ** 2 ** -scale

Elements hold only buckets with a count. A number's bucket is found by comparing it with bounds that are exact
doubles, never by a logarithm: so it is the same on every machine, scalar and columnar.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, repeat
from monoids.containers.bags import CountTable, Tally
from monoids.fixed import ONE
from monoids.ordered import IntegerKeys, Ordered
from monoids.scalars import is_missing, shown
from monoids.table import list_array
from monoids.values import ValueType

_FLOAT_MAX = math.ldexp(2**53 - 1, 971)
_BUCKET = pa.struct([("lower", pa.float64()), ("upper", pa.float64()), ("count", pa.int64())])
_FRACTION_BITS = 52
_GUARD_BITS = 256
SCALE_MIN, SCALE_MAX = -10, 12


class BucketHistogram(CountTable):
    """Counts of numbered buckets, ascending. Subclasses define their numbers and bounds."""

    output_type = pa.list_(_BUCKET)

    def __init__(self) -> None:
        super().__init__(IntegerKeys(np.dtype(np.int32)))
        self.type = ValueType(repr(self), "float", pa.float64(), frozenset({"float"}))

    def index(self, number: float) -> int:
        """The bucket of a float."""
        raise NotImplementedError

    def indices(self, numbers: Column) -> Column:
        """The bucket of each float."""
        raise NotImplementedError

    def are_buckets(self, indices: Column) -> Column:
        """Which integers are bucket numbers."""
        raise NotImplementedError

    def bounds(self, index: int) -> tuple[float, float]:
        """The lower and upper bound of a bucket. ValueError if there is no bucket ``index``."""
        raise NotImplementedError

    def estimate(self, index: int, share: Fraction) -> float:
        """A number in the bucket, above this share of its count."""
        raise NotImplementedError

    def quantile(self, element: Tally, q: float) -> float | None:
        """An estimate of the smallest number not exceeded by at least a share ``q`` of all numbers (0 <= q <= 1).

        None without numbers. It is computed from the bounds of the bucket that holds that number. NaN is above all
        numbers. ValueError for a ``q`` outside 0 to 1, or if a count is negative, after subtracting too much.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"{self!r}: quantile(element, {q!r}): q is a share, from 0 to 1")
        if any(count < 0 for count in element.values()):
            raise ValueError(f"{self!r}: a bucket has a count below 0: more was subtracted than added")
        rank = max(math.ceil(Fraction(q) * sum(element.values())), 1)
        below = 0
        for index in sorted(element):
            if below + element[index] >= rank:
                return self.estimate(index, Fraction(rank - below, element[index]))
            below += element[index]
        return None

    def lift(self, value: Any) -> Tally:
        return {} if is_missing(value) else {self.index(self.type.accept(value)): 1}

    def present(self, element: Tally) -> list[dict[str, Any]]:
        buckets = [(*self.bounds(index), element[index]) for index in sorted(element)]
        return [{"lower": lower, "upper": upper, "count": count} for lower, upper, count in buckets]

    def check_keys(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if type(key) is not int:
                raise ValueError(f"{self!r}: {key!r:.60} is not the number of a bucket")
            self.bounds(key)

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        numbers, valid = Ordered(self.type).store(values)
        return self.single(self.indices(numbers).astype(np.int32), valid, repeat(ONE, len(numbers)))

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        (table,) = super().from_arrow(arrays)
        (keys,) = table.columns[:1]
        valid = self.are_buckets(keys)
        if not valid.all():
            raise ValueError(f"{self!r}: there is no bucket {keys[np.argmin(valid)]}")
        return (table,)

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        keys, counts = table.flat()
        indices, places = np.unique(keys, return_inverse=True)
        bounds = np.array([self.bounds(index) for index in indices.tolist()], np.float64).reshape(-1, 2)[places]
        arrays = [pa.array(bounds[:, 0]), pa.array(bounds[:, 1]), pa.array(np.ascontiguousarray(counts))]
        return list_array(table.lengths, pa.StructArray.from_arrays(arrays, fields=list(_BUCKET)), self.output_type)


class Histogram(BucketHistogram):
    """The count of numbers in each bucket between given boundaries, ascending. A Group.

    Boundaries b1 < ... < bn make the buckets [-inf, b1), [b1, b2), ..., [bn, inf]: a bucket includes its lower bound
    and excludes its upper one; -inf is in the first bucket and inf in the last. NaN has a bucket of its own, after all
    others, with NaN as bounds. Boundaries are finite numbers, or decimal text such as "0.1". Boundaries and inputs are
    compared as float64, to which integers beyond 2**53 are rounded.

    Presented as a list of ``{"lower", "upper", "count"}`` in this order, without empty buckets. Subtracting too much
    leaves a negative count. None contributes nothing. A count outside int64 raises OverflowError.

    >>> ages = Histogram([18, 65])
    >>> ages.present(ages.fold([ages.lift(age) for age in (30, 65, 40)]))
    [{'lower': 18.0, 'upper': 65.0, 'count': 2}, {'lower': 65.0, 'upper': inf, 'count': 1}]
    """

    name = "Histogram"

    def __init__(self, boundaries: Iterable[Any]) -> None:
        if isinstance(boundaries, (str, bytes)) or not isinstance(boundaries, Iterable):
            raise TypeError(
                f"Histogram takes a list of boundaries, not {boundaries!r:.60}: write Histogram([0, 10, 100])"
            )
        self.boundaries = tuple(map(_boundary, boundaries))
        if not self.boundaries:
            raise ValueError("Histogram has no boundary: write Histogram([0, 10, 100])")
        for lower, upper in zip(self.boundaries, self.boundaries[1:]):
            if not lower < upper:
                raise ValueError(f"Histogram: boundaries must ascend as 64-bit floats, but {upper!r} follows {lower!r}")
        super().__init__()

    def parameters(self) -> dict[str, Any]:
        return {"boundaries": [boundary.hex() for boundary in self.boundaries]}

    def __repr__(self) -> str:
        return f"Histogram({list(self.boundaries)})"

    def index(self, number: float) -> int:
        return bisect_right(self.boundaries, number) if number == number else len(self.boundaries) + 1

    def indices(self, numbers: Column) -> Column:
        below = np.searchsorted(np.array(self.boundaries), numbers, side="right")
        return np.where(np.isnan(numbers), len(self.boundaries) + 1, below)

    def are_buckets(self, indices: Column) -> Column:
        return (indices >= 0) & (indices <= len(self.boundaries) + 1)

    def bounds(self, index: int) -> tuple[float, float]:
        edges = (-math.inf, *self.boundaries, math.inf)
        if index == len(edges) - 1:
            return math.nan, math.nan
        if not 0 <= index < len(edges) - 1:
            raise ValueError(f"{self!r}: there is no bucket {index}")
        return edges[index], edges[index + 1]

    def estimate(self, index: int, share: Fraction) -> float:
        """Assumes that numbers spread evenly over a bucket; the first and last bucket give their finite bound."""
        lower, upper = self.bounds(index)
        if lower == -math.inf or upper == math.inf:
            return upper if lower == -math.inf else lower
        return lower if lower != lower else float(Fraction(lower) + (Fraction(upper) - Fraction(lower)) * share)


def _boundary(value: Any) -> float:
    """A boundary as a finite float."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, np.integer, np.floating)):
        raise TypeError(f"Histogram: the boundary {shown(value)} is not a number")
    try:
        number = float(Decimal(value) if isinstance(value, str) else value) + 0.0
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"Histogram: the boundary {shown(value)} is not a number that 64-bit floats hold") from error
    if not math.isfinite(number):
        raise ValueError(f"Histogram: the boundary {shown(value)} is not finite: omit it, the outer buckets exist")
    if isinstance(value, (int, np.integer)) and int(number) != value:
        raise ValueError(f"Histogram: the boundary {value} is not a 64-bit float; the nearest is {int(number)}")
    return number


class ExponentialHistogram(BucketHistogram):
    """The count of numbers in each bucket; bounds grow by ``base = 2 ** 2 ** -scale``. A Group.

    Bucket i holds base**i < x <= base**(i + 1), as the exponential histograms of OpenTelemetry do (data model,
    "Exponential Histogram", base 2). Negative numbers have mirror-image buckets. 0, -inf, inf, NaN each have a bucket
    of their own, with themselves as both bounds. Subnormal numbers have buckets like all others. A bound is presented
    as the largest double not above base**i: with it the inequality above holds for every double.

    ``scale``: -10 to 12. ``quantile`` errs by at most (base - 1) / (base + 1) of the number it estimates, if that is a
    normal double: 2.2 % at scale 4 (base 1.044), 0.14 % at scale 8. An element has at most as many buckets as its
    numbers have orders of magnitude: 2 ** scale for each doubling.

    Presented as a list of ``{"lower", "upper", "count"}``, ascending, without empty buckets, NaN last. Subtracting too
    much leaves a negative count. None contributes nothing; integers and decimals are rounded to float64. A count
    outside int64 raises OverflowError.

    >>> times = ExponentialHistogram(0)
    >>> times.present(times.fold([times.lift(ms) for ms in (3, 4, 5)]))
    [{'lower': 2.0, 'upper': 4.0, 'count': 2}, {'lower': 4.0, 'upper': 8.0, 'count': 1}]
    """

    name = "ExponentialHistogram"

    def __init__(self, scale: int) -> None:
        if isinstance(scale, bool) or not isinstance(scale, int) or not SCALE_MIN <= scale <= SCALE_MAX:
            raise ValueError(
                f"ExponentialHistogram({scale!r}): the scale is an integer from {SCALE_MIN} to {SCALE_MAX}, such as 4"
            )
        self.scale = scale
        self._parts = octave_parts(max(scale, 0))
        self._edges = [part / 2**_FRACTION_BITS for part in self._parts]
        self._least, self._most = self.index(_TINY), self.index(_FLOAT_MAX)
        super().__init__()

    def parameters(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def __repr__(self) -> str:
        return f"ExponentialHistogram({self.scale})"

    def index(self, number: float) -> int:
        if number != number:
            return _NAN
        if number == 0:
            return 0
        if math.isinf(number):
            return _INFINITY if number > 0 else -_INFINITY
        fraction, exponent = math.frexp(abs(number))
        below = bisect_left(self._edges, 2 * fraction)
        power = ((exponent - 1) << max(self.scale, 0)) + below - 1 >> max(-self.scale, 0)
        return power + _BIAS if number > 0 else -(power + _BIAS)

    def indices(self, numbers: Column) -> Column:
        fractions, exponents = np.frexp(np.abs(numbers))
        below = np.searchsorted(self._edges, 2 * fractions, side="left")
        powers = ((exponents.astype(np.int64) - 1) << max(self.scale, 0)) + below - 1 >> max(-self.scale, 0)
        indices = np.where(numbers > 0, powers + _BIAS, -(powers + _BIAS))
        if not (np.isfinite(numbers) & (numbers != 0)).all():
            for index, number in _SINGLE.items():
                indices[np.isnan(numbers) if number != number else numbers == number] = index
        return indices

    def are_buckets(self, indices: Column) -> Column:
        sizes = np.abs(indices.astype(np.int64))
        return ((sizes >= self._least) & (sizes <= self._most)) | np.isin(indices, list(_SINGLE))

    def bounds(self, index: int) -> tuple[float, float]:
        if index in _SINGLE:
            return _SINGLE[index], _SINGLE[index]
        power = abs(index) - _BIAS
        if not self._least <= abs(index) <= self._most:
            raise ValueError(f"{self!r}: there is no bucket {index}")
        lower, upper = self._edge(power), self._edge(power + 1)
        return (lower, upper) if index > 0 else (-upper, -lower)

    def estimate(self, index: int, share: Fraction) -> float:
        """The harmonic mean of the bounds: it minimizes the largest relative error over the bucket."""
        lower, upper = self.bounds(index)
        if lower == upper or not lower or not upper or lower != lower:
            return lower or upper
        return float(2 / (1 / Fraction(lower) + 1 / Fraction(upper)))

    def _edge(self, power: int) -> float:
        """base**power rounded down to a double; the largest double if it is beyond."""
        octave, part = divmod(power << max(-self.scale, 0), len(self._parts))
        whole, shift = self._parts[part], octave - _FRACTION_BITS
        if octave > 1023:
            return _FLOAT_MAX
        if shift < -1074:
            whole, shift = whole >> min(-1074 - shift, _FRACTION_BITS + 1), -1074
        return math.ldexp(whole, shift)


def octave_parts(scale: int) -> list[int]:
    """The bounds of the ``2**scale`` buckets from 1 to 2: ``floor(2**(j / 2**scale) * 2**52)`` for each j, exact.

    Products of repeated square roots, in integers with 256 bits after the 52. The truncation error is below
    ``2**-(256 - 8)``, so the floor is right unless a product is that near to an integer, which is checked.
    """
    precision = _FRACTION_BITS + _GUARD_BITS
    powers, root = [1 << precision], 2 << precision
    for _ in range(scale):
        root = math.isqrt(root << precision)
        powers = [product for power in powers for product in (power, power * root >> precision)]
    slack = 1 << _FRACTION_BITS
    for power in powers[1:]:
        rest = power & ((1 << _GUARD_BITS) - 1)
        if not slack < rest < (1 << _GUARD_BITS) - slack:
            raise ArithmeticError(f"octave_parts({scale}): a bound is too near to a double to be distinguished from it")
    return sorted(power >> _GUARD_BITS for power in powers)


_BIAS = 1 << 23
_INFINITY = 1 << 30
_NAN = (1 << 31) - 1
_TINY = math.ldexp(1, -1074)
_SINGLE = {0: 0.0, _INFINITY: math.inf, -_INFINITY: -math.inf, _NAN: math.nan}
