"""Instances of every public monoid, each with a strategy that draws inputs of its ``lift``.

One for each public name of ``monoids``, and for each type or parameter with a code path of its own. The inputs
include None, and for floats NaN, infinities and -0.0.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from monoids import (
    All,
    Bag,
    BitAnd,
    BitOr,
    BitXor,
    BloomFilter,
    BottomK,
    Correlation,
    Count,
    CountIf,
    CountMin,
    Covariance,
    Decayed,
    ExactSum,
    ExponentialHistogram,
    First,
    HeavyHitters,
    Histogram,
    HyperLogLog,
    Last,
    ListConcat,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Moments,
    Product,
    Quantiles,
    Ranges,
    Reservoir,
    SetIntersection,
    SetUnion,
    Sum,
    Theta,
    TopK,
    contramap,
    dual,
    exact_until,
    mapping,
    option,
    record,
)
from monoids import Any as AnyTrue
from monoids.containers.intervals import Sessions
from monoids.monoid import Group, Monoid
from monoids.numbers.integers import EntrySum

INTEGERS = st.none() | st.integers(-(10**6), 10**6) | st.booleans()
FLOATS = st.none() | st.floats()
TEXTS = st.none() | st.text(max_size=4)
KEYS = st.text(max_size=3) | st.integers(0, 3) | st.booleans() | st.floats()
INT64 = st.none() | st.integers(-(2**63), 2**63 - 1)
UNBOUNDED = INT64 | st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([2**63, -(2**63) - 1, 2**95])
FACTORS = st.none() | st.floats(0.1, 10) | st.floats(-10, -0.1) | st.sampled_from([0.0, -0.0, math.inf, math.nan])
NUMBERS = st.none() | st.floats(-1e9, 1e9) | st.integers(-9, 9) | st.sampled_from([5e-324, 1e308, math.inf, math.nan])
XY = st.none() | st.tuples(NUMBERS, NUMBERS) | st.fixed_dictionaries({"x": NUMBERS, "y": NUMBERS})
LATELY = st.none() | st.fixed_dictionaries({"timestamp": st.none() | st.integers(0, 10**6), "value": NUMBERS})
BOOLS = st.none() | st.booleans()
SMALL = st.none() | st.integers(0, 5)
_OF_A_KEY = {"n": SMALL, "s": SMALL, "m": st.dictionaries(st.integers(0, 2), TEXTS, max_size=2)}
_NESTED = record(c=Max(str), d=mapping(Count()))
_TEXTS = TEXTS | st.sampled_from(["\ud800", "\uffff", "\U0001f600"])
_DECIMALS = st.none() | st.decimals(-5, 5, places=3)
_AT_64_BITS = st.dictionaries(TEXTS.filter(bool), st.fixed_dictionaries({"n": INT64}), max_size=2)
_AT_38_DIGITS = st.none() | st.sampled_from([Decimal(text) for text in ("9" * 38, "-" + "9" * 38, "1", "-1", "0")])
_POWERS = st.none() | st.sampled_from([0, 1, -1, 2, 2**31, -(2**32), 2**62, -(2**62), 2**63 - 1, -(2**63)])
_ORDERS = st.tuples(SMALL, st.sampled_from(["", "p", "p0"]), st.tuples(SMALL, st.integers(0, 2)))
_NAMED_ORDERS = st.fixed_dictionaries(
    {
        "timestamp": SMALL,
        "partition": st.sampled_from(["", "p", "p0"]),
        "position": st.none() | st.fixed_dictionaries({"ordinal": SMALL, "offset": st.integers(0, 2)}),
    }
)
_IDS = SMALL | st.text("ab", max_size=2) | st.booleans() | FLOATS | st.dates() | st.datetimes() | _DECIMALS | _ORDERS


def _pairs(by: Any, values: Any, name: str = "by") -> st.SearchStrategy[Any]:
    """None, tuples and mappings; ``by`` and values have few choices, so ties are frequent."""
    return st.none() | st.tuples(by, values) | st.fixed_dictionaries({name: by, "value": values})


_HASHED = KEYS | st.none() | st.binary(max_size=2) | _DECIMALS | st.dates() | st.datetimes() | _TEXTS


def _weighted(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values | st.fixed_dictionaries({"value": values, "weight": st.none() | st.integers(-5, 5)})


def _timed(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Times so near that sessions touch, overlap and are joined by a third."""
    times = st.none() | st.integers(-9, 30) | st.sampled_from([2**62 - 1, 1 - 2**62])
    return st.none() | st.tuples(times, values) | st.fixed_dictionaries({"timestamp": times, "value": values})


