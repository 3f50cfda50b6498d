"""The moments of numbers: mean, variance, skewness and kurtosis, over the whole population, from exact power sums.

Covariance and correlation of pairs, over the whole population, from exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns
from monoids.fixed import canonical_floats
from monoids.numbers.exact import UNIT, not_finite, ratio, root, signed_root
from monoids.numbers.limbs import Limbs, Vectors, combination, leading, product
from monoids.numbers.power_sums import Powers, PowerSums, without_common_zeros
from monoids.pairs import holds_columns, pair, pair_columns

FIELDS = ("mean", "variance", "stddev", "skewness", "kurtosis")


class Moments(PowerSums):
    """Count, mean, variance, standard deviation, skewness and kurtosis of the non-None numbers.

    These are population moments: the variance is the mean of ``(x - mean)**2``, in squared units of the input (the
    sample's is n / (n - 1) times it); skewness and kurtosis are the means of the third and fourth power of
    ``(x - mean) / stddev`` (kurtosis is 3 for a normal distribution). Without input all but the count are None;
    skewness and kurtosis are None also if all inputs are equal.

    Exact, so the same to the bit in any order, and a Group: the element is the count and the sums of the first four
    powers as integers. Every field is correctly rounded, and infinite beyond the floats. Inputs are numbers; integers
    and Decimals are first rounded to floats. A NaN is counted and makes all other fields NaN; so does an infinity,
    except for the mean, which is infinite.

    >>> moments = Moments()
    >>> total = moments.fold([moments.lift(1e9 + x) for x in (1, 2, 3, 4)])
    >>> moments.present(total)["mean"], moments.present(total)["variance"]
    (1000000002.5, 1.25)
    """

    name = "Moments"
    output_type = pa.struct([("count", pa.int64()), *((name, pa.float64()) for name in FIELDS)])
    degrees = ((1,), (2,), (3,), (4,))

    def present(self, element: Powers) -> dict[str, Any]:
        count, *sums = element
        return {"count": count, **dict(zip(FIELDS, _moments(count, sums)))}

    def nearest(self, counts: Column, vectors: Vectors) -> tuple[pa.Array, Column]:
        first, second, third, fourth = vectors.lanes
        unit = vectors.units + UNIT
        square, cube, power = _central(counts, first, second, third, fourth)
        spread = leading(square, 2 * unit)
        fields = [leading(first, unit).over(counts), spread.over(counts * counts), spread.root().over(counts)]
        spread = leading(square, 0)
        fields += [leading(cube, 0) / (spread * spread.root()), leading(power, 0) / (spread * spread)]
        floats, sure = zip(*(field.rounded() for field in fields))
        none = spread.high == 0
        masks = (None, None, None, none, none)
        columns = [pa.array(canonical_floats(column), mask=mask) for column, mask in zip(floats, masks)]
        array = pa.StructArray.from_arrays([pa.array(counts.astype(np.int64)), *columns], fields=list(self.output_type))
        return array, sure[0] & sure[1] & sure[2] & (none | ((spread.high > 0) & sure[3] & sure[4]))


def _central(count: Column, first: Limbs, second: Limbs, third: Limbs, fourth: Limbs) -> tuple[Limbs, Limbs, Limbs]:
    """The central moments times count**2, count**3, count**4: as in ``_moments``, for whole columns."""
    first_2 = product(first, first)
    square = combination((count, second), (-1, first_2))
    cube = combination((count, third), (-3, product(first, second)))
    cube = combination((count, cube), (2, product(first_2, first)))
    power = combination((count, fourth), (-4, product(first, third)))
    power = combination((count, power), (6, product(first_2, second)))
    return square, cube, combination((count, power), (-3, product(first_2, first_2)))


def _moments(count: int, sums: Sequence[int]) -> tuple[float | None, ...]:
    """The fields, from sums in arbitrary units; only the mean and the variance depend on the units."""
    powers, counts = sums[:4], sums[4:]
    if not count:
        return (None,) * len(FIELDS)
    if any(counts):
        nans, above, below = counts
        return (not_finite(nans, above, below), *[math.nan] * 4)
    (first, second, third, fourth), unit = without_common_zeros(powers, (1, 2, 3, 4))
    # The central moments times count**2, count**3, count**4.
    square = count * second - first**2
    cube = count * (count * third - 3 * first * second) + 2 * first**3
    fourth = count * (count * (count * fourth - 4 * first * third) + 6 * first**2 * second) - 3 * first**4
    spread = (ratio(first, count, unit), ratio(square, count**2, 2 * unit), root(square, count**2, unit))
    if not square:
        return (*spread, None, None)
    return (*spread, signed_root(cube if count > 0 else -cube, square**3), ratio(fourth, square**2, 0))


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
