"""Revising sessions publishes the difference of two sets: of what was published, and of what is to be.

    was published    in the state, with ``final < end <= closed``               or, of changes, in what is published
    is published     in the state and the delta, with ``final < end <= close_at``            in that and the delta

A record can make a session longer, open it again, or join it with others. So what it changes is taken back with the
borders that it had, and what it has become is published, if it is closed or changes are. A session without a fragment
of the delta is in both sets or closes now. Which these are follows from times alone: the fold of a session that stays
as it was is not asked for. Only keys with a record from before ``closed`` were published otherwise than they now are,
and of changes those of the delta.

What was published early can have ended long before it is joined to what has not. So of changes a session is final only
if all is that it has become.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import Count
from monoids.containers.sessions import Sessions
from monoids.groupby.sorting import Integers, Mask
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.runs import of_hashes
from persistent.session_window import each_session
from persistent.state_rows import fold
from persistent.worker.close_sessions import (
    fold_numbers,
    folded_sessions,
    numbered_parts,
    window_of,
    with_values,
)
from persistent.worker.failing_keys import FailingKey
from persistent.worker.job import CloseShard, Job
from persistent.worker.merge_runs import parts_of
from persistent.worker.output_tables import END, RETRACTED
from persistent.worker.revise_windows import TakenBack, same_rows, with_earlier, without

_MARKS = Count()
_FOR_EVER = 1 << 62
"""No session ends later."""


@dataclass(frozen=True)
class _Touched:
    """The rows of the keys of a shard that may have a session to publish or to take back: of the state, and of the
    delta. ``late``: the hashes of those of which something may be taken back."""

    states: Sequence[GroupSums]
    deltas: Sequence[GroupSums]
    late: Words

    @property
    def parts(self) -> list[GroupSums]:
        return [*self.states, *self.deltas]

    def published(self, states: Sequence[GroupSums]) -> list[GroupSums]:
        """Of these rows of the state, those of which something may be taken back."""
        found = [of_hashes(part, self.late) for part in states]
        return [part for part in found if len(part)]


def changed_sessions(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The sessions of a shard that are taken back, and those that are published: because they close, or have changed.
    One in each row."""
    touched = _touched(job, item)
    if not touched.parts:
        return
    step, monoid = job.state.panes.step, job.state.monoid
    states = touched.published(touched.states)
    before = fold(monoid, states, step) if states else None
    sides = _sides(job, item, touched, before, fold(monoid, touched.parts, step))
    yield from difference(job, *sides, anew=item.anew)


