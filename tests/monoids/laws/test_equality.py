"""When two sides of a law are the same: to the bit, within a rounding error, or within a margin of chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Monoid
from monoids.laws import LawViolation, assert_monoid_laws, exact, hoeffding_margin, statistical, within
from monoids.laws.equality import EPSILON, Scale, magnitudes


class Named(NamedTuple):
    count: int
    total: float


@dataclass(frozen=True)
class Point:
    n: int
    s: float
    hidden: int = field(default=0, compare=False)


def scale(terms: int = 1, magnitude: float = 1.0, depth: int = 0, present: Any = float) -> Any:
    return lambda: Scale(terms, magnitude, depth, present)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (math.nan, math.nan, True),
        (0.0, -0.0, True),
        ((1, [2.0, {"a": math.nan}]), (1, [2.0, {"a": math.nan}]), True),
        ((1,), [1], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        (frozenset({1}), frozenset({1}), True),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1.0, 2.0]), False),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1.0, math.nan]), np.array([1.0, math.nan]), True),
        (np.array([None, math.nan], object), np.array([None, float("nan")], object), True),
        (np.float64(math.nan), np.float64(math.nan), True),
        (Decimal("NaN"), Decimal("NaN"), True),
        (Decimal("NaN"), Decimal(1), False),
        (Named(1, math.nan), Named(1, float("nan")), True),
        (Named(1, 2.0), Named(True, 2.0), False),
        (Point(1, math.nan), Point(1, float("nan")), True),
        (Point(1, 2.0), Point(1, 3.0), False),
        (Point(1, 2.0, hidden=1), Point(1, 2.0, hidden=2), True),
        ({math.nan, 1.0}, {float("nan"), 1.0}, True),
        ({math.nan, 1.0}, {float("nan"), 2.0}, False),
        ({math.nan: 1}, {float("nan"): 1}, True),
        ({math.nan: 1}, {float("nan"): 2}, False),
    ],
)
def test_exact_looks_at_types_and_values(left: Any, right: Any, same: bool) -> None:
    """1 == True == 1.0 in Python, and they are three different bytes in a state."""
    assert exact(left, right) is same
    assert exact(right, left) is same


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_sums_in_any_order_are_within_the_bound(terms: list[float], random: Any) -> None:
    """A bound that honest sums break would make every float monoid fail some day."""
    shuffled = list(terms)
    random.shuffle(shuffled)
    magnitude = sum(map(abs, terms))
    assert within(1)(sum(terms), sum(shuffled), scale(len(terms), magnitude))
    pairs = reduce(lambda a, b: a + b, [a + b for a, b in zip(terms[::2], terms[1::2])], 0.0)
    assert within(1)(pairs, float(sum(map(Fraction, terms[: len(terms) // 2 * 2]))), scale(len(terms), magnitude))


def test_within_is_no_wider_than_it_says() -> None:
    """A bound too wide accepts a defect for a rounding error."""
    bound = 64 * 11 * EPSILON * (100.0 + 50.0)
    assert within()(50.0, 50.0 - 0.9 * bound, scale(10, 100.0))
    assert not within()(50.0, 50.0 - 1.1 * bound, scale(10, 100.0))


def test_within_compares_all_but_floats_exactly() -> None:
    """A count is not subject to rounding."""
    near = 1.0 + EPSILON
    assert within()([(1, 1.0)], [(1, near)], scale())
    assert within()({"a": 1.0}, {"a": near}, scale())
    assert not within()([(1, 1.0)], [(2, near)], scale())
    assert not within()({"a": 1.0}, {"b": near}, scale())
    assert not within()([1.0], [near, near], scale())
    assert not within()(1.0, 1, scale())
    assert not within()(math.nan, 1.0, scale())
    assert within()(math.nan, math.nan, scale())
    assert not within()(math.inf, 1e300, scale())
    assert within()(math.inf, 1e300, scale(2, math.inf))


def test_within_looks_into_arrays_and_dataclasses() -> None:
    """A lawful sum in an array would be accused of not being associative."""
    near = 1.0 + EPSILON
    assert within()(np.array([1.0, 2.0]), np.array([near, 2.0]), scale())
    assert not within()(np.array([1.0, 2.0]), np.array([1.1, 2.0]), scale())
    assert within()(Point(1, 1.0), Point(1, near), scale())
    assert not within()(Point(1, 1.0), Point(2, near), scale())
    assert magnitudes([Point(1, -3.0), np.array([2.0, math.inf]), Named(1, 0.5)]) == [3.0, 2.0, 0.5]

    class Arrays(Monoid[Any]):
        identity = np.zeros(2)
        commutative = True
        exact = False

        def lift(self, value: float) -> Any:
            return np.array([1.0, value])

        def combine(self, a: Any, b: Any) -> Any:
            return a + b

        def present(self, element: Any) -> float:
            return float(element[1])

        def encode(self, element: Any) -> bytes:
            return bytes(element.tobytes())

        def decode(self, data: bytes) -> Any:
            if len(data) != 16:
                raise ValueError("two floats are 16 bytes")
            return np.frombuffer(data)

    assert_monoid_laws(Arrays(), st.floats(-1e6, 1e6), examples=50)


@pytest.mark.parametrize("c", [0, -1.0, math.nan])
def test_senseless_bound_is_refused(c: float) -> None:
    """It would accept nothing, and say that the monoid is wrong."""
    with pytest.raises(ValueError, match="factor of the error bound is positive"):
        within(c)


def test_hoeffding_margin_holds_and_is_not_wasted() -> None:
    """Two honest estimates must pass, and a biased one must not."""
    random = np.random.default_rng(7)
    trials, failure = 400, 1e-3
    one, other = (random.integers(0, 2, (20_000, trials)).mean(axis=1) for _ in range(2))
    beyond = np.mean(np.abs(one - other) > hoeffding_margin(1.0, trials, failure))
    assert beyond <= failure
    assert np.mean(np.abs(one - other) > hoeffding_margin(1.0, trials, 0.5)) > 0.0


@pytest.mark.parametrize("arguments", [(0, 10), (1, 0), (1, 10, 0.0), (1, 10, 1.0)])
def test_senseless_margin_is_refused(arguments: tuple[Any, ...]) -> None:
    """A margin of nothing, or of no trials, has no meaning."""
    with pytest.raises(ValueError, match="the span is positive"):
        hoeffding_margin(*arguments)
    with pytest.raises(ValueError, match="the span is positive"):
        statistical(*arguments)


class Coin(Monoid[tuple[int, ...]]):
    """The share of ones in 400 rows sampled by a rule that depends on the order of combining."""

    identity: tuple[int, ...] = ()
    commutative = True
    exact = False

    def lift(self, value: int) -> tuple[int, ...]:
        return tuple((value * 2654435761 + row * 40503) >> 7 & 1 for row in range(400))

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(x if row % 2 else y for row, (x, y) in enumerate(zip(a, b))) if a and b else a or b

    def present(self, element: tuple[int, ...]) -> float:
        return sum(element) / len(element) if element else 0.0


class Biased(Coin):
    """Each merge forgets the left operand, and adds ones."""

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return (*b[100:], *[1] * 100) if a and b else a or b


@pytest.mark.check
def test_statistical_judges_estimates_not_elements() -> None:
    """A sketch that samples by the order of merging obeys no law to the bit, and all in the mean."""
    inputs = st.integers(1, 10**6)
    with pytest.raises(LawViolation):
        assert_monoid_laws(Coin(), inputs, examples=50)
    assert_monoid_laws(Coin(), inputs, examples=50, equality=statistical(span=1.0, trials=400))
    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(Biased(), inputs, examples=50, equality=statistical(span=0.5, trials=400, failure=0.1))
    assert caught.value.law in ("associativity", "any tree")


def test_estimate_of_nothing_is_near_nothing() -> None:
    """A sketch of nothing presents None."""
    near = statistical(1.0, 100, estimate=lambda element: element)
    assert near(None, None, scale())
    assert not near(None, 0.0, scale())


def test_estimate_may_be_given() -> None:
    """What is presented need not be a number."""
    shares = statistical(1.0, 10_000, estimate=lambda element: element["share"])
    assert shares({"share": 0.5}, {"share": 0.51}, scale())
    assert not shares({"share": 0.5}, {"share": 0.6}, scale())
    assert shares([{"share": 0.5}], [{"share": 0.51}], scale(depth=1))
    assert not shares([{"share": 0.5}], [{"share": 0.51}, {"share": 0.5}], scale(depth=1))
    assert shares(b"x", b"x", scale(depth=-1)) and not shares(b"x", b"y", scale(depth=-1))
