"""To close windows is to fold the panes they cover and to stage the sums as outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from monoids.column import take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sliding import slide, slide_anew
from persistent.codec import Run, type_of
from persistent.errors import UserCodeError
from persistent.task import key_names
from persistent.window import Window
from persistent.worker.failing_keys import Culprit, NumberedRows, refusal, shown, stage_culprits, summed
from persistent.worker.job import Closed, CloseShard, Job
from persistent.worker.merge_runs import fold_keys, fold_panes, fold_runs, parts_of, summing
from persistent.worker.output_tables import final_values, window_outputs
from persistent.worker.state_rows import OPEN_PANE, Rows, fold, in_panes

_WINDOW_ROWS_MAX = 1 << 21
_WINDOW_KEY_BYTES_MAX = 1 << 29
_FOR_EVER = 1 << 62


def close_shard(job: Job, item: CloseShard) -> Closed:
    """Close the windows of one shard, or publish the keys of a state without windows that have changed."""
    found: list[Culprit] = []
    try:
        tables = _tables(job, item, _sums(job, item), found)
    except UserCodeError:
        found = []
        tables = _tables(job, item, _sums_apart(job, item, found), found)
    if found and not job.dead_letters:
        raise refusal(job, found[0])
    dead = stage_culprits(job, item.attempt, found)
    if not tables or job.sink is None:
        return Closed(None, dead)
    return Closed(job.sink.stage(pa.concat_tables(tables), item.attempt.id, item.attempt.name()), dead)


def _tables(job: Job, item: CloseShard, sums: Iterable[NumberedRows], found: list[Culprit]) -> list[pa.Table]:
    """What is published of sums."""
    types = [type_of(name) for name in item.key_types]
    monoid, names, window = job.state.monoid, key_names(job.task), job.state.window

    def table_of(rows: Rows, numbers: Integers | None) -> pa.Table:
        if window is None or numbers is None:
            return final_values(monoid, names, types, rows, item.attempt.id)
        return window_outputs(monoid, names, types, window, rows, numbers)

    with summing(job):
        return [table for part in sums for table in shown(job, table_of, part, found) if table.num_rows]


def _sums(job: Job, item: CloseShard) -> Iterator[NumberedRows]:
    window = job.state.window
    if window is None:
        yield from _changed_keys(job, item)
    else:
        yield from window_sums(job, item.runs, (item.low, item.high), window, *_numbers(item, window))


def _numbers(item: CloseShard, window: Window) -> tuple[int, int]:
    """The first and the last window to close."""
    return int(window.first_number(item.closed)), (item.close_at - window.size_ms) // window.every_ms


def _sums_apart(job: Job, item: CloseShard, found: list[Culprit]) -> Iterator[NumberedRows]:
    """The sums, where a fold raises: the slow way, without the keys and windows of which it does."""
    window, groups = job.state.window, (item.low, item.high)
    if window is not None:
        yield from sums_apart(job, item.runs, groups, window, *_numbers(item, window), found)
        return
    recent = parts_of(job, [run for run in item.runs if run.first > item.published], *groups)
    hashes = np.unique(np.concatenate([part.hashes for part in recent])) if recent else np.zeros(0, np.uint64)
    parts = [part.take(np.flatnonzero(np.isin(part.hashes, hashes))) for part in parts_of(job, item.runs, *groups)]
    yield from summed(job, parts, lambda own, _: [(_of_keys(job, own), None)], None, found)


def _of_keys(job: Job, parts: Sequence[Rows]) -> Rows:
    rows = fold(job.state.monoid, parts, job.state.panes.step)
    return in_panes(job.state.monoid, rows, np.full(len(rows), OPEN_PANE))


def sums_apart(
    job: Job,
    runs: Sequence[Run],
    groups: tuple[int, int],
    window: Window,
    first: int,
    last: int | None,
    found: list[Culprit],
    until: int | None = None,
) -> Iterator[NumberedRows]:
    """As ``window_sums``, without the keys and windows whose fold raises: these are ``found``."""
    panes = _panes(window, first, last, until)
    parts = parts_of(job, runs, *groups, panes)
    if not parts:
        return
    highest = max(int(window.last_number(int(part.panes.max()))) for part in parts)
    last = highest if last is None else min(last, highest)

    def sum_up(parts: Sequence[Rows], number: int | None) -> list[NumberedRows]:
        one, other = (first, last) if number is None else (number, number)
        start, stop = _panes(window, one, other, until)
        held = [part.take(np.flatnonzero((part.panes >= start) & (part.panes < stop))) for part in parts]
        folded = fold(job.state.monoid, held, job.state.panes.step)
        return list(_window_pieces(job, folded, window, one, other)) if len(folded) else []

    yield from summed(job, parts, sum_up, (first, last), found)


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
    panes = _panes(window, first, last, until)
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


def _changed_keys(job: Job, item: CloseShard) -> Iterator[NumberedRows]:
    """The whole values of the keys that the runs after checkpoint ``published`` update."""
    updated = fold_runs(job, [run for run in item.runs if run.first > item.published], item.low, item.high)
    if updated is None:
        return
    rows = fold_keys(job, item.runs, item.low, item.high)
    assert rows is not None
    yield rows.take(np.flatnonzero(np.isin(rows.hashes, updated.hashes))), None


def _panes(window: Window, first: int, last: int | None, until: int | None) -> tuple[int, int]:
    """The panes ``from <= pane < to`` of windows, of those before ``until``."""
    end = _FOR_EVER if last is None else last * window.every_ms + window.size_ms
    return first * window.every_ms, end if until is None else min(end, until)
