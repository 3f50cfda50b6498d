"""A folded state is the sum of the runs that a manifest names, in output columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.hashing import hash_keys, key_column, null_safe_equal
from persistent.checkpoint.compaction import shards
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, OperatorState
from persistent.checkpoint.successor import Entry
from persistent.codec import KEY_GROUPS, canonical_json, groups_of, type_of
from persistent.errors import CorruptCheckpoint, FingerprintChanged, UnknownCheckpoint
from persistent.state import NonWindowState, PersistentState
from persistent.task import key_names, operator_name
from persistent.text.figures import utc_text
from persistent.worker.close_windows import window_sums
from persistent.worker.failing_keys import Culprit, refusal, shown
from persistent.worker.job import Job
from persistent.worker.merge_runs import fold_keys, summing
from persistent.worker.output_tables import empty_outputs, final_values, window_outputs
from persistent.worker.state_rows import Rows

logger = logging.getLogger("persistent.worker.state_tables")


@dataclass(frozen=True)
class OneKey:
    """One key, as the columns of a row, by which it is found."""

    columns: tuple[pa.Array, ...]

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> OneKey:
        """``columns``: one value each, of the types of the state's key."""
        return OneKey(tuple(key_column(column) for column in columns))

    @property
    def group(self) -> int:
        """The key group where it lives."""
        return int(groups_of(self._hash)[0])

    @property
    def _hash(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return hash_keys(self.columns, 1)

    def rows(self, rows: Rows) -> Integers:
        """The numbers of its rows."""
        found = np.flatnonzero(rows.hashes == self._hash)
        same = np.ones(len(found), bool)
        for column, mine in zip(rows.keys, self.columns, strict=True):
            there = column.take(pa.array(found))
            same &= null_safe_equal(there, mine.cast(there.type).take(pa.array(np.zeros(len(found), np.int64))))
        return found[same]


@dataclass(frozen=True)
class Part:
    """A part of a state: of some key groups, of one key, of one window (its number); of what was before a clock (ms,
    on the grid), as it was when the clock stood there."""

    low: int = 0
    high: int = KEY_GROUPS
    key: OneKey | None = None
    window: int | None = None
    as_of: int | None = None

    @staticmethod
    def of_key(key: OneKey, window: int | None = None) -> Part:
        """The slice of the runs where the key lives is all that is read."""
        return Part(key.group, key.group + 1, key, window)


WHOLE = Part()


def state_of(job: Job, manifest: Manifest) -> OperatorState:
    """What the manifest says of the state of the job's task."""
    return manifest.operators[operator_name(job.task)]


def empty_table(job: Job, manifest: Manifest | None) -> pa.Table:
    """No rows, in the columns that ``folded_tables`` gives."""
    types = [type_of(name) for name in state_of(job, manifest).key_types] if manifest is not None else []
    return empty_outputs(job.state.monoid, key_names(job.task), types, job.state.window)


def folded_tables(job: Job, manifest: Manifest, part: Part = WHOLE) -> Iterator[pa.Table]:
    """The state that a manifest holds, or a part of it: of a state with windows, every window that holds something and
    is not closed. In pieces of bounded size, in the order of the key groups.

    UserCodeError names the key and window of a result that cannot be presented; where the job has dead letters, it is
    left out, with a warning.
    """
    state, names, operator = job.state, key_names(job.task), state_of(job, manifest)
    types = [type_of(name) for name in operator.key_types]

    def table_of(rows: Rows, numbers: Integers | None) -> pa.Table:
        if state.window is None or numbers is None:
            return final_values(state.monoid, names, types, rows, None)
        return window_outputs(state.monoid, names, types, state.window, rows, numbers)

    for groups in shards(operator.runs, 1, part.low, part.high):
        found: list[Culprit] = []
        with summing(job):
            for rows, numbers in _sums(job, manifest, groups, part):
                if part.key is not None:
                    chosen = part.key.rows(rows)
                    rows, numbers = rows.take(chosen), numbers if numbers is None else numbers[chosen]
                yield from shown(job, table_of, (rows, numbers), found)
        if found and not job.dead_letters:
            raise refusal(job, found[0])
        for culprit in found:
            logger.warning("left out of the state: no result for %s", culprit.told(names))


def entry_as_of(log: Log, job: Job, clock: int) -> Entry:
    """The oldest kept checkpoint, of those the newest goes back to, that holds all of what was before ``clock`` and
    can tell it from what came after. UnknownCheckpoint with the range where there is none; FingerprintChanged where
    only checkpoints of the task as it was before it evolved do."""
    newest = newest_of(log)
    kept = _line_of(newest.manifest, {entry.manifest.id: entry for entry in _kept(log, newest)})
    knowing = [entry for entry in kept if _knows(job, clock, entry.manifest)]
    for entry in knowing:
        if _is_of(job, entry.manifest):
            return entry
    if knowing:
        ours = [entry.manifest.clock.watermark for entry in kept if _is_of(job, entry.manifest)]
        since = f"; as it is now it goes back to {utc_text(min(ours))}" if ours else ""
        raise FingerprintChanged(
            f"{log.storage.url}: the state as of {utc_text(clock)} is in checkpoint {knowing[-1].manifest.id}, which "
            f"is of the task as it was before its state evolved{since}. Read it with the task as it was; or take a "
            "later clock"
        )
    clocks = f"{utc_text(kept[0].manifest.clock.watermark)} to {utc_text(kept[-1].manifest.clock.watermark)}"
    raise UnknownCheckpoint(
        f"{log.storage.url}: no kept checkpoint knows the state as of {utc_text(clock)}: their clocks are {clocks}"
        f"{_why_unknown(job.state, clock, _known_from(job, [entry.manifest for entry in kept]))}"
    )


def _kept(log: Log, newest: Entry) -> list[Entry]:
    """The kept checkpoints, ``newest`` among them: without those that are collected while we look."""
    entries = []
    for id in log.kept_ids(newest.manifest):
        try:
            entries.append(newest if id == newest.manifest.id else log.read(id))
        except CorruptCheckpoint:
            if newest_of(log).manifest.keeps(id):
                raise
    return entries


def _is_of(job: Job, manifest: Manifest) -> bool:
    """Whether the manifest holds the state of the task as it is."""
    found = manifest.operators.get(operator_name(job.task))
    return found is not None and (canonical_json(found.fingerprint), found.key_names) == (
        canonical_json(job.state.fingerprint()),
        key_names(job.task),
    )


def _line_of(newest: Manifest, kept: Mapping[int, Entry]) -> list[Entry]:
    """The kept checkpoints that the newest has come from, oldest first: not those that a rollback has left."""
    return [kept[id] for id in sorted(kept) if not any(first <= id < stop for first, stop, _ in newest.left)]


def _knows(job: Job, clock: int, manifest: Manifest) -> bool:
    times, state, operator = manifest.clock, job.state, manifest.operators.get(operator_name(job.task))
    since = None if operator is None else operator.known_from
    known = state.knows(clock, times.watermark) and (state.window is None or times.closed <= clock)
    return known and (since is None or clock >= since)


def _known_from(job: Job, kept: list[Manifest]) -> int:
    """Before which clock all of them have summed up the past, by their own record."""
    operators = [one.operators[operator_name(job.task)] for one in kept if operator_name(job.task) in one.operators]
    return min((operator.known_from or 0 for operator in operators), default=0)


def _why_unknown(state: PersistentState, clock: int, known_from: int) -> str:
    if not state.panes.is_cut(clock):
        return f", and {utc_text(clock)} is not on the grid of {state.panes}"
    if isinstance(state, NonWindowState) and state.history_ms is None:
        return ". Declare how far back it is to be known: NonWindowState(..., interval_ms=..., history=...)"
    if clock < known_from:
        return f". What was before {utc_text(known_from)} has been summed up: take a later clock, or a checkpoint's id"
    return ". Take a clock between those, or one of the kept checkpoints (persistent state --at ID)"


def _sums(job: Job, manifest: Manifest, groups: tuple[int, int], part: Part) -> Iterator[tuple[Rows, Integers | None]]:
    """The rows of some key groups, each of a window with the number of it."""
    runs, window = state_of(job, manifest).runs, job.state.window
    if window is None:
        folded = fold_keys(job, runs, *groups, part.as_of)
        if folded is not None:
            yield folded, None
        return
    first, last = window.first_number(manifest.clock.closed if part.as_of is None else part.as_of), part.window
    if last is not None:
        if last < first:
            return
        first = last
    yield from window_sums(job, runs, groups, window, first, last, part.as_of)
