"""A group-by sums rows by (key, pane): one element for each, in the order (hash, key, pane).

    few cells      (key, pane) is a number by which elements are added in place, without sorting
    more cells     rows are sorted by that number
    many keys      rows are sorted by the hash of their key, without a table of keys

Sorting is stable, so it also serves monoids that do not commute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Columns, is_constant, take
from monoids.groupby.cells import CHUNK_ROWS, Integers, PaneCodes, cell_counts, code_panes, group_cells
from monoids.groupby.distinct import KeyNumbers, dense_range, has_few_keys, number_distinct
from monoids.groupby.grouping import group_rows, take_keys
from monoids.groupby.sorting import Mask
from monoids.hashing import hash_keys
from monoids.monoid import Monoid
from monoids.text import Words

_CELLS_MAX = 1 << 22
_CELLS_MIN = 1 << 16
_INT32_MAX = (1 << 31) - 1
_HASH_LIMIT = 1 << 64


@dataclass(frozen=True)
class GroupSums:
    """One row per (key, pane): ``hashes`` uint64, ``keys`` Arrow columns, ``panes`` int64, ``columns`` the elements."""

    hashes: Words
    keys: tuple[pa.Array, ...]
    panes: Integers
    columns: Columns

    def __len__(self) -> int:
        return len(self.panes)

    def between(self, low: int, high: int) -> GroupSums:
        """The rows whose key hash is in ``low <= hash < high`` (0 to 2**64): a slice."""
        start = int(np.searchsorted(self.hashes, np.uint64(low))) if low else 0
        stop = int(np.searchsorted(self.hashes, np.uint64(high))) if high < _HASH_LIMIT else len(self.panes)
        return self.slice(start, stop)

    def slice(self, start: int, stop: int) -> GroupSums:
        if start == 0 and stop == len(self.panes):
            return self
        return GroupSums(
            self.hashes[start:stop],
            tuple(column[start:stop] for column in self.keys),
            self.panes[start:stop],
            tuple(column[start:stop] for column in self.columns),
        )

    def take(self, rows: Integers) -> GroupSums:
        """The rows of these numbers."""
        return GroupSums(self.hashes[rows], take_keys(self.keys, rows), self.panes[rows], take(self.columns, rows))

    def filter(self, mask: Mask) -> GroupSums:
        """The rows where the mask is set."""
        return self if mask.all() else self.take(mask.nonzero()[0])


def group_by(monoid: Monoid[Any], keys: Sequence[pa.Array], panes: Integers, columns: Columns, step: int) -> GroupSums:
    """The sum of the elements of each (key, pane). ``panes`` int64, multiples of ``step`` apart; ``keys`` key columns.

    >>> from monoids import Sum
    >>> elements = Sum().pack([1, 2, 3])
    >>> sums = group_by(Sum(), [pa.array(["a", "b", "a"])], np.array([0, 0, 0]), elements, 1)
    >>> sorted(zip(sums.keys[0].to_pylist(), sums.columns[0].tolist()))
    [('a', 4), ('b', 2)]
    """
    rows = len(panes)
    dense = dense_range(keys)
    if rows and dense is None and not has_few_keys(keys, rows):
        return _by_hash(monoid, keys, panes, columns, step)
    distinct, hashes, numbers = number_distinct(keys, rows, dense)
    if not rows:
        return GroupSums(hashes, distinct, panes, columns)
    coding = code_panes(panes, step)
    held, reduced = _by_cells(monoid, numbers, panes, coding, len(hashes) * coding.size, columns)
    groups, held_panes = np.empty(len(held), np.int64), np.empty(len(held), np.int64)
    for start in range(0, len(held), CHUNK_ROWS):
        piece = slice(start, start + CHUNK_ROWS)
        cells = held[piece].astype(np.int64)
        np.floor_divide(cells, coding.size, out=groups[piece])
        cells -= groups[piece] * coding.size
        held_panes[piece] = coding.panes(cells)
    return GroupSums(hashes[groups], take_keys(distinct, groups), held_panes, reduced)


def _by_cells(
    monoid: Monoid[Any], numbers: KeyNumbers, panes: Integers, coding: PaneCodes, size: int, columns: Columns
) -> tuple[Any, Columns]:
    """The non-empty cells, ascending, and the sum of each."""
    cells = None
    if size <= _cells_max(len(panes), columns):
        cells = _cells(numbers, panes, coding, np.int64)
        counts, held = cell_counts(cells, size)
        reduced = monoid.reduce_cells(columns, cells, counts, held)
        if reduced is not None:
            return held, reduced
    if cells is None:
        cells = _cells(numbers, panes, coding, np.int32 if size <= _INT32_MAX else np.int64)
    order, starts, held = group_cells(cells, size)
    return held, monoid.reduce_sorted(take_once(columns, order), starts)


def _cells_max(rows: int, columns: Columns) -> int:
    """The number of cells to address directly. Constant elements, such as counts, need only the number of rows."""
    per_row = 2 if all(map(is_constant, columns)) else 1
    return max(_CELLS_MIN, min(per_row * rows, _CELLS_MAX))


def _cells(numbers: KeyNumbers, panes: Integers, coding: PaneCodes, dtype: Any) -> Any:
    """``key number * panes + pane`` of every row."""
    cells = np.empty(len(panes), dtype)
    for start in range(0, len(cells), CHUNK_ROWS):
        piece = slice(start, start + CHUNK_ROWS)
        part = numbers.of(piece)
        if coding.size > 1:
            part *= coding.size
            part += coding.codes(panes[piece])
        cells[piece] = part
    return cells


def _by_hash(monoid: Monoid[Any], keys: Sequence[pa.Array], panes: Integers, columns: Columns, step: int) -> GroupSums:
    hashes = hash_keys(keys, len(panes))
    groups = group_rows(keys, hashes, panes, step)
    reduced = monoid.reduce_sorted(take_once(columns, groups.order), groups.starts)
    distinct = take_keys(keys, groups.key_rows)
    return GroupSums(hashes[groups.key_rows][groups.keys], take_keys(distinct, groups.keys), groups.panes, reduced)


def take_once(columns: Columns, rows: Integers) -> Columns:
    """``take``, but columns that share memory are gathered once."""
    taken: dict[Any, Any] = {}
    gathered: list[Any] = []
    for column in columns:
        if not isinstance(column, np.ndarray) or is_constant(column):
            gathered += take((column,), rows)
            continue
        place = (column.__array_interface__["data"][0], column.strides, column.shape, column.dtype.str)
        if place not in taken:
            (taken[place],) = take((column,), rows)
        gathered.append(taken[place])
    return tuple(gathered)
