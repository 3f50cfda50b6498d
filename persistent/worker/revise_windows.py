"""Revising a window publishes it again, after a step has brought late records: for the keys of the delta alone.

    the new value  =  combine(the fold of the state, the fold of the delta)          by associativity

In the state only the rows of these keys are folded, found by their hashes. ``accumulate`` publishes the new value,
``retract`` before it the old one, unless both are equal, and ``delta`` the fold of the delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import Sum, record
from monoids.column import Columns, concat, take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import take_keys
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.runs import of_hashes
from persistent.lateness import DELTA, RETRACT
from persistent.state_rows import fold, in_panes
from persistent.window import AnyWindow, WindowRange
from persistent.worker.close_windows import window_pieces
from persistent.worker.failing_keys import FailingKey, fold_apart
from persistent.worker.job import CloseShard, Job
from persistent.worker.merge_runs import fold_by_key, parts_of
from persistent.worker.output_tables import END, RETRACTED, equal_values

_SIDES = record(one=Sum(), other=Sum())
Found = tuple[Integers, Columns]
"""The rows that were found elsewhere, and their elements there."""


@dataclass(frozen=True)
class Corrected(GroupSums):
    """The new values of windows, with the ``earlier`` ones in the same rows, where there ``was`` one."""

    earlier: Columns
    was: Mask

    def slice(self, start: int, stop: int) -> Corrected:
        earlier = tuple(column[start:stop] for column in self.earlier)
        rows = GroupSums(self.hashes, self.keys, self.panes, self.columns).slice(start, stop)
        return Corrected(rows.hashes, rows.keys, rows.panes, rows.columns, earlier, self.was[start:stop])

    @property
    def before(self) -> GroupSums:
        """What the rows were that were published before."""
        rows = np.flatnonzero(self.was)
        return GroupSums(self.hashes[rows], take_keys(self.keys, rows), self.panes[rows], take(self.earlier, rows))

    def outputs(self, after: pa.Table, before: pa.Table) -> pa.Table:
        """The rows to publish, given the outputs of the new values and of those ``before``: a row that is taken back
        precedes the new one, and there is none of either where they are equal."""
        rows = np.flatnonzero(self.was)
        same = np.ones(len(rows), bool)
        for name in after.column_names:
            if name != RETRACTED:
                old, new = before[name].combine_chunks(), after[name].take(pa.array(rows)).combine_chunks()
                same &= equal_values(old, new)
        is_new = np.ones(len(self), bool)
        is_new[rows[same]] = False
        old_rows, new_rows = np.flatnonzero(~same), np.flatnonzero(is_new)
        places = np.concatenate([2 * rows[old_rows], 2 * new_rows + 1])
        chosen = np.concatenate([old_rows, len(rows) + new_rows])[np.argsort(places)]
        return pa.concat_tables([before, after]).take(pa.array(chosen))


@dataclass(frozen=True)
class TakenBack(GroupSums):
    """Published values to retract: of keys that have expired, or of sessions that are now part of others."""

    @staticmethod
    def of(rows: GroupSums) -> TakenBack:
        return TakenBack(rows.hashes, rows.keys, rows.panes, rows.columns)

    def slice(self, start: int, stop: int) -> TakenBack:
        return TakenBack.of(GroupSums(self.hashes, self.keys, self.panes, self.columns).slice(start, stop))


def corrections(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The windows of a shard that the delta revises, in pieces."""
    window, groups = job.state.window, (item.low, item.high)
    if window is None or not item.corrected:
        return
    monoid, step, answer = job.state.monoid, job.state.panes.step, job.state.lateness.answer
    windows = WindowRange(window, item.corrected[0][0], item.corrected[-1][1])
    deltas = parts_of(job, item.delta, *groups, windows.panes())
    if not deltas:
        return
    delta = fold(monoid, deltas, step)
    states = [] if answer == DELTA else parts_of(job, item.runs, *groups, windows.panes(), _hashes(delta))
    state = fold(monoid, states, step) if states else None
    for touched in window_pieces(job, delta, windows):
        if answer == DELTA:
            yield touched
            continue
        found = None if state is None else found_rows(job, touched, _windows_of(job, state, touched, window))
        yield _changed(job, item, touched, found)


def corrections_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The same if a fold raises: slowly, window by window, and without the failing keys."""
    window, groups = job.state.window, (item.low, item.high)
    answer = job.state.lateness.answer
    for first, last in item.corrected if window is not None else ():
        assert window is not None
        for number in range(first, last + 1):
            panes = WindowRange(window, number, number).panes()
            deltas = parts_of(job, item.delta, *groups, panes)
            states = parts_of(job, item.runs, *groups, panes, _unique(deltas)) if deltas and answer != DELTA else []
            times = (int(window.start_of(number)), int(window.end_of(number)))
            for rows in _sums_apart(job, [*states, *deltas], times, failing):
                old = _sums_apart(job, states, times, []) if _takes_back(job, item) else ()
                yield with_earlier(rows, found_rows(job, rows, old)) if _takes_back(job, item) else rows


def changed_keys(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The values of the keys of a shard that the delta has changed, in a state without windows."""
    deltas = parts_of(job, item.delta, item.low, item.high)
    if deltas:
        touched = fold_by_key(job, deltas)
        states = parts_of(job, item.runs, item.low, item.high, hashes=_hashes(touched))
        found = found_rows(job, touched, [fold_by_key(job, states)]) if states else None
        yield _changed(job, item, touched, found)


