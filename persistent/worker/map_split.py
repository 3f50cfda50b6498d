"""Mapping a split reads it, judges every record, runs the task over those that count, and writes their sum.

Each record is judged once, in this order: dead, duplicate, late or processed. After every batch
``read = processed + late + dead + duplicate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.groupby.sorting import Mask
from monoids.hashing import mix_records
from persistent.checkpoint.parts import Account
from persistent.codec import type_of
from persistent.delta import Delta
from persistent.deltas import Deltas
from persistent.errors import UserCodeError
from persistent.message import Batch
from persistent.sources.protocol import NO_TIMESTAMP, Records
from persistent.state import PersistentState
from persistent.task import TaskFailure, key_columns, key_names, process, state_name
from persistent.text.figures import date_text
from persistent.time_to_live import Judge, TimeToLive
from persistent.worker.duplicates import Duplicates, Fate
from persistent.worker.job import Job, Mapped, MapSplit
from persistent.worker.late_windows import PARTLY_LATE, LateWindows, added, windows_missed
from persistent.worker.merge_runs import monoid_errors, write_run
from persistent.worker.seen_items import SeenAfter
from persistent.worker.seen_state import SeenCache, seen_job
from persistent.worker.stage_aside import stage_aside, stage_late

Clocks = Mapping[str, tuple[Judge | None, int]]
"""What decides in each state which records are late, None if it takes all, and the clock up to which it does."""

_TOO_OLD = "late: too old to know whether it is a copy (see within= of dedupe)"


def map_split(job: Job, item: MapSplit, cache: SeenCache | None = None) -> Mapped:
    """Process one split. ``cache``: the runs of seen records that this worker has read."""
    task, each = job.task, [(one, item.of(one.name)) for one in job.each().values()]
    ends = [one.state.window.time_max for one, _ in each if one.state.window is not None]
    item = replace(item, limit=min([item.limit, *ends]))
    each = [(one, replace(own, limit=item.limit)) for one, own in each]
    deltas = {one.name: _delta_of(one, own, drops=len(each) > 1) for one, own in each}
    delta = deltas[job.name] if isinstance(job.declared, PersistentState) else Deltas(deltas)
    clocks = {one.operator: (_judge_of(one.state), own.final) for one, own in each}
    tally = _SplitTally()
    seen = _duplicates(job, item, cache)
    paths = {span.ordinal: str(span.at.get("path", "")) for span in item.split.spans}
    key_of = key_columns(task)
    for records in job.sources[item.source].read(item.split, item.recorded):
        aside = _SetAside(item.partition, paths.get(records.ordinal, ""), records, item.attempt.id)
        kept = _judge(item, clocks, records, aside, tally, seen)
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
    return Delta(job.state, key_names(job.task), judged_at, item.limit, types, drops=drops)


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


@dataclass
class _SplitTally:
    """The account of a split so far, and its late and dead records."""

    account: Account = field(default_factory=Account)
    largest: int | None = None
    late: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[pa.RecordBatch] = field(default_factory=list)
    late_windows: dict[str, LateWindows] = field(default_factory=dict)
    """By the name of the state in the checkpoint."""


def _judge(
    item: MapSplit,
    clocks: Clocks,
    records: Records,
    aside: _SetAside,
    tally: _SplitTally,
    seen: Duplicates | None,
) -> Integers | None:
    """Count all records and collect the dead and late ones; returns the rows to process (None: all)."""
    times, partition = records.timestamps, item.split.partition
    mix = mix_records(partition, records.ordinal, records.offsets, np.where(times == NO_TIMESTAMP, -1, times))
    if records.dead:
        tally.dead.append(aside.undecoded())
        offsets = np.array([dead.offset for dead in records.dead], np.int64)
        mix += mix_records(partition, records.ordinal, offsets, np.full(len(offsets), -1))
    dead = late = again = 0
    kept: Any = None
    if len(times):
        lowest, highest = int(times.min()), int(times.max())
        rejected = _rejected(item, records, lowest, highest)
        if rejected is not None:
            tally.dead.append(aside.rows(np.flatnonzero(rejected), _dead_reasons(records, rejected, item)))
            kept, dead = ~rejected, int(rejected.sum())
            lowest = max(lowest, 0)
        counted = _counted_elsewhere(item, records, lowest)
        if counted is not None:
            is_again = counted if kept is None else kept & counted
            kept, again = ~counted if kept is None else kept & ~is_again, int(is_again.sum())
            lowest = max(lowest, item.since or 0)
        if seen is not None:
            kept, nameless, copies, old = _judge_copies(seen, records, kept, aside, tally)
            dead, again, late = dead + nameless, again + copies, late + old
        judged = _judge_late(clocks, times, lowest, kept, tally)
        if judged is not None:
            is_late, partly, reasons = judged
            if is_late.any():
                late += int(is_late.sum())
                tally.late.append(aside.rows(np.flatnonzero(is_late), "late"))
                kept = ~is_late if kept is None else kept & ~is_late
            if partly.any():
                tally.late.append(aside.rows(np.flatnonzero(partly), reasons))
                aside.listed.append(records.offsets[partly])
    undecoded = len(records.dead)
    read = len(times) + undecoded
    tally.account += Account(read, len(times) - dead - again - late, late, dead + undecoded, again, mix)
    return None if kept is None else np.flatnonzero(kept)


def _judge_late(
    clocks: Clocks, times: Integers, lowest: int, kept: Any, tally: _SplitTally
) -> tuple[Mask, Mask, str | list[str]] | None:
    """Which of the kept rows (None: all) are late: no state takes them. Which are partly late: a window is final that
    would hold them, or a state refuses them; and the reason of each of these. None if no row is either. Counts what
    each state refuses, by its windows; of an only state without, all late rows are."""
    found = {}
    for operator, (judge, final) in clocks.items():
        if judge is not None and judge.may_be_late(lowest, final):
            late, partly = judge.late(times, final)
            found[operator] = (late, partly) if kept is None else (late & kept, partly & kept)
            if found[operator][0].any() and (len(clocks) > 1 or not isinstance(judge, TimeToLive)):
                missed = windows_missed(judge, times[found[operator][0]])
                tally.late_windows[operator] = added([tally.late_windows.get(operator, {}), missed])
    if not found:
        return None
    refused = np.sum([late for late, _ in found.values()], axis=0)
    is_late = refused == len(clocks)
    partly = (np.any([partly for _, partly in found.values()], axis=0) | (refused > 0)) & ~is_late
    if len(clocks) == 1:
        return is_late, partly, PARTLY_LATE
    reasons = [""] * int(partly.sum())
    for operator, (late, some) in found.items():
        for place in np.flatnonzero((late | some)[partly]).tolist():
            reasons[place] += f"{', ' if reasons[place] else f'{PARTLY_LATE} in '}{state_name(operator)}"
    return is_late, partly, reasons


def _rejected(item: MapSplit, records: Records, lowest: int, highest: int) -> Any:
    """The rows that are dead letters; None if no row is."""
    if lowest >= 0 and highest <= item.time_max and records.nowhere is None:
        return None
    times = records.timestamps
    rejected = (times < 0) | (times > item.time_max)
    if records.nowhere is not None:
        rejected |= records.nowhere if item.since is None else records.nowhere & (times >= item.since)
    return rejected if rejected.any() else None


def _counted_elsewhere(item: MapSplit, records: Records, lowest: int) -> Any:
    """The rows that were counted before a restart, or that another part of the source counts; None if no row is."""
    if item.since is None or lowest >= item.since:
        return records.elsewhere
    before = records.timestamps < item.since
    return before if records.elsewhere is None else before | records.elsewhere


def _judge_copies(
    seen: Duplicates, records: Records, kept: Any, aside: _SetAside, tally: _SplitTally
) -> tuple[Any, int, int, int]:
    """Judge the kept rows (None: all) by the seen records. Returns those to keep, and how many are dead, copies,
    late."""
    rows = np.arange(len(records.timestamps)) if kept is None else np.flatnonzero(kept)
    whole = len(rows) == len(records.timestamps)
    batch = records.batch if whole else records.batch.take(pa.array(rows))
    fates = seen.judge(batch, records.timestamps[rows])
    if not fates.any():
        return kept, 0, 0, 0
    dead = np.flatnonzero((fates == Fate.NAMELESS) | (fates == Fate.USED_AGAIN))
    if len(dead):
        tally.dead.append(aside.rows(rows[dead], seen.reasons(batch, dead, fates[dead])))
    late = rows[fates == Fate.TOO_OLD]
    if len(late):
        tally.late.append(aside.rows(late, _TOO_OLD))
    left = np.zeros(len(records.timestamps), bool)
    left[rows[fates == Fate.NEW]] = True
    return left, len(dead), int((fates == Fate.COPY).sum()), len(late)


def _process(job: Job, delta: Delta | Deltas, batch: Batch, aside: _SetAside, tally: _SplitTally) -> None:
    failures: list[TaskFailure] = []
    with monoid_errors(job):
        process(job.task, delta, batch, failures, stop=not job.dead_letters)
    times = batch.timestamps
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
    tally.late += _partly_late(delta.noted() if isinstance(delta, Deltas) else {"": delta.noted()}, aside)
    if len(times):
        largest = int(times.max())
        tally.largest = largest if tally.largest is None else max(tally.largest, largest)


def _partly_late(noted: Mapping[str, Integers], aside: _SetAside) -> list[pa.RecordBatch]:
    """The messages whose updates at other times have missed windows that were final, by state; without those that are
    listed already."""
    offsets = np.unique(np.concatenate([np.zeros(0, np.int64), *noted.values()]))
    offsets = offsets[~np.isin(offsets, np.concatenate([np.zeros(0, np.int64), *aside.listed]))]
    if not len(offsets):
        return []
    chosen = np.flatnonzero(np.isin(aside.records.offsets, offsets))
    missing = [
        [name for name, some in noted.items() if name and offset in some] for offset in aside.records.offsets[chosen]
    ]
    return [aside.rows(chosen, [f"{PARTLY_LATE} in {', '.join(names)}" if names else PARTLY_LATE for names in missing])]


@dataclass(frozen=True)
class _SetAside:
    """Makes the rows of late messages and dead letters: place, value and reason of each record."""

    partition: str
    path: str
    records: Records
    checkpoint: int
    listed: list[Integers] = field(default_factory=list)
    """The offsets of those that are partly late by their own time."""

    def rows(self, chosen: Integers, reasons: str | Sequence[str]) -> pa.RecordBatch:
        batch = self.records.batch.take(pa.array(chosen))
        value = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)) if batch.num_columns else None
        times = self.records.timestamps[chosen]
        return self._batch(self.records.offsets[chosen], times, reasons, value, [None] * len(chosen))

    def undecoded(self) -> pa.RecordBatch:
        dead = self.records.dead
        value = pa.nulls(len(dead), pa.struct(list(self.records.batch.schema)))
        offsets = np.array([record.offset for record in dead], np.int64)
        reasons = [record.reason for record in dead]
        return self._batch(offsets, np.full(len(dead), NO_TIMESTAMP), reasons, value, [record.data for record in dead])

    def _batch(self, offsets: Any, times: Any, reasons: Any, value: Any, data: list[bytes | None]) -> pa.RecordBatch:
        rows = len(offsets)
        columns = {
            "partition": pa.array([self.partition] * rows, pa.string()),
            "file": pa.array([self.path] * rows, pa.string()),
            "ordinal": pa.array(np.full(rows, self.records.ordinal, np.int64)),
            "offset": pa.array(offsets),
            "timestamp": pa.array(times, mask=times == NO_TIMESTAMP),
            "reason": pa.array([reasons] * rows if isinstance(reasons, str) else list(reasons), pa.string()),
            "checkpoint": pa.array(np.full(rows, self.checkpoint, np.int64)),
            "value": value if value is not None else pa.nulls(rows),
            "data": pa.array(data, pa.binary()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _dead_reasons(records: Records, rejected: Any, item: MapSplit) -> list[str]:
    def reason(row: int, time: int) -> str:
        if time == NO_TIMESTAMP:
            return records.unreadable(row)
        if time < 0:
            return "timestamp before 1970"
        if time > item.limit:
            return (
                f"timestamp too far ahead: {date_text(time)} is after {date_text(item.limit)}, the time of day plus "
                "max_future; or timestamp_unit= is wrong"
            )
        if time <= item.time_max:
            return records.unreadable(row)
        return (
            f"timestamp after the limit: {date_text(time)} is after {date_text(item.not_after or 0)}, the limit of a "
            "clock that was set back ('persistent clock URL --not-after none' lifts it)"
        )

    rows = np.flatnonzero(rejected)
    return [reason(row, time) for row, time in zip(rows.tolist(), records.timestamps[rows].tolist())]
