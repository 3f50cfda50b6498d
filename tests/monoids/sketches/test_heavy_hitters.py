"""HeavyHitters misses a frequent value as seldom as stated, whatever the order of merges."""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import encoding
from monoids.monoid import check
from monoids.sketches.heavy_hitters import HeavyHitters

SMALL = HeavyHitters(3, int, track=3, width=50, depth=3)


def total_of(sketch: HeavyHitters, values: Any, length: int) -> Any:
    columns = sketch.lift_rows(values, length)
    return sketch.unpack(sketch.reduce_sorted(columns, np.zeros(1, np.int64)))[0]


def test_frequent_values_come_first_with_their_counts() -> None:
    """Lost: what the sketch is for."""
    random = np.random.default_rng(1)
    values = np.concatenate([np.repeat([7, 8, 9], [500, 300, 100]), random.integers(1_000, 10**9, 1_100)])
    random.shuffle(values)
    sketch = HeavyHitters(200, int, width=10_007, depth=4)
    total = total_of(sketch, (np.arange(2_000), values), 2_000)
    shown = sketch.present(total)
    assert sketch.present_columns(sketch.pack([total, sketch.identity])).to_pylist() == [shown, []]
    assert shown[:3] == [{"value": 7, "count": 500}, {"value": 8, "count": 300}, {"value": 9, "count": 100}]
    assert len(shown) == 200
    true = Counter(values.tolist())
    assert all(true[entry["value"]] <= entry["count"] for entry in shown)


def true_top(words: list[str], k: int) -> list[dict[str, Any]]:
    ordered = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    return [{"value": word, "count": count} for word, count in ordered[:k]]


def test_ten_of_a_real_text_are_the_true_ten() -> None:
    """Lost: the README's own line on real words: with ten tracked of 224 keys it held one of the true ten."""
    license = Path(__file__).parents[3].joinpath("LICENSE").read_text(encoding="utf-8")
    words = re.findall("[a-z]+", license.lower())
    assert len(set(words)) > 224
    sketch = HeavyHitters(10, str)
    assert sketch.present(total_of(sketch, (np.arange(len(words)), pa.array(words)), len(words))) == true_top(words, 10)


@pytest.mark.parametrize(("keys", "rows"), [(224, 5_000), (50_000, 200_000)])
def test_ten_of_zipf_are_the_true_ten(keys: int, rows: int) -> None:
    """Lost: the bound that ``help`` states, where many more values come than are tracked."""
    shares = 1 / np.arange(1, keys + 1)
    for seed in range(5):
        values = np.random.default_rng(seed).choice(keys, rows, p=shares / shares.sum())
        sketch = HeavyHitters(10)
        total = total_of(sketch, (np.arange(rows), values), rows)
        shown = [entry["value"] for entry in sketch.present(total)]
        counts = np.bincount(values, minlength=keys)
        assert len(shown) == 10
        tenth = np.sort(counts)[-10]
        assert all(counts[value] >= tenth - 0.001 * rows for value in shown)
        assert all(value in shown for value in np.flatnonzero(counts > tenth + 0.001 * rows))
        assert len(total[1]) == min(len(np.flatnonzero(counts)), 1_000)


def test_shown_and_tracked_are_two_numbers() -> None:
    """Lost: the default that keeps the bound of ``help``; a state that depends on what is shown of it."""
    assert (HeavyHitters().k, HeavyHitters().track, HeavyHitters(50).track, HeavyHitters(2**20).track) == (
        10,
        1_000,
        5_000,
        2**20,
    )
    few, many = HeavyHitters(1, int, track=3), HeavyHitters(3, int, track=3)
    element = few.fold([few.lift(pair) for pair in enumerate([1, 2, 2, 3, 3, 3])])
    assert few.encode(element) == many.encode(element)
    assert few.present(element) == many.present(element)[:1] == [{"value": 3, "count": 3}]
    assert few.present_columns(few.pack([element, few.identity, element])).to_pylist() == [
        [{"value": 3, "count": 3}],
        [],
        [{"value": 3, "count": 3}],
    ]
    bound = 1 / (10 * HeavyHitters().k)
    assert (1 - bound) ** HeavyHitters().track < 1 / 20_000


def test_a_stored_k_is_how_many_were_tracked() -> None:
    """Lost: a checkpoint of an earlier version, in which one number said how many are tracked and shown."""
    earlier = {"k": 10, "type": "string", "width": 2719, "depth": 5, "seed": 9001}
    assert HeavyHitters(10, str, track=10).parameters() == earlier
    assert HeavyHitters(10, str).parameters() == {**earlier, "k": 1_000}


