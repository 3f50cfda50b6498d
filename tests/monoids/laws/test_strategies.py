"""Inputs are found for a monoid, and are values of its type, odd ones among them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from monoids import (
    Count,
    FixedWidth,
    HyperLogLog,
    ListConcat,
    Max,
    Min,
    Monoid,
    Sum,
    TopK,
    dual,
    mapping,
    option,
    record,
)
from monoids.arrays import python_list
from monoids.containers.intervals import Sessions
from monoids.laws import assert_monoid_laws, inputs_for, values_of
from monoids.laws.examples import explore

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    *(pa.duration("s"), pa.duration("us"), pa.decimal128(5, 2), pa.decimal256(50, 7), pa.decimal128(4, -2)),
    pa.decimal128(38, -2),
    *(pa.list_(pa.int8()), pa.large_list(pa.string()), pa.list_(pa.int8(), 2), pa.map_(pa.string(), pa.int8())),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.float32()))]),
    pa.dictionary(pa.int8(), pa.string()),
]


def drawn(strategy: st.SearchStrategy[Any], examples: int = 100) -> list[Any]:
    values: list[Any] = []
    explore(strategy, values.append, examples)
    return values


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_values_of_a_type_fit_into_it(type: pa.DataType) -> None:
    """A strategy that draws what no column can hold tests a monoid on what never comes."""
    values = [None, *drawn(values_of(type))]
    array = pa.array(values, type)
    assert array.type == type
    if not pa.types.is_floating(type) and not pa.types.is_nested(type):
        assert [Decimal(x) if isinstance(x, Decimal) else x for x in python_list(array)] == values


@pytest.mark.parametrize("type", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64()], ids=str)
def test_integers_reach_their_borders(type: pa.DataType) -> None:
    """Overflow shows at the border only."""
    values = drawn(values_of(type))
    signed = pa.types.is_signed_integer(type)
    bits = type.bit_width
    assert {-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1} <= set(values)


def test_times_reach_their_borders() -> None:
    """In Tokyo the last hours of 9999 are the year 10000, which Python does not have."""
    kind = pa.timestamp("us", "Asia/Tokyo")
    assert {datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)} <= set(drawn(values_of(kind)))
    assert_monoid_laws(Max(kind), examples=10)


def test_floats_are_odd() -> None:
    """NaN, infinities, a negative zero and the least number each have broken some sum."""
    values = drawn(values_of(pa.float64()), 200)
    assert any(math.isnan(x) for x in values)
    assert {math.inf, -math.inf, 5e-324} <= set(values)
    assert any(x == 0 and math.copysign(1, x) < 0 for x in values)


def test_text_is_of_all_planes() -> None:
    """An order of UTF-16 and one of code points differ beyond the basic plane."""
    values = drawn(values_of(pa.string()), 200)
    assert "" in values
    assert any(ord(character) > 0xFFFF for text in values for character in text)


def test_unknown_type_is_refused() -> None:
    """A strategy of nothing passes every test."""
    with pytest.raises(TypeError, match="no strategy is known for the Arrow type"):
        values_of(pa.month_day_nano_interval())


class Longest(Monoid[Any]):
    identity = ""

    def combine(self, a: Any, b: Any) -> Any:
        return b if len(b) > len(a) else a


def test_underivable_inputs_are_refused_with_what_to_write() -> None:
    """The sentence is the documentation that is read."""
    with pytest.raises(TypeError) as caught:
        inputs_for(Longest())
    for hint in (
        "assert_monoid_laws(Longest(), strategies.text())",
        "combine(self, a: str, b: str)",
        "inputs_for.register(Longest, ",
    ):
        assert hint in str(caught.value)
    with pytest.raises(TypeError, match="takes a monoid, such as Sum"):
        inputs_for(3)


@pytest.mark.parametrize("inner", [Count(), Max(str), record(n=Count(), top=Max()), mapping(Sum())], ids=repr)
def test_the_laws_of_a_session_state_are_tested(inner: Monoid[Any]) -> None:
    """A state with sessions is one of its own gap, which no catalogue lists: its laws would be those of nobody."""
    gap = 300_000
    times = [
        given[0] for given in drawn(inputs_for(Sessions(gap, inner))) if given is not None and given[0] is not None
    ]
    ordered = sorted(times)
    apart = {later - time >= gap for time, later in pairwise(ordered)}
    assert apart == {True, False}
    assert_monoid_laws(Sessions(gap, inner), examples=10)


def test_registered_for_a_class_and_those_below_it() -> None:
    """A library registers its classes once."""

    class Registered(Longest):
        pass

    class Below(Registered):
        pass

    inputs_for.register(Registered, lambda monoid: st.just("x"))
    assert set(drawn(inputs_for(Below()))) == {"x"}
    assert_monoid_laws(record(a=Below(), b=Count()), examples=10)


def test_annotations_say_what_is_drawn() -> None:
    """A typed monoid has said it already."""

    class Bits(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            return a | b

    class Lengths(Monoid[int]):
        identity = 0

        def lift(self, value: str) -> int:
            return len(value)

        def combine(self, a: int, b: int) -> int:
            return a + b

    class Untyped(Lengths):
        def lift(self, value):  # type: ignore[no-untyped-def]
            return 1

    assert {type(x) for x in drawn(inputs_for(Bits()), 20)} == {int}
    assert {type(x) for x in drawn(inputs_for(Lengths()), 20)} == {str}
    with pytest.raises(
        TypeError, match=r"line \d+\) does not give the type of its inputs: annotate it, as in lift\(self, value: str\)"
    ):
        inputs_for(Untyped())


def test_declared_arrow_type_says_what_is_drawn() -> None:
    """A columnar monoid has declared it for its columns."""

    class Spans(FixedWidth):
        input_type = pa.int8()
        identity = (0,)

        def combine(self, a: Any, b: Any) -> Any:
            return a

    assert {-128, 127, None} <= set(drawn(inputs_for(Spans()), 200))


DERIVED = [
    Sum(),
    Min(float),
    Max(str),
    Max(pa.decimal128(9, 4)),
    HyperLogLog(11),
    TopK(7, str),
    option(Sum()),
    dual(ListConcat(str)),
    mapping(Max(str), key=int),
    mapping(option(TopK(2))),
    record(a=Sum(), b=record(c=mapping(Min(bool)))),
]


@pytest.mark.parametrize("monoid", DERIVED, ids=repr)
def test_inputs_of_built_in_monoids_are_derived_with_any_parameters(monoid: Monoid[Any]) -> None:
    """A job's own record of monoids is none of those in the table."""
    assert_monoid_laws(monoid, examples=15)
