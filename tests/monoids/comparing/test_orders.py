"""A pair is read and stored alike, whichever way it is given."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import First, Last, MaxBy, MinBy, encoding
from monoids.column import is_constant
from tests.monoids.comparing.test_arg_extremes import _folded


def test_a_pair_with_a_none_in_it_is_no_contribution() -> None:
    """A first value that is missing would hide the first that is there."""
    monoid = First(str, order=(int, str))
    pairs = [None, (None, "x"), ((1, None), "x"), ((1, "a"), None), ((2, "a"), "y")]
    assert [monoid.lift(pair) for pair in pairs] == [None] * 4 + [((2, "a"), "y")]
    columns = monoid.lift_columns(pairs)
    assert monoid.unpack(columns) == [monoid.lift(pair) for pair in pairs]
    assert _folded(monoid, columns) == "y"
    assert monoid.present(None) is None and monoid.present_columns(columns).to_pylist() == [None] * 4 + ["y"]
    assert monoid.unpack(monoid.lift_rows(None, 2)) == [None, None]
    assert monoid.unpack(monoid.lift_rows((None, pa.array(["x", "y"])), 2)) == [None, None]
    assert monoid.unpack(monoid.lift_columns(pa.nulls(2))) == [None, None]


def test_what_stands_beside_a_none_is_not_stored() -> None:
    """Equal elements, equal bytes."""
    monoid = MaxBy(str, by=int)
    ways = [monoid.lift_columns([(5, None), (1, "a")]), monoid.lift_columns([(None, "secret"), (1, "a")])]
    ways.append(monoid.pack([None, (1, "a")]))
    batches = [pa.record_batch(monoid.to_arrow(columns), schema=monoid.schema).serialize() for columns in ways]
    assert batches[0] == batches[1] == batches[2]


def test_nan_is_above_all_numbers_and_zeros_are_one() -> None:
    """The answer to a missing measurement is documented, not the engine's."""
    pairs = [(math.nan, "nan"), (math.inf, "inf"), (-0.0, "b"), (0.0, "a")]
    assert _folded(MaxBy(str, by=float), MaxBy(str, by=float).lift_columns(pairs)) == "nan"
    assert _folded(MinBy(str, by=float), MinBy(str, by=float).lift_columns(pairs)) == "a"
    assert MinBy(str, by=float).fold([MinBy(str, by=float).lift(pair) for pair in pairs]) == (0.0, "a")


def test_parts_are_columns_or_one_value_for_every_row() -> None:
    """The partition of a batch is one value, and its timestamps a column."""
    monoid = First(float, order=(int, str))
    expected = [((4, "p"), 1.0), ((3, "p"), 1.0)]
    times = np.array([4, 3])
    for order in ((times, "p"), (pa.array(times), pa.array(["p", "p"])), [(4, "p"), (3, "p")]):
        assert monoid.unpack(monoid.lift_rows((order, 1.0), 2)) == expected
    assert monoid.unpack(monoid.lift_rows({"order": (4, "p"), "value": np.array([1.0, 2.0])}, 2)) == [
        ((4, "p"), 1.0),
        ((4, "p"), 2.0),
    ]
    named = MinBy(by={"a": int, "b": int})
    for by in ({"b": times, "a": 1}, pa.array([{"b": 4, "a": 1}, {"b": 3, "a": 1}])):
        assert named.unpack(named.lift_rows((by, 9), 2)) == [((1, 4), 9), ((1, 3), 9)]
    assert named.lift(({"b": 4, "a": 1}, 9)) == named.lift(((1, 4), 9)) == ((1, 4), 9)


def test_one_pair_for_every_row_costs_nothing_a_row() -> None:
    """Numbers stay constants."""
    valid, by, value = MaxBy(float, by=int).lift_rows((3, 2.5), 1_000_000)
    assert is_constant(valid) and is_constant(by) and is_constant(value)


@pytest.mark.parametrize(
    ("give", "error", "match"),
    [
        (lambda: MinBy(complex), TypeError, "write one of"),
        (lambda: MinBy(str, by=()), TypeError, "write at least one type"),
        (lambda: MinBy(str, by=list), TypeError, "write one of"),
        (lambda: MinBy(str, by={1: int}), TypeError, "names of the parts are strings"),
        (lambda: MinBy(str).lift("x"), TypeError, r"a pair is a tuple \(by, value\)"),
        (lambda: MinBy(str).lift((1.5, "x")), TypeError, r"MinBy\(..., by=int\) takes integers, not 1.5"),
        (lambda: MinBy(str).lift((1, 2)), TypeError, r"MinBy\(str\) takes strings, not 2"),
        (lambda: First().lift((3, 4)), TypeError, "tuples of 3 parts or mappings of timestamp, partition, position"),
        (lambda: First().lift(((3, 4, (0, 0)), 4)), TypeError, "part 'partition' takes strings, not 4"),
        (lambda: First().lift(({"timestamp": 3}, 4)), TypeError, "mappings of timestamp, partition, position"),
        (lambda: First().lift({"by": 3, "value": 4}), ValueError, "order and value"),
        (lambda: MinBy(by=(int, str)).lift_rows((pa.array([{"a": 1, "b": "x"}]), 1), 1), TypeError, "takes tuples"),
        (lambda: First().lift_rows((pa.array([1]), 1), 1), TypeError, "not a column of int64"),
        (lambda: MinBy().lift_rows((np.arange(3), 1), 2), ValueError, "column of 3 values for 2 rows"),
        (lambda: MinBy().lift_rows((1, np.arange(3)), 2), ValueError, "column of 3 values for 2 rows"),
        (lambda: MinBy().lift_rows(pa.array([{"by": 1, "value": 2}]), 2), ValueError, "column of 1 "),
        (lambda: MinBy().lift_rows(5, 2), TypeError, "a pair is a tuple"),
    ],
)
def test_what_is_no_pair_is_refused(give: Any, error: type[Exception], match: str) -> None:
    """With what to write."""
    with pytest.raises(error, match=match):
        give()


def test_elements_of_another_hand_are_refused() -> None:
    """Half a pair is no element."""
    monoid = MinBy(str, by=int)
    for element in (1, (1, 2), (None, "a"), ("a", 1), (True, "a"), [1, "a"], {"by": 1, "value": "a"}):
        with pytest.raises(ValueError, match="encoded element"):
            monoid.decode(encoding.encode(element))
    with pytest.raises(ValueError, match="null in some of its columns"):
        monoid.from_arrow([pa.array([1, None]), pa.array([b"a", b"b"])])


def test_values_of_every_kind_are_presented_in_their_own_type() -> None:
    """Sinks fix their schema from it."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for type_, value in ((str, "\U0001f600"), (bytes, b"\xff"), (datetime, noon), (bool, False), (float, 0.5)):
        monoid = Last(type_, order=int)
        columns = monoid.lift_columns([(1, value)])
        assert monoid.present_columns(columns).type == monoid.output_type
        assert monoid.present_columns(columns).to_pylist() == [value]
        assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == [(1, value)]
