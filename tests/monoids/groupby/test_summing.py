"""Sums of rows by (key, pane) are those of a dictionary, whichever way they are grouped and merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Monoid, SetUnion, Sum
from monoids.groupby import grouping, merging, summing
from monoids.groupby.merging import merge_groups
from monoids.groupby.sorting import stable_order
from monoids.groupby.summing import group_by, take_once
from monoids.hashing import hash_keys
from tests.few import examples
from tests.monoids.groupby.parts import (
    LIMITS,
    STATS,
    STEP,
    Listed,
    Update,
    limits,
    listed,
    parts,
    same,
    summed,
)


def model(monoid: Monoid[Any], updates: Sequence[Update]) -> dict[Any, bytes]:
    found: dict[Any, list[Any]] = {}
    for key, pane, value in updates:
        given = dict.fromkeys(("count", "sum", "min", "max"), value) if monoid is STATS else value
        found.setdefault((*map(same, key), pane), []).append(monoid.lift(given))
    return {place: monoid.encode(monoid.fold(elements)) for place, elements in found.items()}


MONOIDS: tuple[Monoid[Any], ...] = (Listed(), STATS, SetUnion(int))


def check(monoid: Monoid[Any], drawn: tuple[list[pa.DataType], list[list[Update]]]) -> None:
    types, lists = drawn
    everything = [update for part in lists for update in part]
    expected = model(monoid, everything)
    assert listed(monoid, summed(monoid, types, everything)) == expected
    runs = [summed(monoid, types, part) for part in lists]
    assert listed(monoid, merge_groups(monoid, runs, STEP)) == expected


@settings(deadline=None, max_examples=examples(250))
@given(st.sampled_from(MONOIDS), parts(), st.sampled_from(sorted(LIMITS)))
def test_sums_and_merges_equal_a_dictionary(
    monoid: Monoid[Any], drawn: tuple[list[pa.DataType], list[list[Update]]], way: str
) -> None:
    """Whatever the keys are: the way is chosen by size, and tests are small, so each is tried on all."""
    with limits(way):
        check(monoid, drawn)


@settings(deadline=None, max_examples=examples(250))
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
