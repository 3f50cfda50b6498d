"""To close windows is to fold the panes they cover and to stage the sums as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from monoids.columns import Integers, group_hashes
from monoids.monoid import take
from persistent.codec import Run, type_of
from persistent.job import Closed, CloseShard, Job
from persistent.outputs import final_values, window_outputs
from persistent.rows import Rows
from persistent.sums import fold_panes, fold_runs, summing
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
    job: Job, runs: Sequence[Run], groups: tuple[int, int], window: Window, first: int, last: int | None
) -> Iterator[tuple[Rows, Integers]]:
    """The sums of the windows number ``first`` to ``last`` (None: to the end) in some key groups, in pieces,
    each with the window number of its rows."""
    panes = (first * window.every_ms, _FOR_EVER if last is None else last * window.every_ms + window.size_ms)
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
    """Each row once for every window it is in, summed: of so few windows at a time that the copies are bounded."""
    low = max(first, int(window.first_number(int(rows.panes.min()))))
    high = int(window.last_number(int(rows.panes.max())))
    if last is not None:
        high = min(high, last)
    numbers_from: Integers = np.maximum(window.first_number(rows.panes), low)
    times: Integers = np.maximum(np.minimum(window.last_number(rows.panes), high) - numbers_from + 1, 0)
    held = np.flatnonzero(times)
    if len(held) < len(rows):
        if len(held):
            yield from _window_pieces(job, rows.take(held), window, low, high)
        return
    if low < high and int(times.sum()) > _copies_max(rows):
        middle = (low + high) // 2
        yield from _window_pieces(job, rows, window, low, middle)
        yield from _window_pieces(job, rows, window, middle + 1, high)
        return
    chosen = np.repeat(np.arange(len(rows)), times)
    before = np.repeat(np.cumsum(times) - times, times)
    numbers = numbers_from[chosen] + np.arange(len(chosen)) - before
    piece = rows.take(chosen)
    order, starts = group_hashes(piece.keys, piece.hashes, numbers)
    columns = job.state.monoid.reduce_sorted(take(piece.columns, order), starts)
    firsts = order[starts]
    yield replace(piece.take(firsts), columns=columns), numbers[firsts]


def _copies_max(rows: Rows) -> int:
    """How many copies of these rows are made at once: fewer where the keys are long."""
    key_bytes: int = sum(column.nbytes for column in rows.keys) // len(rows)
    return min(_WINDOW_ROWS_MAX, _WINDOW_KEY_BYTES_MAX // max(key_bytes, 1))


def _closing_rows(job: Job, item: CloseShard, window: Window) -> Iterator[tuple[Rows, Integers]]:
    first = window.first_number(item.closed)
    last = (item.close_at - window.size_ms) // window.every_ms
    yield from window_sums(job, item.runs, (item.low, item.high), window, first, last)


def _changed_keys(job: Job, item: CloseShard) -> Iterator[pa.Table]:
    """The whole values of the keys that the runs after checkpoint ``published`` update."""
    updated = fold_runs(job, [run for run in item.runs if run.first > item.published], item.low, item.high)
    if updated is None:
        return
    rows = fold_runs(job, item.runs, item.low, item.high)
    assert rows is not None
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, updated.hashes)))
    types = [type_of(name) for name in item.key_types]
    yield final_values(job.state.monoid, key_names(job.task), types, rows, item.attempt.id)
