"""A step is the work between two checkpoints, as pure items that any engine can run, on any worker, more than once.

    MapSplit      read a split, run the task over it, write its delta, its late rows and dead letters
    CloseShard    fold the panes of windows the clock has closed, in some key groups, and stage them as outputs
    FoldRuns      compaction: fold some key groups of neighbouring runs

Every file an item writes has a name of its own, and comes back in its result; what no manifest names does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.columns import Integers, group_hashes
from monoids.hashing import mix_records
from monoids.monoid import take
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.garbage import attempt_name
from persistent.checkpoint.log import new_nonce
from persistent.checkpoint.manifest import Account
from persistent.codec import KEY_GROUPS, Run, decode_run, encode_run, encode_table
from persistent.delta import Delta
from persistent.errors import CorruptCheckpoint, PersistentError, UserCodeError
from persistent.message import Batch
from persistent.outputs import final_values, window_outputs
from persistent.rows import Rows, agreed_types, fold
from persistent.sinks.protocol import Sink, Staged
from persistent.sources.protocol import NO_TIMESTAMP, Records, Source, Split
from persistent.state import PersistentState
from persistent.storage import Storage
from persistent.task import Failure, PersistentTask, key_columns, key_names, operator_name, process
from persistent.window import Window

_WINDOW_ROWS_MAX = 1 << 21
_FOR_EVER = 1 << 62


@dataclass(frozen=True)
class Attempt:
    """Who works, and for which checkpoint."""

    epoch: int
    id: int

    def name(self) -> str:
        return attempt_name(self.epoch, self.id, new_nonce())


@dataclass(frozen=True)
class MapSplit:
    """``watermark``: of the step before; what is late is decided by it. ``limit``: the largest timestamp allowed."""

    attempt: Attempt
    split: Split
    recorded: Mapping[str, Any]
    watermark: int
    limit: int


@dataclass(frozen=True)
class CloseShard:
    """Close the windows with ``closed < end <= close_at`` of the key groups ``low <= group < high``. Of a state without
    windows: publish the keys that the runs after checkpoint ``published`` update."""

    attempt: Attempt
    runs: tuple[Run, ...]
    low: int
    high: int
    closed: int
    close_at: int
    published: int
    key_types: tuple[str, ...]


@dataclass(frozen=True)
class FoldRuns:
    """``closed``: panes that only closed windows need are left out."""

    attempt: Attempt
    merge: Merge
    closed: int


Item = MapSplit | CloseShard | FoldRuns


@dataclass(frozen=True)
class Mapped:
    """What a split came to. ``panes``: those of the run, ascending. ``largest``: timestamp processed, None if none."""

    partition: str
    run: Run | None
    panes: Integers | None
    key_types: tuple[str, ...]
    account: Account
    largest: int | None
    late: Staged | None
    dead: Staged | None


@dataclass(frozen=True)
class Closed:
    """What was staged of the windows of a shard, if any held something."""

    staged: Staged | None


@dataclass(frozen=True)
class Folded:
    run: Run | None
    panes: Integers | None


@dataclass(frozen=True)
class Job:
    """What does not change from step to step; calling it does an item's work."""

    task: PersistentTask
    state: PersistentState
    source: Source
    sink: Sink | None
    storage: Storage
    dead_letters: bool

    def __call__(self, item: Item) -> Mapped | Closed | Folded:
        if isinstance(item, MapSplit):
            return _map_split(self, item)
        if isinstance(item, CloseShard):
            return _close_shard(self, item)
        return _fold_runs(self, item)

    def folder(self) -> str:
        """Where the runs of the task are."""
        return f"d/{operator_name(self.task)}"


def read_rows(job: Job, run: Run, low: int, high: int) -> Rows:
    """The verified rows of a run in some key groups."""
    place = f"{job.storage.url}/{run.name}"
    try:
        data = job.storage.read(run.name)
    except FileNotFoundError as error:
        raise CorruptCheckpoint(f"{place}: missing, though a manifest names it") from error
    return decode_run(job.state.monoid, data, run, place, low, high)