def test_few_values_are_all_there() -> None:
    """Lost: exactness as long as no more than k values came."""
    values = [1, 2, 2, 3, 3, 3]
    sketch = HeavyHitters(3, int, width=10_007, depth=4)
    element = sketch.fold([sketch.lift((at, value)) for at, value in enumerate(values)])
    assert sketch.present(element) == [{"value": value, "count": value} for value in (3, 2, 1)]
    assert sketch.present(sketch.identity) == []
    assert [sketch.estimate(element, value) for value in (1, 3, 4)] == [1, 3, 0]


def test_equal_counts_are_in_the_order_of_the_values() -> None:
    """Lost: one order of the same output on every run."""
    sketch = HeavyHitters(9, str, width=10_007, depth=4)
    columns = sketch.lift_rows(([1, 2, 3, 4], pa.array(["b", "a", "d", "c"])), 4)
    reduced = sketch.reduce_sorted(columns, np.zeros(1, np.int64))
    expected = [{"value": value, "count": 1} for value in "abcd"]
    assert sketch.present(sketch.unpack(reduced)[0]) == expected
    assert sketch.present_columns(reduced).to_pylist() == [expected]


def test_misses_are_as_seldom_as_stated_in_a_thousand_trials() -> None:
    """Lost: the stated probability; a candidate by the hash of its value alone would be missed 0.9 of the time.

    A trial has a value of a share f = 1/20 among 200 occurrences, all others come once, and k = 20. A miss has a
    probability of (1 - f)**k = 0.358 at most: p of as many as are observed, or more, is above 1e-6; and of as few, for
    the bound is nearly reached.
    """
    trials, rows, often, k = 1_000, 200, 10, 20
    sketch = HeavyHitters(k, int, track=k, width=64, depth=2)
    values = np.random.default_rng(3).integers(10, 2**62, (trials, rows))
    values[:, :often] = 5
    columns = sketch.lift_rows((np.arange(trials * rows), values.ravel()), trials * rows)
    shown = sketch.present_columns(sketch.reduce_sorted(columns, np.arange(0, trials * rows, rows)))
    assert set(np.diff(shown.offsets.to_numpy()).tolist()) == {k}
    candidates = shown.flatten().field("value").to_numpy().reshape(trials, k)
    missed = trials - int((candidates == 5).any(axis=1).sum())
    bound = (1 - often / rows) ** k
    tail = sum(math.comb(trials, i) * bound**i * (1 - bound) ** (trials - i) for i in range(missed, trials + 1))
    assert tail > 1e-6
    assert missed > 0.7 * bound * trials


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_candidates_are_those_of_all_occurrences_at_once(occurrences: list[Any], i: int, j: int) -> None:
    """Lost: the proof; a candidate that depends on where a part was cut off."""
    least: dict[int, int] = {}
    for occurrence in occurrences:
        ((value, priority),) = SMALL.lift(occurrence)[1].items()
        least[value] = min(priority, least.get(value, 2**64))
    kept = sorted(least, key=lambda value: (least[value], value))[:3]
    parts = [occurrences[: min(i, j)], occurrences[min(i, j) : max(i, j)], occurrences[max(i, j) :]]
    a, b, c = (SMALL.fold([SMALL.identity, *map(SMALL.lift, part)]) for part in parts)
    for total in (SMALL.combine(a, SMALL.combine(b, c)), SMALL.combine(SMALL.combine(c, a), b)):
        assert total[1] == {value: least[value] for value in kept}
    if occurrences:
        ids, values = zip(*occurrences)
        assert total_of(SMALL, (list(ids), np.array(values)), len(ids)) == total


def test_ids_of_several_parts_are_the_same_by_rows_and_by_columns() -> None:
    """Lost: a sample that is another one where the same messages come as batches."""
    orders = [(at * 1_000, "p", (0, at)) for at in range(20)]
    values = ["a", "b", None, "c"] * 5
    sketch = HeavyHitters(2, str, track=2, width=50, depth=3)
    scalar = sketch.fold([sketch.lift(occurrence) for occurrence in zip(orders, values)])
    assert total_of(sketch, (orders, pa.array(values)), 20) == scalar
    struct = pa.array(
        [{"id": {"t": t, "p": p, "at": {"o": o, "n": n}}, "value": v} for (t, p, (o, n)), v in zip(orders, values)]
    )
    assert total_of(sketch, struct, 20) == scalar
    assert total_of(sketch, {"id": orders, "value": pa.array(values)}, 20) == scalar
    assert sketch.unpack(sketch.lift_rows((orders[0], "a"), 2)) == [sketch.lift((orders[0], "a"))] * 2
    nothing = [None, (None, "a"), ((1, None), "a"), (1, None)]
    assert [sketch.lift(pair) for pair in nothing] == sketch.unpack(sketch.lift_columns(nothing)) == [({}, {})] * 4


