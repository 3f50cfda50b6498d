"""Histograms: every number is in the bucket that exact arithmetic says."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monoids import ExponentialHistogram, Group, Histogram, encoding
from monoids.containers.histogram import octave_parts

TINY, HUGE = math.ldexp(1, -1074), sys.float_info.max
POSITIVE = st.floats(min_value=TINY, max_value=HUGE) | st.integers(-1074, 1023).map(lambda power: math.ldexp(1, power))


def shown(monoid: Any, numbers: list[Any]) -> list[tuple[float, float, int]]:
    element = monoid.fold([monoid.lift(number) for number in numbers])
    return [(bucket["lower"], bucket["upper"], bucket["count"]) for bucket in monoid.present(element)]


def test_a_bucket_has_its_lower_boundary_and_not_its_upper_one() -> None:
    """The side on which a boundary counts is part of what a histogram means."""
    found = shown(Histogram([0, 10]), [-math.inf, -1, -0.0, 0, 9.99, 10, math.inf, None, math.nan])
    assert found[:3] == [(-math.inf, 0.0, 2), (0.0, 10.0, 3), (10.0, math.inf, 2)]
    assert len(found) == 4 and math.isnan(found[3][0]) and math.isnan(found[3][1]) and found[3][2] == 1


@given(st.lists(st.floats(), min_size=1), st.lists(st.integers(-5, 5), min_size=1, unique=True).map(sorted))
def test_columns_fill_the_same_buckets(numbers: list[float], boundaries: list[int]) -> None:
    """Compared with a count of comparisons."""
    monoid = Histogram(boundaries)
    (element,) = monoid.unpack(monoid.reduce_sorted(monoid.lift_columns(np.array(numbers)), np.array([0])))
    expected: dict[int, int] = {}
    for number in numbers:
        bucket = len(boundaries) + 1 if number != number else sum(number >= boundary for boundary in boundaries)
        expected[bucket] = expected.get(bucket, 0) + 1
    assert element == expected


@pytest.mark.parametrize(
    ("boundaries", "fault"),
    [
        ([], "no boundary"),
        ([1, 1], "ascend"),
        ([2, 1], "ascend"),
        ([0.1, "0.1"], "ascend"),
        ([math.nan], "not finite"),
        ([1, math.inf], "not finite"),
        (["ten"], "not a number that 64-bit floats hold"),
        ([10**400], "not a number that 64-bit floats hold"),
        ([2**53 + 1], "the nearest is 9007199254740992"),
    ],
)
def test_boundaries_that_make_no_buckets_are_refused(boundaries: list[Any], fault: str) -> None:
    """A boundary that is rounded would count a number on the wrong side."""
    with pytest.raises(ValueError, match=fault):
        Histogram(boundaries)


@pytest.mark.parametrize("boundaries", [3, "0,10", [None], [True], [[1]]])
def test_boundaries_are_numbers(boundaries: Any) -> None:
    """A string would be taken for its digits."""
    with pytest.raises(TypeError, match="Histogram"):
        Histogram(boundaries)


def test_boundaries_are_known_by_their_bits() -> None:
    """A fingerprint of decimal digits could be read as another number; equal ones are the same histogram."""
    one, same = Histogram([0.1, 1]), Histogram(["0.1", Decimal("1.0")])
    assert one.parameters() == same.parameters() == {"boundaries": [(0.1).hex(), (1.0).hex()]}
    assert repr(one) == "Histogram([0.1, 1.0])" and ExponentialHistogram(3).parameters() == {"scale": 3}


@pytest.mark.parametrize("scale", range(6))
def test_bounds_are_the_largest_doubles_below_the_roots_of_two(scale: int) -> None:
    """Proved in integers: t**(2**scale) <= 2**(52 * 2**scale + j) < (t + 1)**(2**scale)."""
    parts = octave_parts(scale)
    assert len(parts) == 2**scale
    for j, part in enumerate(parts):
        power = 1 << (52 * 2**scale + j)
        assert part ** (2**scale) <= power < (part + 1) ** (2**scale)


def test_finer_bounds_hold_the_coarser_ones() -> None:
    """Every second bound of a scale is one of the next coarser scale: so buckets of two scales nest."""
    for scale in range(1, 13):
        assert octave_parts(scale)[::2] == octave_parts(scale - 1)


@given(POSITIVE, st.integers(-10, 7), st.booleans())
@example(HUGE, 7, False)
@example(TINY, 7, True)
@example(TINY, -10, True)
@example(HUGE, -10, False)
def test_the_bucket_is_the_one_of_exact_arithmetic(number: float, scale: int, negative: bool) -> None:
    """base**i < x <= base**(i + 1), in fractions: a logarithm would be wrong near the bounds, and differ by machine."""
    monoid = ExponentialHistogram(scale)
    signed = -number if negative else number
    index = monoid.index(signed)
    power = abs(index) - (1 << 23)
    assert (index < 0) == negative
    if scale >= 0:
        assert Fraction(2) ** power < Fraction(number) ** (2**scale) <= Fraction(2) ** (power + 1)
    else:
        assert Fraction(2) ** (power * 2**-scale) < Fraction(number) <= Fraction(2) ** ((power + 1) * 2**-scale)
    lower, upper = monoid.bounds(index)
    assert (lower <= signed < upper) if negative else (lower < signed <= upper)


@pytest.mark.parametrize("scale", [-10, -1, 0, 1, 5, 12])
def test_columns_have_the_same_index(scale: int) -> None:
    """Numbers at, just below and just above bounds, in both signs, and those with a bucket of their own."""
    monoid = ExponentialHistogram(scale)
    rng = np.random.default_rng(3)
    powers = np.ldexp(1.0, rng.integers(-1074, 1024, 300))
    parts = np.array(monoid._parts, float) / 2.0**52 * np.ldexp(1.0, rng.integers(-1022, 1023, len(monoid._parts)))
    edges = np.concatenate((powers, parts[:300], [TINY, 2.0**-1022], rng.lognormal(0, 50, 300)))
    around = np.concatenate((edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), [HUGE]))
    numbers = np.concatenate((around, -around, [0.0, -0.0, math.inf, -math.inf, math.nan]))
    indices = [monoid.index(number) for number in numbers.tolist()]
    assert monoid.indices(numbers).tolist() == indices
    finite = np.isfinite(numbers)
    assert (np.diff(np.array(indices)[finite][np.argsort(numbers[finite], kind="stable")]) >= 0).all()


def test_zero_infinities_and_nan_are_in_buckets_of_their_own() -> None:
    """They have no logarithm."""
    numbers = [0.0, -0.0, math.inf, -math.inf, 1.0, -1.0, None, math.nan]
    found = shown(ExponentialHistogram(0), numbers)
    assert found[:-1] == [
        (-math.inf, -math.inf, 1),
        (-1.0, -0.5, 1),
        (0.0, 0.0, 2),
        (0.5, 1.0, 1),
        (math.inf, math.inf, 1),
    ]
    assert math.isnan(found[-1][0]) and found[-1][2] == 1


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=30), st.integers(0, 20), st.integers(-2, 8))
def test_a_quantile_of_an_exponential_histogram_errs_within_its_bound(
    numbers: list[float], twentieths: int, scale: int
) -> None:
    """(base - 1) / (base + 1), relative to the true quantile."""
    monoid, q = ExponentialHistogram(scale), twentieths / 20
    element = monoid.fold([monoid.lift(number) for number in numbers])
    truth = sorted(numbers)[max(math.ceil(Fraction(q) * len(numbers)), 1) - 1]
    base = 2.0**2.0**-scale
    estimate = monoid.quantile(element, q)
    assert estimate is not None and abs(estimate - truth) <= (base - 1) / (base + 1) * truth * (1 + 1e-9)


def test_a_quantile_below_all_normal_numbers() -> None:
    """The bucket of the smallest double begins at 0, of which there is no harmonic mean."""
    monoid = ExponentialHistogram(0)
    assert [monoid.quantile(monoid.lift(sign * TINY), 0.5) for sign in (1, -1)] == [TINY, -TINY]
    assert [monoid.quantile(monoid.lift(number), 1) for number in (0.0, math.inf, -math.inf)] == [
        0,
        math.inf,
        -math.inf,
    ]


def test_a_quantile_of_fixed_buckets_is_interpolated() -> None:
    """By the share of the bucket's count that is needed; the outer buckets have one finite bound."""
    monoid = Histogram([0, 10, 20])
    element = monoid.fold([monoid.lift(number) for number in (-5, 1, 2, 3, 4, 12, 99)])
    assert [monoid.quantile(element, q) for q in (0, 0.25, 0.5, 0.75, 1)] == [0.0, 2.5, 7.5, 20.0, 20.0]
    assert monoid.quantile(monoid.identity, 0.5) is None
    assert math.isnan(monoid.quantile(monoid.lift(math.nan), 0.5) or 0)
    with pytest.raises(ValueError, match="q is a share"):
        monoid.quantile(element, 50)
    with pytest.raises(ValueError, match="more was subtracted than added"):
        monoid.quantile(monoid.inverse(element), 0.5)


