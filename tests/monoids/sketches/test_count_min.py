"""CountMin never counts too few, and seldom too many."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import encoding
from monoids.column import concat
from monoids.monoid import check
from monoids.sketches.count_min import CountMin

RANDOM_SEED = 20050405


def total_of(sketch: CountMin, values: Any) -> dict[int, int]:
    columns = sketch.lift_columns(values)
    return sketch.unpack(sketch.reduce_sorted(columns, np.zeros(1, np.int64)))[0]


def binomial_tail(trials: int, probability: float, observed: int) -> float:
    """The probability of ``observed`` or more of ``trials``."""
    return sum(
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(observed, trials + 1)
    )


def test_counts_are_never_too_low_and_exact_without_collisions() -> None:
    """Lost: the one certain promise of the sketch."""
    values = np.random.default_rng(RANDOM_SEED).zipf(1.5, 2_000).clip(0, 500)
    true = Counter(values.tolist())
    narrow, wide = CountMin(width=40, depth=3), CountMin(width=200_003, depth=4)
    assert all(narrow.estimate(total_of(narrow, values), value) >= count for value, count in true.items())
    assert {value: wide.estimate(total_of(wide, values), value) for value in true} == true
    assert wide.present(total_of(wide, values)) == 2_000
    assert wide.estimate(total_of(wide, values), 501) == 0
    both = narrow.pack([total_of(narrow, values), narrow.identity])
    assert narrow.present_columns(both).to_pylist() == [2_000, 0]
    assert wide.estimate(wide.identity, 1) == wide.present(wide.identity) == 0


def test_error_is_within_the_bound_in_a_thousand_trials() -> None:
    """Lost: the stated error; rows with one seed in common would exceed it three times as often as stated.

    A trial is a sketch of its own values, eleven of equal and great weight among them: any collision in both rows
    exceeds the bound, which is as near to its probability as a stream can come. The trials exceed it with
    probability exp(-2) each at most: p of what is observed, or more, is above 1e-6.
    """
    trials, heavy = 1_000, 11
    sketch = CountMin(width=30, depth=2)
    values = np.random.default_rng(RANDOM_SEED).integers(-(2**63), 2**63 - 1, (trials, heavy + 1))
    weights = np.tile([*[100] * heavy, 1], (trials, 1))
    columns = sketch.lift_rows({"value": values.ravel(), "weight": weights.ravel()}, values.size)
    (table,) = sketch.reduce_sorted(columns, np.arange(0, values.size, heavy + 1))
    estimates = sketch.estimate_columns(table, np.arange(trials), np.ascontiguousarray(values[:, -1]))
    assert estimates.min() >= 1
    exceeding = int((estimates > 1 + math.e / sketch.width * (100 * heavy + 1)).sum())
    assert binomial_tail(trials, math.exp(-sketch.depth), exceeding) > 1e-6
    assert exceeding > 20
    element = sketch.unpack((table[:1],))[0]
    assert CountMin(width=50, depth=2).bounds(CountMin(width=50, depth=2).lift((1, 1_000)), 1) == (945, 1_000)
    low, high = sketch.bounds(element, int(values[0, -1]))
    assert (low, high) == (max(0, estimates[0] - math.ceil(math.e * 1101 / 30)), estimates[0])


@pytest.mark.parametrize(
    ("type", "values", "others"),
    [
        (int, [1, -1, 2**63 - 1, -(2**63), True], [2]),
        (str, ["", "a", "\ud800", "é" * 40], ["b"]),
        (bytes, [b"", b"a" * 33], [b"b"]),
        (float, [0.0, math.nan, 1e300, math.inf], [1.5]),
        (bool, [True, True], [False]),
        (date, [date(1969, 1, 1), date(2020, 1, 1)], [date(2021, 1, 1)]),
        (datetime, [datetime(2020, 1, 1)], [datetime(2020, 1, 2)]),
        (pa.decimal128(20, 2), [Decimal("1.20"), Decimal("-3")], [Decimal("1.21")]),
    ],
)
def test_every_type_of_value(type: Any, values: list[Any], others: list[Any]) -> None:
    """Lost: a type whose columns are counted in other cells than its values are asked for."""
    sketch = CountMin(type, width=10_007, depth=4)
    total = total_of(sketch, [*values, None])
    assert total == sketch.fold([sketch.lift(value) for value in values])
    assert all(sketch.estimate(total, value) == values.count(value) or value != value for value in values)
    assert [sketch.estimate(total, other) for other in others] == [0] * len(others)
    assert sketch.estimate(total, values[0]) > 0
    (table,) = sketch.lift_columns(values)
    column, _ = sketch.values.store(values)
    assert sketch.estimate_columns(table, np.arange(len(values)), column).tolist() == [1] * len(values)
    absent, _ = sketch.values.store(others * len(values))
    assert sketch.estimate_columns(table, np.arange(len(values)), absent).tolist() == [0] * len(values)


def test_zeros_and_nans_are_one_value_each() -> None:
    """Lost: counts of -0.0 apart from 0.0, and of NaN by its bits."""
    sketch = CountMin(float, width=1_009, depth=3)
    assert sketch.lift(-0.0) == sketch.lift(0.0)
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert sketch.estimate(total_of(sketch, nans), math.nan) == 2


def test_weights_are_added_and_taken_back() -> None:
    """Lost: weighted updates, by rows or by columns, and the group."""
    sketch = CountMin(str, width=1_009, depth=3)
    pairs = [("a", 5), {"value": "b", "weight": -2}, None, ("c", None), (None, 7), "a", ("d", 0)]
    scalar = sketch.fold([sketch.lift(pair) for pair in pairs])
    assert total_of(sketch, pairs) == scalar
    columns = {"value": pa.array(["a", "b", "c", None, "a", "d"]), "weight": pa.array([5, -2, None, 7, 1, 0])}
    lifted = sketch.lift_rows(columns, 6)
    assert sketch.unpack(sketch.reduce_sorted(lifted, np.zeros(1, np.int64))) == [scalar]
    struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    assert total_of(sketch, struct) == scalar
    assert (sketch.estimate(scalar, "a"), sketch.present(scalar)) == (6, 4)
    assert sketch.combine(scalar, sketch.inverse(scalar)) == {}
    assert sketch.unpack(sketch.lift_rows(("a", np.array([1, 2])), 2)) == [sketch.lift("a"), sketch.lift(("a", 2))]


def test_there_are_no_bounds_of_counts_below_zero() -> None:
    """Lost: an upper bound below the lower one, or a count that is said to be never above what it is above."""
    sketch = CountMin(str, width=10, depth=3)
    taken = sketch.combine(sketch.lift(("a", -5)), sketch.lift(("b", 3)))
    with pytest.raises(ValueError, match=r"sum to less than 0.*a sketch of their own"):
        sketch.bounds(taken, "a")
    given_back = sketch.combine(taken, sketch.lift(("a", 5)))
    assert sketch.bounds(given_back, "b") == (2, 3)
    assert sketch.bounds(sketch.identity, "b") == (0, 0)


def test_an_overflow_names_the_sketch() -> None:
    """Lost: whose counts are too large, with advice for another monoid."""
    sketch = CountMin(str, width=10, depth=3)
    half = sketch.lift(("a", 2**62))
    fault = r"^CountMin\(str, width=10, depth=3\): a count is outside 64-bit integers; use smaller weights"
    with pytest.raises(OverflowError, match=fault):
        sketch.combine(half, half)
    with pytest.raises(OverflowError, match=fault):
        sketch.reduce_sorted(sketch.pack([half, half]), np.array([0]))
    apart = {0: 2**62, 1: 2**62, 10: 2**62, 11: 2**62, 20: 2**62, 21: 2**62}
    with pytest.raises(OverflowError, match=fault):
        sketch.present(apart)
    with pytest.raises(OverflowError, match=fault):
        sketch.present_columns(sketch.pack([apart]))


def test_counts_never_wrap() -> None:
    """Lost: a count beyond int64 that turns negative without a word."""
    sketch = CountMin(width=3, depth=1)
    most = sketch.lift((1, 2**63 - 1))
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.combine(most, sketch.lift(1))
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.reduce_sorted(concat([sketch.pack([most]), sketch.lift_columns([1])]), np.zeros(1, np.int64))
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.inverse({0: -(2**63)})
    over = {0: 2**63 - 1, 1: 1}
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.present(over)
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.present_columns(sketch.pack([over]))


def test_size_follows_from_error_and_confidence() -> None:
    """Lost: a sketch that is smaller than its bound needs."""
    assert (CountMin(error="0.01", confidence="0.95").width, CountMin(confidence="0.95").depth) == (272, 3)
    assert repr(CountMin()) == "CountMin(int, width=2719, depth=5)"
    assert repr(CountMin(str, width=7, depth=2, seed=3)) == "CountMin(str, width=7, depth=2, seed=3)"
    for error in ("0.9", "0.3", "0.00001"):
        width = CountMin(error=error, depth=1).width
        assert width >= 3
        assert math.e / width <= float(error) < math.e / (width - 1)
    for confidence in ("0.5", "0.999"):
        depth = CountMin(width=3, confidence=confidence).depth
        assert math.exp(-depth) <= 1 - float(confidence) < math.exp(1 - depth)
    check(CountMin())


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        ({"error": 0.01}, TypeError, "write error='0.01'"),
        ({"error": "no"}, ValueError, "write error='0.01'"),
        ({"error": "0"}, ValueError, "between 0 and 0.91"),
        ({"error": "nan"}, ValueError, "between 0 and"),
        ({"confidence": "1"}, ValueError, "between 0 and 1"),
        ({"error": "0.1", "width": 5}, TypeError, "write one of each pair"),
        ({"confidence": "0.9", "depth": 5}, TypeError, "write one of each pair"),
        ({"width": 2}, ValueError, "from 3 to"),
        ({"width": True}, TypeError, "write an integer, width=1000"),
        ({"depth": 256}, ValueError, "from 1 to 255"),
        ({"depth": 0}, ValueError, "from 1 to 255"),
        ({"seed": -1}, ValueError, "from 0 to"),
        ({"width": 2**29, "depth": 2}, ValueError, "larger error"),
        ({"type": dict}, TypeError, "write one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], remedy: str) -> None:
    """Lost: what to write instead."""
    with pytest.raises(error, match=remedy):
        CountMin(**arguments)


def test_values_of_another_type_are_refused() -> None:
    """Lost: an estimate of 0 for a number asked of a sketch of strings."""
    with pytest.raises(TypeError, match=r"write CountMin\(int\)"):
        CountMin(str, width=3, depth=1).lift(5)
    with pytest.raises(TypeError, match=r"write CountMin\(int\)"):
        CountMin(str, width=3, depth=1).estimate({}, 5)
    with pytest.raises(TypeError, match="weight"):
        CountMin(width=3, depth=1).lift((5, 1.5))


@pytest.mark.parametrize(
    "element",
    [
        {6: 1, 0: 1},
        {-1: 1, 3: 1},
        {0: 0, 3: 0},
        {0: 2**63, 3: 2**63},
        {0: 1},
        {0: 2, 3: 1},
        {"0": 1},
        {0: 1.0, 3: 1.0},
        5,
    ],
)
def test_bytes_of_no_sketch_are_refused(element: Any) -> None:
    """Lost: state of another width, or damaged, that counts on."""
    with pytest.raises(ValueError, match="CountMin"):
        CountMin(width=3, depth=2).decode(encoding.encode((3, 2, 9001, element)))


@pytest.mark.parametrize("data", [5, (), (3, 2, {}), (3, 2, True, {}), (3, 2, 9001, 1, {})])
def test_bytes_of_something_else_are_refused(data: Any) -> None:
    """Lost: an element of another monoid that counts on."""
    with pytest.raises(ValueError, match="CountMin"):
        CountMin(width=3, depth=2).decode(encoding.encode(data))


def test_sketches_of_another_size_are_refused() -> None:
    """Lost: how to read them."""
    for sketch in (CountMin(width=4, depth=2), CountMin(width=3, depth=3), CountMin(width=3, depth=2, seed=1)):
        remedy = f"read it with CountMin\\(width={sketch.width}, depth={sketch.depth}, seed={sketch.seed}\\)"
        with pytest.raises(ValueError, match=remedy):
            CountMin(width=3, depth=2).decode(sketch.encode(sketch.lift(1)))


@pytest.mark.parametrize(
    "entries",
    [[(6, 1), (7, 1)], [(0, 0)], [(0, 1)], [(0, 2), (3, 1)], [(3, 1), (0, 1)], [(0, 1), (0, 1), (3, 2)]],
)
def test_columns_of_no_sketch_are_refused(entries: list[tuple[int, int]]) -> None:
    """Lost: a file of another width, or damaged, that counts on."""
    sketch = CountMin(width=3, depth=2)
    rows = [[], [{"key": key, "value": value} for key, value in entries]]
    with pytest.raises(ValueError, match="CountMin"):
        sketch.from_arrow([pa.array(rows, sketch.schema.field(0).type)])


def test_a_type_is_written_as_a_user_writes_it() -> None:
    """Lost: one's own line, in an error or a log, that can be run."""
    assert repr(CountMin(pa.decimal128(5, 2), width=10, depth=3)) == "CountMin(pa.decimal128(5, 2), width=10, depth=3)"
    assert repr(CountMin(pa.timestamp("ms"), width=10, depth=3)) == "CountMin(pa.timestamp('ms'), width=10, depth=3)"
    aware = CountMin(pa.timestamp("s", "UTC"), width=10, depth=3)
    assert repr(aware) == "CountMin(pa.timestamp('s', 'UTC'), width=10, depth=3)"
    assert repr(eval(repr(aware), {"CountMin": CountMin, "pa": pa})) == repr(aware)


def test_fingerprints_differ() -> None:
    """Lost: a checkpoint of one sketch read as another."""
    sketches = [
        CountMin(width=3, depth=2),
        CountMin(width=4, depth=2),
        CountMin(width=3, depth=3),
        CountMin(width=3, depth=2, seed=1),
        CountMin(str, width=3, depth=2),
    ]
    assert len({str(sketch.fingerprint()) for sketch in sketches}) == len(sketches)