def fold_runs(
    job: Job, runs: Sequence[Run], low: int = 0, high: int = KEY_GROUPS, panes: tuple[int, int] | None = None
) -> Rows | None:
    """The sum of runs, oldest first, in some key groups and panes ``from <= pane < to``; None where there is
    nothing."""
    parts = []
    for run in runs:
        if high <= run.low or run.high <= low or (panes and (run.pane_max < panes[0] or run.pane_min >= panes[1])):
            continue
        rows = read_rows(job, run, low, high)
        if panes and (run.pane_min < panes[0] or run.pane_max >= panes[1]):
            rows = rows.take(np.flatnonzero((rows.panes >= panes[0]) & (rows.panes < panes[1])))
        if len(rows):
            parts.append(rows)
    with summing(job):
        return fold(job.state.monoid, parts, job.state.panes.step) if parts else None


@contextmanager
def summing(job: Job) -> Iterator[None]:
    """An error in here is one of the user's monoid, or of the values in sum, and not of one message."""
    try:
        yield
    except (PersistentError, OSError, MemoryError):
        raise
    except Exception as error:
        name, key = type(job.task).__name__, ", ".join(key_names(job.task))
        raise UserCodeError(
            f"{name}: the updates{f' of its keys ({key})' if key else ''} cannot be summed up: "
            f"{type(error).__name__}: {error}. What was committed stays; mend the task, its monoid or the values"
        ) from error


# -- map -----------------------------------------------------------------------------------------------------------


@dataclass
class _Tally:
    """What has been seen of a split so far."""

    account: Account = field(default_factory=Account)
    largest: int | None = None
    late: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[pa.RecordBatch] = field(default_factory=list)


def _map_split(job: Job, item: MapSplit) -> Mapped:
    task, state = job.task, job.state
    names = key_names(task)
    delta = Delta(state, names, item.watermark)
    tally = _Tally()
    paths = {span.ordinal: str(span.at.get("path", "")) for span in item.split.spans}
    key_of = key_columns(task)
    for records in job.source.read(item.split, item.recorded):
        aside = _Aside(item.split.partition, paths.get(records.ordinal, ""), records, item.attempt.id)
        kept = _judge(item, state.window, records, aside, tally)
        batch = Batch(records.batch, records.timestamps, item.split.partition, records.ordinal, records.offsets, key_of)
        batch = batch if kept is None else batch.take(kept)
        if len(batch):
            _process(job, delta, batch, aside, tally)
        assert tally.account.balances, f"the account of {item.split} does not balance: {tally.account}"
    with summing(job):
        rows = delta.rows()
    run = panes = None
    if rows is not None and len(rows):
        run, panes = _write_run(job, item.attempt, rows, item.attempt.id, item.attempt.id)
    return Mapped(
        partition=item.split.partition,
        run=run,
        panes=panes,
        key_types=tuple(str(column.type) for column in rows.keys) if rows is not None else (),
        account=tally.account,
        largest=tally.largest,
        late=_stage_aside(job, item.attempt, tally.late),
        dead=_stage_aside(job, item.attempt, tally.dead),
    )


def _judge(item: MapSplit, window: Window | None, records: Records, aside: _Aside, tally: _Tally) -> Integers | None:
    """Set dead and late records aside and count all; the rows to process (None: all of them)."""
    times = records.timestamps
    mix = mix_records(aside.partition, records.ordinal, records.offsets, np.where(times == NO_TIMESTAMP, -1, times))
    if records.dead:
        tally.dead.append(aside.undecoded())
        offsets = np.array([dead.offset for dead in records.dead], np.int64)
        mix += mix_records(aside.partition, records.ordinal, offsets, np.full(len(offsets), -1))
    dead = late = 0
    kept: Any = None
    if len(times):
        lowest, highest = int(times.min()), int(times.max())
        if lowest < 0 or highest > item.limit:
            rejected = (times < 0) | (times > item.limit)
            tally.dead.append(aside.rows(np.flatnonzero(rejected), _dead_reasons(times[rejected], item.limit)))
            kept, dead = ~rejected, int(rejected.sum())
            lowest = max(lowest, 0)
        if window is not None and window.first_number(lowest) * window.every_ms + window.size_ms <= item.watermark:
            is_late, partly = window.late(times, item.watermark)
            if kept is not None:
                is_late, partly = is_late & kept, partly & kept
            late = int(is_late.sum())
            if late:
                tally.late.append(aside.rows(np.flatnonzero(is_late), "late"))
                kept = ~is_late if kept is None else kept & ~is_late
            if partly.any():
                tally.late.append(aside.rows(np.flatnonzero(partly), "partly-late"))
    undecoded = len(records.dead)
    read = len(times) + undecoded
    tally.account += Account(read, len(times) - dead - late, late, dead + undecoded, 0, mix)
    return None if kept is None else np.flatnonzero(kept)


