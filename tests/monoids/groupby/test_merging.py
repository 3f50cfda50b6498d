"""Groups are merged in any tree, and a short run is set into a long one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.groupby import merging
from monoids.groupby.merging import merge_groups
from monoids.groupby.summing import GroupSums, group_by
from tests.few import examples
from tests.monoids.groupby.parts import (
    STATS,
    STEP,
    Listed,
    Update,
    limits,
    listed,
    parts,
    summed,
)


@settings(deadline=None, max_examples=examples(150))
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
