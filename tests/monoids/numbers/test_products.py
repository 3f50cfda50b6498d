"""Products: overflow, zero, and the rules of floats."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from monoids import Group, Product, encoding
from monoids.arrays import WIDE_INTEGER
from monoids.numbers.products import BEYOND

LOW, HIGH = -(2**63), 2**63 - 1
WHOLE, REAL = Product(), Product(float)


def test_products_are_those_of_python() -> None:
    """To the last bit of int64, and an error beyond."""
    random = np.random.default_rng(1)
    outcomes = set()
    for _ in range(500):
        factors = random.integers(-40, 40, int(random.integers(1, 16)))
        expected = math.prod(factors.tolist())
        columns = WHOLE.lift_columns(factors)
        fits = LOW <= expected <= HIGH
        outcomes.add(fits)
        found = WHOLE.reduce_sorted(columns, np.array([0]))
        assert WHOLE.unpack(found) == [WHOLE.fold(factors.tolist())] == [expected if fits else BEYOND]
        if not fits:
            with pytest.raises(OverflowError, match=r"Product\(\): .* use Product\(float\)"):
                WHOLE.present_columns(found)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    "factors", [[2**62, 2], [2**32, 2**31], [-(2**62), -2], [2**31, 2**31, 2], [3] * 40, [10] * 400]
)
def test_overflow_raises_when_it_is_presented(factors: list[int]) -> None:
    """A wrapped product looks like any number, 0 too."""
    found = WHOLE.reduce_sorted(WHOLE.pack(factors), np.array([0]))
    assert WHOLE.unpack(found) == [WHOLE.fold(factors)]
    for present in (lambda: WHOLE.present(WHOLE.fold(factors)), lambda: WHOLE.present_columns(found)):
        with pytest.raises(OverflowError, match=r"Product\(\): a total is outside 64-bit integers"):
            present()


def test_what_is_beyond_comes_back_by_zero_alone_and_the_edge_by_minus_one() -> None:
    """In whatever order and grouping the factors come, the product is the same."""
    rows = [([2**62, 2], 2**63), ([2**62, 2, -1], LOW), ([2**63, -1], LOW), ([2**62, 4, -1], BEYOND), ([BEYOND, 0], 0)]
    rows += [([BEYOND, BEYOND, 7], BEYOND), ([2**63, 2**63], BEYOND), ([2**63, 1, 0], 0), ([-(2**63), -1], 2**63)]
    for factors, expected in rows:
        for order in itertools.permutations(factors):
            columns = WHOLE.pack(order)
            assert WHOLE.unpack(WHOLE.reduce_sorted(columns, np.array([0]))) == [expected] == [WHOLE.fold(order)]
            assert WHOLE.unpack(WHOLE.from_arrow(WHOLE.to_arrow(columns))) == list(order)
    for wrong in (2**63 + 1, 2**64 + 1, -BEYOND):
        with pytest.raises(ValueError, match="not a total that inputs can have"):
            WHOLE.decode(encoding.encode(wrong))
        with pytest.raises(ValueError, match="not a total that inputs can have"):
            WHOLE.from_arrow([pa.array([wrong], WIDE_INTEGER)])


def test_edges_fit() -> None:
    """-2**63 is an int64, and 2**63 is not."""
    for factors in ([-(2**62), 2], [2**31, -(2**32)], [LOW, 1], [HIGH, 1], [7, 7, 73, 127, 337, 92737, 649657]):
        expected = math.prod(factors)
        assert (
            WHOLE.unpack(WHOLE.reduce_sorted(WHOLE.pack(factors), np.array([0]))) == [expected] == [WHOLE.fold(factors)]
        )


def test_zero_wins() -> None:
    """Whatever the other factors are, also where they overflow by themselves."""
    for factors in ([2**40, 2**40, 0], [0, 2**62, 2**62, 2**62], [2] * 2000 + [0]):
        assert WHOLE.unpack(WHOLE.reduce_sorted(WHOLE.pack(factors), np.array([0]))) == [0] == [WHOLE.fold(factors)]
    assert WHOLE.combine(HIGH, 0) == 0 and REAL.combine(-1.0, 0.0) == 0.0
    assert math.copysign(1, REAL.combine(-1.0, 0.0)) == 1.0


def test_floats_follow_ieee() -> None:
    """NaN, and infinity times zero; a null is no factor."""
    columns = REAL.lift_columns(pa.array([2.0, None, -3.0, math.inf, 0.0, 4.0, math.nan]))
    shown = REAL.present_columns(REAL.reduce_sorted(columns, np.array([0, 3, 5]))).to_pylist()
    assert shown == pytest.approx([-6.0, math.nan, math.nan], nan_ok=True)
    assert REAL.lift(None) == 1.0 and WHOLE.lift(None) == 1 and not isinstance(WHOLE, Group)
    cells = np.array([0, 0, 2, 2, 2, 0, 2])
    by_cell = REAL.reduce_cells(columns, cells, np.bincount(cells), np.array([0, 2]))
    assert by_cell is not None and by_cell[0].tolist() == pytest.approx([8.0, math.nan], nan_ok=True)


def test_float_product_is_within_its_bound() -> None:
    """n * 2**-53, as documented."""
    factors = np.random.default_rng(2).uniform(0.5, 2.0, 500)
    exact = math.prod(map(Fraction, factors.tolist()))
    columns = REAL.reduce_sorted(REAL.lift_columns(factors), np.array([0]))
    for result in (columns[0][0], REAL.fold([REAL.lift(factor) for factor in factors])):
        assert abs(Fraction(float(result)) - exact) <= 500 * Fraction(2) ** -53 * exact


def test_types() -> None:
    """State of one is not state of the other."""
    assert (repr(WHOLE), repr(REAL)) == ("Product()", "Product(float)")
    assert WHOLE.fingerprint() != REAL.fingerprint()
    with pytest.raises(TypeError, match=r"write Product\(float\)"):
        WHOLE.lift(1.5)
    with pytest.raises(TypeError, match="write one of float, int"):
        Product(str)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="of type float"):
        REAL.decode(encoding.encode(1))


def test_there_is_one_zero() -> None:
    """Equal elements, equal bytes: also of -1 times 0."""
    monoid = Product(float)
    reduced = monoid.reduce_sorted(monoid.lift_columns(np.array([-1.0, 0.0, -0.0])), np.array([0, 2]))
    assert [monoid.encode(element) for element in monoid.unpack(reduced)] == [monoid.encode(0.0)] * 2
    with pytest.raises(ValueError, match=r"not -0.0"):
        monoid.decode(encoding.encode(-0.0))


def test_cells_are_multiplied_without_sorting_where_they_fit() -> None:
    """A group-by of few keys sorts nothing; and a product that might wrap is left to who can tell."""
    monoid = Product()
    cells, counts = np.array([0, 2, 0, 2, 2]), np.array([2, 0, 3])
    held = np.array([0, 2])
    fits = monoid.reduce_cells((np.array([3, -5, 7, 2**30, 2**28]),), cells, counts, held)
    assert fits is not None and fits[0].tolist() == [21, -5 * 2**58]
    zero = monoid.reduce_cells((np.array([3, 2**62, 7, 2**62, 0]),), cells, counts, held)
    assert zero is not None and zero[0].tolist() == [21, 0]
    for factors in ([3, 2**31, 7, 2**31, 1], [3] + [2**63 - 1] * 4):
        assert monoid.reduce_cells((np.array(factors),), cells, counts, held) is None