def changed_keys_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The same if a fold raises: slowly, and without the failing keys."""
    deltas = parts_of(job, item.delta, item.low, item.high)
    states = parts_of(job, item.runs, item.low, item.high, hashes=_unique(deltas)) if deltas else []

    def fold_keys(own: Sequence[GroupSums], _: int | None) -> list[GroupSums]:
        return [fold_by_key(job, own)]

    for rows in fold_apart(job, [*states, *deltas], fold_keys, None, failing):
        old = fold_apart(job, states, fold_keys, None, []) if _takes_back(job, item) else ()
        yield with_earlier(rows, found_rows(job, rows, old)) if _takes_back(job, item) else rows


def corrected_in(item: CloseShard, outputs: Iterable[pa.Table]) -> int:
    """How many results of windows that were closed before these outputs publish again."""
    count = 0
    for table in outputs:
        again = pc.less_equal(table[END].cast(pa.int64()), item.closed)
        if RETRACTED in table.column_names:
            again = pc.and_(again, pc.invert(table[RETRACTED]))
        count += pc.sum(again).as_py() or 0
    return count


def _hashes(rows: GroupSums) -> Words:
    """The hashes of rows in their order, each once."""
    hashes = rows.hashes
    return hashes[segment_starts(hashes[1:] != hashes[:-1])]


def _unique(parts: Sequence[GroupSums]) -> Words:
    return np.unique(np.concatenate([part.hashes for part in parts]))


def _windows_of(job: Job, state: GroupSums, touched: GroupSums, window: AnyWindow) -> Iterator[GroupSums]:
    """The windows of the state for the keys that are touched, and between the first and the last that is."""
    rows = of_hashes(state, np.unique(touched.hashes))
    first, last = (int(window.last_number(int(end))) for end in (touched.panes.min(), touched.panes.max()))
    windows = WindowRange(window, first, last)
    start, stop = windows.panes()
    rows = rows.take(np.flatnonzero((rows.panes >= start) & (rows.panes < stop)))
    if len(rows):
        yield from window_pieces(job, rows, windows)


def found_rows(job: Job, rows: GroupSums, pieces: Iterable[GroupSums]) -> Found | None:
    """Those of the rows whose key and window are in the pieces; None if there are none."""
    places: list[Integers] = []
    columns: list[Columns] = []
    for piece in pieces:
        here, there = same_rows(rows, piece, job.state.panes.step)
        if len(here):
            places.append(here)
            columns.append(take(piece.columns, there))
    return (np.concatenate(places), concat(columns)) if places else None


def same_rows(one: GroupSums, other: GroupSums, step: int) -> tuple[Integers, Integers]:
    """The row numbers in both of each key and window that both have. Each has it once: so the sum over its row
    numbers, counted from one, is the row."""
    numbers = [np.arange(1, len(rows) + 1) for rows in (one, other)]
    nothing = [np.zeros(len(rows), np.int64) for rows in (one, other)]
    sums = fold(
        _SIDES,
        [replace(one, columns=(numbers[0], nothing[0])), replace(other, columns=(nothing[1], numbers[1]))],
        step,
    )
    here, there = sums.columns
    both = (here > 0) & (there > 0)
    return here[both] - 1, there[both] - 1


def _changed(job: Job, item: CloseShard, touched: GroupSums, found: Found | None) -> GroupSums:
    """The new values of the rows that the delta touches; with the earlier ones if these are retracted."""
    rows = _added(job, found, touched)
    return with_earlier(rows, found) if _takes_back(job, item) else rows


def _takes_back(job: Job, item: CloseShard) -> bool:
    return job.state.lateness.answer == RETRACT and not item.anew


def _added(job: Job, found: Found | None, touched: GroupSums) -> GroupSums:
    """What was touched, added to what was found."""
    if found is None:
        return touched
    places, old = found
    sums = job.state.monoid.combine_columns(old, take(touched.columns, places))
    return replace(touched, columns=_put(touched.columns, places, sums))


def with_earlier(rows: GroupSums, found: Found | None) -> Corrected:
    """The rows with the elements that they had before."""
    earlier, was = rows.columns, np.zeros(len(rows), bool)
    if found is not None:
        earlier, was[found[0]] = _put(rows.columns, *found), True
    return Corrected(rows.hashes, rows.keys, rows.panes, rows.columns, earlier, was)


def without(rows: GroupSums, places: Integers) -> GroupSums:
    """The rows in other places."""
    held = np.ones(len(rows), bool)
    held[places] = False
    return rows.take(np.flatnonzero(held))


def _put(columns: Columns, places: Integers, others: Columns) -> Columns:
    """The columns with other elements in these rows."""
    rows = np.arange(len(columns[0]))
    rows[places] = len(rows) + np.arange(len(places))
    return take(concat([columns, others]), rows)


def _sums_apart(
    job: Job, parts: Sequence[GroupSums], window: tuple[int, int], failing: list[FailingKey]
) -> Iterator[GroupSums]:
    """The sums of parts of one window by key; keys whose fold raises go to ``failing``."""
    monoid, step, mine = job.state.monoid, job.state.panes.step, list[FailingKey]()

    def fold_window(own: Sequence[GroupSums], number: int | None) -> list[GroupSums]:
        rows = fold(monoid, own, step)
        return [in_panes(monoid, rows, np.full(len(rows), window[0]))]

    yield from fold_apart(job, parts, fold_window, None, mine)
    failing += [replace(one, window=window) for one in mine]