def _process(job: Job, delta: Delta, batch: Batch, aside: _Aside, tally: _Tally) -> None:
    failures: list[Failure] = []
    with summing(job):
        process(job.task, delta, batch, failures, stop=not job.dead_letters)
    times = batch.timestamps
    if failures:
        if not job.dead_letters:
            raise UserCodeError(
                f"{type(job.task).__name__} raised at {failures[0]}. Nothing of this step is committed; mend the task, "
                'or set on_error="dead-letter" to put such messages aside'
            ) from failures[0].error
        failed = np.concatenate([failure.message.offsets for failure in failures])
        chosen = np.flatnonzero(np.isin(aside.records.offsets, failed))
        tally.dead.append(aside.rows(chosen, [f"{type(f.error).__name__}: {f.error}" for f in failures]))
        tally.account += Account(0, -len(failures), 0, len(failures), 0, 0)
        times = times[~np.isin(batch.offsets, failed)]
    if len(times):
        largest = int(times.max())
        tally.largest = largest if tally.largest is None else max(tally.largest, largest)


@dataclass(frozen=True)
class _Aside:
    """Makes the rows of late messages and dead letters: where each was read, its value, and why it is here."""

    partition: str
    path: str
    records: Records
    checkpoint: int

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


def _dead_reasons(times: Integers, limit: int) -> list[str]:
    def reason(time: int) -> str:
        if time == NO_TIMESTAMP:
            return "timestamp missing or unreadable"
        if time < 0:
            return "timestamp before 1970"
        return f"timestamp too far ahead: after {limit} (see max_future)"

    return [reason(time) for time in times.tolist()]


def _stage_aside(job: Job, attempt: Attempt, batches: list[pa.RecordBatch]) -> Staged | None:
    if not batches:
        return None
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    table = table.sort_by([("ordinal", "ascending"), ("offset", "ascending")])
    data, sha256 = encode_table(table)
    name = f"{job.folder()}/{attempt.name()}.arrow"
    job.storage.write(name, data)
    return Staged(name, table.num_rows, len(data), sha256)


def _write_run(
    job: Job, attempt: Attempt, rows: Rows, first: int, last: int, low: int = 0, high: int = KEY_GROUPS
) -> tuple[Run, Integers]:
    panes = np.unique(rows.panes)
    data, sha256 = encode_run(job.state.monoid, rows, key_names(job.task), panes.tolist())
    name = f"{job.folder()}/{attempt.name()}.arrow"
    job.storage.write(name, data)
    run = Run(name, len(rows), len(data), sha256, low, low, high, int(panes[0]), int(panes[-1]), first, last)
    return run, panes


# -- close -----------------------------------------------------------------------------------------------------------


def _close_shard(job: Job, item: CloseShard) -> Closed:
    state, window = job.state, job.state.window
    types = [type_of(name) for name in item.key_types]
    if window is None:
        tables = _changed_keys(job, item)
    else:
        tables = (
            window_outputs(state.monoid, key_names(job.task), types, window, rows, numbers)
            for rows, numbers in _closing_rows(job, item, window)
        )
    with summing(job):
        found = [table for table in tables if table.num_rows]
    if not found or job.sink is None:
        return Closed(None)
    outputs = pa.concat_tables(found)
    return Closed(job.sink.stage(outputs, item.attempt.id, item.attempt.name()))


def _closing_rows(job: Job, item: CloseShard, window: Window) -> Iterator[tuple[Rows, Integers]]:
    first = window.first_number(item.closed)
    last = (item.close_at - window.size_ms) // window.every_ms
    yield from window_sums(job, item.runs, (item.low, item.high), window, first, last)


