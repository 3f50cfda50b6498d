"""Closing a window folds the panes it covers and stages the sums as outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from monoids.column import take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sliding import PaneSums, slide, sum_windows
from monoids.groupby.summing import GroupSums
from persistent.codec import Run, type_of
from persistent.errors import UserCodeError
from persistent.state_rows import OPEN_PANE, fold, in_panes
from persistent.task import key_names
from persistent.window import AnyWindow, WindowRange
from persistent.worker.failing_keys import FailingKey, fold_apart, no_result, present_rows, stage_failing_keys
from persistent.worker.job import Closed, CloseShard, Job
from persistent.worker.merge_runs import fold_keys, fold_panes, fold_runs, monoid_errors, parts_of
from persistent.worker.output_tables import key_outputs, output_key, window_outputs

_NEVER = -1
"""Before every run: that of a job which started from a savepoint may have the number 0."""
_WINDOW_ROWS_MAX = 1 << 21
_WINDOW_KEY_BYTES_MAX = 1 << 29


def close_shard(job: Job, item: CloseShard) -> Closed:
    """Close the windows of one shard, or publish the changed keys of a state without windows."""
    # What is for the new sinks includes all that is for the others, and every key that fails.
    most, failing = _presented(job, replace(item, published=_NEVER) if item.whole else item)
    if failing and not job.dead_letters:
        raise no_result(job, failing[0])
    dead = stage_failing_keys(job, item.attempt, failing)
    outlets = job.outlets()
    changed, _ = _presented(job, item) if item.whole and outlets.keys() - set(item.whole) else (most, failing)
    key = output_key(key_names(job.task), job.state.window)
    outputs = {name: most if name in item.whole else changed for name in outlets}
    return Closed(
        {
            name: outlets[name].stage(pa.concat_tables(tables), item.attempt.id, item.attempt.name(), key)
            for name, tables in outputs.items()
            if tables
        },
        dead,
    )


def _presented(job: Job, item: CloseShard) -> tuple[list[pa.Table], list[FailingKey]]:
    """The outputs of a shard, and the keys that have none because their fold or their value fails."""
    failing: list[FailingKey] = []
    try:
        return _tables(job, item, _sums(job, item), failing), failing
    except UserCodeError:
        failing = []
        return _tables(job, item, _sums_apart(job, item, failing), failing), failing


def _tables(job: Job, item: CloseShard, sums: Iterable[GroupSums], failing: list[FailingKey]) -> list[pa.Table]:
    """The outputs of sums."""
    types = [type_of(name) for name in item.key_types]
    monoid, names, window = job.state.monoid, key_names(job.task), job.state.window

    def table_of(rows: GroupSums) -> pa.Table:
        if window is None:
            return key_outputs(job.state, names, types, rows, item.revision)
        return window_outputs(monoid, names, types, window, rows)

    with monoid_errors(job):
        return [table for part in sums for table in present_rows(job, table_of, part, failing) if table.num_rows]


def _sums(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    window = job.state.window
    if window is None:
        yield from _changed_keys(job, item)
    else:
        yield from window_sums(job, item.runs, (item.low, item.high), _to_close(item, window))


def _to_close(item: CloseShard, window: AnyWindow) -> WindowRange:
    """The windows with ``closed < end <= close_at``."""
    return WindowRange(window, int(window.first_number(item.closed)), int(window.first_number(item.close_at)) - 1)


def _sums_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The sums if a fold raises: slowly, and without the failing keys and windows."""
    window, groups = job.state.window, (item.low, item.high)
    if window is not None:
        yield from window_sums_apart(job, item.runs, groups, _to_close(item, window), failing)
        return
    recent = parts_of(job, [run for run in item.runs if run.first > item.published], *groups)
    hashes = np.unique(np.concatenate([part.hashes for part in recent])) if recent else np.zeros(0, np.uint64)
    parts = [part.take(np.flatnonzero(np.isin(part.hashes, hashes))) for part in parts_of(job, item.runs, *groups)]
    yield from fold_apart(job, parts, lambda own, _: [_fold_by_key(job, own)], None, failing)


def _fold_by_key(job: Job, parts: Sequence[GroupSums]) -> GroupSums:
    rows = fold(job.state.monoid, parts, job.state.panes.step)
    return in_panes(job.state.monoid, rows, np.full(len(rows), OPEN_PANE))


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
        return list(_window_pieces(job, folded, some)) if len(folded) else []

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
    yield from _window_pieces(job, folded, windows)


def _window_pieces(job: Job, rows: GroupSums, windows: WindowRange) -> Iterator[GroupSums]:
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
        pieces = slide(monoid, PaneSums(keys, panes, columns), window.width, low, high)
    most = _rows_max(rows)
    for numbers, held_windows, sums in pieces:
        for start in range(0, len(numbers), most):
            piece = slice(start, start + most)
            held = key_rows[numbers[piece]]
            starts = window.start_of(held_windows[piece])
            yield GroupSums(rows.hashes[held], take_keys(rows.keys, held), starts, take(sums, piece))


def _rows_max(rows: GroupSums) -> int:
    """The rows of a piece: fewer where the keys are long."""
    key_bytes: int = sum(column.nbytes for column in rows.keys) // len(rows)
    return min(_WINDOW_ROWS_MAX, max(1, _WINDOW_KEY_BYTES_MAX // max(key_bytes, 1)))


def _changed_keys(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The values of the keys updated by runs after checkpoint ``published``."""
    updated = fold_runs(job, [run for run in item.runs if run.first > item.published], item.low, item.high)
    if updated is None:
        return
    rows = fold_keys(job, item.runs, item.low, item.high)
    assert rows is not None
    yield rows.take(np.flatnonzero(np.isin(rows.hashes, updated.hashes)))
