"""Ordered columns give back their values, and words that compare as the values do."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids.encoding import order_key
from monoids.ordered import IntegerKeys, Ordered, words
from monoids.values import ALL_KINDS, value_type

EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
SURROGATES = st.sampled_from(["\ud800", "\uffff", "\U0001f600", "", "a\x00", "a"])
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(2**63), 2**63 - 1) | EXTREMES),
    (float, st.floats() | st.sampled_from([-0.0, 0.0, math.nan, -math.nan, math.inf, 5e-324])),
    (bool, st.booleans()),
    (str, st.text(max_size=4) | SURROGATES),
    (bytes, st.binary(max_size=4)),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("ms"), st.datetimes().map(lambda t: t.replace(microsecond=0))),
    (pa.decimal128(20, 3), st.decimals(-(10**6), 10**6, places=3)),
]


def ordered(type_: Any) -> Ordered:
    return Ordered(value_type("Max", type_, ALL_KINDS))


@pytest.mark.parametrize(("type_", "values"), TYPES, ids=[str(case[0]) for case in TYPES])
@given(data=st.data())
def test_words_compare_as_values_do(type_: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """A set whose words tie merges two values into one; words out of order give a wrong extreme."""
    store = ordered(type_)
    column, valid = store.store(data.draw(st.lists(values, max_size=8)))
    assert valid is None
    loaded = store.load(column)
    numbered = list(zip(words(column).tolist(), map(order_key, loaded), loaded))
    for (a, key_a, x), (b, key_b, y) in pairwise(sorted(numbered, key=lambda row: row[1])):
        assert a <= b
        assert (a == b) == (key_a == key_b), (x, y)


@pytest.mark.parametrize(("type_", "values"), TYPES, ids=[str(case[0]) for case in TYPES])
@given(data=st.data())
def test_values_come_back(type_: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """A value changed by storing is another value after recovery."""
    store = ordered(type_)
    given_values = data.draw(st.lists(st.none() | values, max_size=6))
    column, valid = store.store(given_values)
    present = np.ones(len(column), bool) if valid is None else valid
    assert present.tolist() == [value is not None for value in given_values]
    loaded = store.load(column)
    accepted = [None if value is None else store.type.accept(value) for value in given_values]
    for x, y, there in zip(loaded, accepted, present.tolist()):
        assert not there or x is y or (type(x) is type(y) and x == y), (x, y)
    array = store.to_arrow(column, valid)
    assert array.type == store.arrow
    again = pa.concat_arrays([array, array]).slice(len(array))
    read = store.load(store.from_arrow(again))
    assert [x for x, there in zip(read, present) if there] == [x for x, there in zip(loaded, present) if there]


def test_lone_surrogates_are_shown_escaped() -> None:
    """Arrow strings hold none, and a reader must see something."""
    store = ordered(str)
    column, valid = store.store(["a", None, "\ud800"])
    assert store.show(column, valid).to_pylist() == ["a", None, "\\ud800"]
    assert store.show(column[:1]).type == pa.string()


def test_one_nan_and_one_zero() -> None:
    """Two NaN are two values of a set otherwise."""
    store = ordered(float)
    column, _ = store.store(np.array([math.nan, -math.nan, 0.0, -0.0]))
    assert len(set(words(column).tolist())) == 2
    assert all(value is math.nan for value in store.load(column)[:2])
    assert math.copysign(1, store.load(column)[3]) == 1


def test_decimals_of_one_scale() -> None:
    """1.0 and 1.00 are one value of one type."""
    store = ordered(pa.decimal128(10, 2))
    column, _ = store.store([Decimal("1"), Decimal("1.00"), Decimal("-3")])
    assert words(column).tolist() == [1, 1, 0]


@pytest.mark.parametrize("dtype", ["uint16", "uint64", "int32", "uint8"])
def test_numbers_are_stored_at_their_width(dtype: str) -> None:
    """Registers of sketches widened to 64 bits would quadruple a checkpoint."""
    store = IntegerKeys(np.dtype(dtype))
    info = np.iinfo(dtype)
    column, _ = store.store([int(info.max), int(info.min), 1])
    assert column.dtype == dtype and store.arrow == pa.from_numpy_dtype(np.dtype(dtype))
    assert store.load(store.from_arrow(store.to_arrow(column))) == [int(info.max), int(info.min), 1]
    assert np.argsort(words(column)).tolist() == ([1, 2, 0])