@pytest.mark.parametrize("monoid", [Histogram([0, 10]), ExponentialHistogram(3)], ids=repr)
def test_what_is_taken_back_leaves_its_bucket(monoid: Any) -> None:
    """A Group; a bucket without a count is none."""
    assert isinstance(monoid, Group)
    some = monoid.combine(monoid.lift(1), monoid.lift(50))
    assert monoid.combine(some, monoid.inverse(monoid.lift(50))) == monoid.lift(1)
    assert monoid.present(monoid.identity) == []


@pytest.mark.parametrize("monoid", [Histogram([0, 10]), ExponentialHistogram(3)], ids=repr)
@pytest.mark.parametrize("index", [-1, 4, 2**29, True, "1", 1.0])
def test_bytes_with_a_bucket_that_there_is_not_are_refused(monoid: Any, index: Any) -> None:
    """They are of a histogram of other buckets."""
    with pytest.raises(ValueError, match=r"no bucket|not the number of a bucket"):
        monoid.decode(encoding.encode({index: 1}))


def test_a_file_with_a_bucket_that_there_is_not_is_refused() -> None:
    """Else presenting it would fail, or show the wrong bounds."""
    stored = Histogram([0, 10, 20]).to_arrow(Histogram([0, 10, 20]).pack([{4: 1}]))
    with pytest.raises(ValueError, match="there is no bucket 4"):
        Histogram([0, 10]).from_arrow(stored)


