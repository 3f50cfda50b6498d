"""Sliding windows are sums of overlapping panes; no inverse is needed.

    window w of a key = its panes w, w + 1, ..., w + width - 1, from the left

Where panes are dense, sums of 2, 4, 8, ... adjacent panes are built from one another, and windows from those, for all
keys at once: at most two ``combine`` per window for every bit of its width. Where panes are sparse, each window is
summed directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from monoids.column import Columns, concat, is_constant, take
from monoids.groupby.cells import Integers, group_cells
from monoids.monoid import Monoid


class PaneSums(NamedTuple):
    """One row per (key, pane): key numbers from 0, ascending; panes, ascending within a key, each once; elements."""

    keys: Integers
    panes: Integers
    columns: Columns

    def take(self, rows: Any) -> PaneSums:
        return PaneSums(self.keys[rows], self.panes[rows], take(self.columns, rows))


Windows = tuple[Integers, Integers, Columns]
"""Key numbers, window numbers, and the sum of each window, in the order (key, window) within a piece."""

_BLOCK_CELLS = 1 << 17
_KEY_CELLS_MAX = 1 << 20
_COPIES_MAX = 1 << 20
_COPY_COST = 3


def slide(monoid: Monoid[Any], rows: PaneSums, width: int, first: int, last: int) -> Iterator[Windows]:
    """The windows ``first`` to ``last`` of every key that hold one of its panes, in pieces by key or by window.

    ``width``: the number of panes in a window.

    >>> from monoids import Max
    >>> keys, panes = np.array([0, 0, 1]), np.array([0, 2, 1])
    >>> for numbers, windows, columns in slide(Max(), PaneSums(keys, panes, Max().pack([5, 3, 4])), 2, 0, 2):
    ...     print(numbers.tolist(), windows.tolist(), Max().unpack(columns))
    [0, 0, 0, 1, 1] [0, 1, 2, 0, 1] [5, 3, 3, 4, 4]
    """
    panes = rows.panes
    if not len(panes) or last < first:
        return
    low, high = int(panes.min()), int(panes.max())
    if low < first or high >= last + width:
        inside = np.flatnonzero((panes >= first) & (panes < last + width))
        yield from slide(monoid, rows.take(inside), width, first, last)
        return
    first, last = max(first, low - width + 1), min(last, high)
    key_cells = last - first + width
    if key_cells > _KEY_CELLS_MAX and first < last:
        middle = (first + last) // 2
        yield from slide(monoid, rows, width, first, middle)
        yield from slide(monoid, rows, width, middle + 1, last)
        return
    keys = rows.keys
    cells = key_cells * (int(keys[-1]) - int(keys[0]) + 1)
    if len(panes) * min(width, last - first + 1) * _COPY_COST <= cells:
        yield from _slide_directly(monoid, rows, width, first, last)
        return
    begins = np.searchsorted(keys, np.arange(int(keys[0]), int(keys[-1]) + 1, max(1, _BLOCK_CELLS // key_cells)))
    for start, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(keys)]):
        if start < stop:
            piece = rows.take(slice(start, stop))
            try:
                yield _slide_by_doubling(monoid, piece, width, first, last)
            except OverflowError:
                # One part of a window may overflow though the whole fits.
                yield from _slide_directly(monoid, piece, width, first, last)


def _slide_directly(monoid: Monoid[Any], rows: PaneSums, width: int, first: int, last: int) -> Iterator[Windows]:
    lows = np.maximum(rows.panes - width + 1, first)
    yield from sum_windows(monoid, rows.keys, lows, np.minimum(rows.panes, last) - lows + 1, rows.columns)


def sum_windows(
    monoid: Monoid[Any], keys: Integers, firsts: Integers, times: Integers, columns: Columns
) -> Iterator[Windows]:
    """Sum each window from its rows, in order. Row i is in the windows ``firsts[i]`` to ``firsts[i] + times[i] - 1``.

    Keys ascend. Each piece copies a bounded number of rows: it has some keys, or some windows of a key with too many.
    """
    copies = np.cumsum(times)
    if not len(copies) or not copies[-1]:
        return
    if copies[-1] <= _COPIES_MAX:
        yield _sum_copies(monoid, keys, firsts, times, columns)
        return
    ends = firsts + times
    if keys[0] != keys[-1]:
        middle = int(np.searchsorted(copies, copies[-1] // 2))
        cut = int(np.searchsorted(keys, keys[middle])) or int(np.searchsorted(keys, keys[middle], side="right"))
        for piece in (slice(0, cut), slice(cut, len(keys))):
            yield from sum_windows(monoid, keys[piece], firsts[piece], times[piece], take(columns, piece))
        return
    low, high = int(firsts[times > 0].min()), int(ends[times > 0].max())
    if high - low == 1:
        yield _sum_copies(monoid, keys, firsts, times, columns)
        return
    for start, stop in ((low, (low + high) // 2), ((low + high) // 2, high)):
        begins = np.maximum(firsts, start)
        counts = np.maximum(np.minimum(ends, stop) - begins, 0)
        rows = np.flatnonzero(counts)
        yield from sum_windows(monoid, keys[rows], begins[rows], counts[rows], take(columns, rows))


def _sum_copies(monoid: Monoid[Any], keys: Integers, firsts: Integers, times: Integers, columns: Columns) -> Windows:
    rows = np.repeat(np.arange(len(keys)), times)
    before = np.repeat(np.cumsum(times) - times, times)
    windows = firsts[rows] + (np.arange(len(rows)) - before)
    low_key, low = int(keys[0]), int(windows.min())
    count = int(windows.max()) - low + 1
    cells = (keys[rows] - low_key) * count + (windows - low)
    order, starts, held = group_cells(cells, (int(keys[-1]) - low_key + 1) * count)
    numbers = held // count
    reduced = monoid.reduce_sorted(take(columns, rows[order]), starts)
    return numbers + low_key, held - numbers * count + low, reduced


def _slide_by_doubling(monoid: Monoid[Any], rows: PaneSums, width: int, first: int, last: int) -> Windows:
    """The windows of some keys.

    Cells are laid out by (pane, key), so that adjacent panes of all keys are two slices.
    """
    keys, panes, columns = rows
    low_key, windows = int(keys[0]), last - first + 1
    key_count = int(keys[-1]) - low_key + 1
    cells = panes * key_count
    cells += keys
    cells -= first * key_count + low_key
    size = (windows + width - 1) * key_count
    sums = _window_sums(monoid, _spread(monoid, columns, cells, size), width, key_count)
    is_held = np.zeros(size, np.bool_)
    is_held[cells] = True
    (is_any,) = _window_sums(_ANY, (is_held,), width, key_count)
    sums = _by_key(sums, windows, key_count)
    if is_any.all():
        numbers = np.repeat(np.arange(low_key, low_key + key_count), windows)
        return numbers, np.tile(np.arange(first, last + 1), key_count), sums
    held = np.flatnonzero(_by_key((is_any,), windows, key_count)[0])
    numbers = held // windows
    return numbers + low_key, held - numbers * windows + first, take(sums, held)


def _by_key(columns: Columns, windows: int, key_count: int) -> Columns:
    """Rows in the order (window, key), reordered by (key, window)."""
    if all(isinstance(column, np.ndarray) for column in columns):
        return tuple(
            column
            if is_constant(column)
            else column.reshape(windows, key_count, *column.shape[1:]).swapaxes(0, 1).reshape(column.shape)
            for column in columns
        )
    return take(columns, np.arange(windows * key_count).reshape(windows, key_count).T.ravel())


def _spread(monoid: Monoid[Any], columns: Columns, cells: Integers, size: int) -> Columns:
    """The elements in their cells, and the identity in all others."""
    nothing = monoid.pack([monoid.identity])
    if not all(isinstance(column, np.ndarray) for column in columns):
        rows = np.zeros(size, np.int64)
        rows[cells] = np.arange(1, len(cells) + 1)
        return take(concat([nothing, columns]), rows)
    spread = []
    for column, empty in zip(columns, nothing):
        spread_column = np.empty((size, *column.shape[1:]), column.dtype)
        spread_column[:] = empty
        spread_column[cells] = column[:1] if is_constant(column) else column
        spread.append(spread_column)
    return tuple(spread)


def _window_sums(monoid: Any, cells: Columns, width: int, key_count: int) -> Columns:
    """The sum of ``width`` panes from each pane that has that many after it; cells and sums are by (pane, key)."""
    total, covered = None, 0
    power, size = cells, 1
    while True:
        if width & size:
            rest = take(power, slice(covered * key_count, None))
            if total is not None:
                rest = monoid.combine_columns(take(total, slice(0, len(rest[0]))), rest)
            total, covered = rest, covered + size
        if 2 * size > width:
            assert total is not None
            return total
        after = take(power, slice(size * key_count, None))
        power, size = monoid.combine_columns(take(power, slice(0, len(after[0]))), after), 2 * size


class _Any:
    """Whether a pane is held. It has only the method that ``_window_sums`` calls."""

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        return (a[0] | b[0],)


_ANY = _Any()
