"""DoubleDouble floats, against fractions."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from monoids.numbers.limbs import DoubleDouble

RANDOM = np.random.default_rng(2)
ROWS = 400
BOUND = Fraction(2) ** -98


def drawn() -> DoubleDouble:
    high = RANDOM.random(ROWS) + 0.5
    exponents = RANDOM.integers(-300, 300, ROWS)
    return DoubleDouble.of(high, high * RANDOM.standard_normal(ROWS) * 2.0**-54, exponents)


def values(doubled: DoubleDouble) -> list[Fraction]:
    rows = zip(doubled.high.tolist(), doubled.low.tolist(), doubled.exponents.tolist())
    return [(Fraction(high) + Fraction(low)) * Fraction(2) ** exponent for high, low, exponent in rows]


def test_each_operation_is_within_its_bound() -> None:
    """On which it rests that what is said to be sure is."""
    a, b = drawn(), drawn()
    whole = RANDOM.integers(1, 2**48, ROWS).astype(float)
    ways = [
        (a * b, [x * y for x, y in zip(values(a), values(b))]),
        (a / b, [x / y for x, y in zip(values(a), values(b))]),
        (a.over(whole), [x / int(n) for x, n in zip(values(a), whole)]),
    ]
    for shown, expected in ways:
        assert all(abs(x - y) <= BOUND * abs(y) for x, y in zip(values(shown), expected))
        assert ((np.abs(shown.high) >= 0.5) & (np.abs(shown.high) <= 1)).all()
    context = Context(prec=80)
    for root, square in zip(values(a.root()), values(a)):
        expected_root = Fraction(context.sqrt(context.divide(Decimal(square.numerator), Decimal(square.denominator))))
        assert abs(root - expected_root) <= BOUND * expected_root


def test_what_is_rounded_for_sure_is_nearest() -> None:
    """And a halfway case, which the last bit of an error decides, is not sure, unless it is known to be exact."""
    a = drawn()
    floats, sure = a.rounded()
    assert sure.mean() > 0.99
    assert all(float(value) == shown for value, shown, of in zip(values(a), floats.tolist(), sure) if of)
    half = (np.array([1.0, 1.0, -1.0]), np.array([2.0**-53, 3 * 2.0**-54, -(2.0**-53)]), np.zeros(3, np.int64))
    assert DoubleDouble.of(*half).rounded()[1].tolist() == [False, True, False]
    floats, sure = DoubleDouble.of(*half, np.ones(3, np.bool_)).rounded()
    assert sure.all() and floats.tolist() == [1.0, 1.0 + 2.0**-52, -1.0]


def test_subnormals_are_not_sure_and_what_is_too_large_is_infinite() -> None:
    """They are rounded a second time."""
    one = np.array([0.75, 0.75, -0.75, 0.0])
    floats, sure = DoubleDouble.of(one, np.zeros(4), np.array([-1021, -1022, 1025, -5000])).rounded()
    assert sure.tolist() == [True, False, True, True]
    assert floats[0] == math.ldexp(0.75, -1021) and floats[2] == -math.inf and floats[3] == 0


def test_exact_quotients_are_seen() -> None:
    """Means of short numbers are often halfway between two floats: that must not be left to chance."""
    rows = [(2**53 + 1, 2, True), (2**54 + 2, 4, True), (10, 5, True), (1, 3, False), (2**60 + 1, 3, False)]
    for number, whole, exact in rows:
        high = float(number)
        one = DoubleDouble.of(
            np.array([high]), np.array([float(number - int(high))]), np.zeros(1, np.int64), np.ones(1, bool)
        )
        quotient = one.over(np.array([float(whole)]))
        assert bool(quotient.exact[0]) is exact  # type: ignore[index]
        assert quotient.rounded()[0].tolist() == [float(Fraction(number, whole))]
