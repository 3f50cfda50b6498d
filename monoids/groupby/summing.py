"""A group-by sums rows by (key, pane): one element for each, in the order (hash, key, pane).

    few cells      (key, pane) is a number by which elements are added in place, without sorting
    more cells     rows are sorted by that number
    many keys      rows are sorted by the hash of their key, without a table of keys

Sorting is stable, so it also serves monoids that do not commute. The number of a key is its place among the distinct
keys, in the order (hash, key); a lookup table finds it where keys are dense or few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Columns, is_constant, take
from monoids.groupby.cells import CHUNK_ROWS, Integers, PaneCodes, cell_counts, code_panes, group_cells
from monoids.groupby.grouping import group_rows, hash_order, take_keys
from monoids.groupby.sorting import Mask
from monoids.hashing import hash_keys
from monoids.monoid import Monoid
from monoids.text import Words

_DENSE_ROWS_FACTOR = 4
_DENSE_RANGE_MIN = 1 << 16
_FEW_ROWS = 1 << 16
_SAMPLE_ROWS = 1 << 15
_FEW_IN_SAMPLE = 1 << 13
_COMBINED_MAX = 1 << 62


@dataclass(frozen=True)
class KeyNumbers:
    """The number of each row's key, through a table: ``table[codes[row] - low]``."""

    table: Integers
    codes: Any
    low: int = 0

    def of(self, rows: slice) -> Integers:
        """The numbers of some rows: int64."""
        codes = self.codes[rows]
        numbers: Integers = np.take(self.table, codes - self.low if self.low else codes, mode="clip")
        return numbers

    def all(self) -> Integers:
        """The numbers of all rows."""
        numbers = np.empty(len(self.codes), np.int64)
        for start in range(0, len(numbers), CHUNK_ROWS):
            numbers[start : start + CHUNK_ROWS] = self.of(slice(start, start + CHUNK_ROWS))
        return numbers


def is_dense(keys: Sequence[pa.Array]) -> bool:
    """Whether the keys are one integer column whose range is not much larger than its number of rows."""
    return dense_range(keys) is not None


def dense_range(keys: Sequence[pa.Array]) -> tuple[int, int] | None:
    """The smallest and the largest key of a dense column; None if it is not dense."""
    if len(keys) != 1 or not pa.types.is_int64(keys[0].type) or keys[0].null_count or not len(keys[0]):
        return None
    values = keys[0].to_numpy()
    size_max = max(_DENSE_RANGE_MIN, _DENSE_ROWS_FACTOR * len(values))
    for sample in (values[:_SAMPLE_ROWS], values):
        low, high = int(sample.min()), int(sample.max())
        if high - low >= size_max:
            return None
    return low, high


def has_few_keys(keys: Sequence[pa.Array], rows: int) -> bool:
    """Whether a table of the distinct keys is likely to stay in the cache, judged by the first rows."""
    if not keys or rows <= _FEW_ROWS:
        return True
    combined = 1
    for column in keys:
        combined *= len(column[:_SAMPLE_ROWS].unique())
    return combined <= _FEW_IN_SAMPLE


def number_distinct(
    keys: Sequence[pa.Array], rows: int, dense: tuple[int, int] | None
) -> tuple[tuple[pa.Array, ...], Words, KeyNumbers]:
    """The distinct keys in the order (hash, key), their hashes, and the number of each row's key. ``dense``: the
    ``dense_range`` of the keys.

    >>> distinct, hashes, numbers = number_distinct([pa.array(["b", "a", "b"])], 3, None)
    >>> distinct[0].take(pa.array(numbers.all())).to_pylist()
    ['b', 'a', 'b']
    """
    if dense is not None:
        return _dense(keys[0], *dense)
    if not keys:
        hashes, order = hash_order((), min(rows, 1))
        return (), hashes, KeyNumbers(order, np.broadcast_to(np.int64(0), rows))
    if len(keys) == 1:
        values, codes = _dictionary(keys[0])
        distinct: tuple[pa.Array, ...] = (values,)
    else:
        distinct, codes = _distinct_tuples(keys)
    hashes, order = hash_order(distinct, len(distinct[0]))
    table = np.empty(len(order), np.int64)
    table[order] = np.arange(len(order))
    return take_keys(distinct, order), hashes, KeyNumbers(table, codes)


def _dense(keys: pa.Array, low: int, high: int) -> tuple[tuple[pa.Array, ...], Words, KeyNumbers]:
    values = keys.to_numpy()
    present = np.zeros(high - low + 1, np.bool_)
    for start in range(0, len(values), CHUNK_ROWS):
        present[values[start : start + CHUNK_ROWS] - low] = True
    places = np.flatnonzero(present)
    hashes, order = hash_order((pa.array(places + low),), len(places))
    places = places[order]
    table = np.empty(len(present), np.int64)
    table[places] = np.arange(len(places))
    return (pa.array(places + low),), hashes, KeyNumbers(table, values, low)


def _dictionary(column: pa.Array) -> tuple[pa.Array, Any]:
    """The distinct values in order of appearance, and the number of each row's value."""
    if pa.types.is_floating(column.type):
        bits, codes = _dictionary(column.view(pa.int64()))
        return bits.view(pa.float64()), codes
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, np.asarray(encoded.indices)


def _distinct_tuples(keys: Sequence[pa.Array]) -> tuple[tuple[pa.Array, ...], Any]:
    parts = [_dictionary(column) for column in keys]
    combined = parts[0][1].astype(np.int64)
    size = len(parts[0][0])
    for values, codes in parts[1:]:
        if size * len(values) >= _COMBINED_MAX:
            distinct, combined = _dictionary(pa.array(combined))
            size = len(distinct)
        size *= max(len(values), 1)
        combined = combined * len(values) + codes
    distinct, numbers = _dictionary(pa.array(combined))
    rows = np.empty(len(distinct), np.int64)
    rows[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return tuple(values.take(pa.array(codes[rows])) for values, codes in parts), numbers


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
