"""Covariance and correlation of pairs, over the whole population, from exact sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from monoids.column import Column, Columns
from monoids.groupby.segments import canonical_floats
from monoids.numbers.exact import UNIT
from monoids.numbers.limbs import Vectors, combination, leading, product
from monoids.numbers.power_sums import Powers, PowerSums, without_common_zeros
from monoids.numbers.rounding import ratio, signed_root
from monoids.pairs import holds_columns, pair, pair_columns

NAMES = ("x", "y")


class Pairs(PowerSums):
    """Sums of products of x and y."""

    output_type = pa.float64()

    def variables(self, value: Any) -> Sequence[Any]:
        return pair(value, NAMES)

    def variable_columns(self, values: Any) -> Sequence[Any]:
        return pair_columns(values, NAMES)

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or x and y, in a tuple or mapping, each a column or one value for every row."""
        if holds_columns(values):
            return self._lifted(pair_columns(values, NAMES, length))
        return super().lift_rows(values, length)


class Covariance(Pairs):
    """The covariance of pairs of numbers: the mean of ``(x - mean of x) * (y - mean of y)``; None without input.

    A pair is a tuple (x, y) or a mapping of x and y; as a column, a struct array with these fields, or a tuple or
    mapping of two columns. A pair without x or y contributes nothing. This is the population's covariance (the sample's
    is n / (n - 1) times it), in the product of the units of x and y.

    Exact, so the same to the bit in any order, and a Group: the element is the count and the sums of x, y and x * y as
    integers. The result is correctly rounded and infinite beyond the floats; NaN if any x or y is NaN or infinite.
    Inputs are numbers; integers and Decimals are first rounded to floats.

    >>> together = Covariance()
    >>> total = together.fold([together.lift(pair) for pair in ((1, 10), (2, 20), (3, 60))])
    >>> together.present(total)
    16.666666666666668
    """

    name = "Covariance"
    degrees = ((1, 0), (0, 1), (1, 1))

    def present(self, element: Powers) -> float | None:
        count, *sums, nans, _, _ = element
        if not count or nans:
            return math.nan if nans else None
        (x, y, xy), unit = without_common_zeros(sums, (1, 1, 2))
        return ratio(count * xy - x * y, count**2, 2 * unit)

    def nearest(self, counts: Column, vectors: Vectors) -> tuple[pa.Array, Column]:
        x, y, xy = vectors.lanes
        together = combination((counts, xy), (-1, product(x, y)))
        floats, sure = leading(together, 2 * (vectors.units + UNIT)).over(counts * counts).rounded()
        return pa.array(canonical_floats(floats)), sure


class Correlation(Pairs):
    """Pearson's correlation of pairs of numbers, from -1 to 1; None without input, or if all x or all y are equal.

    Takes pairs, None, NaN and infinities as ``Covariance`` does.

    Exact, so the same to the bit in any order, and a Group: the element is the count and the sums of x, y, x * y, x * x
    and y * y as integers. The result is correctly rounded.

    >>> together = Correlation()
    >>> total = together.fold([together.lift({"x": x, "y": -3 * x}) for x in (1, 2, 4)])
    >>> together.present(total)
    -1.0
    """

    name = "Correlation"
    degrees = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2))

    def present(self, element: Powers) -> float | None:
        count, x, y, xy, xx, yy, nans, _, _ = element
        if nans:
            return math.nan
        (x, y, xy, xx, yy), _ = without_common_zeros((x, y, xy, xx, yy), (1, 1, 2, 2, 2))
        together = count * xy - x * y
        spread = (count * xx - x**2) * (count * yy - y**2)
        return signed_root(together, spread) if count and spread else None

    def nearest(self, counts: Column, vectors: Vectors) -> tuple[pa.Array, Column]:
        x, y, xy, xx, yy = vectors.lanes
        together, x_spread, y_spread = (
            leading(combination((counts, products), (-1, product(a, b))), 0)
            for products, a, b in ((xy, x, y), (xx, x, x), (yy, y, y))
        )
        floats, sure = (together / (x_spread * y_spread).root()).rounded()
        none = (x_spread.high == 0) | (y_spread.high == 0)
        return pa.array(canonical_floats(floats), mask=none), none | (sure & (x_spread.high > 0) & (y_spread.high > 0))
