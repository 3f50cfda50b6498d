"""Bags count each value: compared with collections.Counter."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Bag, Group, encoding


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.text(max_size=1)), min_size=1))
def test_a_bag_is_a_counter(rows: list[tuple[int, str | None]]) -> None:
    """The columns must count as Python does, null aside."""
    monoid = Bag(str)
    rows.sort(key=lambda row: row[0])
    groups = sorted({group for group, _ in rows})
    counters = [Counter(v for at, v in rows if at == group and v is not None) for group in groups]
    starts = np.searchsorted([group for group, _ in rows], groups)
    columns = monoid.reduce_sorted(monoid.lift_columns(pa.array([v for _, v in rows], pa.string())), starts)
    assert monoid.unpack(columns) == counters
    shown = monoid.present_columns(columns)
    assert shown.to_pylist() == [[{"value": v, "count": n} for v, n in sorted(c.items())] for c in counters]
    assert shown.type == monoid.output_type


def test_what_is_taken_back_is_gone_and_too_much_is_seen() -> None:
    """A count of 0 that stayed would make equal bags unequal; one below 0 that vanished would lose a correction."""
    monoid = Bag(int)
    assert isinstance(monoid, Group)
    one, two = monoid.lift(1), monoid.lift(2)
    assert monoid.combine(monoid.combine(one, two), monoid.inverse(one)) == two
    owed = monoid.combine(two, monoid.inverse(one))
    assert monoid.present(owed) == [{"value": 1, "count": -1}, {"value": 2, "count": 1}]
    columns = monoid.pack([one, monoid.inverse(one), owed, monoid.identity])
    reduced = monoid.reduce_sorted(columns, np.array([0, 2]))
    assert monoid.unpack(reduced) == [{}, owed]
    assert reduced[0].entries == 2
    assert monoid.present_columns(reduced).to_pylist() == [[], monoid.present(owed)]


def test_counts_do_not_wrap() -> None:
    """A count beyond int64 would become negative."""
    monoid = Bag(str)
    most, least = {"a": 2**63 - 1}, {"a": -(2**63)}
    for wrapping in (lambda: monoid.combine(most, monoid.lift("a")), lambda: monoid.inverse(least)):
        with pytest.raises(OverflowError, match="outside 64-bit integers"):
            wrapping()
    with pytest.raises(OverflowError, match="outside 64-bit integers"):
        monoid.reduce_sorted(monoid.pack([most, monoid.lift("a")]), np.array([0]))
    assert monoid.combine(most, least) == {"a": -1}


def test_values_that_read_alike_are_one() -> None:
    """All NaN, and both zeros; True is the integer 1."""
    monoid = Bag(float)
    bag = monoid.fold([monoid.lift(x) for x in (math.nan, -math.nan, float("nan"), 0.0, -0.0)])
    assert list(bag.values()) == [3, 2]
    assert Bag(int).lift(True) == Bag(int).lift(np.int8(1)) == {1: 1}


@pytest.mark.parametrize("value", [{"a": 1}, {1: 0}, {1: 1.0}, {1: True}, {1: 2**63}, {True: 1}, {1}, 1])
def test_bytes_of_something_else_are_no_bag(value: object) -> None:
    """They would be presented as a bag of integers."""
    with pytest.raises(ValueError, match="encoded element"):
        Bag(int).decode(encoding.encode(value))


def test_a_stored_count_of_nothing_is_refused() -> None:
    """Two files of equal bags would differ."""
    stored = pa.array([[{"key": 1, "value": 0}]], Bag(int).schema.field(0).type)
    with pytest.raises(ValueError, match=r"Bag\(int\): an entry holds the identity"):
        Bag(int).from_arrow([stored])


def test_counts_that_fit_may_be_outside_on_their_way() -> None:
    """Whether a step fails must not depend on the half that ran it."""
    monoid = Bag(int)
    bags = [{1: 2**62, 2: 1}, {1: 2**62}, {1: -(2**63), 2: -1, 3: 1}]
    assert monoid.fold(bags) == {3: 1} == monoid.unpack(monoid.reduce_sorted(monoid.pack(bags), np.array([0])))[0]
    assert monoid.fold([]) == {} and bags[0] == {1: 2**62, 2: 1}
    with pytest.raises(OverflowError, match=r"^Bag\(int\)"):
        monoid.fold(bags[:2])
    with pytest.raises(OverflowError, match=r"^Bag\(int\)"):
        monoid.reduce_sorted(monoid.pack(bags[:2]), np.array([0]))
