"""A step with lateness maps twice: first its splits, then what it publishes, over the state and its own delta.

In one map, the last late record would never be published, and a window that closes in this step would lack what the
step has read. The second map is left out if no window closes and the delta touches no closed window: a step without
late records pays nothing for lateness. For sessions, the agendas of the runs give the keys whose session may close, and
the delta gives the keys of late records.

A state that is published as it changes is published in the same way: the keys and windows of the runs that are not
published, the delta among them, and whatever else a sink lacks. With early results, a step publishes if its plan says
that the clock has passed a multiple, or if it must; other steps publish nothing.

A state with a time to live publishes, and counts, once its step has mapped: a record of the step can keep a key. The
agendas of the runs give the keys whose last life may have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from monoids.groupby.cells import Integers
from monoids.text import Words
from persistent.driver.commit import key_types
from persistent.driver.output_batches import lacks_all, told_anew
from persistent.driver.publish import joining_sinks
from persistent.driver.run_cache import LifeCache, SessionCache, of_shard
from persistent.driver.step import NodeStep, in_shards
from persistent.driver.workbench import NodeBench
from persistent.time.lateness import CHANGE, EARLY
from persistent.time.session_window import SessionWindow
from persistent.time.window import AnyWindow
from persistent.worker.job import Closed, CloseShard, MappedNode, Node

_EVER = -(1 << 62)
"""No session ends earlier."""


def publishes_after(node: Node, step: NodeStep) -> bool:
    """Whether the outputs of the step depend on what it maps. They do with a time to live, and in a state that is
    published as it changes; in other states while closed windows take late records, if it reads or a sink joins."""
    if node.state.time_to_live is not None:
        return True
    after = publishes_changes(node, step) or _holds_back(node, step)
    corrects = step.plan.reads or bool(joining_sinks(node, step.last.manifest))
    return after or (step.task.final_at is not None and corrects)


def outputs_after(
    bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]
) -> tuple[tuple[Closed, ...], int, bool]:
    """The results of a step that publishes after it has mapped; without a sink, how many windows close; and whether
    all that has changed is published."""
    if bench.node.state.time_to_live is not None:
        closed, changes = _lives_after(bench, step, mapped)
        return closed, 0, changes
    if _holds_back(bench.node, step):
        changes = _must_publish(bench, step, mapped)
    else:
        changes = publishes_changes(bench.node, step)
        if not changes:
            return *published_after(bench, step, mapped), False
    return changes_after(bench, step, mapped) if changes else (), 0, changes


def is_told_anew(node: Node, step: NodeStep) -> bool:
    """Whether the checkpoint after a rollback must publish the sessions of a state that is published as it changes.
    It must if the rollback has left outputs in the sinks, because no later checkpoint knows what the sinks have."""
    manifest, lateness = step.last.manifest, node.state.lateness
    changes = isinstance(node.state.window, SessionWindow) and lateness.of_changes is not None
    return changes and manifest.target is not None and told_anew(manifest, step.id) is not None


def publishes_changes(node: Node, step: NodeStep) -> bool:
    """Whether the step publishes what has changed, as its plan says. Before its first checkpoint, a job can have a plan
    of another option. Its windows are then published by the present option, and nothing is lost: the next step that
    publishes changes, or the close of the window, publishes the rest. Sessions follow the present option even where
    the plan says nothing of changes: what they publish as they close is not recorded as published, and could not be
    taken back."""
    of_changes, planned = node.state.lateness.of_changes, step.task.emit
    if planned is None and isinstance(node.state.window, SessionWindow):
        planned = of_changes
    return bool(node.sinks) and planned == CHANGE and (node.state.window is None or of_changes is not None)


def _holds_back(node: Node, step: NodeStep) -> bool:
    """Whether the step publishes only if it must, because it comes between two early results. The present option
    decides where the plan says nothing of changes."""
    of_changes, planned = node.state.lateness.of_changes, step.task.emit
    is_early = planned == EARLY or (planned is None and of_changes == EARLY)
    return bool(node.sinks) and of_changes is not None and is_early


def _must_publish(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> bool:
    """Whether a step that holds back must publish what has changed: the input ends; a sink lacks every key; or a window
    that closes, or has closed, holds something that is not published, and its panes may leave the state. No key leaves
    a state without windows."""
    task, window = step.task, bench.node.state.window
    if task.ends or lacks_all(bench.node, step.last.manifest):
        return True
    if window is None:
        return False
    if isinstance(window, SessionWindow):
        return _closes_unpublished(bench, step, mapped)
    old = bench.run_cache.panes(step.before.fresh())
    new = [result.panes for result in mapped if result.panes is not None]
    # As below: windows that become final take nothing of the step.
    final, closed = step.final, task.close_at
    return bool(touched(window, old, step.before.final, closed) or touched(window, new, final, closed))


def _closes_unpublished(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> bool:
    """Whether a session that closes, or has closed, holds something that is not published. The agendas choose the keys
    to look at: the last fragment of a session ends with it, published or not, and the fragments that are not published
    end no later."""
    cache, close_at = bench.run_cache, step.task.close_at
    assert isinstance(cache, SessionCache)
    closing = _changing_sessions(bench, step, mapped)
    due = cache.due(closing.delta, _EVER, close_at)
    if len(due):
        due = np.intersect1d(due, cache.due((*closing.runs, *closing.delta), step.before.final, close_at))
    counting = replace(closing, close_at=close_at, counts=True, hashes=due)
    shards = in_shards(counting, bench.engine.parallelism, None) if len(due) else []
    items = [replace(shard, hashes=hashes) for shard in shards if len(hashes := of_shard(due, shard))]
    shard_results = bench.engine.map(bench.work, items) if items else ()
    return any(result.unpublished for result in shard_results if isinstance(result, Closed))


def _changing_sessions(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> CloseShard:
    """The closing, in all key groups, that publishes the sessions which have changed. A session that becomes final in
    this step takes no record of the step, and is published if it was not."""
    closing = replace(step.changing(), final=step.before.final, changes=True)
    return replace(closing, delta=(*closing.delta, *(result.run for result in mapped if result.run)))


def changes_after(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> tuple[Closed, ...]:
    """The results of the keys, and of their windows, that have changed in the step or in runs that are not published.
    A sink that has no rows gets the results of all keys."""
    closings = _changed(bench, step, mapped)
    shards = chain.from_iterable(in_shards(closing, bench.engine.parallelism, None) for closing in closings)
    items = [replace(shard, key_types=key_types(step.before, mapped)) for shard in shards]
    return tuple(shard for shard in bench.engine.map(bench.work, items) if isinstance(shard, Closed)) if items else ()


def _changed(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> list[CloseShard]:
    window, joining = bench.node.state.window, joining_sinks(bench.node, step.last.manifest)
    before = replace(step.changing(), whole=joining)
    after = replace(before, delta=(*before.delta, *(result.run for result in mapped if result.run)))
    if window is None:
        return [after] if after.delta or (joining and after.runs) else []
    if isinstance(window, SessionWindow):
        return _changed_sessions(bench, step, mapped)
    old = bench.run_cache.panes(step.before.runs if joining else before.delta)
    new = [result.panes for result in mapped if result.panes is not None]
    # Windows that become final take nothing of the step, although they may share panes with others that do.
    leaving = touched(window, old, step.before.final, after.final)
    staying = touched(window, [*old, *new], after.final)
    return [replace(shard, corrected=windows) for shard, windows in ((before, leaving), (after, staying)) if windows]


def _changed_sessions(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> list[CloseShard]:
    """The closing of the sessions that have changed, if any. Where a rollback has left sessions of some runs
    with the sinks, all sessions are published anew, and a session that has become a part of another is taken back."""
    closing, shown_runs = _changing_sessions(bench, step, mapped), told_anew(step.last.manifest, step.id)
    if shown_runs is None:
        closing = replace(closing, whole=joining_sinks(bench.node, step.last.manifest))
    else:
        delta = tuple(run for run in (*closing.runs, *closing.delta) if run not in shown_runs)
        closing = replace(closing, runs=shown_runs, delta=delta, anew=True)
    return [closing] if closing.delta or ((closing.whole or closing.anew) and closing.runs) else []


def published_after(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> tuple[tuple[Closed, ...], int]:
    """The results of windows that close, and of closed ones that the delta touches, or a sink lacks; without a sink,
    how many close."""
    window, close_at = bench.node.state.window, step.task.close_at
    assert window is not None
    if isinstance(window, SessionWindow):
        return _sessions_after(bench, step, mapped)
    delta = tuple(result.run for result in mapped if result.run)
    runs = (*step.before.runs, *delta)
    is_due = bench.run_cache.is_due(runs, step.before.clock.closed, close_at)
    if not bench.node.sinks:
        return (), bench.run_cache.windows_over(runs, step.before.clock.closed, close_at) if is_due else 0
    panes = [result.panes for result in mapped if result.panes is not None]
    corrected, joining = touched(window, panes, step.final, step.before.clock.closed), _joining(bench, step)
    if not (is_due or corrected or joining):
        return (), 0
    types = key_types(step.before, mapped)
    closing = replace(step.closing(), key_types=types, delta=delta, corrected=corrected, whole=joining)
    first = corrected[0][0] if corrected else window.first_number(closing.closed)
    if joining:
        first = window.first_number(closing.settled)
    span = (window.start_of(first), max(closing.closed, close_at))
    items = in_shards(closing, bench.engine.parallelism, span)
    return tuple(result for result in bench.engine.map(bench.work, items) if isinstance(result, Closed)), 0


def _joining(bench: NodeBench, step: NodeStep) -> tuple[str, ...]:
    """The sinks that lack windows which have closed and are not final."""
    before = step.before
    lacks = bench.run_cache.is_due(before.runs, before.final, before.clock.closed)
    return joining_sinks(bench.node, step.last.manifest) if lacks else ()


def _sessions_after(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> tuple[tuple[Closed, ...], int]:
    """The results of sessions that close, and of closed ones that the delta changes, or a sink lacks; without a sink,
    how many close."""
    cache = bench.run_cache
    assert isinstance(cache, SessionCache) and cache.window is not None
    delta = tuple(result.run for result in mapped if result.run)
    closing = replace(step.closing(), key_types=key_types(step.before, mapped), delta=delta)
    corrected = cache.touched(delta, closing.closed) if bench.node.sinks else ()
    due, joining = cache.due((*closing.runs, *delta), closing.closed, closing.close_at), _joining(bench, step)
    if not (len(due) or corrected or joining):
        return (), 0
    first = corrected[0][0] if corrected else cache.window.first_number(closing.closed)
    if joining:
        first = cache.window.first_number(closing.settled)
    panes = (cache.window.start_of(first), max(closing.closed, closing.close_at))
    shards = in_shards(replace(closing, corrected=corrected, whole=joining), bench.engine.parallelism, panes)
    items = [replace(shard, hashes=of_shard(due, shard)) for shard in shards]
    items = [shard for shard in items if corrected or joining or (shard.hashes is not None and len(shard.hashes))]
    closed = tuple(result for result in bench.engine.map(bench.work, items) if isinstance(result, Closed))
    return closed, sum(result.discarded for result in closed)


def _lives_after(bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode]) -> tuple[tuple[Closed, ...], bool]:
    """The results of keys that have changed or expired, and whether all that has changed is published."""
    changes = bool(bench.node.sinks) and _publishes_lives(bench, step)
    publishes = changes or (bool(bench.node.sinks) and step.task.ends)
    closing, due = _closing_lives(bench, step, mapped, publishes=publishes)
    is_all = publishes and bool(closing.delta or (closing.whole and closing.runs))
    items = [
        replace(shard, hashes=of_shard(due, shard), key_types=key_types(step.before, mapped))
        for shard in in_shards(closing, bench.engine.parallelism if is_all or len(due) else 1, None)
    ]
    items = [shard for shard in items if is_all or (shard.hashes is not None and len(shard.hashes))]
    shard_results = bench.engine.map(bench.work, items) if items else ()
    return tuple(result for result in shard_results if isinstance(result, Closed)), changes


def _publishes_lives(bench: NodeBench, step: NodeStep) -> bool:
    """Whether the step publishes what has changed, and expired: as its plan says; and with early results also if a sink
    lacks every key. A key that a sink has stays on disk until it is retracted, so nothing else forces a
    step to publish."""
    planned = step.task.emit
    holds_back = planned == EARLY or (planned is None and bench.node.state.lateness.of_changes == EARLY)
    return planned == CHANGE or (holds_back and lacks_all(bench.node, step.last.manifest))


def _closing_lives(
    bench: NodeBench, step: NodeStep, mapped: Sequence[MappedNode], *, publishes: bool
) -> tuple[CloseShard, Words]:
    """What a step publishes, or only counts, in all key groups; and the hashes of the keys that may have expired."""
    cache = bench.run_cache
    assert isinstance(cache, LifeCache)
    state, closing = step.before, step.closing()
    delta = tuple(result.run for result in mapped if result.run)
    due = cache.due(state.runs, closing.closed, closing.close_at)
    if not publishes:
        return replace(closing, delta=delta, counts=True), due
    # Once no published run is left in the state, the sinks have no key that could be taken back.
    shown_at = state.shown_to(state.runs)
    unpublished = due if shown_at is None else cache.due(state.runs, shown_at, closing.close_at)
    joining = joining_sinks(bench.node, step.last.manifest)
    closing = replace(step.changing(), close_at=closing.close_at, shown_at=shown_at, whole=joining)
    return replace(closing, delta=(*closing.delta, *delta)), np.union1d(due, unpublished)


def touched(
    window: AnyWindow, panes: Sequence[Integers], final: int, closed: int | None = None
) -> tuple[tuple[int, int], ...]:
    """The numbers of the windows with ``final < end <= closed`` (None: any later end) that hold one of these panes, in
    ranges from first to last. ``panes``: of each run, ascending.

    >>> from persistent.time.window import sliding, tumbling
    >>> touched(tumbling(10), [np.array([0, 10, 20, 40]), np.array([50, 60])], 10, 60)
    ((1, 2), (4, 5))
    >>> touched(sliding(10, every=5), [np.array([10])], 15, 60)
    ((2, 2),)
    """
    if not len(panes):
        return ()
    distinct = np.unique(np.concatenate(panes))
    lows, highs = np.maximum(window.first_number(distinct), window.first_number(final)), window.last_number(distinct)
    if closed is not None:
        highs = np.minimum(highs, window.first_number(closed) - 1)
    nonempty = np.flatnonzero(lows <= highs)
    if not len(nonempty):
        return ()
    # Both ascend with the panes, so a range ends where the next window does not follow.
    lows, highs = lows[nonempty], highs[nonempty]
    ends = np.flatnonzero(np.append(lows[1:] > highs[:-1] + 1, True))
    starts = np.append(0, ends[:-1] + 1)
    return tuple(zip(lows[starts].tolist(), highs[ends].tolist()))
