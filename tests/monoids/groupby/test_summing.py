"""Sums of rows by (key, pane) are those of a dictionary, whichever way they are grouped and merged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max, Min, Monoid, SetUnion, Sum, record
from monoids.encoding import encode
from monoids.groupby import distinct, grouping, merging, neighbours, summing
from monoids.groupby.merging import merge_groups
from monoids.groupby.sorting import stable_order
from monoids.groupby.summing import GroupSums, group_by, take_once
from monoids.hashing import hash_keys, key_column

STEP = 10
STATS = record(count=Count(), sum=Sum(), min=Min(), max=Max())


class Listed(Monoid[tuple[int, ...]]):
    """Concatenation: rows in another order are another element."""

    identity = ()

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[int, ...]:
        return (value,)


TEXTS = ("", "a", "b", "é", "a\0", "12345678", "123456789", "123456780", "1234567890123456", "x" * 17, "x" * 16 + "y")
KEYS: dict[str, tuple[list[pa.DataType], st.SearchStrategy[tuple[Any, ...]]]] = {
    "none": ([], st.just(())),
    "dense": ([pa.int64()], st.tuples(st.integers(-3, 3))),
    "sparse": ([pa.int64()], st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**63 - 1]))),
    "nulls": ([pa.int64()], st.tuples(st.none() | st.integers(0, 2))),
    "short text": ([pa.string()], st.tuples(st.sampled_from(TEXTS[:-2]))),
    "words": ([pa.string()], st.tuples(st.sampled_from(["key-0001", "key-0002"]))),
    "text": ([pa.string()], st.tuples(st.sampled_from(TEXTS))),
    "text or null": ([pa.string()], st.tuples(st.none() | st.sampled_from(TEXTS))),
    "bytes": ([pa.binary()], st.tuples(st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9]))),
    "float": ([pa.float64()], st.tuples(st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]))),
    "decimal": ([pa.decimal128(5, 2)], st.tuples(st.sampled_from([Decimal("0.00"), Decimal("1.10")]))),
    "composite": (
        [pa.string(), pa.int64(), pa.float64()],
        st.tuples(
            st.none() | st.sampled_from(["a", "é"]), st.none() | st.integers(0, 2), st.sampled_from([0.0, math.nan])
        ),
    ),
}
PANES = st.sampled_from([0, 10, 20, 600, 10 * 2**40])
"""Near each other, and so far apart that they do not fit beside a hash."""

LIMITS: dict[str, dict[tuple[Any, str], Any]] = {
    "as they are": {},
    "by cells": {(summing, "_CELLS_MIN"): 1 << 40},
    "by sorted cells": {(summing, "_CELLS_MIN"): 0, (summing, "_CELLS_MAX"): 0},
    "by hash": {
        (distinct, "_FEW_ROWS"): -1,
        (distinct, "_FEW_IN_SAMPLE"): -1,
        (summing, "dense_range"): lambda _: None,
    },
    "in small chunks": {(module, "CHUNK_ROWS"): 3 for module in (distinct, grouping, neighbours, summing)}
    | {(distinct, "_FEW_ROWS"): 9, (distinct, "_FEW_IN_SAMPLE"): 1, (merging, "_TIMES_LONGER"): 1},
    "always set in": {(merging, "_TIMES_LONGER"): 0},
}


@contextmanager
def limits(name: str) -> Iterator[None]:
    """The way of grouping that these limits lead to."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, attribute), value in LIMITS[name].items():
            patch.setattr(module, attribute, value)
        yield


Update = tuple[tuple[Any, ...], int, int]


def columns_of(types: Sequence[pa.DataType], keys: Sequence[tuple[Any, ...]]) -> tuple[pa.Array, ...]:
    """Key columns; sliced ones, as those of a batch often are."""
    padded = [*keys[:1], *keys]
    whole = (
        key_column(pa.array([key[i] for key in padded], type_, from_pandas=False)) for i, type_ in enumerate(types)
    )
    return tuple(column[len(padded) - len(keys) :] for column in whole)


