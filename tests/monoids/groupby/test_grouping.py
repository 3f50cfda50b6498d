"""Rows are grouped by the hash of their key, the key, the pane, and arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.encoding import encode
from monoids.groupby.cells import segment_starts
from monoids.groupby.grouping import group_rows
from tests.few import examples
from tests.monoids.groupby.test_cells import PANES, WIDE_PANES, check


@st.composite
def hashed(draw: st.DrawFn) -> tuple[list[str], list[int], list[int]]:
    """Keys, their hashes (of which many share a prefix, and some keys the whole of it), and panes."""
    bases = draw(st.lists(st.integers(0, (1 << 64) - 64), min_size=1, max_size=3))
    near = st.builds(lambda base, more: base + more, st.sampled_from(bases), st.integers(0, 63))
    table = draw(st.lists(near, min_size=1, max_size=8))
    numbers = draw(st.lists(st.integers(0, 2 * len(table) - 1), max_size=60))
    panes = draw(st.lists(draw(st.sampled_from([PANES, WIDE_PANES])), min_size=len(numbers), max_size=len(numbers)))
    return [f"key {number}" for number in numbers], [table[number % len(table)] for number in numbers], panes


@settings(deadline=None, max_examples=examples(300))
@given(hashed())
def test_hashes_are_grouped_by_hash_key_pane_and_arrival(drawn: tuple[list[str], list[int], list[int]]) -> None:
    """Hashes are sorted by as much of them as fits; where two share that much, or all of it, their keys must
    not be added up."""
    keys, hashes, panes = drawn
    found = group_rows([pa.array(keys, pa.string())], np.array(hashes, np.uint64), np.array(panes, np.int64), 60)
    tied = {hash_ for hash_ in hashes if len({key for key, other in zip(keys, hashes) if other == hash_}) > 1}
    check(
        (found.order, found.starts),
        [(hash_, encode((key,)) if hash_ in tied else b"", pane) for key, hash_, pane in zip(keys, hashes, panes)],
    )


def test_many_rows_share_prefixes() -> None:
    """The same where a prefix is shared by many rows, in numbers that pack."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 500, 20_000)
    hashes = (numbers.astype(np.uint64) % 5 << np.uint64(60)) + numbers.astype(np.uint64)
    panes = rng.integers(0, 50, 20_000) * 60
    found = group_rows([pa.array(numbers.astype(str))], hashes, panes, 60)
    expected = np.lexsort((panes, hashes))
    assert np.array_equal(found.order, expected)
    changed = (np.diff(hashes[expected]) != 0) | (np.diff(panes[expected]) != 0)
    assert np.array_equal(found.starts, segment_starts(changed))
