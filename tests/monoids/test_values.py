"""Value types: what of the values of others they accept, what is stored of them, and how they are written."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from monoids import (
    Bag,
    BottomK,
    CountMin,
    First,
    HeavyHitters,
    Last,
    ListConcat,
    Max,
    Min,
    MinBy,
    Reservoir,
    SetIntersection,
    SetUnion,
    Sum,
    TopK,
    mapping,
    record,
)

_ONE_VALUE: list[Any] = [Min, Max, SetUnion, Bag, ListConcat, lambda type: TopK(2, type), lambda type: BottomK(2, type)]


class Day(date):
    """A subclass, as libraries have them."""


@pytest.mark.parametrize("make", _ONE_VALUE)
def test_timestamps_of_pandas_become_datetimes(make: Any) -> None:
    """Arrow makes them wherever pandas is installed; an element that holds one could not be encoded."""
    monoid, moment = make(datetime), datetime(2020, 1, 2, 3, 4, 5, 6, UTC)
    for given in (pd.Timestamp(moment), pd.Timestamp("2020-01-02 04:04:05.000006+01:00")):
        assert monoid.encode(monoid.lift(given)) == monoid.encode(monoid.lift(moment))
        assert monoid.unpack(monoid.lift_columns([given])) == [monoid.lift(moment)]
    naive = make(pa.timestamp("us"))
    assert naive.encode(naive.lift(pd.Timestamp("2020-01-02"))) == naive.encode(naive.lift(datetime(2020, 1, 2)))
    days = make(date)
    assert days.encode(days.lift(Day(2020, 1, 2))) == days.encode(days.lift(date(2020, 1, 2)))


@pytest.mark.parametrize("make", _ONE_VALUE)
def test_not_a_time_is_no_value(make: Any) -> None:
    """It is the null of pandas, and null in a column."""
    for type in (datetime, date):
        monoid = make(type)
        assert monoid.lift(pd.NaT) == monoid.identity
        assert monoid.unpack(monoid.lift_columns([pd.NaT])) == [monoid.identity]


def test_not_a_time_is_no_part_of_anything() -> None:
    """Neither an order, an id, a key nor an item of a set."""
    assert MinBy(int, by=datetime).lift((pd.NaT, 1)) is None
    assert Reservoir(2).lift((pd.NaT, 1)) == Reservoir(2).identity
    assert SetIntersection(datetime).lift([pd.NaT]) == frozenset()
    assert CountMin(datetime).lift(pd.NaT) == HeavyHitters(4, datetime).lift((1, pd.NaT))[0] == {}
    dated = mapping(Sum(), key=datetime)
    for lift in (dated.lift, lambda value: dated.lift_columns([value])):
        with pytest.raises(TypeError, match="NaT"):
            lift({pd.NaT: 1})


def test_nanoseconds_are_refused_on_every_path() -> None:
    """Dropped on one path and refused on another, the same values would give different states."""
    monoid, fine = Min(datetime), pd.Timestamp(1, unit="ns", tz="UTC")
    for lift in (
        lambda: monoid.lift(fine),
        lambda: monoid.lift_columns([fine]),
        lambda: monoid.lift_columns(pa.array([1], pa.timestamp("ns", "UTC"))),
    ):
        with pytest.raises(ValueError, match="Min"):
            lift()


def test_what_is_outside_the_years_of_python_is_refused() -> None:
    """It would fail later, in a state that then cannot be read."""
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        Min(datetime).lift(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))
    edges = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    for make in (Min, SetUnion):
        assert make(datetime).unpack(make(datetime).lift_columns(edges)) == [
            make(datetime).lift(edge) for edge in edges
        ]
        for type, beyond in ((datetime, pa.timestamp("us", "UTC")), (pa.timestamp("s"), pa.timestamp("s"))):
            monoid = make(type)
            with pytest.raises(ValueError, match="outside the years"):
                monoid.lift_columns(pa.array([None, 2**60]).cast(beyond))
        with pytest.raises(ValueError, match="outside the years"):
            make(date).lift_columns(pa.array([None, -800_000], pa.int32()).cast(pa.date32()))


@pytest.mark.parametrize("make", [*_ONE_VALUE[:2], SetUnion, ListConcat])
def test_a_column_with_bytes_that_are_no_text_is_refused(make: Any) -> None:
    """They would be stored, and the file could not be read again."""
    texts = pa.array([b"a", b"\xff", None], pa.binary()).view(pa.string())
    for column in (texts, pa.chunked_array([texts]), texts.slice(1)):
        with pytest.raises(ValueError, match=r"str\): a string is not UTF-8"):
            make(str).lift_columns(column)
    assert make(str).unpack(make(str).lift_columns(texts.slice(2))) == [make(str).identity]


def _stored(monoid: Any, array: pa.Array) -> pa.Array:
    """One value a row as a column of ``monoid``'s file."""
    type = monoid.schema.field(0).type
    if not pa.types.is_list(type):
        return array.cast(type)
    return pa.ListArray.from_arrays(list(range(len(array) + 1)), array.cast(type.value_type), type=type)


