"""A view is what a state shows by a clock: windows, sessions, keys, or the last life of each key.

The view of windows: the sum of the panes that each window of a range covers.

The view of sessions: those that end after one clock and up to another, one in each row.

A record can make a session longer, open it again, or join it with others. So a session that was published can end: the
row of its borders is then in the view before the record, and not in the view after it. Which sessions these are follows
from times alone. A published session can have changed only if the delta has a record of its key from before ``closed``;
where open sessions are published too, only if the delta has any record of its key.

A session that is published while it is open can have ended long before it is joined to a later one. So where open
sessions are published, ``since`` is None, and a session is settled only once the session that it was joined to is.

The views of keys: one value of each key, whatever the panes it is kept in; or that of its last life.

Which lives there are follows from times alone. A key whose life ends leaves the view, and its row is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from monoids import Monoid
from monoids.column import take
from monoids.groupby.cells import segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sliding import PaneSums, slide, sum_windows
from monoids.groupby.sorting import Integers, Mask
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.runs import of_hashes
from persistent.state.rows import OPEN_PANE, fold, in_panes, same_rows
from persistent.state.time_to_live import TimeToLive
from persistent.time.session_window import SessionWindow, each_session
from persistent.time.window import Panes, WindowRange

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


FOR_EVER = 1 << 62
"""No session ends later."""


@dataclass(frozen=True)
class SessionView:
    """``settled``: sessions that end up to it do not change. ``closed``: up to where sessions were published before;
    ``until``: up to where they are now. ``since``: where both views begin; None: with the first session. ``late``: the
    hashes, ascending, of the keys with a published session that may have ended. ``is_whole``: every session is
    published, changed or not. ``step``: a divisor of all cells."""

    window: SessionWindow
    step: int
    since: int | None
    settled: int
    closed: int
    until: int | None
    late: Words
    is_whole: bool = False
    joins: ClassVar[bool] = True

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield each_session(self.window, fold(kept, parts, self.step), self.since, self.until)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        ends = self._ends(rows)
        return ((marks | self.is_whole) & (ends > self.settled)) | (ends > self.closed)

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        slices = [of_hashes(part, self.late) for part in before]
        return [part for part in slices if len(part)]

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        if parts:
            yield each_session(self.window, fold(kept, parts, self.step), self.since, self.closed)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        here, there = same_rows(first, second, 1)
        same = self._ends(first)[here] == self._ends(second)[there]
        return here[same], there[same]

    def _ends(self, rows: GroupSums) -> Integers:
        return self.window.session_ends(*rows.columns[0].flat()[:2])


def late_hashes(parts: Sequence[GroupSums], closed: int) -> Words:
    """The hashes of the keys with a stretch that begins before the clock, ascending: only such a stretch can meet a
    closed session."""
    hashes = [np.zeros(0, np.uint64)]
    for part in parts:
        (table,) = part.columns
        starts, *_ = table.flat()
        hashes.append(table.spread(part.hashes)[starts < closed])
    return np.unique(np.concatenate(hashes))


def fold_by_key(kept: Monoid[Any], parts: Sequence[GroupSums], step: int) -> GroupSums:
    """The sum of parts, oldest first, by key alone."""
    rows = fold(kept, parts, step)
    if not len(rows) or int(rows.panes.max()) == int(rows.panes.min()) == OPEN_PANE:
        return rows
    return in_panes(kept, rows, np.full(len(rows), OPEN_PANE))


@dataclass(frozen=True)
class KeyView:
    """All keys of the parts. ``step``: a divisor of their panes."""

    step: int
    joins: ClassVar[bool] = False

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield fold_by_key(kept, parts, self.step)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        return marks

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        return before

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        return self.rows(kept, parts)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        return same_rows(first, second, self.step)


@dataclass(frozen=True)
class LifeView:
    """The last life of each key, unless it has ended. ``published_at``: the clock by which readers hold the keys that
    were published; None: readers hold none. ``close_at``: the clock of the view after the step. ``fresh``: the hashes
    of the keys of the delta: their values are published, whichever of their lives has changed. ``is_heir``: readers may
    hold what is in the delta."""

    ttl: TimeToLive
    step: int
    published_at: int | None
    close_at: int
    fresh: Words
    is_heir: bool = False
    joins: ClassVar[bool] = True

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield self.ttl.living(fold(kept, parts, self.step), self.close_at)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        # Another key with an equal hash is published again as it is.
        return np.isin(rows.hashes, self.fresh)

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        return delta if self.is_heir else before

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        if parts and self.published_at is not None:
            yield self.ttl.living(fold(kept, parts, self.step), self.published_at)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        return same_rows(first, second, 1)