def summed(monoid: Monoid[Any], types: Sequence[pa.DataType], updates: Sequence[Update]) -> GroupSums:
    values = [dict.fromkeys(("count", "sum", "min", "max"), value) for _, _, value in updates]
    lifted = monoid.lift_list(values if monoid is STATS else [value for _, _, value in updates])
    panes = np.array([pane for _, pane, _ in updates], np.int64)
    return group_by(monoid, columns_of(types, [key for key, _, _ in updates]), panes, lifted, STEP)


def same(value: Any) -> Any:
    """What decides whether two keys are one, said in Python."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def model(monoid: Monoid[Any], updates: Sequence[Update]) -> dict[Any, bytes]:
    found: dict[Any, list[Any]] = {}
    for key, pane, value in updates:
        given = dict.fromkeys(("count", "sum", "min", "max"), value) if monoid is STATS else value
        found.setdefault((*map(same, key), pane), []).append(monoid.lift(given))
    return {place: monoid.encode(monoid.fold(elements)) for place, elements in found.items()}


def listed(monoid: Monoid[Any], sums: GroupSums) -> dict[Any, bytes]:
    """The sums, after a look at their order: (hash, key where hashes are the same, pane)."""
    rows = len(sums.panes)
    assert sums.hashes.tolist() == grouping.hash_keys(sums.keys, rows).tolist()
    lists = [column.to_pylist() for column in sums.keys]
    keys = list(zip(*lists)) if lists else [()] * rows
    tied = len(set(sums.hashes.tolist())) < len({tuple(map(same, key)) for key in keys})
    places = list(zip(sums.hashes.tolist(), [encode(key) if tied else b"" for key in keys], sums.panes.tolist()))
    assert places == sorted(places)
    elements = [monoid.encode(element) for element in monoid.unpack(sums.columns)]
    found = {(*map(same, key), pane): element for key, pane, element in zip(keys, sums.panes.tolist(), elements)}
    assert len(found) == rows, "a (key, pane) stands twice"
    return found


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[pa.DataType], list[list[Update]]]:
    types, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    update = st.tuples(keys, PANES, st.integers(-9, 9))
    return types, draw(st.lists(st.lists(update, min_size=1, max_size=20), min_size=1, max_size=4))


MONOIDS: tuple[Monoid[Any], ...] = (Listed(), STATS, SetUnion(int))


def check(monoid: Monoid[Any], drawn: tuple[list[pa.DataType], list[list[Update]]]) -> None:
    types, lists = drawn
    everything = [update for part in lists for update in part]
    expected = model(monoid, everything)
    assert listed(monoid, summed(monoid, types, everything)) == expected
    runs = [summed(monoid, types, part) for part in lists]
    assert listed(monoid, merge_groups(monoid, runs, STEP)) == expected


@settings(deadline=None, max_examples=250)
@given(st.sampled_from(MONOIDS), parts(), st.sampled_from(sorted(LIMITS)))
def test_sums_and_merges_equal_a_dictionary(
    monoid: Monoid[Any], drawn: tuple[list[pa.DataType], list[list[Update]]], way: str
) -> None:
    """Whatever the keys are: the way is chosen by size, and tests are small, so each is tried on all."""
    with limits(way):
        check(monoid, drawn)


@settings(deadline=None, max_examples=250)
@given(st.sampled_from(MONOIDS), parts(), st.sampled_from(sorted(LIMITS)), st.sampled_from([0, 1, 2, 60, 63]))
def test_colliding_hashes_change_nothing(
    monoid: Monoid[Any], drawn: tuple[list[pa.DataType], list[list[Update]]], way: str, shift: int
) -> None:
    """Two keys of one hash, or of one prefix of it, are two keys."""

    def few_bits(keys: Sequence[pa.Array], rows: int) -> Any:
        hashes = hash_keys(keys, rows)
        return hashes & np.uint64(1) << np.uint64(shift) if shift else np.zeros_like(hashes)

    with limits(way), pytest.MonkeyPatch.context() as patch:
        for module in (grouping, summing):
            patch.setattr(module, "hash_keys", few_bits)
        for module in (grouping, merging):
            patch.setattr(module, "is_injective", lambda keys: not keys)
        check(monoid, drawn)


@settings(deadline=None, max_examples=150)
@given(parts(), st.integers(0, 4), st.sampled_from(["as they are", "always set in"]))
def test_any_tree_of_merges_is_the_merge(
    drawn: tuple[list[pa.DataType], list[list[Update]]], cut: int, way: str
) -> None:
    """Compaction merges neighbours first, a short run into a long one or the other way round."""
    types, lists = drawn
    monoid = Listed()
    with limits(way):
        runs = [summed(monoid, types, part) for part in lists]
        whole = merge_groups(monoid, runs, STEP)
        sides = [side for side in (runs[:cut], runs[cut:]) if side]
        tree = merge_groups(monoid, [merge_groups(monoid, side, STEP) for side in sides], STEP)
    assert listed(monoid, tree) == listed(monoid, whole)


@pytest.mark.parametrize("kind", ["dense", "sparse", "string", "long string"])
def test_many_rows(kind: str) -> None:
    """At the sizes where digits, pieces and chunks are what they are in use; more keys than a sample takes for few."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 30_000, 200_000)
    panes, values = rng.integers(0, 20, len(codes)) * STEP, rng.integers(-9, 9, len(codes))
    known = {
        "dense": pa.array(np.arange(30_000)),
        "sparse": pa.array(rng.integers(-(2**63), 2**63 - 1, 30_000)),
        "string": pa.array([f"key {number}" for number in range(30_000)]),
        "long string": pa.array([f"a key of more than two words {number}" for number in range(30_000)]),
    }[kind]
    lifted = STATS.lift_rows(dict.fromkeys(("count", "sum", "min", "max"), pa.array(values)), len(values))
    sums = group_by(STATS, [known.take(pa.array(codes))], panes, lifted, STEP)
    assert np.array_equal(sums.hashes, hash_keys(sums.keys, len(sums.panes)))
    order = np.lexsort((panes, codes))
    changed = (np.diff(codes[order]) != 0) | (np.diff(panes[order]) != 0)
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    first = order[starts]
    again = np.lexsort((panes[first], hash_keys((known.take(pa.array(codes[first])),), len(first))))
    assert sums.keys[0].equals(known.take(pa.array(codes[first[again]])))
    assert np.array_equal(sums.panes, panes[first[again]])
    for field, kernel in ((1, np.add), (2, np.minimum), (4, np.maximum)):
        assert np.array_equal(sums.columns[field], kernel.reduceat(values[order], starts)[again])


