"""Mapping a split reads it, judges every record, runs the task over those that count, and writes their sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from persistent.checkpoint.parts import Account
from persistent.codec import type_of
from persistent.delta import Delta
from persistent.deltas import Deltas
from persistent.errors import UserCodeError
from persistent.message import Batch
from persistent.state import PersistentState
from persistent.task import TaskFailure, key_columns, key_names, process
from persistent.time_to_live import Judge
from persistent.worker.duplicates import Duplicates
from persistent.worker.job import Job, Mapped, MapSplit
from persistent.worker.judge_records import SplitTally, judge
from persistent.worker.late_windows import PARTLY_LATE, LateWindows
from persistent.worker.merge_runs import monoid_errors, write_run
from persistent.worker.seen_items import SeenAfter
from persistent.worker.seen_state import SeenCache, seen_job
from persistent.worker.stage_aside import RowsAside, stage_aside, stage_late

_NONE = np.zeros(0, np.int64)


def map_split(job: Job, item: MapSplit, cache: SeenCache | None = None) -> Mapped:
    """Process one split. ``cache``: the runs of seen records that this worker has read."""
    task, each = job.task, [(one, item.of(one.name)) for one in job.each().values()]
    item = replace(item, limit=item.limit.within(one.state.window for one, _ in each))
    each = [(one, replace(own, limit=item.limit)) for one, own in each]
    deltas = {one.name: _delta_of(one, own, drops=len(each) > 1) for one, own in each}
    delta = deltas[job.name] if isinstance(job.declared, PersistentState) else Deltas(deltas)
    clocks = {one.operator: (_judge_of(one.state), own.final) for one, own in each}
    tally = SplitTally()
    seen = _duplicates(job, item, cache)
    paths = {span.ordinal: str(span.at.get("path", "")) for span in item.split.spans}
    key_of = key_columns(task)
    for records in job.sources[item.source].read(item.split, item.recorded):
        aside = RowsAside(item.partition, paths.get(records.ordinal, ""), records, item.attempt.id)
        kept = judge(item, clocks, aside, tally, seen)
        batch = Batch(records.batch, records.timestamps, item.partition, records.ordinal, records.offsets, key_of)
        batch = batch if kept is None else batch.take(kept)
        if len(batch):
            _process(job, delta, batch, aside, tally)
        assert tally.account.balances, f"the account of {item.split} does not balance: {tally.account}"
    mapped = Mapped(
        source=item.source,
        partition=item.split.partition,
        run=None,
        panes=None,
        key_types=(),
        account=tally.account,
        largest=tally.largest,
        late=stage_aside(job, item.attempt, tally.late),
        dead=stage_aside(job, item.attempt, tally.dead),
        first_dead=tally.dead[0].column("reason")[0].as_py() if tally.dead else "",
        seen=None if seen is None else _seen_after(job, item, seen),
        late_output=stage_late(job, item.attempt, tally.late),
    )
    missed = tally.late_windows
    states = {one.name: _written(one, own, deltas[one.name], mapped, missed.get(one.operator, {})) for one, own in each}
    return replace(mapped, states=states) if item.states else next(iter(states.values()))


def _judge_of(state: PersistentState) -> Judge | None:
    return state.window or state.time_to_live


def _delta_of(job: Job, item: MapSplit, *, drops: bool) -> Delta:
    """The delta of one state."""
    judged_at = item.watermark if _judge_of(job.state) is None else item.final
    types = [type_of(name) for name in item.key_types]
    limits = judged_at, item.limit.ahead, types
    return Delta(job.state, key_names(job.task), *limits, drops=drops, since=item.since)


def _written(job: Job, item: MapSplit, delta: Delta, mapped: Mapped, missed: LateWindows) -> Mapped:
    """The result of a split for one state, whose delta is written as a run."""
    with monoid_errors(job):
        rows = delta.rows()
    run = panes = agenda = None
    if rows is not None and len(rows):
        run, panes, agenda = write_run(job, item.attempt, rows, item.attempt.id, item.attempt.id)
    types = tuple(str(column.type) for column in rows.keys) if rows is not None else ()
    return replace(mapped, run=run, panes=panes, agenda=agenda, key_types=types, late_windows=missed)


def _duplicates(job: Job, item: MapSplit, cache: SeenCache | None) -> Duplicates | None:
    if item.seen is None:
        return None
    return Duplicates(job, job.dedupe[item.source], item.seen, cache or SeenCache())


def _seen_after(job: Job, item: MapSplit, seen: Duplicates) -> SeenAfter:
    """The records that the split has seen, written as a run."""
    rows, oldest = seen.rows(), seen.oldest_copy
    behind_ms = 0 if oldest is None else max(0, item.watermark - oldest)
    run = None
    if rows is not None:
        assert item.seen is not None
        whose = seen_job(job, item.source, item.seen.pane_ms)
        run, *_ = write_run(whose, item.attempt, rows, item.attempt.id, item.attempt.id)
    return SeenAfter(run, seen.span(), seen.doubtful(), behind_ms)


def _process(job: Job, delta: Delta | Deltas, batch: Batch, aside: RowsAside, tally: SplitTally) -> None:
    failures: list[TaskFailure] = []
    with monoid_errors(job):
        process(job.task, delta, batch, failures, stop=not job.dead_letters)
    times, failed = batch.timestamps, _NONE
    if failures:
        if not job.dead_letters:
            raise UserCodeError(
                f"{failures[0].text(aside.path)}. Nothing of this step is committed; fix the task, or set "
                'on_error="dead-letter" to set such messages aside'
            ) from failures[0].error
        failed = np.concatenate([failure.message.offsets for failure in failures])
        chosen = np.flatnonzero(np.isin(aside.records.offsets, failed))
        tally.dead.append(aside.rows(chosen, [failure.reason for failure in failures]))
        tally.account += Account(0, -len(failures), 0, len(failures), 0, 0)
        times = times[~np.isin(batch.offsets, failed)]
    noted = delta.noted() if isinstance(delta, Deltas) else {"": delta.noted()}
    if len(failed) or any(map(len, noted.values())):
        listed = tally.late[:-1] if aside.partly else tally.late
        order = list(delta) if isinstance(delta, Deltas) and len(delta) > 1 else [""]
        missing = {name: np.union1d(noted.get(name, _NONE), aside.partly.get(name, _NONE)) for name in order}
        tally.late = [*listed, *_partly_late(missing, failed, aside)]
    if len(times):
        largest = int(times.max())
        tally.largest = largest if tally.largest is None else max(tally.largest, largest)


def _partly_late(missing: Mapping[str, Integers], failed: Integers, aside: RowsAside) -> list[pa.RecordBatch]:
    """The messages that a state lacks, or a window that was final: by their own times, which the judge has listed last,
    and by updates at others. Those that have failed count nowhere, and are dead letters alone."""
    offsets = np.setdiff1d(np.concatenate(list(missing.values())), failed)
    if not len(offsets):
        return []
    chosen = np.flatnonzero(np.isin(aside.records.offsets, offsets))
    names: list[list[str]] = [[] for _ in chosen]
    for name, some in missing.items():
        for place in np.flatnonzero(np.isin(aside.records.offsets[chosen], some)).tolist() if name else ():
            names[place].append(name)
    return [aside.rows(chosen, [f"{PARTLY_LATE} in {', '.join(some)}" if some else PARTLY_LATE for some in names])]