@pytest.mark.parametrize("make", [*_ONE_VALUE[:2], SetUnion, ListConcat, _ONE_VALUE[5]])
def test_stored_values_of_another_hand_are_refused(make: Any) -> None:
    """Read, they would fail where the element is presented, or be of no monoid."""
    fine = pa.array([b"a", "\ud800".encode("utf-8", "surrogatepass"), "é".encode()])
    assert make(str).unpack(make(str).from_arrow([_stored(make(str), fine)]))[1] == make(str).lift("\ud800")
    wrong = [
        (str, pa.array([b"a", b"\xff"]), "not UTF-8"),
        (str, pa.array(["\ud800".encode("utf-8", "surrogatepass"), b"\xc3"]), "not UTF-8"),
        (date, pa.array([0, 2**30], pa.int32()).cast(pa.date32()), "outside the years"),
        (datetime, pa.array([0, -(2**62)], pa.timestamp("us", "UTC")), "outside the years"),
        (pa.decimal128(20, 3), pa.array([1, 10**20], pa.decimal128(38, 0)).view(pa.decimal128(20, 3)), "more digits"),
    ]
    for type, array, fault in wrong:
        monoid = make(type)
        with pytest.raises(ValueError, match=fault):
            monoid.from_arrow([_stored(monoid, array)])
        assert len(monoid.from_arrow([_stored(monoid, array[:1])])[0]) == 1
        assert len(monoid.from_arrow([_stored(monoid, array[:0])])[0]) == 0


@pytest.mark.parametrize("make", _ONE_VALUE)
def test_lone_surrogates_in_arrays_of_numpy_are_text(make: Any) -> None:
    """A list of the same strings is lifted."""
    monoid, texts = make(str), ["\ud800", "a"]
    for given in (np.array(texts, object), np.array(texts)):
        assert monoid.unpack(monoid.lift_columns(given)) == [monoid.lift(text) for text in texts]
    masked = np.ma.array(np.array(texts, object), mask=[True, False])
    assert monoid.unpack(monoid.lift_columns(masked)) == [monoid.identity, monoid.lift("a")]


@pytest.mark.parametrize(
    "monoid",
    [
        Min(pa.decimal128(20, 3)),
        Max(pa.timestamp("s")),
        Bag(pa.timestamp("ms", "UTC")),
        SetUnion(datetime),
        TopK(2, pa.decimal128(5, 1)),
        TopK(2, str, by=pa.decimal128(5, 1)),
        BottomK(3, by=float),
        Reservoir(4, pa.timestamp("s"), seed=3),
        MinBy(pa.decimal128(5, 1), by=pa.timestamp("s")),
        Last(bool, order=(pa.timestamp("ms", "UTC"), int)),
        First(str, order={"a": pa.decimal128(9, 2), "b": (int, str)}),
        mapping(Sum(), key=pa.decimal128(5, 1)),
        mapping(Sum(), key=int),
        SetIntersection(pa.decimal256(50, 2)),
    ],
)
def test_what_is_printed_can_be_typed(monoid: Any) -> None:
    """It is what a user copies from an error into the code."""
    names = "Bag BottomK First Last Max Min MinBy Reservoir SetIntersection SetUnion Sum TopK datetime mapping pa"
    known = {name: globals()[name] for name in names.split()}
    assert eval(repr(monoid), known).fingerprint() == monoid.fingerprint()


def test_errors_are_written_as_the_monoid_is() -> None:
    """The remedy is to be copied."""
    wrong = [
        (lambda: TopK(2).lift("x"), "TopK(2) takes integers, not 'x' (str): write TopK(2, str)"),
        (lambda: Reservoir(5).lift((1, "x")), "Reservoir(5) takes integers, not 'x' (str): write Reservoir(5, str)"),
        (lambda: TopK(2, list), "TopK(2, list): write one of "),
        (
            lambda: Min(pa.timestamp("ns")),
            "Min(pa.timestamp('ns')) (datetimes of Python hold microseconds): write one of",
        ),
        (lambda: First(int, order=list), "a tuple of these, or a mapping of names to them"),
        (lambda: mapping(Sum), "Sum is a function: if it returns a monoid, write Sum()"),  # type: ignore[arg-type]
        (lambda: record(a=Sum), "write Sum()"),  # type: ignore[arg-type]
    ]
    for make, fault in wrong:
        with pytest.raises(TypeError, match=re.escape(fault)):
            make()


def test_an_array_of_nothing_is_of_every_type() -> None:
    """NumPy has to give the array of no strings some type, and takes float64."""
    for given in (np.array([]), np.array([], np.int64), np.ma.array([1, 2], mask=True), np.array([], object)):
        for type in (str, bytes, date, datetime, int, float, bool, pa.decimal128(5, 1)):
            monoid = Max(type)
            assert monoid.unpack(monoid.lift_columns(given)) == [None] * len(given)
    with pytest.raises(TypeError, match="takes strings, not a column of int64"):
        Max(str).lift_columns(np.array([1]))


def test_names_of_parts_tell_orders_apart() -> None:
    """State of one order would be read as that of another."""
    for names in ({"a.b": int, "c": int}, {"": int}, {"a": {"b.c": int}}):
        with pytest.raises(ValueError, match=r"is empty or holds a '\.'"):
            First(int, order=names)
    assert First(int, order={"a": {"b": int}, "c": int}).lift((((1,), 2), 3)) == (((1,), 2), 3)


def test_decimals_are_held_exactly_on_both_paths() -> None:
    """A decimal of more digits, or more places, is not rounded."""
    monoid = Max(pa.decimal128(5, 2))
    for value in (Decimal("1000.00"), Decimal("0.001")):
        with pytest.raises(ValueError, match="cannot hold"):
            monoid.lift(value)
        with pytest.raises(ValueError, match="cannot hold"):
            monoid.lift_columns(pa.array([value]))


def test_a_column_of_decimals_that_overflow_is_refused() -> None:
    """Arrow does not notice every overflow: a maximum of -10^30 was -18960114910927365649.47."""
    column = pa.array([-(Decimal(10) ** 30)], pa.decimal128(38, 0))
    with pytest.raises(ValueError, match="cannot hold a value of a column of decimal128"):
        Max(pa.decimal128(38, 18)).lift_columns(column)
