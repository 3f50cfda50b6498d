"""Expiring keys retracts the rows of keys whose last life has ended, and publishes the keys that have changed.

    was published   the last life in the runs that are published, unless it had ended at ``shown_at``
    is shown now    the last life in all runs, unless it has ended at ``close_at``

Which lives there are follows from times alone: a value that is not shown is not folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monoids import Count
from monoids.containers.sessions import Sessions
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec import KEY_GROUPS, Run
from persistent.lateness import RETRACT
from persistent.session_window import parts_since
from persistent.state_rows import fold
from persistent.time_to_live import TimeToLive
from persistent.worker.close_sessions import with_values
from persistent.worker.failing_keys import FailingKey, fold_apart
from persistent.worker.job import CloseShard, Job
from persistent.worker.merge_runs import parts_of
from persistent.worker.revise_windows import TakenBack, found_rows, same_rows, with_earlier, without

_COUNT = Count()
FoldParts = Callable[[Sequence[GroupSums]], Iterable[GroupSums]]
"""The sum of parts, in pieces."""


def shown_lives(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    """The values of the keys of a shard that have changed, and the retractions."""

    def folded(parts: Sequence[GroupSums]) -> list[GroupSums]:
        return [fold(job.state.monoid, parts, job.state.panes.step)] if parts else []

    yield from _shown(job, item, folded, folded)


def shown_lives_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    """The same if a fold raises: slowly, and without the failing keys, whose earlier values are taken back."""

    def folded(own: Sequence[GroupSums], _: int | None) -> list[GroupSums]:
        return [fold(job.state.monoid, own, job.state.panes.step)]

    def now(parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        yield from fold_apart(job, parts, folded, None, failing)

    def before(parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        # A value that could not be folded was never published.
        yield from fold_apart(job, parts, folded, None, [])

    yield from _shown(job, item, now, before, is_apart=True)


def ended_lives(job: Job, item: CloseShard) -> int:
    """How many lives of a shard have ended since ``closed``: each is counted once, whatever the steps."""
    ttl, hashes = _time_to_live(job), item.hashes
    if hashes is None or not len(hashes):
        return 0
    times = _times(job, parts_of(job, (*item.runs, *item.delta), item.low, item.high, hashes=hashes))
    return 0 if times is None else ttl.ended(times, item.closed, item.close_at)


def lives_of(job: Job, runs: Sequence[Run], hashes: Words) -> GroupSums | None:
    """The lives of the keys with these hashes (ascending, each once) in runs, without their values; None if there are
    none."""
    return _times(job, parts_of(job, runs, 0, KEY_GROUPS, hashes=hashes))


@dataclass(frozen=True)
class _Lives:
    """The lives of a shard, one of each key, without their values. ``states``, ``deltas``: the parts with the values.

    ``fresh``: those to show that have changed. ``was``: those that are published. ``gone``: of these, those of keys
    that are shown no more. ``anew``: all is published anew, to sinks that may hold it, of a job that knows nothing
    else.
    """

    states: list[GroupSums]
    deltas: list[GroupSums]
    fresh: GroupSums
    was: GroupSums
    gone: GroupSums
    anew: bool

    def published(self) -> list[GroupSums]:
        """The parts of what is published."""
        return self.deltas if self.anew else self.states

    def fresh_parts(self) -> list[GroupSums]:
        return [part for one in (*self.states, *self.deltas) if len(part := _of_lives(self.fresh, one))]


def _shown(
    job: Job, item: CloseShard, now: FoldParts, before: FoldParts, *, is_apart: bool = False
) -> Iterator[GroupSums]:
    """What a shard takes back, and then what it publishes. ``is_apart``: some folds raise, and have no value."""
    lives = _lives(job, item)
    if lives is None:
        return
    ttl, takes_back = _time_to_live(job), job.state.lateness.answer == RETRACT
    # All that was is needed where it is taken back; but what is published anew takes nothing back.
    needed = lives.was if (takes_back or is_apart) and not lives.anew else lives.gone
    old = [part for one in lives.published() if len(part := _of_lives(needed, one))]
    earlier = [ttl.living(rows, item.shown_at or 0) for rows in before(old)]
    yield from (TakenBack.of(_only(lives.gone, rows)) for rows in earlier)
    left = lives.fresh
    for rows in now(lives.fresh_parts()):
        living = ttl.living(rows, item.close_at)
        left = _without(left, living) if is_apart else left
        yield with_earlier(living, None if lives.anew else found_rows(job, living, earlier)) if takes_back else living
    if is_apart:
        # What is left has no value: the earlier one of its key does not stay.
        yield from (TakenBack.of(_only(left, rows)) for rows in earlier)


def _lives(job: Job, item: CloseShard) -> _Lives | None:
    """The lives of the keys of a shard that have changed, or may have expired; None if there are none."""
    ttl, deltas = _time_to_live(job), parts_of(job, item.delta, item.low, item.high)
    touched = _touched(item, deltas)
    states = parts_of(job, item.runs, item.low, item.high, hashes=touched) if len(touched) else []
    times, changed = _times(job, [*states, *deltas]), _times(job, deltas)
    if times is None:
        return None
    shown = ttl.living(times, item.close_at)
    none = shown.slice(0, 0)
    fresh = none if changed is None else shown.take(same_rows(shown, changed, 1)[0])
    anew = not item.runs and item.shown_at is not None
    told = changed if anew else _times(job, states)
    was = none if told is None or item.shown_at is None else ttl.living(told, item.shown_at)
    return _Lives(states, deltas, fresh, was, _without(was, shown) if len(was) else none, anew)


def _touched(item: CloseShard, deltas: Sequence[GroupSums]) -> Words:
    """The hashes of keys that have changed, or may have expired."""
    due = [] if item.hashes is None else [item.hashes]
    hashes = [*due, *(part.hashes for part in deltas)]
    return np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)


def _times(job: Job, parts: Sequence[GroupSums]) -> GroupSums | None:
    """The lives in these parts, without their values; None if there are none."""
    counted = [with_values(part, _COUNT.lift_columns(np.arange(part.columns[0].entries))) for part in parts]
    return fold(Sessions(_time_to_live(job).ttl_ms, _COUNT), counted, job.state.panes.step) if counted else None


def _of_lives(lives: GroupSums, rows: GroupSums) -> GroupSums:
    """The parts of these lives, one of each key, in rows. Another life of a key may have a sum that raises."""
    if not len(lives):
        return rows.slice(0, 0)
    held, there = same_rows(rows, lives, 1)
    return parts_since(rows.take(held), lives.columns[0].flat()[0][there])


def _only(keys: GroupSums, rows: GroupSums) -> GroupSums:
    """The rows of these keys."""
    if not len(keys):
        return rows.slice(0, 0)
    held = same_rows(rows, keys, 1)[0]
    return rows if len(held) == len(rows) else rows.take(held)


def _without(rows: GroupSums, keys: GroupSums) -> GroupSums:
    """The rows of other keys."""
    return without(rows, same_rows(rows, keys, 1)[0])


def _time_to_live(job: Job) -> TimeToLive:
    ttl = job.state.time_to_live
    assert ttl is not None
    return ttl
