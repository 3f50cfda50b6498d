"""A step with lateness maps twice: first its splits, then what it publishes, over the state and its own delta.

In one map, the last late record would never be published, and a window that closes in this step would lack what the
step has read. The second is left out where no window closes and the delta touches no closed window: nothing late costs
nothing. Of sessions, the keys of those that may close are looked up by the agendas of the runs, and
those of late records in the delta.

A state that is published as it changes is published in the same way: the keys and windows of what is not published yet,
which is the delta, and all else that a sink lacks. With early results it is so in the steps whose plan says that a
clock has passed a multiple, and where it must be; the others publish nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from monoids.groupby.cells import Integers
from persistent.driver.agenda_cache import SessionCache, of_shard
from persistent.driver.commit import final_after, key_types
from persistent.driver.expiry import lives_after
from persistent.driver.output_batches import lacks_all, told_anew
from persistent.driver.publish import joining_sinks
from persistent.driver.state_bench import StateBench
from persistent.driver.step import Step, changing, closing_of, in_shards
from persistent.lateness import CHANGE, EARLY
from persistent.session_window import SessionWindow
from persistent.window import AnyWindow
from persistent.worker.job import Closed, CloseShard, Job, Mapped

_EVER = -(1 << 62)
"""No session ends earlier."""


def publishes_after(job: Job, step: Step) -> bool:
    """Whether what the step publishes depends on what it maps: windows that are not final take late records, or it
    publishes what it has changed, or does so if it must."""
    if job.state.time_to_live is not None:
        return True
    after = publishes_changes(job, step) or _holds_back(job, step)
    return after or (step.plan.task.final_at is not None and step.plan.reads)


def outputs_after(
    bench: StateBench, step: Step, mapped: Sequence[Mapped], *, anew: bool = False
) -> tuple[tuple[Closed, ...], int, bool]:
    """The results of a step that publishes after it has mapped; without a sink, how many windows close; and whether
    all that has changed is published. ``anew``: closed windows are published again as they are, and take nothing
    back."""
    if bench.job.state.time_to_live is not None:
        closed, changes = lives_after(bench, step, mapped)
        return closed, 0, changes
    if _holds_back(bench.job, step):
        changes = _must_publish(bench, step, mapped)
    else:
        changes = publishes_changes(bench.job, step)
        if not changes:
            return *published_after(bench, step, mapped, anew=anew), False
    return changes_after(bench, step, mapped) if changes else (), 0, changes


def is_told_anew(job: Job, step: Step) -> bool:
    """Whether the checkpoint after a rollback, which has left outputs to be seen, must publish sessions that change:
    no later one knows what the sinks have of them."""
    manifest, lateness = step.last.manifest, job.state.lateness
    changes = isinstance(job.state.window, SessionWindow) and lateness.of_changes is not None
    return changes and manifest.target is not None and told_anew(manifest) is not None


def publishes_changes(job: Job, step: Step) -> bool:
    """Whether the step publishes what has changed, as its plan says. Before its first checkpoint a job can have a plan
    of another option; windows are then published as they are now, and nothing is lost: what is not published yet is
    published by the next step that publishes what has changed, or when they close. Sessions are not: what is published
    of them when they close is not known to be, and could not be taken back."""
    of_changes, planned = job.state.lateness.of_changes, step.plan.task.emit
    if planned is None and isinstance(job.state.window, SessionWindow):
        planned = of_changes
    return bool(job.sinks) and planned == CHANGE and (job.state.window is None or of_changes is not None)


def _holds_back(job: Job, step: Step) -> bool:
    """Whether the step publishes only if it must. An option that has changed since the plan was put counts where the
    plan says nothing of changes."""
    of_changes, planned = job.state.lateness.of_changes, step.plan.task.emit
    is_early = planned == EARLY or (planned is None and of_changes == EARLY)
    return bool(job.sinks) and of_changes is not None and is_early


def _must_publish(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> bool:
    """Whether a step that holds back publishes what has changed all the same: a window closes, or has closed, of which
    something is not published, and its panes may leave; the input ends; or a sink has come that lacks every key. Of a
    state without windows nothing leaves."""
    last, task, window = step.last.manifest, step.plan.task, bench.job.state.window
    if task.ends or lacks_all(bench.job, last):
        return True
    if window is None:
        return False
    if isinstance(window, SessionWindow):
        return _closes_unpublished(bench, step, mapped)
    old = bench.run_cache.panes(last.operator.state.fresh())
    new = [one.panes for one in mapped if one.panes is not None]
    # As below: windows that become final take nothing of the step.
    final, closed = final_after(last, step.plan), task.close_at
    return bool(touched(window, old, last.final, closed) or touched(window, new, final, closed))


def _closes_unpublished(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> bool:
    """Whether a session closes, or has closed, of which something is not published. The agendas say which keys to look
    at: the last fragment of such a session ends with it, published or not, and what is not published ends no later."""
    cache, last, close_at = bench.run_cache, step.last.manifest, step.plan.task.close_at
    assert isinstance(cache, SessionCache)
    closing = _changing_sessions(bench, step, mapped)
    due = cache.due(closing.delta, _EVER, close_at)
    if len(due):
        due = np.intersect1d(due, cache.due((*closing.runs, *closing.delta), last.final, close_at))
    counting = replace(closing, close_at=close_at, counts=True, hashes=due)
    shards = in_shards(counting, bench.engine.parallelism, None) if len(due) else []
    items = [replace(one, hashes=hashes) for one in shards if len(hashes := of_shard(due, one))]
    found = bench.engine.map(bench.work, items) if items else ()
    return any(one.unpublished for one in found if isinstance(one, Closed))


def _changing_sessions(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> CloseShard:
    """What a step publishes of sessions that have changed, in all key groups. Those that become final in it take
    nothing of the step, and are published too if they were not."""
    last = step.last.manifest
    closing = replace(changing(closing_of(step), last.operator.state), final=last.final, changes=True)
    return replace(closing, delta=(*closing.delta, *(one.run for one in mapped if one.run)))


def changes_after(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> tuple[Closed, ...]:
    """The results of the keys, and of their windows, that the step or a run of which nothing is published has changed;
    of all keys for a sink that has none."""
    closings = _changed(bench, step, mapped)
    shards = chain.from_iterable(in_shards(one, bench.engine.parallelism, None) for one in closings)
    items = [replace(one, key_types=key_types(step.last.manifest.operator, mapped)) for one in shards]
    return tuple(one for one in bench.engine.map(bench.work, items) if isinstance(one, Closed)) if items else ()


def _changed(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> list[CloseShard]:
    last, window = step.last.manifest, bench.job.state.window
    state, joining = last.operator.state, joining_sinks(bench.job, last)
    before = replace(changing(closing_of(step), state), whole=joining)
    after = replace(before, delta=(*before.delta, *(one.run for one in mapped if one.run)))
    if window is None:
        return [after] if after.delta or (joining and after.runs) else []
    if isinstance(window, SessionWindow):
        return _changed_sessions(bench, step, mapped)
    old = bench.run_cache.panes(state.runs if joining else before.delta)
    new = [one.panes for one in mapped if one.panes is not None]
    # Windows that become final take nothing of the step, although they may share panes with others that do.
    leaving = touched(window, old, last.final, after.final)
    staying = touched(window, [*old, *new], after.final)
    return [replace(one, corrected=some) for one, some in ((before, leaving), (after, staying)) if some]


def _changed_sessions(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> list[CloseShard]:
    """Likewise of sessions. To sinks that may have those of some runs, from another job or from before a rollback, all
    are published anew, and what has become a part of another is taken back."""
    last = step.last.manifest
    closing, told = _changing_sessions(bench, step, mapped), told_anew(last)
    if told is None:
        closing = replace(closing, whole=joining_sinks(bench.job, last))
    else:
        delta = tuple(run for run in (*closing.runs, *closing.delta) if run not in told)
        closing = replace(closing, runs=told, delta=delta, anew=True)
    return [closing] if closing.delta or ((closing.whole or closing.anew) and closing.runs) else []


def published_after(
    bench: StateBench, step: Step, mapped: Sequence[Mapped], *, anew: bool = False
) -> tuple[tuple[Closed, ...], int]:
    """The results of windows that close, and of closed ones that the delta touches; without a sink, how many close."""
    window, last, close_at = bench.job.state.window, step.last.manifest, step.plan.task.close_at
    assert window is not None
    if isinstance(window, SessionWindow):
        return _sessions_after(bench, step, mapped)
    delta = tuple(one.run for one in mapped if one.run)
    runs = (*bench.runs(last), *delta)
    is_due = bench.run_cache.is_due(runs, last.clock, close_at)
    if not bench.job.sinks:
        return (), bench.run_cache.windows_over(runs, last.clock, close_at) if is_due else 0
    panes = [one.panes for one in mapped if one.panes is not None]
    corrected = touched(window, panes, final_after(last, step.plan), last.clock.closed)
    if not (is_due or corrected):
        return (), 0
    types = key_types(last.operator, mapped)
    closing = replace(closing_of(step), key_types=types, delta=delta, corrected=corrected, anew=anew)
    first = corrected[0][0] if corrected else window.first_number(closing.closed)
    held = (window.start_of(first), max(closing.closed, close_at))
    items = in_shards(closing, bench.engine.parallelism, held)
    return tuple(one for one in bench.engine.map(bench.work, items) if isinstance(one, Closed)), 0


def _sessions_after(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> tuple[tuple[Closed, ...], int]:
    """The results of sessions that close, and of closed ones that the delta changes; without a sink, how many close."""
    cache = bench.run_cache
    assert isinstance(cache, SessionCache) and cache.window is not None
    delta = tuple(one.run for one in mapped if one.run)
    closing = replace(closing_of(step), key_types=key_types(step.last.manifest.operator, mapped), delta=delta)
    corrected = cache.touched(delta, closing.closed) if bench.job.sinks else ()
    due = cache.due((*closing.runs, *delta), closing.closed, closing.close_at)
    if not (len(due) or corrected):
        return (), 0
    first = corrected[0][0] if corrected else cache.window.first_number(closing.closed)
    panes = (cache.window.start_of(first), max(closing.closed, closing.close_at))
    shards = in_shards(replace(closing, corrected=corrected), bench.engine.parallelism, panes)
    items = [replace(one, hashes=of_shard(due, one)) for one in shards]
    items = [one for one in items if corrected or (one.hashes is not None and len(one.hashes))]
    closed = tuple(one for one in bench.engine.map(bench.work, items) if isinstance(one, Closed))
    return closed, sum(one.discarded for one in closed)


def touched(
    window: AnyWindow, panes: Sequence[Integers], final: int, closed: int | None = None
) -> tuple[tuple[int, int], ...]:
    """The numbers of the windows with ``final < end <= closed`` (None: any later end) that hold one of these panes, in
    ranges from first to last. ``panes``: of each run, ascending.

    >>> from persistent.window import sliding, tumbling
    >>> touched(tumbling(10), [np.array([0, 10, 20, 40]), np.array([50, 60])], 10, 60)
    ((1, 2), (4, 5))
    >>> touched(sliding(10, every=5), [np.array([10])], 15, 60)
    ((2, 2),)
    """
    if not len(panes):
        return ()
    held = np.unique(np.concatenate(panes))
    lows, highs = np.maximum(window.first_number(held), window.first_number(final)), window.last_number(held)
    if closed is not None:
        highs = np.minimum(highs, window.first_number(closed) - 1)
    some = np.flatnonzero(lows <= highs)
    if not len(some):
        return ()
    # Both ascend with the panes, so a range ends where the next window does not follow.
    lows, highs = lows[some], highs[some]
    ends = np.flatnonzero(np.append(lows[1:] > highs[:-1] + 1, True))
    starts = np.append(0, ends[:-1] + 1)
    return tuple(zip(lows[starts].tolist(), highs[ends].tolist()))
