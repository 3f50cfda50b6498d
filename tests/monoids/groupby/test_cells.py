"""Grouping orders rows as a stable sort by (group, pane) does, however it gets there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.encoding import encode
from monoids.groupby import cells as columns
from monoids.groupby.cells import group_codes, pane_codes, segment_starts
from monoids.groupby.distinct import distinct_keys, is_dense
from monoids.groupby.grouping import group_hashes
from monoids.hashing import hash_keys, key_column

PANES = st.sampled_from([0, 60, 120, 180, 6_000, 60 * 2**20])
WIDE_PANES = st.sampled_from([0, 60, 60 * 2**36, 60 * 2**45])


def model(places: Sequence[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    """A stable sort, and where each run of equals begins."""
    order = sorted(range(len(places)), key=lambda row: places[row])
    starts = [at for at, row in enumerate(order) if at == 0 or places[row] != places[order[at - 1]]]
    return order, starts


def check(found: tuple[Any, Any], places: Sequence[tuple[Any, ...]]) -> None:
    order, starts = found
    assert (order.tolist(), starts.tolist()) == model(places)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 7, 1 << 20, 1 << 45, 1 << 62]), PANES | WIDE_PANES), max_size=60))
def test_codes_are_grouped_as_a_stable_sort_does(rows: list[tuple[int, int]]) -> None:
    """Rows that change places within a group answer "first" with the second; also where codes and panes do not
    fit beside each other into 64 bits."""
    codes = np.array([code for code, _ in rows], np.int64)
    panes = np.array([pane for _, pane in rows], np.int64)
    check(group_codes(codes, panes, 60), rows)
    check(group_codes(codes, panes), rows)


@st.composite
def hashed(draw: st.DrawFn) -> tuple[list[str], list[int], list[int]]:
    """Keys, their hashes (of which many share a prefix, and some keys the whole of it), and panes."""
    bases = draw(st.lists(st.integers(0, (1 << 64) - 64), min_size=1, max_size=3))
    near = st.builds(lambda base, more: base + more, st.sampled_from(bases), st.integers(0, 63))
    table = draw(st.lists(near, min_size=1, max_size=8))
    numbers = draw(st.lists(st.integers(0, 2 * len(table) - 1), max_size=60))
    panes = draw(st.lists(draw(st.sampled_from([PANES, WIDE_PANES])), min_size=len(numbers), max_size=len(numbers)))
    return [f"key {number}" for number in numbers], [table[number % len(table)] for number in numbers], panes


@settings(deadline=None, max_examples=300)
@given(hashed())
def test_hashes_are_grouped_by_hash_key_pane_and_arrival(drawn: tuple[list[str], list[int], list[int]]) -> None:
    """Hashes are sorted by as much of them as fits; where two share that much, or all of it, their keys must
    not be added up."""
    keys, hashes, panes = drawn
    found = group_hashes([pa.array(keys, pa.string())], np.array(hashes, np.uint64), np.array(panes, np.int64), 60)
    tied = {hash_ for hash_ in hashes if len({key for key, other in zip(keys, hashes) if other == hash_}) > 1}
    check(
        found,
        [(hash_, encode((key,)) if hash_ in tied else b"", pane) for key, hash_, pane in zip(keys, hashes, panes)],
    )


def test_many_rows_share_prefixes() -> None:
    """The same where a prefix is shared by many rows, in numbers that pack."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 500, 20_000)
    hashes = (numbers.astype(np.uint64) % 5 << np.uint64(60)) + numbers.astype(np.uint64)
    panes = rng.integers(0, 50, 20_000) * 60
    order, starts = group_hashes([pa.array(numbers.astype(str))], hashes, panes, 60)
    expected = np.lexsort((panes, hashes))
    assert np.array_equal(order, expected)
    changed = (np.diff(hashes[expected]) != 0) | (np.diff(panes[expected]) != 0)
    assert np.array_equal(starts, segment_starts(changed))


KEY_LISTS = st.one_of(
    st.lists(st.integers(-3, 3)),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.none() | st.text(max_size=3)),
    st.lists(st.none() | st.booleans()),
    st.lists(st.floats(width=64)),
    st.lists(st.binary(max_size=2)),
)


@settings(deadline=None)
@given(KEY_LISTS, st.booleans())
def test_distinct_keys_are_numbered_in_the_order_of_their_hashes(values: list[Any], twice: bool) -> None:
    """Each key has one number, and the number leads back to the key: else its updates go to another's state."""
    column = key_column(pa.array(values, from_pandas=False))
    keys = [column, column] if twice else [column]
    distinct, hashes, numbers = distinct_keys(keys, len(column))
    assert hashes.tolist() == sorted(hashes.tolist())
    assert hashes.tolist() == hash_keys(distinct, len(distinct[0])).tolist()
    for given_column, own in zip(keys, distinct):
        taken = own.take(pa.array(numbers))
        assert [encode(value) for value in taken.to_pylist()] == [encode(value) for value in given_column.to_pylist()]
    places = [tuple(encode(column.to_pylist()[row]) for column in distinct) for row in range(len(distinct[0]))]
    assert len(set(places)) == len(places), "a key stands twice"


def test_without_keys_all_rows_are_one() -> None:
    """One state for the whole task."""
    distinct, hashes, numbers = distinct_keys([], 3)
    assert distinct == () and len(hashes) == 1 and numbers.tolist() == [0, 0, 0]
    assert len(distinct_keys([], 0)[1]) == 0


def test_pane_codes_keep_the_order() -> None:
    """Codes out of order would close windows out of order."""
    codes, size = pane_codes(np.array([-60, 120, 0, -60]), 60)
    assert codes.tolist() == [0, 3, 1, 0] and size == 4
    codes, size = pane_codes(np.array([-1, -1]), 60)
    assert codes.tolist() == [0, 0] and size == 1


def test_dense_is_only_what_is() -> None:
    """Cells addressed by a key out of their range would take all memory, or another's cell."""
    assert is_dense([pa.array([5, 6, 70])])
    assert not is_dense([pa.array([5, None])])
    assert not is_dense([pa.array([0, 1 << 40])])
    assert not is_dense([pa.array(["a"])])
    assert not is_dense([pa.array([-(2**63), 2**63 - 1])])
    assert not is_dense([pa.array([1]), pa.array([1])])


@pytest.mark.parametrize("rows", [0, 1])
def test_nothing_and_one_row(rows: int) -> None:
    """The smallest delta of all."""
    nothing = np.zeros(rows, np.int64)
    for order, starts in (
        group_codes(nothing, nothing),
        group_hashes([pa.array(["a"] * rows, pa.string())], nothing.astype(np.uint64), nothing),
    ):
        assert order.tolist() == starts.tolist() == list(range(rows))
    assert columns.fits_cells(1 << 16, rows) and not columns.fits_cells((1 << 16) + 1, rows)
