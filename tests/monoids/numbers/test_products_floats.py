"""A column of floats has one zero and one NaN, and the identity where there is no value."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from monoids import Product, Sum
from monoids.numbers.products import FloatMonoid, float_column

MONOIDS = (Sum(float), Product(float))


@pytest.mark.parametrize("monoid", MONOIDS, ids=repr)
def test_none_is_the_identity_alone_and_in_a_column(monoid: FloatMonoid) -> None:
    """A product of nothing that is 0, or a sum that is 1, makes every other value wrong."""
    values = [None, 1.5, -0.0, math.inf]
    expected = [monoid.identity, 1.5, 0.0, math.inf]
    assert [monoid.lift(value) for value in values] == expected
    assert monoid.unpack(monoid.lift_columns(values)) == expected
    assert math.copysign(1, monoid.lift(-0.0)) == 1
    assert monoid.lift_columns(pa.array([2.5]))[0].tolist() == [2.5]


@pytest.mark.parametrize("monoid", MONOIDS, ids=repr)
def test_equal_elements_are_stored_as_equal_bytes(monoid: FloatMonoid) -> None:
    """Two zeros or two NaN in a file are two checksums of one state."""
    (stored,) = monoid.to_arrow((np.array([-0.0, -math.nan]),))
    assert (
        stored.equals(pa.array([0.0, math.nan])) or stored.to_numpy().tobytes() == np.array([0.0, math.nan]).tobytes()
    )
    (back,) = monoid.from_arrow([stored])
    assert back.tobytes() == stored.to_numpy().tobytes()


def test_a_column_says_where_it_has_values() -> None:
    """A mean would divide by the rows instead of the values."""
    column, valid = float_column(Sum(float).accepted, pa.array([1.0, None]), 7.0)
    assert column.tolist() == [1.0, 7.0] and valid.tolist() == [True, False]
    column, valid = float_column(Sum(float).accepted, pa.array([1.0]), 7.0)
    assert column.tolist() == [1.0] and valid.tolist() == [True]
