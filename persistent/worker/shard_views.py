"""The views of a shard, before and after a step: the rows of its runs that can differ in them.

They are looked up by the keys of the delta, and of the sessions and lives that may end; where windows close, all rows
of their panes are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from monoids.text import Words
from persistent.codec.runs import of_hashes
from persistent.lateness import RETRACT
from persistent.session_window import SessionWindow
from persistent.state_rows import fold
from persistent.views.difference import Comparison, marked_rows
from persistent.views.keys import KeyView, LifeView
from persistent.views.rows import COUNT, counted, hashes_of, over
from persistent.views.sessions import FOR_EVER, SessionView, late_hashes
from persistent.views.windows import WindowView
from persistent.window import WindowRange
from persistent.worker.job import CloseShard, Node
from persistent.worker.merge_runs import parts_of


def comparisons_of(node: Node, item: CloseShard) -> Iterator[Comparison]:
    """The views of a shard before and after the step, with their parts."""
    both_signs = node.state.lateness.answer == RETRACT and not item.anew
    if node.state.time_to_live is not None:
        yield _lives(node, item, both_signs=both_signs)
    elif node.state.window is None:
        delta = parts_of(node, item.delta, item.low, item.high)
        before = parts_of(node, item.runs, item.low, item.high, hashes=hashes_of(delta)) if delta else []
        yield Comparison(KeyView(node.state.panes.step), before, delta, both_signs)
    elif isinstance(node.state.window, SessionWindow):
        yield _sessions(node, item, node.state.window, both_signs=both_signs)
    else:
        yield from _windows(node, item, both_signs=both_signs)


def from_nothing(node: Node, item: CloseShard) -> CloseShard:
    """The same for sinks that have nothing yet: all that the state shows, but what was final before the step."""
    if node.state.window is not None and node.state.lateness.of_changes is None:
        close_at = max(item.closed, item.close_at)
        return replace(item, closed=item.settled, close_at=close_at, corrected=(), hashes=None)
    return replace(item, runs=(), delta=(*item.runs, *item.delta), shown_at=None, anew=False)


def _windows(node: Node, item: CloseShard, *, both_signs: bool) -> Iterator[Comparison]:
    """First the windows with ``closed < end <= close_at``, of which nothing is published. The final ones take nothing
    of the step, although they may share panes with windows that do. Then the windows that the delta corrects."""
    window, groups = node.state.window, (item.low, item.high)
    assert window is not None
    between = min(max(item.closed, item.final), item.close_at)
    bounds = [int(window.first_number(clock)) for clock in (item.closed, between, item.close_at)]
    for first, stop, runs in zip(bounds, bounds[1:], (item.runs, (*item.runs, *item.delta))):
        if first < stop:
            view = WindowView(WindowRange(window, first, stop - 1), node.state.panes)
            yield Comparison(view, [], parts_of(node, runs, *groups, view.windows.panes()))
    if item.corrected:
        windows = WindowRange(window, item.corrected[0][0], item.corrected[-1][1])
        view = WindowView(windows, node.state.panes, in_order=True)
        delta = parts_of(node, item.delta, *groups, view.windows.panes())
        before = parts_of(node, item.runs, *groups, view.windows.panes(), hashes_of(delta)) if delta else []
        yield Comparison(view, before, delta, both_signs)


def _sessions(node: Node, item: CloseShard, window: SessionWindow, *, both_signs: bool) -> Comparison:
    """The sessions that close, and the sessions that the delta changes, of the keys that may have one."""
    settled, due = min(item.final, item.closed), item.hashes
    changes = bool(item.changes or item.corrected)
    settled = settled if changes else item.closed
    closed = FOR_EVER if item.changes else item.closed
    until = FOR_EVER if item.changes else max(item.closed, item.close_at)
    panes = (window.start_of(window.first_number(settled)), until)
    since = None if item.changes else settled

    def view(late: Words) -> SessionView:
        return SessionView(window, node.state.panes.step, since, settled, closed, until, late, item.anew)

    if not changes:
        runs = (*item.runs, *item.delta)
        return Comparison(view(np.zeros(0, np.uint64)), [], parts_of(node, runs, item.low, item.high, panes, due))
    delta = parts_of(node, item.delta, item.low, item.high, panes)
    due = np.zeros(0, np.uint64) if due is None else due
    if item.anew:
        before = parts_of(node, item.runs, item.low, item.high, panes)
        return Comparison(view(np.union1d(due, hashes_of(before))), before, delta, both_signs)
    late = late_hashes(delta, closed)
    hashes = np.union1d(due, late)
    before = parts_of(node, item.runs, item.low, item.high, panes, hashes) if len(hashes) else []
    looked_up = [of_hashes(part, hashes) for part in delta]
    return Comparison(view(late), before, [part for part in looked_up if len(part)], both_signs)


def _lives(node: Node, item: CloseShard, *, both_signs: bool) -> Comparison:
    """The lives of the keys of the delta, and of those that may have expired."""
    ttl = node.state.time_to_live
    assert ttl is not None
    delta = parts_of(node, item.delta, item.low, item.high)
    fresh = hashes_of(delta)
    hashes = fresh if item.hashes is None else np.union1d(fresh, item.hashes)
    before = parts_of(node, item.runs, item.low, item.high, hashes=hashes) if len(hashes) else []
    is_heir = not item.runs and item.shown_at is not None
    view = LifeView(ttl, node.state.panes.step, item.shown_at, item.close_at, fresh, is_heir)
    return Comparison(view, before, delta, both_signs and not is_heir)


def ended_lives(node: Node, item: CloseShard) -> int:
    """How many lives of a shard have ended since ``closed``: each is counted once, whatever the steps."""
    ttl, hashes, kept = node.state.time_to_live, item.hashes, node.state.monoid
    if ttl is None or hashes is None or not len(hashes):
        return 0
    parts = counted(kept, parts_of(node, (*item.runs, *item.delta), item.low, item.high, hashes=hashes))
    return ttl.ended(fold(over(kept, COUNT), parts, node.state.panes.step), item.closed, item.close_at) if parts else 0


def due_count(node: Node, item: CloseShard) -> int:
    """How many sessions close, by the times of their records alone: a value that is not published is not folded."""
    kept = node.state.monoid
    return sum(
        len(rows)
        for comparison in comparisons_of(node, replace(item, corrected=()))
        for rows in comparison.view.rows(over(kept, COUNT), counted(kept, comparison.delta))
    )


def unpublished_count(node: Node, item: CloseShard) -> int:
    """How many sessions with ``final < end <= close_at``, of the due keys of a shard, hold an entry of the delta."""
    window, kept = node.state.window, node.state.monoid
    assert isinstance(window, SessionWindow)
    panes = (window.start_of(window.first_number(min(item.final, item.closed))), FOR_EVER)
    before, delta = (
        counted(kept, parts_of(node, runs, item.low, item.high, panes, item.hashes)) for runs in (item.runs, item.delta)
    )
    nothing = np.zeros(0, np.uint64)
    view = SessionView(window, node.state.panes.step, item.final, item.final, item.final, item.close_at, nothing)
    pieces = marked_rows(view, over(kept, COUNT), before, delta) if delta else ()
    return sum(int(marks.sum()) for _, marks in pieces)
