"""Closing sessions folds the cells of the keys that may have one whose end has come, and takes those sessions out.

With lateness, what the step itself has read counts in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from monoids import Count, SetUnion
from monoids.column import Columns, Ragged, concat, take
from monoids.containers.sessions import Sessions
from monoids.groupby.summing import GroupSums
from persistent.errors import PersistentError
from persistent.session_window import SessionWindow, each_session, values_of
from persistent.state_rows import fold
from persistent.worker.failing_keys import FailingKey
from persistent.worker.job import CloseShard, Job
from persistent.worker.merge_runs import parts_of

_NUMBERS, _COUNT = SetUnion(int), Count()


def due_sessions(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The sessions of a shard with ``closed < end <= close_at``, one in each row."""
    window, parts = window_of(job), _parts(job, item)
    if parts:
        rows = fold(job.state.monoid, parts, job.state.panes.step)
        yield each_session(window, rows, item.closed, item.close_at)


def due_sessions_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The same if a fold raises: without the sessions of which the fold raises, which go to ``failing``. A session that
    is not due is not folded: it may become longer."""
    yield from _sessions_apart(job, _parts(job, item), item.closed, item.close_at, failing)


def open_sessions(job: Job, parts: Sequence[GroupSums], closed: int, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The sessions in parts that end after ``closed``, one in each row; those of which the fold raises go to
    ``failing``. If one raises, those that are closed are not folded: they may have raised when they closed."""
    if not parts:
        return
    window = window_of(job)
    try:
        rows = fold(job.state.monoid, parts, job.state.panes.step)
    except (PersistentError, OSError, MemoryError):
        raise
    except Exception:
        yield from _sessions_apart(job, parts, closed, None, failing)
    else:
        yield each_session(window, rows, closed)


def due_count(job: Job, item: CloseShard) -> int:
    """How many these are, by the times of the fragments alone: a value that is not published is not folded."""
    window, parts = window_of(job), _parts(job, item)
    if not parts:
        return 0
    times = [with_values(part, _COUNT.lift_columns(np.arange(part.columns[0].entries))) for part in parts]
    rows = fold(Sessions(window.gap_ms, _COUNT), times, job.state.panes.step)
    return len(each_session(window, rows, item.closed, item.close_at))


def window_of(job: Job) -> SessionWindow:
    """The windows of a state of sessions."""
    window = job.state.window
    assert isinstance(window, SessionWindow)
    return window


def _parts(job: Job, item: CloseShard) -> list[GroupSums]:
    """The rows of each run that may hold something that is due: from the cell of ``closed`` to that of ``close_at``."""
    window = window_of(job)
    panes = (window.start_of(window.first_number(item.closed)), item.close_at)
    return parts_of(job, (*item.runs, *item.delta), item.low, item.high, panes, item.hashes)


def _sessions_apart(
    job: Job, parts: Sequence[GroupSums], closed: int, until: int | None, failing: list[FailingKey]
) -> Iterator[GroupSums]:
    """The sessions with ``closed < end <= until``, without those of which the fold raises. No other is folded."""
    if not parts:
        return
    inner, numbered = numbered_parts(parts)
    chosen = each_session(window_of(job), fold_numbers(job, numbered), closed, until)
    yield from folded_sessions(job, chosen, inner, failing)


def fold_numbers(job: Job, numbered: Sequence[GroupSums]) -> GroupSums:
    """The sum of parts that hold the numbers of their fragments: no fold of them raises."""
    return fold(Sessions(window_of(job).gap_ms, _NUMBERS), numbered, job.state.panes.step)


def numbered_parts(parts: Sequence[GroupSums]) -> tuple[Columns, list[GroupSums]]:
    """The inner elements of all fragments, and the parts with their numbers instead of them."""
    inner, numbered, count = [], [], 0
    for part in parts:
        (table,) = part.columns
        _, _, *elements = table.flat()
        numbers = _NUMBERS.lift_columns(np.arange(count, count + table.entries))
        inner.append(tuple(elements))
        numbered.append(with_values(part, numbers))
        count += table.entries
    return concat(inner), numbered


def with_values(part: GroupSums, values: Columns) -> GroupSums:
    """The rows with other inner elements, one for each fragment."""
    (table,) = part.columns
    start, last, *_ = table.flat()
    return replace(part, columns=(Ragged.of(table.lengths, (start, last, *values)),))


def folded_sessions(job: Job, due: GroupSums, inner: Columns, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """Sessions that hold the numbers of their fragments, folded: by bisection, if the fold of one raises."""
    if not len(due) or (failing and not job.dead_letters):
        return
    start, last, *held = due.columns[0].flat()
    members = _NUMBERS.unpack(tuple(held))
    order = np.array([number for some in members for number in sorted(some)], np.int64)
    lengths = np.array([len(some) for some in members], np.int64)
    try:
        sums = values_of(job.state.monoid).reduce_sorted(take(inner, order), np.cumsum(lengths) - lengths)
    except (PersistentError, OSError, MemoryError):
        raise
    except Exception as error:
        if len(due) == 1:
            key = tuple(column[0].as_py() for column in due.keys)
            ends = window_of(job).session_ends(start, last)
            failing.append(FailingKey(key, (int(start[0]), int(ends[0])), error))
            return
        middle = len(due) // 2
        for piece in (due.slice(0, middle), due.slice(middle, len(due))):
            yield from folded_sessions(job, piece, inner, failing)
        return
    yield replace(due, columns=(Ragged.singles((start, last, *sums)),))