def test_a_short_run_is_set_into_a_long_one() -> None:
    """Merging must not sort the state again for each delta; and what it sets in is the same."""
    rng = np.random.default_rng(5)
    keys = rng.integers(-(2**63), 2**63 - 1, 21_000)

    def run(some: Any) -> GroupSums:
        values = pa.array(rng.integers(-9, 9, len(some)))
        lifted = STATS.lift_rows(dict.fromkeys(("count", "sum", "min", "max"), values), len(some))
        return group_by(STATS, [pa.array(some)], rng.integers(0, 3, len(some)) * STEP, lifted, STEP)

    long, short, newest = run(keys[:20_000]), run(keys[19_000:]), run(keys[::100])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_sorted", None)
        set_in = [merge_groups(STATS, runs, STEP) for runs in ([long, short], [short, long], [newest, long])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_TIMES_LONGER", 1 << 40)
        by_sorting = [merge_groups(STATS, runs, STEP) for runs in ([long, short], [short, long], [newest, long])]
    for found, expected in zip(set_in, by_sorting):
        assert np.array_equal(found.hashes, expected.hashes) and np.array_equal(found.panes, expected.panes)
        assert found.keys == expected.keys
        for a, b in zip(found.columns, expected.columns, strict=True):
            assert np.array_equal(a, b)


def test_columns_of_one_memory_are_taken_once() -> None:
    """A record of several sums of one column would gather it as often."""
    values = np.arange(5)
    first, second, third = take_once((values, values[:], values[::-1]), np.array([4, 0]))
    assert first is second and first.tolist() == [4, 0] and third.tolist() == [0, 4]


def test_no_rows_are_no_groups() -> None:
    """The smallest delta."""
    sums = group_by(Sum(), [pa.array([], pa.string())], np.zeros(0, np.int64), Sum().pack([]), 1)
    assert [len(sums.hashes), len(sums.keys[0]), len(sums.panes), len(sums.columns[0])] == [0, 0, 0, 0]
    assert len(stable_order(np.zeros(0, np.int64), 1)[0]) == 0
