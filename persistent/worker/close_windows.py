"""Closing a window folds the panes it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from monoids.column import take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sliding import PaneSums, slide, sum_windows
from monoids.groupby.summing import GroupSums
from persistent.codec import Run
from persistent.state_rows import fold
from persistent.window import AnyWindow, WindowRange
from persistent.worker.failing_keys import FailingKey, fold_apart
from persistent.worker.job import CloseShard, Job
from persistent.worker.merge_runs import fold_panes, fold_runs, parts_of

_WINDOW_ROWS_MAX = 1 << 21
_WINDOW_KEY_BYTES_MAX = 1 << 29


def closing_sums(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The sums of the windows that close in a shard."""
    window = job.state.window
    assert window is not None
    for windows, runs in _to_close(item, window):
        yield from window_sums(job, runs, (item.low, item.high), windows)


def _to_close(item: CloseShard, window: AnyWindow) -> Iterator[tuple[WindowRange, tuple[Run, ...]]]:
    """The windows with ``closed < end <= close_at``, with the runs that count in them. Those that are final take
    nothing of the step, although they may share panes with others that do."""
    between = min(max(item.closed, item.final), item.close_at)
    bounds = [int(window.first_number(clock)) for clock in (item.closed, between, item.close_at)]
    for first, stop, runs in zip(bounds, bounds[1:], (item.runs, (*item.runs, *item.delta))):
        if first < stop:
            yield WindowRange(window, first, stop - 1), runs


def closing_sums_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The sums if a fold raises: slowly, and without the failing keys and windows."""
    window = job.state.window
    assert window is not None
    for windows, runs in _to_close(item, window):
        yield from window_sums_apart(job, runs, (item.low, item.high), windows, failing)


def window_sums_apart(
    job: Job, runs: Sequence[Run], groups: tuple[int, int], windows: WindowRange, failing: list[FailingKey]
) -> Iterator[GroupSums]:
    """As ``window_sums``; keys and windows whose fold raises go to ``failing`` instead."""
    parts = parts_of(job, runs, *groups, windows.panes())
    if not parts:
        return
    highest = max(int(windows.window.last_number(int(part.panes.max()))) for part in parts)
    last = highest if windows.last is None else min(windows.last, highest)

    def fold_windows(parts: Sequence[GroupSums], number: int | None) -> list[GroupSums]:
        one, other = (windows.first, last) if number is None else (number, number)
        some = replace(windows, first=one, last=other)
        start, stop = some.panes()
        held = [part.take(np.flatnonzero((part.panes >= start) & (part.panes < stop))) for part in parts]
        folded = fold(job.state.monoid, held, job.state.panes.step)
        return list(window_pieces(job, folded, some)) if len(folded) else []

    yield from fold_apart(job, parts, fold_windows, replace(windows, last=last), failing)


def window_sums(job: Job, runs: Sequence[Run], groups: tuple[int, int], windows: WindowRange) -> Iterator[GroupSums]:
    """The sums of windows in some key groups, in pieces. ``panes`` of a row is the start of its window."""
    window, panes = windows.window, windows.panes()
    if window.width == 1 and job.state.panes.interval_ms is None:
        # A pane is a window, with the same start unless the window begins before the epoch.
        for rows in fold_panes(job, runs, *groups, panes):
            yield replace(rows, panes=window.last_start(rows.panes)) if window.starts_early else rows
        return
    folded = fold_runs(job, runs, *groups, panes)
    if folded is None:
        return
    yield from window_pieces(job, folded, windows)


def window_pieces(job: Job, rows: GroupSums, windows: WindowRange) -> Iterator[GroupSums]:
    """The sum of each window of each key, in pieces whose keys are of bounded size."""
    monoid, window = job.state.monoid, windows.window
    low = max(windows.first, int(window.first_number(int(rows.panes.min()))))
    high = int(window.last_number(int(rows.panes.max())))
    if windows.last is not None:
        high = min(high, windows.last)
    keys, key_rows = number_keys(rows.keys, rows.hashes)
    if window.width is None:
        firsts: Integers = np.maximum(window.first_number(rows.panes), low)
        times: Integers = np.maximum(np.minimum(window.last_number(rows.panes), high) - firsts + 1, 0)
        pieces = sum_windows(monoid, keys, firsts, times, rows.columns)
    else:
        panes, columns = window.last_number(rows.panes), rows.columns
        starts = segment_starts((keys[1:] != keys[:-1]) | (panes[1:] != panes[:-1]))
        if len(starts) < len(panes):
            keys, panes, columns = keys[starts], panes[starts], monoid.reduce_sorted(columns, starts)
        by_pane = PaneSums(keys, panes, columns)
        pieces = slide(monoid, by_pane, window.width, low, high) if window.overlaps else _within(by_pane, low, high)
    most = _rows_max(rows)
    for numbers, held_windows, sums in pieces:
        for start in range(0, len(numbers), most):
            piece = slice(start, start + most)
            held = key_rows[numbers[piece]]
            starts = window.start_of(held_windows[piece])
            yield GroupSums(rows.hashes[held], take_keys(rows.keys, held), starts, take(sums, piece))


def _within(sums: PaneSums, low: int, high: int) -> Iterator[PaneSums]:
    """The windows in a range of numbers, each of which is one pane: however far apart the numbers of two are."""
    inside = (sums.panes >= low) & (sums.panes <= high)
    if inside.any():
        yield sums if inside.all() else sums.take(np.flatnonzero(inside))


def _rows_max(rows: GroupSums) -> int:
    """The rows of a piece: fewer where the keys are long."""
    key_bytes: int = sum(column.nbytes for column in rows.keys) // len(rows)
    return min(_WINDOW_ROWS_MAX, max(1, _WINDOW_KEY_BYTES_MAX // max(key_bytes, 1)))
