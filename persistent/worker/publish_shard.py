"""Publishing a shard stages the results of windows that close, and of keys and windows that have changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from monoids.groupby.summing import GroupSums
from persistent.codec import type_of
from persistent.errors import UserCodeError
from persistent.session_window import SessionWindow
from persistent.task import key_names
from persistent.worker.close_sessions import due_count, due_sessions, due_sessions_apart
from persistent.worker.close_windows import closing_sums, closing_sums_apart
from persistent.worker.expire_keys import ended_lives, shown_lives, shown_lives_apart
from persistent.worker.failing_keys import (
    FailingKey,
    failing_key,
    no_result,
    present_rows,
    presented,
    stage_failing_keys,
)
from persistent.worker.job import Closed, CloseShard, Job
from persistent.worker.merge_runs import monoid_errors
from persistent.worker.output_tables import Marks, key_outputs, marks_of, output_key, window_outputs
from persistent.worker.revise_sessions import (
    changed_sessions,
    changed_sessions_apart,
    taken_back_in,
    unpublished_count,
)
from persistent.worker.revise_windows import (
    Corrected,
    TakenBack,
    changed_keys,
    changed_keys_apart,
    corrected_in,
    corrections,
    corrections_apart,
)


def close_shard(job: Job, item: CloseShard) -> Closed:
    """Close the windows of one shard, or publish the changed keys of a state without windows. Without a sink, count the
    sessions that close; with a time to live, count the lives that end."""
    expired = 0 if job.state.time_to_live is None else ended_lives(job, item)
    if item.counts:
        return Closed(expired=expired, unpublished=unpublished_count(job, item) if item.changes else 0)
    if not job.sinks:
        return Closed(discarded=due_count(job, item))
    # What is for the new sinks includes all that is for the others, and every key that fails.
    shown_at = None if item.runs else item.shown_at
    unpublished = replace(item, runs=(), delta=(*item.runs, *item.delta), shown_at=shown_at, anew=False)
    most, failing = _presented(job, unpublished if item.whole else item)
    if failing and not job.dead_letters:
        raise no_result(job, failing[0])
    dead = stage_failing_keys(job, item.attempt, failing)
    changed, _ = _presented(job, item) if item.whole and job.sinks.keys() - set(item.whole) else (most, failing)
    outputs = {name: most if name in item.whole else changed for name in job.sinks}
    staged = _staged(job, item, outputs)
    return replace(staged, dead=dead, corrected=_corrected(job, item, most), expired=expired)


def stage_rows(job: Job, item: CloseShard, rows: Iterable[GroupSums]) -> Closed:
    """Rows that are published to all sinks, or taken back, staged as outputs of this item. One without a result was
    never published, and is a dead letter already."""
    failing: list[FailingKey] = []
    tables = _tables(job, item, rows, failing)
    if failing and not job.dead_letters:
        raise no_result(job, failing[0])
    return _staged(job, item, dict.fromkeys(job.sinks, tables))


def _staged(job: Job, item: CloseShard, outputs: Mapping[str, Sequence[pa.Table]]) -> Closed:
    """The outputs of each sink, staged. A sink that is given none stages nothing."""
    outlets, attempt, names = job.outlets(), item.attempt, key_names(job.task)
    staged = {
        name: outlets[name].stage(
            pa.concat_tables(tables), attempt.id, attempt.name(), output_key(job.state, names, job.sinks[name])
        )
        for name, tables in outputs.items()
        if tables
    }
    return Closed(staged)


def _corrected(job: Job, item: CloseShard, outputs: list[pa.Table]) -> int:
    """How many published results these outputs correct."""
    if isinstance(job.state.window, SessionWindow):
        return taken_back_in(outputs, item.closed)
    return corrected_in(item, outputs) if item.corrected else 0


def _presented(job: Job, item: CloseShard) -> tuple[list[pa.Table], list[FailingKey]]:
    """The outputs of a shard, and the keys that have none because their fold or their value fails."""
    failing: list[FailingKey] = []
    try:
        return _tables(job, item, _sums(job, item), failing), failing
    except UserCodeError:
        failing = []
        return _tables(job, item, _sums_apart(job, item, failing), failing), failing


def _sums(job: Job, item: CloseShard) -> Iterator[GroupSums]:
    if job.state.time_to_live is not None:
        return shown_lives(job, item)
    if job.state.window is None:
        return changed_keys(job, item)
    if isinstance(job.state.window, SessionWindow):
        return changed_sessions(job, item) if item.corrected or item.changes else due_sessions(job, item)
    return chain(closing_sums(job, item), corrections(job, item))


def _sums_apart(job: Job, item: CloseShard, failing: list[FailingKey]) -> Iterator[GroupSums]:
    if job.state.time_to_live is not None:
        return shown_lives_apart(job, item, failing)
    if job.state.window is None:
        return changed_keys_apart(job, item, failing)
    if isinstance(job.state.window, SessionWindow):
        changes = item.corrected or item.changes
        return (changed_sessions_apart if changes else due_sessions_apart)(job, item, failing)
    return chain(closing_sums_apart(job, item, failing), corrections_apart(job, item, failing))


def _tables(job: Job, item: CloseShard, sums: Iterable[GroupSums], failing: list[FailingKey]) -> list[pa.Table]:
    """The outputs of sums, and of corrections."""
    types = [type_of(name) for name in item.key_types]
    monoid, names, window = job.state.monoid, key_names(job.task), job.state.window

    marks, taking_back = (marks_of(job.state, item.revision, retracted=taken_back) for taken_back in (False, True))

    def outputs(rows: GroupSums, marks: Marks) -> pa.Table:
        if window is None:
            return key_outputs(job.state, names, types, rows, marks)
        return window_outputs(monoid, names, types, window, rows, marks)

    def table_of(rows: GroupSums) -> pa.Table:
        if isinstance(rows, TakenBack):
            if len(rows) > 1:
                return outputs(rows, taking_back)
            found = presented(lambda old: outputs(old, taking_back), rows)
            # A value without a result was never published.
            return outputs(rows.slice(0, 0), taking_back) if isinstance(found, Exception) else found
        if not isinstance(rows, Corrected):
            return outputs(rows, marks)
        if len(rows) > 1:
            return rows.outputs(outputs(rows, marks), outputs(rows.before, taking_back))
        return one_of(rows)

    def one_of(rows: Corrected) -> pa.Table:
        """A value without a result was never published, and what was published before it is taken back."""
        before = presented(lambda old: outputs(old, taking_back), rows.before)
        after = presented(lambda new: outputs(new, marks), rows)
        if isinstance(after, Exception):
            failing.append(failing_key(job, rows, after))
            return outputs(rows.slice(0, 0), taking_back) if isinstance(before, Exception) else before
        return after if isinstance(before, Exception) else rows.outputs(after, before)

    with monoid_errors(job):
        return [table for part in sums for table in present_rows(job, table_of, part, failing) if table.num_rows]