def test_types_of_values() -> None:
    """Lost: values of a type that only one of both paths can sort, hash or show."""
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    for type, values in (
        (float, [math.nan, -0.0, 0.0]),
        (datetime, [moment] * 2),
        (str, ["\ud800", "é"]),
        (bool, [True]),
    ):
        sketch = HeavyHitters(5, type, width=50, depth=3)
        scalar = sketch.fold([sketch.lift(pair) for pair in enumerate(values)])
        columns = sketch.lift_columns(list(enumerate(values)))
        assert encoding.encode(
            sketch.unpack(sketch.reduce_sorted(columns, np.zeros(1, np.int64)))[0]
        ) == encoding.encode(scalar)
        assert sketch.encode(sketch.decode(sketch.encode(scalar))) == sketch.encode(scalar)
        assert len(sketch.present(scalar)) == len(
            set(map(repr, (type(value) + 0.0 if type is float else value for value in values)))
        )


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        ((0,), ValueError, "integer from 1"),
        ((True,), TypeError, "write an integer"),
        ((int,), TypeError, r"HeavyHitters\(int, ...\): k comes first"),
        ((pa.timestamp("ms"),), TypeError, r"HeavyHitters\(pa.timestamp\('ms'\), ...\): k comes first"),
        ((5, dict), TypeError, "write one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], error: type[Exception], remedy: str) -> None:
    """Lost: what to write instead."""
    with pytest.raises(ValueError, match=r"cannot show 10 values and track 5: .* omit track=, which tracks 1,000"):
        HeavyHitters(10, track=5)
    with pytest.raises(TypeError, match=r"track='5'"):
        HeavyHitters(10, track="5")  # type: ignore[arg-type]
    with pytest.raises(error, match=remedy):
        HeavyHitters(*arguments)
    with pytest.raises(TypeError, match="a pair is a tuple"):
        SMALL.lift(5)
    with pytest.raises(TypeError, match="takes integers"):
        SMALL.lift((1, "a"))
    with pytest.raises(ValueError, match="2 values for 3 rows"):
        SMALL.lift_rows((np.arange(3), np.arange(2)), 3)


def test_it_is_named_as_it_is_written() -> None:
    """Lost: one's own line in an error message, and a checkpoint of another k refused."""
    assert repr(HeavyHitters(5, str, track=9, width=7, depth=2)) == "HeavyHitters(5, str, track=9, width=7, depth=2)"
    assert HeavyHitters(5, track=9).fingerprint() != HeavyHitters(5, track=10).fingerprint()
    assert HeavyHitters(5, track=9).fingerprint() == HeavyHitters(6, track=9).fingerprint()
    check(HeavyHitters())


ONE = SMALL.lift((1, 7))
CELLS = SMALL.counts.encode(ONE[0])


@pytest.mark.parametrize(
    "element",
    [
        5,
        (3, CELLS),
        (3, CELLS, 5),
        (4, CELLS, encoding.encode({7: 5})),
        (3, CELLS, encoding.encode({})),
        (3, SMALL.counts.encode({}), encoding.encode({7: 5})),
        (3, CELLS, encoding.encode({8: 5})),
        (3, CELLS, encoding.encode({"a": 5})),
        (3, CELLS, encoding.encode({True: 5})),
        (3, CELLS, encoding.encode({7: 2**64 - 1})),
        (3, CELLS, encoding.encode({7: -1})),
        (3, CELLS, encoding.encode(dict.fromkeys(range(4), 5))),
    ],
)
def test_bytes_of_no_sketch_are_refused(element: Any) -> None:
    """Lost: state of another k or type, or damaged, that goes on."""
    with pytest.raises(ValueError, match=r"HeavyHitters|Candidates|candidate"):
        SMALL.decode(encoding.encode(element))


@pytest.mark.parametrize(
    "candidates", [[], [(8, 5)], [(7, 2**64 - 1)], [(value, 5) for value in range(4)], [(8, 5), (7, 5)]]
)
def test_columns_of_no_sketch_are_refused(candidates: list[tuple[int, int]]) -> None:
    """Lost: a file of another k, or damaged, that goes on."""
    cells, _ = SMALL.to_arrow(SMALL.pack([ONE]))
    rows = [[{"key": key, "priority": priority} for key, priority in candidates]]
    with pytest.raises(ValueError, match=r"HeavyHitters|Candidates|candidate"):
        SMALL.from_arrow([cells, pa.array(rows, SMALL.schema.field(1).type)])
