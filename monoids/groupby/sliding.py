"""Sliding windows are sums of panes that overlap; no inverse is needed.

    window w of a key = panes w, w + 1, ..., w + width - 1 of it, from the left

Where panes are many, sums of 2, 4, 8, ... neighbouring panes are made of one another, and windows of those, for all
keys at once: at most two ``combine`` a window for every bit of its width. Where panes are few and far between, each
window is summed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from monoids.column import Columns, concat, is_constant, take
from monoids.groupby.cells import Integers, group_cells
from monoids.monoid import Monoid

Windows = tuple[Integers, Integers, Columns]
"""Key numbers, window numbers, and the sum of each: within a piece in the order (key, window)."""

_BLOCK_CELLS = 1 << 17
_KEY_CELLS_MAX = 1 << 20
_COPIES_MAX = 1 << 20
_COPY_COST = 3


def slide(
    monoid: Monoid[Any], keys: Integers, panes: Integers, columns: Columns, width: int, first: int, last: int
) -> Iterator[Windows]:
    """The windows ``first`` to ``last`` of every key that hold a pane of it, in pieces: of some keys, or some windows.

    ``keys``: numbers from 0, ascending; ``panes``: numbers, ascending within a key, each once; ``width``: the panes
    of a window.

    >>> from monoids import Max
    >>> keys, panes = np.array([0, 0, 1]), np.array([0, 2, 1])
    >>> for numbers, windows, columns in slide(Max(), keys, panes, Max().pack([5, 3, 4]), 2, 0, 2):
    ...     print(numbers.tolist(), windows.tolist(), Max().unpack(columns))
    [0, 0, 0, 1, 1] [0, 1, 2, 0, 1] [5, 3, 3, 4, 4]
    """
    if not len(panes) or last < first:
        return
    low, high = int(panes.min()), int(panes.max())
    if low < first or high >= last + width:
        rows = np.flatnonzero((panes >= first) & (panes < last + width))
        yield from slide(monoid, keys[rows], panes[rows], take(columns, rows), width, first, last)
        return
    first, last = max(first, low - width + 1), min(last, high)
    key_cells = last - first + width
    if key_cells > _KEY_CELLS_MAX and first < last:
        middle = (first + last) // 2
        yield from slide(monoid, keys, panes, columns, width, first, middle)
        yield from slide(monoid, keys, panes, columns, width, middle + 1, last)
        return
    cells = key_cells * (int(keys[-1]) - int(keys[0]) + 1)
    if len(panes) * min(width, last - first + 1) * _COPY_COST <= cells:
        yield from _anew(monoid, keys, panes, columns, width, first, last)
        return
    begins = np.searchsorted(keys, np.arange(int(keys[0]), int(keys[-1]) + 1, max(1, _BLOCK_CELLS // key_cells)))
    for start, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(keys)]):
        if start < stop:
            piece = slice(start, stop)
            part = take(columns, piece)
            try:
                yield _doubled(monoid, keys[piece], panes[piece], part, width, first, last)
            except OverflowError:
                # Of a part of a window, perhaps, the whole of which fits.
                yield from _anew(monoid, keys[piece], panes[piece], part, width, first, last)


def _anew(
    monoid: Monoid[Any], keys: Integers, panes: Integers, columns: Columns, width: int, first: int, last: int
) -> Iterator[Windows]:
    lows = np.maximum(panes - width + 1, first)
    yield from slide_anew(monoid, keys, lows, np.minimum(panes, last) - lows + 1, columns)


def slide_anew(
    monoid: Monoid[Any], keys: Integers, firsts: Integers, times: Integers, columns: Columns
) -> Iterator[Windows]:
    """Row i is in the windows ``firsts[i]``, ..., ``firsts[i] + times[i] - 1``: each is summed from its rows, in their
    order. Keys ascend. In pieces of a bounded number of copies: by keys, and by windows where one key has too many."""
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
            yield from slide_anew(monoid, keys[piece], firsts[piece], times[piece], take(columns, piece))
        return
    low, high = int(firsts[times > 0].min()), int(ends[times > 0].max())
    if high - low == 1:
        yield _sum_copies(monoid, keys, firsts, times, columns)
        return
    for start, stop in ((low, (low + high) // 2), ((low + high) // 2, high)):
        begins = np.maximum(firsts, start)
        counts = np.maximum(np.minimum(ends, stop) - begins, 0)
        rows = np.flatnonzero(counts)
        yield from slide_anew(monoid, keys[rows], begins[rows], counts[rows], take(columns, rows))


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


def _doubled(
    monoid: Monoid[Any], keys: Integers, panes: Integers, columns: Columns, width: int, first: int, last: int
) -> Windows:
    """The windows of some keys.

    Cells are laid out by (pane, key), so that neighbouring panes of all keys are two slices.
    """
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
    rows = np.flatnonzero(_by_key((is_any,), windows, key_count)[0])
    numbers = rows // windows
    return numbers + low_key, rows - numbers * windows + first, take(sums, rows)


def _by_key(columns: Columns, windows: int, key_count: int) -> Columns:
    """Rows by (window, key) as rows by (key, window)."""
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
        found = np.empty((size, *column.shape[1:]), column.dtype)
        found[:] = empty
        found[cells] = column[:1] if is_constant(column) else column
        spread.append(found)
    return tuple(spread)


def _window_sums(monoid: Any, cells: Columns, width: int, key_count: int) -> Columns:
    """The sums of ``width`` panes from each pane that has as many from it on: cells and sums by (pane, key)."""
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
    """Whether a pane is held: all that ``_window_sums`` asks of a monoid."""

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        return (a[0] | b[0],)


_ANY = _Any()
