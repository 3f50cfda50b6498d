"""The state tables of a manifest hold the sum of the runs that it names, in output columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.groupby.summing import GroupSums
from monoids.hashing import hash_keys, key_column, null_safe_equal
from persistent.checkpoint.compaction import shards
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import OperatorState
from persistent.codec import KEY_GROUPS, groups_of, type_of
from persistent.session_window import SessionWindow
from persistent.task import key_names
from persistent.window import WindowRange
from persistent.worker.close_sessions import open_sessions
from persistent.worker.close_windows import window_sums
from persistent.worker.failing_keys import FailingKey, no_result, present_rows
from persistent.worker.job import Job
from persistent.worker.merge_runs import fold_keys, monoid_errors, parts_of
from persistent.worker.output_tables import empty_outputs, key_outputs, window_outputs

logger = logging.getLogger("persistent.worker.state_tables")


@dataclass(frozen=True)
class OneKey:
    """A key to look up, as the columns of one row."""

    columns: tuple[pa.Array, ...]

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> OneKey:
        """``columns``: one value each, of the types of the state's key."""
        return OneKey(tuple(key_column(column) for column in columns))

    @property
    def group(self) -> int:
        """Its key group."""
        return int(groups_of(self._hash)[0])

    @property
    def _hash(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return hash_keys(self.columns, 1)

    def rows(self, rows: GroupSums) -> Integers:
        """The row numbers of this key."""
        found = np.flatnonzero(rows.hashes == self._hash)
        same = np.ones(len(found), bool)
        for column, mine in zip(rows.keys, self.columns, strict=True):
            there = column.take(pa.array(found))
            same &= null_safe_equal(there, mine.cast(there.type).take(pa.array(np.zeros(len(found), np.int64))))
        return found[same]


@dataclass(frozen=True)
class StatePart:
    """A part of a state: some key groups, one key, one window (its number); ``as_of``: as of that clock (ms, on the
    grid)."""

    low: int = 0
    high: int = KEY_GROUPS
    key: OneKey | None = None
    window: int | None = None
    as_of: int | None = None

    @staticmethod
    def of_key(key: OneKey, window: int | None = None) -> StatePart:
        """One key; only the slice of the runs that holds its key group is read."""
        return StatePart(key.group, key.group + 1, key, window)


WHOLE = StatePart()


def state_of(job: Job, manifest: Manifest) -> OperatorState:
    """The manifest's entry for the only state of the job."""
    return manifest.operators[job.operator]


def empty_table(job: Job, manifest: Manifest | None) -> pa.Table:
    """No rows, in the columns that ``folded_tables`` gives."""
    types = [type_of(name) for name in state_of(job, manifest).key_types] if manifest is not None else []
    return empty_outputs(job.state, key_names(job.task), types)


def folded_tables(
    job: Job, manifest: Manifest, part: StatePart = WHOLE, omitted: list[FailingKey] | None = None
) -> Iterator[pa.Table]:
    """The state that a manifest holds, or a part of it, in pieces of bounded size, in the order of the key groups. Of a
    state with windows: every non-empty window that is not closed.

    UserCodeError names the key and window of a result that the monoid cannot present, or of a session that it cannot
    fold; a job with dead letters omits it, with a warning. With a list ``omitted`` any job omits it, and adds it there.
    """
    job = job.in_zone(state_of(job, manifest).state.zone)
    if omitted is not None:
        job = replace(job, dead_letters=True)
    state, names, operator = job.state, key_names(job.task), state_of(job, manifest)
    types = [type_of(name) for name in operator.key_types]

    def table_of(rows: GroupSums) -> pa.Table:
        if state.window is None:
            return key_outputs(state, names, types, rows)
        return window_outputs(state.monoid, names, types, state.window, rows)

    for groups in shards(operator.state.runs, 1, part.low, part.high):
        failing: list[FailingKey] = []
        with monoid_errors(job):
            for rows in _sums(job, manifest, groups, part, failing):
                if part.key is not None:
                    rows = rows.take(part.key.rows(rows))
                yield from present_rows(job, table_of, rows, failing)
        if failing and not job.dead_letters:
            raise no_result(job, failing[0])
        if omitted is not None:
            omitted += failing
            continue
        for one in failing:
            logger.warning("omitted from the state: no result for %s", one.text(names))


def _sums(
    job: Job, manifest: Manifest, groups: tuple[int, int], part: StatePart, failing: list[FailingKey]
) -> Iterator[GroupSums]:
    """The sums of some key groups; with windows, ``panes`` are their starts. Sessions of which the fold raises go to
    ``failing``."""
    runs, state, window = state_of(job, manifest).state.runs, job.state, job.state.window
    if window is None:
        folded = fold_keys(job, runs, *groups, part.as_of)
        if folded is not None:
            ttl = state.time_to_live
            yield folded if ttl is None else ttl.living(folded, manifest.clocks[job.operator].watermark)
        return
    closed = manifest.clocks[job.operator].closed if part.as_of is None else part.as_of
    first, last = window.first_number(closed), part.window
    if last is not None:
        if last < first:
            return
        first = last
    windows = WindowRange(window, first, last, part.as_of)
    if not isinstance(window, SessionWindow):
        yield from window_sums(job, runs, groups, windows)
        return
    parts = parts_of(job, runs, *groups, windows.panes())
    # Another key whose fold raises is not asked for.
    parts = parts if part.key is None else [one.take(part.key.rows(one)) for one in parts]
    yield from open_sessions(job, [one for one in parts if len(one)], closed, failing)