def window_sums(
    job: Job, runs: Sequence[Run], groups: tuple[int, int], window: Window, first: int, last: int | None
) -> Iterator[tuple[Rows, Integers]]:
    """The sums of the windows number ``first`` to ``last`` (None: to the end) in some key groups, in pieces,
    each with the window number of its rows."""
    ends_at = _FOR_EVER if last is None else last * window.every_ms + window.size_ms
    rows = fold_runs(job, runs, *groups, panes=(first * window.every_ms, ends_at))
    if rows is None:
        return
    numbers_from = np.maximum(window.first_number(rows.panes), first)
    numbers_to = window.last_number(rows.panes)
    if last is not None:
        numbers_to = np.minimum(numbers_to, last)
    if window.every_ms == window.size_ms and job.state.panes.interval_ms is None:
        yield rows, numbers_to
        return
    copies = np.maximum(numbers_to - numbers_from + 1, 0)
    for start, stop in _key_pieces(rows, copies):
        times = copies[start:stop]
        chosen = np.repeat(np.arange(start, stop), times)
        if not len(chosen):
            continue
        before = np.repeat(np.cumsum(times) - times, times)
        numbers = numbers_from[chosen] + np.arange(len(chosen)) - before
        piece = rows.take(chosen)
        order, starts = group_hashes(piece.keys, piece.hashes, numbers)
        columns = job.state.monoid.reduce_sorted(take(piece.columns, order), starts)
        firsts = order[starts]
        yield replace(piece.take(firsts), columns=columns), numbers[firsts]


def _key_pieces(rows: Rows, copies: Integers) -> list[tuple[int, int]]:
    """Row ranges of bounded expanded size that never divide a key hash."""
    total = np.cumsum(copies)
    if not len(total) or total[-1] <= _WINDOW_ROWS_MAX:
        return [(0, len(rows))]
    borders = np.flatnonzero(rows.hashes[1:] != rows.hashes[:-1]) + 1
    pieces, start, done = [], 0, 0
    while start < len(rows):
        limit = int(np.searchsorted(total, done + _WINDOW_ROWS_MAX, side="right"))
        place = int(np.searchsorted(borders, limit, side="right"))
        stop = int(borders[place - 1]) if place and borders[place - 1] > start else 0
        if not stop:
            stop = int(borders[place]) if place < len(borders) else len(rows)
        if limit >= len(rows):
            stop = len(rows)
        pieces.append((start, stop))
        start, done = stop, int(total[stop - 1])
    return pieces


def _changed_keys(job: Job, item: CloseShard) -> Iterator[pa.Table]:
    """The whole values of the keys that the runs after checkpoint ``published`` update."""
    updated = fold_runs(job, [run for run in item.runs if run.first > item.published], item.low, item.high)
    if updated is None:
        return
    rows = fold_runs(job, item.runs, item.low, item.high)
    assert rows is not None
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, updated.hashes)))
    types = [type_of(name) for name in item.key_types]
    yield final_values(job.state.monoid, key_names(job.task), types, rows, item.attempt.id)


# -- fold ------------------------------------------------------------------------------------------------------------


def _fold_runs(job: Job, item: FoldRuns) -> Folded:
    merge, window = item.merge, job.state.window
    rows = fold_runs(job, merge.inputs, merge.low, merge.high)
    if rows is not None and window is not None:
        needed = window.last_end(rows.panes) > item.closed
        rows = rows if needed.all() else rows.take(np.flatnonzero(needed))
    if rows is None or not len(rows):
        return Folded(None, None)
    first = min(run.first for run in merge.inputs)
    last = max(run.last for run in merge.inputs)
    return Folded(*_write_run(job, item.attempt, rows, first, last, merge.low, merge.high))


def common_key_types(found: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The key types on which all parts agree; TypeError where they do not. By name, as they stand in manifests."""
    known = [types for types in found if types]
    if not known:
        return ()
    return tuple(str(type_) for type_ in agreed_types([[type_of(name) for name in types] for types in known]))


def type_of(name: str) -> pa.DataType:
    """The Arrow type of a key column from its name in a manifest."""
    if name.startswith("decimal128("):
        precision, scale = name[len("decimal128(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _KEY_TYPES[name]


_KEY_TYPES = {
    str(type_): type_
    for type_ in (
        pa.null(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    )
}
