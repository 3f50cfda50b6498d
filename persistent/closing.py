"""To close windows is to fold the panes they cover and to stage the sums as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from monoids.column import take
from monoids.columns import Integers, segment_starts
from monoids.grouping import number_keys, take_keys
from monoids.sliding import slide, slide_anew
from persistent.codec import Run, type_of
from persistent.job import Closed, CloseShard, Job
from persistent.outputs import final_values, window_outputs
from persistent.rows import Rows
from persistent.sums import fold_keys, fold_panes, fold_runs, summing
from persistent.task import key_names
from persistent.window import Window

_WINDOW_ROWS_MAX = 1 << 21
_WINDOW_KEY_BYTES_MAX = 1 << 29
_FOR_EVER = 1 << 62


def close_shard(job: Job, item: CloseShard) -> Closed:
    """Close the windows of one shard, or publish the keys of a state without windows that have changed."""
    state, window = job.state, job.state.window
    types = [type_of(name) for name in item.key_types]
    if window is None:
        tables = _changed_keys(job, item)
    else:
        tables = (
            window_outputs(state.monoid, key_names(job.task), types, window, rows, numbers)
            for rows, numbers in _closing_rows(job, item, window)
        )
    with summing(job):
        found = [table for table in tables if table.num_rows]
    if not found or job.sink is None:
        return Closed(None)
    outputs = pa.concat_tables(found)
    return Closed(job.sink.stage(outputs, item.attempt.id, item.attempt.name()))


def window_sums(
    job: Job,
    runs: Sequence[Run],
    groups: tuple[int, int],
    window: Window,
    first: int,
    last: int | None,
    until: int | None = None,
) -> Iterator[tuple[Rows, Integers]]:
    """The sums of the windows number ``first`` to ``last`` (None: to the end) in some key groups, in pieces,
    each with the window number of its rows; of the panes before ``until`` (None: of all)."""
    end = _FOR_EVER if last is None else last * window.every_ms + window.size_ms
    panes = (first * window.every_ms, end if until is None else min(end, until))
    if window.every_ms == window.size_ms and job.state.panes.interval_ms is None:
        # A pane is a window.
        for rows in fold_panes(job, runs, *groups, panes):
            yield rows, window.last_number(rows.panes)
        return
    folded = fold_runs(job, runs, *groups, panes)
    if folded is None:
        return
    yield from _window_pieces(job, folded, window, first, last)


def _window_pieces(
    job: Job, rows: Rows, window: Window, first: int, last: int | None
) -> Iterator[tuple[Rows, Integers]]:
    """The sum of each window of each key, of so few at a time that their keys are bounded."""
    monoid = job.state.monoid
    low = max(first, int(window.first_number(int(rows.panes.min()))))
    high = int(window.last_number(int(rows.panes.max())))
    if last is not None:
        high = min(high, last)
    keys, key_rows = number_keys(rows.keys, rows.hashes)
    if window.size_ms % window.every_ms:
        firsts: Integers = np.maximum(window.first_number(rows.panes), low)
        times: Integers = np.maximum(np.minimum(window.last_number(rows.panes), high) - firsts + 1, 0)
        pieces = slide_anew(monoid, keys, firsts, times, rows.columns)
    else:
        panes, columns = window.last_number(rows.panes), rows.columns
        starts = segment_starts((keys[1:] != keys[:-1]) | (panes[1:] != panes[:-1]))
        if len(starts) < len(panes):
            keys, panes, columns = keys[starts], panes[starts], monoid.reduce_sorted(columns, starts)
        pieces = slide(monoid, keys, panes, columns, window.size_ms // window.every_ms, low, high)
    most = _rows_max(rows)
    for numbers, windows, sums in pieces:
        for start in range(0, len(numbers), most):
            piece = slice(start, start + most)
            held = key_rows[numbers[piece]]
            panes = windows[piece] * window.every_ms
            yield Rows(rows.hashes[held], take_keys(rows.keys, held), panes, take(sums, piece)), windows[piece]


def _rows_max(rows: Rows) -> int:
    """How many rows are given at once: fewer where the keys are long."""
    key_bytes: int = sum(column.nbytes for column in rows.keys) // len(rows)
    return min(_WINDOW_ROWS_MAX, max(1, _WINDOW_KEY_BYTES_MAX // max(key_bytes, 1)))


def _closing_rows(job: Job, item: CloseShard, window: Window) -> Iterator[tuple[Rows, Integers]]:
    first = window.first_number(item.closed)
    last = (item.close_at - window.size_ms) // window.every_ms
    yield from window_sums(job, item.runs, (item.low, item.high), window, first, last)


def _changed_keys(job: Job, item: CloseShard) -> Iterator[pa.Table]:
    """The whole values of the keys that the runs after checkpoint ``published`` update."""
    updated = fold_runs(job, [run for run in item.runs if run.first > item.published], item.low, item.high)
    if updated is None:
        return
    rows = fold_keys(job, item.runs, item.low, item.high)
    assert rows is not None
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, updated.hashes)))
    types = [type_of(name) for name in item.key_types]
    yield final_values(job.state.monoid, key_names(job.task), types, rows, item.attempt.id)