def changed_sessions_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The same if a fold raises: without the sessions of which the fold raises, which go to ``failing``."""
    touched = _touched(job, item)
    if not touched.parts:
        return
    inner, numbered = numbered_parts(touched.parts)
    states = touched.published(numbered[: len(touched.states)])
    before = fold_numbers(job, states) if states else None
    told, shown = _sides(job, item, touched, before, fold_numbers(job, numbered))
    # A value that could not be folded was never published.
    was = folded_sessions(replace(job, dead_letters=True), told, inner, [])
    now = folded_sessions(job, shown, inner, failing)
    sides = [fold(job.state.monoid, [told.slice(0, 0), *some], 1) for some in (was, now)]
    yield from difference(job, *sides, anew=item.anew)


def unpublished_count(job: Job, item: CloseShard) -> int:
    """Of how many sessions with ``final < end <= close_at``, of the keys of a shard that are due, something is in the
    delta."""
    states, deltas = (
        parts_of(job, runs, item.low, item.high, _panes(job, item), item.hashes) for runs in (item.runs, item.delta)
    )
    if not deltas:
        return 0
    return int(_is_changed(_marked_sessions(job, states, deltas, item.final, item.close_at)).sum())


def taken_back_in(outputs: Iterable[pa.Table], closed: int) -> int:
    """How many published sessions, of those that were closed, these outputs take back."""
    count = 0
    for table in outputs:
        if RETRACTED in table.column_names:
            was_closed = pc.less_equal(table[END].cast(pa.int64()), closed)
            count += pc.sum(pc.and_(table[RETRACTED], was_closed)).as_py() or 0
    return count


def _touched(job: Job, item: CloseShard) -> _Touched:
    panes = _panes(job, item)
    deltas = parts_of(job, item.delta, item.low, item.high, panes)
    due = np.zeros(0, np.uint64) if item.hashes is None else item.hashes
    if item.anew:
        states = parts_of(job, item.runs, item.low, item.high, panes)
        return _Touched(states, deltas, np.unique(np.concatenate([due, *(part.hashes for part in states)])))
    late = np.unique(np.concatenate([due[:0], *(_late_in(part, _told_until(item)) for part in deltas)]))
    hashes = np.union1d(due, late)
    held = [of_hashes(part, hashes) for part in deltas]
    states = parts_of(job, item.runs, item.low, item.high, panes, hashes) if len(hashes) else []
    return _Touched(states, [part for part in held if len(part)], late)


def _late_in(part: GroupSums, closed: int) -> Words:
    """The hashes of the keys with a fragment that begins before the clock: no other can meet one that was closed."""
    (table,) = part.columns
    starts, *_ = table.flat()
    found: Words = table.spread(part.hashes)[starts < closed]
    return found


def _panes(job: Job, item: CloseShard) -> tuple[int, int]:
    """The cells that hold a session of either set, or a part of one."""
    window = window_of(job)
    return window.start_of(window.first_number(_final(item))), _until(item)


def _final(item: CloseShard) -> int:
    """Sessions that end at or before it are in both sets, as they were."""
    return min(item.final, item.closed)


def _since(item: CloseShard) -> int | None:
    """Both sets are without sessions that end at or before it. Of changes they are with all: what was published can
    have ended before it is joined to what has not."""
    return None if item.changes else _final(item)


def _until(item: CloseShard) -> int:
    """Up to where a session ends that is published: if changes are, open ones are too."""
    return _FOR_EVER if item.changes else max(item.closed, item.close_at)


def _told_until(item: CloseShard) -> int:
    """Up to where one has ended that was published."""
    return _FOR_EVER if item.changes else item.closed


def _sides(
    job: Job, item: CloseShard, touched: _Touched, before: GroupSums | None, after: GroupSums
) -> tuple[GroupSums, GroupSums]:
    """The published sessions that may no longer be what they were, and those to publish. ``before``: the sum of what
    was published, ``after``: of all."""
    window = window_of(job)
    now = each_session(window, after, _since(item), _until(item))
    changes, ends = _changes(job, item, touched), window.session_ends(*now.columns[0].flat()[:2])
    changes = changes & (ends > _final(item))
    shown = now.take(np.flatnonzero(changes | (ends > _told_until(item))))
    if before is None:
        return now.slice(0, 0), shown
    was = each_session(window, before, _since(item), _told_until(item))
    return without(was, same_rows(was, now.take(np.flatnonzero(~changes)), 1)[0]), shown


def _changes(job: Job, item: CloseShard, touched: _Touched) -> Mask:
    """Whether each session that is published, in the order of its fold, has a fragment of the delta; or is published
    anew."""
    now = _marked_sessions(job, touched.states, touched.deltas, _since(item), _until(item))
    return np.ones(len(now), bool) if item.anew else _is_changed(now)


def _marked_sessions(
    job: Job, states: Sequence[GroupSums], deltas: Sequence[GroupSums], since: int | None, until: int
) -> GroupSums:
    """The sessions of both with ``since < end <= until``; their values are how many fragments are of the deltas."""
    window = window_of(job)
    marked = [_marked(part, 0) for part in states] + [_marked(part, 1) for part in deltas]
    return each_session(window, fold(Sessions(window.gap_ms, _MARKS), marked, job.state.panes.step), since, until)


def _is_changed(marked: GroupSums) -> Mask:
    """Whether each of these sessions has a fragment of the deltas."""
    return np.asarray(marked.columns[0].flat()[2] > 0)


def _marked(part: GroupSums, mark: int) -> GroupSums:
    return with_values(part, (np.full(part.columns[0].entries, mark, np.int64),))


def difference(job: Job, told: GroupSums, shown: GroupSums, *, anew: bool = False) -> Iterator[GroupSums]:
    """What is retracted and not replaced, and then what is published, with the value that the same window had. What is
    published ``anew`` replaces nothing: a sink may lack it."""
    here, there = same_sessions(job, shown, told)
    gone = without(told, there)
    if len(gone):
        yield TakenBack.of(gone)
    if len(shown):
        is_told = len(here) and not anew
        yield with_earlier(shown, (here, told.take(there).columns) if is_told else None)


def same_sessions(job: Job, one: GroupSums, other: GroupSums) -> tuple[Integers, Integers]:
    """The row numbers in both of the sessions of a key with the same borders."""
    here, there = same_rows(one, other, 1)
    same = _ends(job, one)[here] == _ends(job, other)[there]
    return here[same], there[same]


def _ends(job: Job, rows: GroupSums) -> Integers:
    return window_of(job).session_ends(*rows.columns[0].flat()[:2])
