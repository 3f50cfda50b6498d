"""Publishing a shard stages the difference of two views of its state: of what is published, and of all there is.

The views of a shard, before and after a step: the rows of its runs that can differ in them.

They are looked up by the keys of the delta, and of the sessions and lives that may end; where windows close, all rows
of their panes are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.fields import type_of
from persistent.codec.runs import of_hashes
from persistent.connect.outlet import stage_accepted
from persistent.state.difference import (
    NOT_OF_A_ROW,
    Comparison,
    RowDifference,
    differences,
    isolated,
    isolated_differences,
    marked_rows,
)
from persistent.state.rows import COUNT, counted, fold, hashes_of, over
from persistent.state.views import FOR_EVER, KeyView, LifeView, SessionView, WindowView, late_hashes
from persistent.task.task import key_names
from persistent.time.lateness import RETRACT
from persistent.time.session_window import SessionWindow
from persistent.time.window import WindowRange
from persistent.worker.job import Closed, CloseShard, Node
from persistent.worker.merge_runs import parts_of
from persistent.worker.output_tables import (
    END,
    RETRACTED,
    equal_rows,
    key_outputs,
    marks_of,
    output_key,
    window_outputs,
)
from persistent.worker.stage_aside import (
    FailingKey,
    Failures,
    not_published,
    refused_result,
    stage_failing_keys,
)


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


def close_shard(node: Node, item: CloseShard) -> Closed:
    """Stage what is due of one shard. Without a sink, count the sessions that close; with a time to live, count the
    lives that end."""
    expired = 0 if node.state.time_to_live is None else ended_lives(node, item)
    if item.counts:
        return Closed(expired=expired, unpublished=unpublished_count(node, item) if item.changes else 0)
    if not node.sinks:
        return Closed(discarded=due_count(node, item))
    # What is for the new sinks includes all that is for the others, and every key that fails.
    whole, failing = _presented(node, from_nothing(node, item) if item.whole else item)
    changed = whole
    if item.whole:
        changed = _presented(node, item)[0] if node.sinks.keys() - set(item.whole) else []
    outputs = {name: whole if name in item.whole else changed for name in node.sinks}
    staged, refused = _staged(node, item, outputs)
    dead = stage_failing_keys(node, item.attempt, [*failing, *refused])
    return replace(staged, dead=dead, corrected=_corrected(node, item, changed), expired=expired)


def _staged(node: Node, item: CloseShard, outputs: Mapping[str, Sequence[pa.Table]]) -> tuple[Closed, list[FailingKey]]:
    """The outputs of each sink, staged, and those that a sink can never hold. A sink without outputs stages nothing.
    InvalidPipeline for a result that a sink refuses, without dead letters in the node."""
    tables = {name: pa.concat_tables(parts) for name, parts in outputs.items() if parts}
    outlets, names = node.outlets(), key_names(node.task)
    outcomes = {
        name: stage_accepted(
            outlets[name],
            table,
            item.attempt,
            output_key(node.state, names, node.sinks[name]),
            all_refused=node.dead_letters,
        )
        for name, table in tables.items()
    }
    refused = [
        refused_result(node, tables[name], row, error) for name, (_, rows) in outcomes.items() for row, error in rows
    ]
    if refused and not node.dead_letters:
        raise not_published(node, refused[0])
    return Closed({name: staged for name, (staged, _) in outcomes.items() if staged is not None}), refused


def _corrected(node: Node, item: CloseShard, outputs: Sequence[pa.Table]) -> int:
    """How many published results these outputs correct; of sessions, how many they take back."""
    is_session = isinstance(node.state.window, SessionWindow)
    if not (is_session or item.corrected):
        return 0
    count = 0
    for table in outputs:
        again = pc.less_equal(table[END].cast(pa.int64()), item.closed)
        retracted = table[RETRACTED] if RETRACTED in table.column_names else pa.array(np.zeros(len(table), bool))
        count += pc.sum(pc.and_(again, retracted if is_session else pc.invert(retracted))).as_py() or 0
    return count


def _presented(node: Node, item: CloseShard) -> tuple[list[pa.Table], list[FailingKey]]:
    """The outputs of a shard, and the keys that have none because their fold or their value fails. UserCodeError for
    the first such key, if the node has no dead letters."""
    comparisons, failures = list(comparisons_of(node, item)), Failures(node)
    kept = node.state.monoid
    try:
        changes = (change for views in comparisons for change in differences(views, kept))
        tables = _tables(node, item, changes, failures)
        if not (failures.keys and any(views.folds_no_old for views in comparisons)):
            return tables, failures.keys
    except NOT_OF_A_ROW:
        raise
    except Exception:
        pass
    failures = Failures(node)
    changes = (change for views in comparisons for change in isolated_differences(views, kept, failures.folding))
    return _tables(node, item, changes, failures), failures.keys


def _tables(node: Node, item: CloseShard, changes: Iterable[RowDifference], failures: Failures) -> list[pa.Table]:
    """The outputs of differences; rows that have none go to the failures."""
    state, names = node.state, key_names(node.task)
    types = [type_of(name) for name in item.key_types]
    marks = {retracted: marks_of(state, item.revision, retracted=retracted) for retracted in (False, True)}

    def outputs(rows: GroupSums, retracted: bool) -> pa.Table:
        if state.window is None:
            return key_outputs(state, names, types, rows, marks[retracted])
        return window_outputs(state.monoid, names, types, state.window, rows, marks[retracted])

    def table_of(difference: RowDifference) -> pa.Table:
        return difference.table(outputs, equal_rows)

    def alone(difference: RowDifference, error: Exception) -> Iterator[pa.Table]:
        """A value without a result was never published, and what was published before it is taken back."""
        parts = []
        for placed, retracted in ((difference.old, True), (difference.new, False)):
            if not len(placed):
                continue
            try:
                parts.append(outputs(placed.rows, retracted))
            except NOT_OF_A_ROW:
                raise
            except Exception as raised:
                if not retracted:
                    failures.presenting(placed.rows, raised)
        if len(parts) == 2:
            raise error
        yield from parts

    pieces = (change for change in changes if len(change.old) or len(change.new))
    return [table for piece in pieces for table in isolated(table_of, piece, alone) if table.num_rows]