def _occurrences(ids: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    ids = st.none() | ids
    return st.none() | st.tuples(ids, values) | st.fixed_dictionaries({"id": ids, "value": values})


class Reflections(Group[tuple[int, int]]):
    """The maps ``x -> sign * x + shift`` of the integers, composed: a group that does not commute."""

    identity = (1, 0)

    def lift(self, value: int | None) -> tuple[int, int]:
        return self.identity if value is None else (1 - 2 * (value % 2), value)

    def combine(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return (a[0] * b[0], a[0] * b[1] + a[1])

    def inverse(self, a: tuple[int, int]) -> tuple[int, int]:
        return (a[0], -a[0] * a[1])


INSTANCES: tuple[tuple[Monoid[Any], st.SearchStrategy[Any]], ...] = (
    (Sum(), INTEGERS),
    (EntrySum(Bag(int)), INTEGERS),
    (Sum(), INT64),
    (Sum(float), FLOATS),
    (Sum(int, unbounded=True), UNBOUNDED),
    (Sum(pa.decimal128(20, 3)), st.none() | st.decimals(-(10**6), 10**6, places=3) | st.integers(-9, 9)),
    (Sum(pa.decimal128(38, 0)), _AT_38_DIGITS),
    (ExactSum(), FLOATS | st.integers(-9, 9)),
    (Product(), st.none() | st.integers(-3, 3)),
    (Product(), _POWERS),
    (Product(float), FACTORS),
    (BitAnd(), INT64),
    (BitOr(), INT64),
    (BitXor(), INT64),
    (CountIf(), BOOLS),
    (AnyTrue(), BOOLS),
    (All(), BOOLS),
    (Moments(), NUMBERS),
    (Covariance(), XY),
    (Correlation(), XY),
    (Decayed("1 min"), LATELY),
    (Count(), FLOATS | st.text(max_size=2)),
    (Min(), INTEGERS),
    (Min(float), FLOATS),
    (Min(bytes), st.none() | st.binary(max_size=3)),
    (Min(date), st.none() | st.dates()),
    (Max(float), FLOATS),
    (Max(bool), st.none() | st.booleans()),
    (Max(str), TEXTS | st.sampled_from(["\ud800", "\uffff", "\U0001f600"])),
    (Max(datetime), st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC))),
    (Max(pa.decimal128(20, 3)), st.none() | st.decimals(-(10**6), 10**6, places=3)),
    (Max(pa.decimal256(50, 3)), _DECIMALS),
    (Min(str), _TEXTS | st.text("ab\0", min_size=6, max_size=18)),
    (MinBy(str, by=float), _pairs(FLOATS, _TEXTS)),
    (MaxBy(by=str), _pairs(_TEXTS, SMALL)),
    (MaxBy(float, by=int), st.fixed_dictionaries({"by": SMALL, "value": FLOATS})),
    (MinBy(date, by=(bytes, bool)), _pairs(st.tuples(st.binary(max_size=12), st.booleans()), st.dates())),
    (MaxBy(pa.decimal128(20, 3), by=int), st.fixed_dictionaries({"by": SMALL, "value": _DECIMALS})),
    (First(int), st.fixed_dictionaries({"order": st.none() | _NAMED_ORDERS, "value": SMALL})),
    (Last(str), _pairs(_ORDERS, _TEXTS, "order")),
    (Last(bool, order=datetime), _pairs(st.none() | st.datetimes(), st.none() | st.booleans(), "order")),
    (TopK(3), SMALL),
    (TopK(2, float), FLOATS),
    (TopK(2, str, by=float), _pairs(FLOATS | st.just(1.0), _TEXTS)),
    (BottomK(3, str), _TEXTS),
    (BottomK(1, pa.decimal128(20, 3), by=str), _pairs(_TEXTS, _DECIMALS)),
    (Reservoir(2), _pairs(SMALL, SMALL, "id")),
    (Reservoir(3, str, seed=5), _pairs(_IDS, _TEXTS, "id")),
    (Reservoir(1, date), _pairs(_ORDERS, st.none() | st.dates(), "id")),
    (Mean(), FLOATS),
    (SetUnion(int), st.none() | st.integers(0, 20)),
    (SetUnion(float), FLOATS),
    (SetUnion(str), TEXTS),
    (mapping(Sum()), st.none() | st.dictionaries(KEYS, INTEGERS, max_size=3)),
    (mapping(Sum(float)), st.none() | st.dictionaries(KEYS, FLOATS, max_size=3)),
    (mapping(SetUnion(str)), st.dictionaries(st.tuples(KEYS, st.none()), TEXTS, max_size=2)),
    (mapping(record(n=Sum(), m=Max()), key=str), _AT_64_BITS),
    (record(a=Count(), b=Sum()), st.none() | st.fixed_dictionaries({}, optional={"a": TEXTS, "b": INTEGERS})),
    (Ranges(), st.none() | st.integers(0, 12)),
    (Ranges(), INT64),
    (SetIntersection(int), st.none() | st.lists(st.none() | st.integers(0, 4), max_size=4)),
    (SetIntersection(float), st.none() | st.frozensets(FLOATS | st.sampled_from([0.0, 1.0]), max_size=3)),
    (SetIntersection(str), st.none() | st.frozensets(st.sampled_from(["", "a", "b", "\ud800"]), max_size=3)),
    (Bag(int), st.none() | st.integers(0, 9)),
    (Bag(float), FLOATS),
    (Bag(str), TEXTS | st.sampled_from(["a", "\ud800"])),
    (ListConcat(int), INTEGERS),
    (ListConcat(str), TEXTS),
    (dual(ListConcat(float)), FLOATS),
    (dual(Reflections()), st.none() | st.integers(-9, 9)),
    (mapping(Reflections()), st.none() | st.dictionaries(st.integers(0, 2), st.integers(-9, 9), max_size=3)),
    (Histogram([0, 10, 100]), FLOATS | st.integers(-10, 200)),
    (ExponentialHistogram(3), FLOATS),
    (ExponentialHistogram(-2), FLOATS),
    (mapping(Count(), key=str), st.none() | st.dictionaries(st.text(max_size=2), TEXTS, max_size=3)),
    (mapping(ListConcat(int)), st.none() | st.dictionaries(KEYS, INTEGERS, max_size=3)),
    (mapping(Bag(int), key=date), st.dictionaries(st.dates(), SMALL, max_size=2)),
    (
        mapping(record(n=Count(), s=SetUnion(int), m=mapping(Max(str), key=int)), key=float),
        st.none() | st.dictionaries(st.floats(), st.fixed_dictionaries({}, optional=_OF_A_KEY), max_size=2),
    ),
    (
        record(a=SetUnion(str), b=mapping(Sum()), c=SetIntersection(int)),
        st.fixed_dictionaries({"a": TEXTS}, optional={"b": st.dictionaries(KEYS, SMALL), "c": st.lists(SMALL)}),
    ),
    (Sessions(3, Sum()), _timed(INTEGERS)),
    (Sessions(1, Max(str)), _timed(_TEXTS)),
    (Sessions(5, mapping(Sum(float))), _timed(st.dictionaries(st.integers(0, 2), FLOATS, max_size=2))),
    (Sessions(4, record(a=SetUnion(str), b=Sum(int, unbounded=True))), _timed(st.fixed_dictionaries({"b": UNBOUNDED}))),
    (HyperLogLog(4), _HASHED),
    (HyperLogLog(12), _HASHED),
    (Theta(2), _HASHED),
    (Theta(16), _HASHED),
    (BloomFilter(4, 0.3), _HASHED),
    (BloomFilter(1_000, 0.001), _HASHED),
    (CountMin(int, width=3, depth=2), SMALL | INT64),
    (CountMin(float, width=3, depth=1), FLOATS),
    (CountMin(str, width=5, depth=3), _weighted(st.none() | st.text(max_size=18) | st.just("\ud800"))),
    (CountMin(date, width=3, depth=2, seed=1), _weighted(st.dates())),
    (Quantiles("0.3", quantiles=("0", "0.5", "1")), FLOATS | SMALL),
    (Quantiles(), FLOATS),
    (HeavyHitters(2, int, track=3, width=3, depth=2), _occurrences(st.integers(0, 9), SMALL)),
    (HeavyHitters(3, float, track=3, width=3, depth=2), _occurrences(st.text(max_size=2), FLOATS)),
    (HeavyHitters(1, str, track=2, width=5, depth=1), _occurrences(st.tuples(SMALL, st.text(max_size=2)), TEXTS)),
    (exact_until(2, HyperLogLog(4)), _HASHED),
    (exact_until(0, BloomFilter(4, 0.3)), _HASHED),
    (exact_until(4, Theta(16)), SMALL | INT64),
    (option(Max(str)), TEXTS),
    (option(Sum()), INTEGERS),
    (
        option(record(a=Sum(float), b=dual(ListConcat(int)))),
        st.none() | st.fixed_dictionaries({"a": FLOATS, "b": SMALL}),
    ),
    (contramap(len, Sum(), columns=pc.utf8_length), TEXTS),
    (contramap(abs, option(Max()), str), INTEGERS),
    (
        record(a=Mean(), b=_NESTED, e=SetUnion(int), f=Min(float)),
        st.fixed_dictionaries(
            {"f": FLOATS},
            optional={
                "a": FLOATS,
                "b": st.none()
                | st.fixed_dictionaries({}, optional={"c": TEXTS, "d": st.dictionaries(KEYS, INTEGERS, max_size=2)}),
                "e": st.none() | st.integers(0, 9),
            },
        ),
    ),
)

LAWFUL = INSTANCES
"""``pytest --monoid-laws=monoids`` looks for this name."""
