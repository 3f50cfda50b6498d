"""Whole columns of large integers, in floats: against Python's integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from monoids.numbers.digits import table_of_ints
from monoids.numbers.limbs import Vectors, carried, combination, leading, product

RANDOM = np.random.default_rng(1)


def drawn(bits: int) -> list[int]:
    """Integers of up to so many bits, of which many carry far."""
    sizes = RANDOM.integers(0, bits, 200).tolist()
    rows = [int(RANDOM.integers(-1, 2)) * (2**size - int(RANDOM.integers(0, 3))) for size in sizes]
    return [*rows, *(int(RANDOM.integers(-(2**62), 2**62)) >> 3 for _ in range(50)), 0, 1, -1, 2**23, -(2**24)]


def limbs_of(integers: list[int]) -> Any:
    """The signs are given to the limbs, so that these are of both."""
    size = max(integer.bit_length() for integer in integers) // 24 + 1
    sign = np.sign(np.array(integers, object)).astype(float)
    return carried(
        sign * np.array([[abs(n) >> (24 * at) & (2**24 - 1) for n in integers] for at in range(size)], float)
    )


def integers_of(limbs: Any) -> list[int]:
    return [sum(int(limb) << (24 * at) for at, limb in enumerate(column)) for column in limbs.T.tolist()]


def test_products_and_sums_are_those_of_python() -> None:
    """A limb at 2**53 would be rounded, and a moment wrong."""
    for bits in (20, 100, 760):
        a, b = drawn(bits), drawn(bits)
        x, y = limbs_of(a), limbs_of(b)
        assert integers_of(x) == a
        assert integers_of(product(x, y)) == [one * other for one, other in zip(a, b)]
        count = RANDOM.integers(1, 2**24, len(a)).astype(float)
        expected = [int(n) * one - 6 * other for n, one, other in zip(count, a, b)]
        assert integers_of(combination((count, x), (-6, y))) == expected
        assert np.abs(product(x, y)).max() <= 2**23 + 1


def test_the_largest_limbs_do_not_round() -> None:
    """The bound that is promised, at its edge."""
    most = np.full((64, 3), 2.0**23 + 1)
    most[:, 1] *= -1
    (value, *_) = integers_of(most)
    assert integers_of(product(most, most)) == [value**2] * 3
    assert integers_of(product(most, -most)) == [-(value**2)] * 3


def test_there_is_one_zero() -> None:
    """What cancels is seen to be nothing: of equal inputs there is no skewness."""
    x = limbs_of(drawn(300))
    assert not combination((3, x), (-3, x)).any()


def test_leading_parts_are_near() -> None:
    """All that follows is computed of them."""
    integers = drawn(700)
    shown = leading(limbs_of(integers), 5)
    rows = zip(integers, shown.high.tolist(), shown.low.tolist(), shown.exponents.tolist(), shown.exact.tolist())
    for integer, high, low, exponent, exact in rows:
        error = abs((Fraction(high) + Fraction(low)) * Fraction(2) ** exponent - integer * 32)
        assert error <= abs(integer * 32) * Fraction(2) ** -104
        assert not exact or not error
    assert shown.exact.any() and not shown.exact.all()


def test_vectors_are_read_in_units_of_their_own() -> None:
    """Of 1e-300 and of 1e300 alike; what spans too much, or has something in another lane, is said not to fit."""
    bounds = (0, 70, 210, 213)
    rows = [[3 << 32 * shift, -(5**90) << 64 * shift, 0] for shift in (0, 1, 30)]
    rows += [[1, 1, 0], [0, 0, 0], [0, -7, 0], [1, 0, 1], [1 << 384, 1, 0], [-(1 << 380), 1, 0], [0, 0, -1]]
    vectors = Vectors.of(table_of_ints(rows, bounds[:-1]), bounds, (1, 2))
    assert vectors.fits.tolist() == [True] * 6 + [False, False, True, False]
    lanes = [integers_of(limbs) for limbs in vectors.lanes]
    for at in np.flatnonzero(vectors.fits).tolist():
        unit = int(vectors.units[at])
        assert [lanes[0][at] << unit, lanes[1][at] << 2 * unit] == rows[at][:2]
    assert vectors.units.tolist()[:3] == [0, 32, 960]
    nothing = Vectors.of(table_of_ints([[0, 0, 0]] * 2, bounds[:-1]), bounds, (1, 2))
    assert nothing.fits.all() and not any(limbs.any() for limbs in nothing.lanes)


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows(rows: int) -> None:
    """No operation may depend on there being many."""
    assert integers_of(product(limbs_of([7] * rows), limbs_of([2**80] * rows))) == [7 * 2**80] * rows
