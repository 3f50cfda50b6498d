"""Floats as integers, and integers as the nearest floats: against fractions."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from monoids.numbers.digits import table_of_ints
from monoids.numbers.exact import Magnitudes, magnitudes, multiply, nearest_floats, ratio, root, shifted, signed_root


def integers(numbers: Magnitudes) -> list[int]:
    limbs = [limb.tolist() for limb in numbers.limbs]
    return [sum(limb << (32 * place) for place, limb in enumerate(row)) for row in zip(*limbs)]


def exactly(numbers: Magnitudes) -> list[Fraction]:
    """In units of 2**-1074, of which a product of two has the square."""
    return [integer * Fraction(2) ** power for integer, power in zip(integers(numbers), numbers.exponents.tolist())]


FLOATS = np.array([1.0, -0.1, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 3.0, 0.0, 1e-310, 2.0**52 + 1])


def test_products_are_exact() -> None:
    """One bit lost would be a variance lost, where it is small beside the mean."""
    one = magnitudes(FLOATS)
    scaled = [abs(Fraction(value)) * 2**1074 for value in FLOATS.tolist()]
    assert exactly(one) == scaled
    power = one
    for degree in (2, 3, 4):
        power = multiply(power, one)
        assert exactly(power) == [value**degree for value in scaled]
        assert max(integers(power)).bit_length() <= power.bits
    small = magnitudes(np.array([3.0, -1000.0, 0.5]))
    assert len(small.limbs) == 1 and exactly(multiply(small, small)) == [
        Fraction(n) ** 2 * 2**2148 for n in (3, 1000, 0.5)
    ]


def test_pieces_add_up() -> None:
    """Of every shift within a digit, and both signs."""
    values = np.array([1.5 * 2.0**power * sign for power in range(-40, 40) for sign in (1, -1)])
    slots, pieces = shifted(magnitudes(values), 5, values.view(np.int64) >> 63)
    for row, value in enumerate(values.tolist()):
        total = sum(int(piece[row]) << (32 * place) for place, piece in enumerate(pieces))
        assert total * Fraction(2) ** (32 * (int(slots[row]) - 5)) == Fraction(value) * 2**1074
        assert all(abs(int(piece[row])) < 2**32 for piece in pieces)


def nearest(integer: int, unit: int) -> float:
    try:
        return float(integer * Fraction(2) ** unit)
    except OverflowError:
        return math.inf if integer > 0 else -math.inf


@pytest.mark.parametrize("unit", [-1074, -1000, 0])
def test_nearest_floats_are_those_of_fractions(unit: int) -> None:
    """Ties, carries into the next binade, digits far below, overflow."""
    random = np.random.default_rng(2)
    rows: list[int] = [0, 1, -1, 2**53 - 1, 2**54 - 1, 2**64 - 2**10, 2**128 - 1, -(2**96) + 2**42]
    for _ in range(2000):
        size, tail = int(random.integers(1, 2200)), int(random.integers(0, 130))
        rows.append(
            (1 << size) + int(random.integers(-2, 3)) * (1 << max(0, size - 53 - tail)) + int(random.integers(-1, 2))
        )
        rows.append(
            (1 << size) + (1 << max(0, size - 53)) + int(random.integers(-1, 2)) * (1 << max(0, size - 53 - tail))
        )
        rows.append(-int(random.integers(1, 2**62)) << int(random.integers(0, 90)))
    floats = nearest_floats(table_of_ints([[row] for row in rows], (0,)), unit)
    assert floats.tolist() == [nearest(row, unit) for row in rows]


def decimal_root(fraction: Fraction) -> float:
    context = Context(prec=60)
    quotient = context.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))
    return float(context.sqrt(quotient))


def test_ratios_and_roots_are_rounded_once() -> None:
    """What statistics are presented with."""
    random = np.random.default_rng(3)
    for _ in range(300):
        above, below = (int(random.integers(1, 2**62)) << int(random.integers(0, 300)) for _ in range(2))
        assert ratio(above, below, 3) == float(Fraction(above, below) * 8)
        assert ratio(-above, below, -3) == float(Fraction(-above, below) / 8)
        assert root(above, below, 0) == decimal_root(Fraction(above, below))
        assert root(above, below, 2) == 4 * root(above, below, 0)
        assert signed_root(-above, below) == -root(above**2, below, 0)
    tie = (2**53 + 1) ** 2 * 10**30
    assert [root(tie + more, 10**30, 0) - 2.0**53 for more in (-1, 0, 1)] == [0.0, 0.0, 2.0]
    assert root(0, 7, 0) == 0.0 and math.isnan(root(-1, 7, 0)) and root(-1, -4, 0) == 0.5
    assert ratio(1, 3, 5000) == math.inf and ratio(1, -3, 5000) == -math.inf and ratio(1, 3, -5000) == 0.0


def test_root_of_a_square_is_whole() -> None:
    """No digit is invented: the square of a float has it for a root."""
    squares: list[Any] = [(n * n, n) for n in (1, 3, 2**53 - 1, 10**15)]
    assert all(root(square, 1, 0) == n for square, n in squares)
