"""The view of windows: the sum of the panes that each window of a range covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from monoids import Monoid
from monoids.column import take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sliding import PaneSums, slide, sum_windows
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.codec.runs import of_hashes
from persistent.state_rows import fold
from persistent.views.rows import same_rows
from persistent.window import Panes, WindowRange

_WINDOW_ROWS_MAX = 1 << 21
_WINDOW_KEY_BYTES_MAX = 1 << 29
_PANES_MAX = 1 << 20


@dataclass(frozen=True)
class WindowView:
    """The windows of a range. ``panes`` of a row is the start of its window. ``grid``: the panes of the state; parts
    hold those of the range. ``in_order``: rows are in the order of their keys, whichever parts hold their panes."""

    windows: WindowRange
    grid: Panes
    in_order: bool = False
    joins: ClassVar[bool] = False

    @property
    def step(self) -> int:
        return self.grid.step

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        window = self.windows.window
        if not parts:
            return
        if window.width == 1 and self.grid.interval_ms is None and not self.in_order:
            # A pane is a window, with the same start unless the window begins before the epoch.
            for rows in _fold_panes(kept, parts, self.step):
                yield replace(rows, panes=window.last_start(rows.panes)) if window.starts_early else rows
            return
        yield from _window_pieces(kept, fold(kept, parts, self.step), self.windows)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        return marks

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        return before

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        window, hashes = self.windows.window, np.unique(rows.hashes)
        first, last = (int(window.last_number(int(start))) for start in (rows.panes.min(), rows.panes.max()))
        within = replace(self, windows=replace(self.windows, first=first, last=last))
        start, stop = within.windows.panes()
        slices = [of_hashes(part, hashes) for part in parts]
        slices = [part.filter((part.panes >= start) & (part.panes < stop)) for part in slices]
        return within.rows(kept, [part for part in slices if len(part)])

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        return same_rows(first, second, self.step)


def _fold_panes(kept: Monoid[Any], parts: Sequence[GroupSums], step: int) -> Iterator[GroupSums]:
    """The sum of parts, oldest first, in pieces that each hold whole panes.

    A pane that is in only one part needs no fold; with time-ordered input most are.
    """
    if len(parts) < 2:
        yield from parts
        return
    first = min(int(part.panes.min()) for part in parts)
    size = (max(int(part.panes.max()) for part in parts) - first) // step + 1
    if size > _PANES_MAX:
        yield fold(kept, parts, step)
        return
    numbers = [(part.panes - first) // step for part in parts]
    holders = np.zeros(size, np.int64)
    for number in numbers:
        holders += np.bincount(number, minlength=size) > 0
    is_shared = holders > 1
    shared = []
    for part, number in zip(parts, numbers):
        mask = is_shared[number]
        if mask.any():
            shared.append(part.filter(mask))
            part = part.filter(~mask)
        if len(part):
            yield part
    if shared:
        yield fold(kept, shared, step)


def _window_pieces(kept: Monoid[Any], rows: GroupSums, windows: WindowRange) -> Iterator[GroupSums]:
    """The sum of each window of each key, in pieces whose keys are of bounded size."""
    window = windows.window
    low = max(windows.first, int(window.first_number(int(rows.panes.min()))))
    high = int(window.last_number(int(rows.panes.max())))
    if windows.last is not None:
        high = min(high, windows.last)
    keys, key_rows = number_keys(rows.keys, rows.hashes)
    if window.width is None:
        firsts: Integers = np.maximum(window.first_number(rows.panes), low)
        times: Integers = np.maximum(np.minimum(window.last_number(rows.panes), high) - firsts + 1, 0)
        pieces = sum_windows(kept, keys, firsts, times, rows.columns)
    else:
        panes, columns = window.last_number(rows.panes), rows.columns
        starts = segment_starts((keys[1:] != keys[:-1]) | (panes[1:] != panes[:-1]))
        if len(starts) < len(panes):
            keys, panes, columns = keys[starts], panes[starts], kept.reduce_sorted(columns, starts)
        by_pane = PaneSums(keys, panes, columns)
        pieces = slide(kept, by_pane, window.width, low, high) if window.overlaps else _within(by_pane, low, high)
    rows_max = _rows_max(rows)
    for numbers, held_windows, sums in pieces:
        for start in range(0, len(numbers), rows_max):
            piece = slice(start, start + rows_max)
            chosen = key_rows[numbers[piece]]
            starts = window.start_of(held_windows[piece])
            yield GroupSums(rows.hashes[chosen], take_keys(rows.keys, chosen), starts, take(sums, piece))


def _within(sums: PaneSums, low: int, high: int) -> Iterator[PaneSums]:
    """The windows in a range of numbers, where each window is one pane. Gaps between the numbers cost nothing."""
    inside = (sums.panes >= low) & (sums.panes <= high)
    if inside.any():
        yield sums if inside.all() else sums.take(np.flatnonzero(inside))


def _rows_max(rows: GroupSums) -> int:
    """The rows of a piece: fewer where the keys are long."""
    key_bytes: int = sum(column.nbytes for column in rows.keys) // len(rows)
    return min(_WINDOW_ROWS_MAX, max(1, _WINDOW_KEY_BYTES_MAX // max(key_bytes, 1)))
