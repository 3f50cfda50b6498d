"""Publishing a shard stages the difference of two views of its state: of what is published, and of all there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.summing import GroupSums
from persistent.codec import type_of
from persistent.session_window import SessionWindow
from persistent.sinks.outlet import stage_accepted
from persistent.task import key_names
from persistent.views.difference import NOT_OF_A_ROW, RowDifference, differences, isolated, isolated_differences
from persistent.worker.failing_keys import (
    FailingKey,
    Failures,
    not_published,
    refused_result,
    stage_failing_keys,
)
from persistent.worker.job import Closed, CloseShard, Node
from persistent.worker.output_tables import (
    END,
    RETRACTED,
    equal_rows,
    key_outputs,
    marks_of,
    output_key,
    window_outputs,
)
from persistent.worker.shard_views import comparisons_of, due_count, ended_lives, from_nothing, unpublished_count


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
