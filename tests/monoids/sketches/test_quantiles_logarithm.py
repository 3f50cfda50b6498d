"""The number that stands for a bucket is within the error of every float in it, for every bucket of an octave."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids.sketches.quantiles import LogarithmicBuckets

ERRORS = [Fraction(error) for error in ("0.00001", "0.001", "0.01", "0.1", "0.33", "0.5")]
HUNDREDTH = LogarithmicBuckets(Fraction("0.01"))
TINIEST = 5e-324
SMALLEST = sys.float_info.min
LARGEST = sys.float_info.max


def assert_near(buckets: LogarithmicBuckets, x: float, error: Fraction) -> None:
    number = buckets.number(buckets.bucket(x))
    allowed = error * abs(Fraction(x)) + (Fraction(1, 2**1075) if abs(x) < SMALLEST else 0)
    assert abs(Fraction(number) - Fraction(x)) <= allowed, (x, number)


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("octave", [-1022, -1, 0, 1, 1023])
def test_both_ends_of_every_bucket_are_near_its_number(error: Fraction, octave: int) -> None:
    """Lost: the guarantee itself, at the borders, where it is tight. Compared as fractions, without any rounding."""
    buckets = LogarithmicBuckets(error)
    starts = buckets._starts[:: max(1, len(buckets._starts) // 400)]
    for start in starts:
        border = math.ldexp(start, octave - 52)
        for x in (border, math.nextafter(border, 0.0), math.nextafter(border, math.inf)):
            assert_near(buckets, x, error)
    changes = [
        buckets.bucket(math.ldexp(s, octave - 52)) - buckets.bucket(math.ldexp(s - 1, octave - 52)) for s in starts
    ]
    assert set(changes[1:]) == ({1} if len(changes) > 1 else set())


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_no_octave_has_more_buckets_than_it_needs(error: Fraction) -> None:
    """Lost: memory; a mapping that interpolates needs up to 44 % more."""
    needed = math.log(2) / math.log((1 + error) / (1 - error))
    assert LogarithmicBuckets(error).per_octave == math.ceil(needed)
    assert LogarithmicBuckets(error).last < 2**31


def test_extremes() -> None:
    """Lost: the smallest and largest floats, or those that are no numbers, in a bucket of others."""
    rising = [-math.inf, -LARGEST, -1.0, -SMALLEST, -TINIEST, 0.0, TINIEST, 3 * TINIEST, 1e-310, SMALLEST, 1.0, LARGEST]
    rising += [math.inf, math.nan]
    numbers = [HUNDREDTH.bucket(x) for x in rising]
    assert all(a < b for a, b in pairwise(numbers))
    assert (numbers[0], numbers[5], numbers[-2], numbers[-1]) == (HUNDREDTH.first, 0, -HUNDREDTH.first, HUNDREDTH.last)
    assert HUNDREDTH.bucket(-0.0) == 0
    assert math.isnan(HUNDREDTH.number(HUNDREDTH.last))
    assert (HUNDREDTH.number(HUNDREDTH.first), HUNDREDTH.number(0)) == (-math.inf, 0.0)
    for x in rising[1:-2]:
        assert_near(HUNDREDTH, x, Fraction("0.01"))


@given(st.lists(st.floats(), min_size=1))
def test_columns_are_the_scalars(values: list[float]) -> None:
    """Lost: the same bucket for the same number by either path, and nearness of any float at all."""
    numbers = np.array(values)
    buckets = HUNDREDTH.bucket_columns(numbers)
    assert buckets.tolist() == [HUNDREDTH.bucket(x) for x in values]
    shown = [HUNDREDTH.number(bucket) for bucket in buckets.tolist()]
    np.testing.assert_array_equal(HUNDREDTH.number_columns(buckets), np.array(shown))
    for x in values:
        if math.isfinite(x):
            assert_near(HUNDREDTH, x, Fraction("0.01"))


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_columns_at_every_border(error: Fraction) -> None:
    """Lost: a border that the shortened table of a column puts one bucket off."""
    buckets = LogarithmicBuckets(error)
    starts = np.array(buckets._starts[:: max(1, len(buckets._starts) // 400)], np.float64)
    numbers = np.concatenate(
        [starts, np.nextafter(starts, 0), np.nextafter(starts, np.inf), -starts, starts * 2.0**-1120]
    )
    assert buckets.bucket_columns(numbers).tolist() == [buckets.bucket(x) for x in numbers.tolist()]


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_buckets_rise_with_numbers(x: float, y: float) -> None:
    """Lost: quantiles that are read in the order of the buckets."""
    low, high = sorted((x, y))
    assert HUNDREDTH.bucket(low) <= HUNDREDTH.bucket(high)
    assert HUNDREDTH.number(HUNDREDTH.bucket(low)) <= HUNDREDTH.number(HUNDREDTH.bucket(high))


def test_some_buckets_by_number() -> None:
    """Lost: state of an earlier version, whose buckets meant other numbers."""
    assert [HUNDREDTH.bucket(x) for x in (TINIEST, 1.0, 1.5, 2.0, 1e6)] == [1, 37591, 37611, 37626, 38288]
    assert HUNDREDTH.bucket(LARGEST) == HUNDREDTH.infinity - 1 == 2098 * 35
