"""A merge sums runs: rows in the order (hash, key, pane) become one run, equal rows one element.

    merge([merge([a, b]), c]) == merge([a, b, c]) == merge([a, merge([b, c])])          by associativity

If one run is much longer than the others together, their rows are looked up in it and inserted; otherwise all rows are
sorted. Older runs are the left operands of ``combine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import concat, is_constant, take
from monoids.groupby.cells import Integers
from monoids.groupby.grouping import group_rows, take_keys
from monoids.groupby.summing import GroupSums, group_by, is_dense, take_once
from monoids.hashing import is_injective, null_safe_equal
from monoids.monoid import Monoid

_TIMES_LONGER = 4


def merge_groups(monoid: Monoid[Any], runs: Sequence[GroupSums], step: int) -> GroupSums:
    """The sum of runs, oldest first. The key columns of all runs have the same types.

    >>> from monoids import Sum
    >>> def run(keys, values):
    ...     panes = np.zeros(len(keys), np.int64)
    ...     return group_by(Sum(), [pa.array(keys)], panes, Sum().pack(values), 1)
    >>> merged = merge_groups(Sum(), [run(["a", "b"], [1, 2]), run(["b", "c"], [3, 4])], 1)
    >>> sorted(zip(merged.keys[0].to_pylist(), merged.columns[0].tolist()))
    [('a', 1), ('b', 5), ('c', 4)]
    """
    runs = [run for run in runs if len(run)] or list(runs[:1])
    if len(runs) == 1:
        return runs[0]
    sizes = [len(run) for run in runs]
    longest = sizes.index(max(sizes))
    if sizes[longest] < _TIMES_LONGER * (sum(sizes) - sizes[longest]):
        return _sorted(monoid, runs, step)
    merged = runs[longest]
    if longest:
        merged = _insert_into(monoid, merge_groups(monoid, runs[:longest], step), merged, step, is_newer=False)
    if longest + 1 < len(runs):
        merged = _insert_into(monoid, merge_groups(monoid, runs[longest + 1 :], step), merged, step, is_newer=True)
    return merged


def _sorted(monoid: Monoid[Any], runs: Sequence[GroupSums], step: int) -> GroupSums:
    keys = tuple(pa.concat_arrays(columns) for columns in zip(*(run.keys for run in runs)))
    panes = np.concatenate([run.panes for run in runs])
    columns = concat([run.columns for run in runs])
    if is_dense(keys):
        return group_by(monoid, keys, panes, columns, step)
    hashes = np.concatenate([run.hashes for run in runs])
    groups = group_rows(keys, hashes, panes, step)
    columns = take_once(columns, groups.order)
    if len(groups.starts) != len(groups.order):
        columns = monoid.reduce_sorted(columns, groups.starts)
    first = groups.order[groups.starts]
    return GroupSums(hashes[first], take_keys(keys, first), groups.panes, columns)


def _insert_into(monoid: Monoid[Any], short: GroupSums, long: GroupSums, step: int, *, is_newer: bool) -> GroupSums:
    """The sum of a short and a long run. ``is_newer``: whether the short run is the newer one."""
    matches = find_rows(short, long)
    if matches is None:
        return _sorted(monoid, [long, short] if is_newer else [short, long], step)
    places, is_found = matches
    both, alone = np.flatnonzero(is_found), np.flatnonzero(~is_found)
    pair = (take(long.columns, places[both]), take(short.columns, both))
    summed = _pairwise(monoid, *(pair if is_newer else pair[::-1]), len(both))
    setting = _Insertion(len(long.panes), places[alone], places[both])
    added = take((short.hashes, short.panes, *short.columns), alone)
    hashes, panes = (setting(old, new, None) for old, new in zip((long.hashes, long.panes), added[:2]))
    keys = tuple(setting.keys(column, new) for column, new in zip(long.keys, take_keys(short.keys, alone)))
    columns = (setting(*parts) for parts in zip(long.columns, added[2:], summed))
    return GroupSums(hashes, keys, panes, tuple(columns))


class _Insertion:
    """New rows inserted before the old rows ``before`` (ascending), and changed rows that replace the old rows
    ``at``."""

    def __init__(self, rows: int, before: Integers, at: Integers) -> None:
        self.rows = rows
        self.added = before + np.arange(len(before))
        self.is_old = np.ones(rows + len(before), np.bool_)
        self.is_old[self.added] = False
        self.changed = np.flatnonzero(self.is_old)[at] if len(before) else at

    def __call__(self, old: Any, new: Any, changed: Any) -> Any:
        """The column with the new rows and, unless None, the changed ones."""
        if not len(self.added) and changed is None:
            return old
        parts = [part for part in (old, new, changed) if part is not None and len(part)]
        if not isinstance(old, np.ndarray):
            rows = self.order if changed is None else self._order_changed
            return concat([(part,) for part in parts])[0][rows]
        if all(is_constant(part) and part[:1].tobytes() == old[:1].tobytes() for part in parts):
            return np.broadcast_to(old[:1], (len(self.is_old), *old.shape[1:]))
        dtype = np.result_type(old, *parts)
        column = np.empty((len(self.is_old), *old.shape[1:]), dtype)
        if len(self.added):
            column[self.is_old] = old
            column[self.added] = new
        else:
            column[:] = old
        if changed is not None:
            column[self.changed] = changed
        return column

    def keys(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """The key column with the new rows."""
        if not len(self.added):
            return old
        if pa.types.is_int64(old.type) and not old.null_count and not new.null_count:
            return pa.array(self(old.to_numpy(), new.to_numpy(), None))
        return pa.concat_arrays([old, new]).take(pa.array(self.order))

    @cached_property
    def order(self) -> Integers:
        """The permutation of the old rows followed by the new ones."""
        order = np.empty(len(self.is_old), np.int64)
        order[self.is_old] = np.arange(self.rows)
        order[self.added] = np.arange(self.rows, len(order))
        return order

    @cached_property
    def _order_changed(self) -> Integers:
        """The permutation of the old rows followed by the new ones and the changed ones."""
        order = self.order.copy()
        order[self.changed] = len(order) + np.arange(len(self.changed))
        return order


def _pairwise(monoid: Monoid[Any], older: Any, newer: Any, rows: int) -> Any:
    """``combine(older[i], newer[i])`` for every row."""
    if not rows:
        return older
    pairs = np.arange(2 * rows).reshape(2, rows).T.ravel()
    return monoid.reduce_sorted(take(concat([older, newer]), pairs), np.arange(0, 2 * rows, 2))


def find_rows(short: GroupSums, long: GroupSums) -> tuple[Integers, Any] | None:
    """For every row of ``short``, the first row of ``long`` that is not before it, and whether both have the same
    (key, pane). None where different keys share a hash."""
    places = np.searchsorted(long.hashes, short.hashes)
    last = len(long.hashes) - 1
    is_found = long.hashes[np.minimum(places, last)] == short.hashes
    rows = np.flatnonzero(is_found)
    begins, hashes, panes = places[rows], short.hashes[rows], short.panes[rows]
    ends = begins + 1
    is_long = bool((long.hashes[np.minimum(ends, last)] == hashes)[ends <= last].any())
    if is_long:
        ends = np.searchsorted(long.hashes, hashes, side="right")
    if not (is_injective(short.keys) and is_injective(long.keys)):
        short_keys = take_keys(short.keys, rows)
        for edge in (begins, ends - 1)[: 1 + is_long]:
            long_keys = take_keys(long.keys, edge)
            if not all(null_safe_equal(a, b).all() for a, b in zip(short_keys, long_keys)):
                return None
    # If a run of one hash begins and ends with the key, the whole run has it.
    at = _search_panes(long.panes, begins, ends, panes)
    places[rows] = at
    is_found[rows] = (at < ends) & (long.panes[np.minimum(at, last)] == panes)
    return places, is_found


def _search_panes(ordered: Integers, begins: Integers, ends: Integers, panes: Integers) -> Integers:
    """The first row in ``begins[i] : ends[i]`` with a pane of at least ``panes[i]``: one search for all ranges."""
    low, high = begins.copy(), ends.copy()
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        before = open_ & (ordered[np.minimum(middle, len(ordered) - 1)] < panes)
        low[before] = middle[before] + 1
        after = open_ & ~before
        high[after] = middle[after]
    return low