@pytest.mark.parametrize("scale", [-11, 13, 1.0, "3", True, None])
def test_a_scale_outside_is_refused(scale: Any) -> None:
    """The bounds of finer buckets would take megabytes."""
    with pytest.raises(ValueError, match="the scale is an integer from -10 to 12"):
        ExponentialHistogram(scale)


def test_what_is_lifted_is_a_number() -> None:
    """Decimals and integers are; text is not."""
    monoid = Histogram([1])
    assert monoid.lift(Decimal("0.5")) == monoid.lift(0) == {0: 1}
    with pytest.raises(TypeError, match=r"Histogram\(\[1.0\]\) takes numbers, not '3' \(str\)"):
        monoid.lift("3")
    with pytest.raises(TypeError, match="takes numbers, not a column of string"):
        monoid.lift_columns(pa.array(["3"]))


@pytest.mark.parametrize("monoid", [Histogram([1, 5.5]), *map(ExponentialHistogram, (-10, 0, 3, 12))], ids=repr)
def test_the_numbers_of_buckets_are_told_at_once_as_one_by_one(monoid: Any) -> None:
    """A stored number that is no bucket's cannot be presented."""

    def is_bucket(index: int) -> bool:
        try:
            monoid.bounds(index)
        except ValueError:
            return False
        return True

    numbers = [-math.inf, -sys.float_info.max, -1.0, -5e-324, 0.0, 5e-324, 1.0, sys.float_info.max, math.inf, math.nan]
    near = np.array([monoid.index(number) for number in numbers], np.int64)
    indices = np.unique((near[:, None] + np.arange(-3, 4)).clip(-(2**31), 2**31 - 1)).astype(np.int32)
    assert monoid.are_buckets(indices).tolist() == [is_bucket(index) for index in indices.tolist()]
    outside = int(indices[np.argmin(monoid.are_buckets(indices))])
    stored = pa.array([[{"key": outside, "value": 1}]], monoid.schema.field(0).type)
    with pytest.raises(ValueError, match=f"there is no bucket {outside}"):
        monoid.from_arrow([stored])
