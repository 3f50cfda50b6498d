"""Sums of segments of a column are right where their way leaves the type."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from monoids import Max, Mean, Min, Sum, encoding
from tests.monoids.numbers.test_sums import HIGH, LOW, starts, total


def test_sum_is_right_where_its_way_overflows() -> None:
    """A wrapped total is a silently wrong state."""
    assert total(Sum(), np.array([HIGH, HIGH, LOW, LOW, 5, HIGH, 1, -1]), 0, 5) == [3, HIGH]
    assert total(Sum(), np.array([LOW, LOW, HIGH, HIGH, 2]), 0) == [0]
    assert total(Sum(), np.array([LOW, 0, HIGH]), 0, 2) == [LOW, HIGH]


def test_sum_matches_python_on_random_extremes() -> None:
    """The reduction by halves against the definition."""
    random = np.random.default_rng(7)
    for _ in range(200):
        rows = int(random.integers(1, 12))
        values = random.integers(LOW, HIGH, rows, endpoint=True) >> int(random.integers(0, 4))
        expected = sum(values.tolist())
        assert total(Sum(), values, 0) == [expected]
        assert total(Sum(), values.astype(object), 0) == [expected]


def test_zeros_and_nans_are_stored_in_one_form() -> None:
    """Their bits depend on the operations that made them; equal elements have equal bytes."""
    odd = np.array([0xFFF8_0000_0000_0001, 0x8000_0000_0000_0000], np.uint64).view(np.float64)
    even = np.array([math.nan, 0.0])
    for monoid in (Min(float), Max(float), Sum(float), Mean()):
        stored = [monoid.to_arrow(monoid.lift_columns(values))[-1] for values in (odd, even)]
        assert bytes(stored[0].buffers()[1]) == bytes(stored[1].buffers()[1])
        assert [monoid.encode(monoid.lift(value)) for value in odd] == [
            monoid.encode(monoid.lift(value)) for value in even
        ]


def test_there_is_one_zero_in_columns_too() -> None:
    """Equal elements, equal bytes: a -0.0 that a column kept would be told from the scalar's 0.0."""
    for monoid in (Sum(float), Mean()):
        for values in (np.array([-0.0]), pa.array([-0.0]), [-0.0]):
            (element,) = monoid.unpack(monoid.lift_columns(values))
            assert monoid.encode(element) == monoid.encode(monoid.lift(-0.0)) == monoid.encode(monoid.lift(0.0))
        reduced = monoid.reduce_sorted(monoid.lift_columns(np.array([-0.0, -0.0])), starts(0))
        assert monoid.encode(monoid.unpack(reduced)[0]) == monoid.encode(monoid.fold([monoid.lift(-0.0)] * 2))
    for foreign, wrong in ((Sum(float), -0.0), (Mean(), (1, -0.0)), (Mean(), (0, -0.0))):
        with pytest.raises(ValueError, match=r"not -0.0"):
            foreign.decode(encoding.encode(wrong))
