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
from persistent.codec.fields import KEY_GROUPS, type_of
from persistent.codec.runs import groups_of
from persistent.state.difference import NOT_OF_A_ROW, Comparison, differences, isolated, isolated_differences
from persistent.state.views import SessionView, WindowView
from persistent.task.task import key_names
from persistent.time.session_window import SessionWindow
from persistent.time.window import WindowRange
from persistent.worker.job import Node
from persistent.worker.merge_runs import fold_keys, monoid_errors, parts_of
from persistent.worker.output_tables import empty_outputs, key_outputs, window_outputs
from persistent.worker.stage_aside import FailingKey, Failures

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
        places = np.flatnonzero(rows.hashes == self._hash)
        same = np.ones(len(places), bool)
        for column, value in zip(rows.keys, self.columns, strict=True):
            there = column.take(pa.array(places))
            same &= null_safe_equal(there, value.cast(there.type).take(pa.array(np.zeros(len(places), np.int64))))
        return places[same]


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


def empty_table(node: Node, manifest: Manifest | None) -> pa.Table:
    """No rows, in the columns that ``folded_tables`` gives."""
    types = [type_of(name) for name in manifest.nodes[node.id].key_types] if manifest is not None else []
    return empty_outputs(node.state, key_names(node.task), types)


def folded_tables(
    node: Node, manifest: Manifest, part: StatePart = WHOLE, omitted: list[FailingKey] | None = None
) -> Iterator[pa.Table]:
    """The state that a manifest holds, or a part of it, in pieces of bounded size, in the order of the key groups. Of a
    state with windows: every non-empty window that is not closed.

    UserCodeError names the key and window of a result that the monoid cannot present, or of a session that it cannot
    fold; a job with dead letters omits it, with a warning. With a list ``omitted`` any job omits it, and adds it there.
    """
    node = node.in_zone(manifest.nodes[node.id].zone)
    if omitted is not None:
        node = replace(node, dead_letters=True)
    state, names, stored = node.state, key_names(node.task), manifest.nodes[node.id]
    types = [type_of(name) for name in stored.key_types]

    def table_of(rows: GroupSums) -> pa.Table:
        if state.window is None:
            return key_outputs(state, names, types, rows)
        return window_outputs(state.monoid, names, types, state.window, rows)

    for groups in shards(stored.runs, 1, part.low, part.high):
        failures = Failures(node)
        with monoid_errors(node.task, node.id):
            for rows in _sums(node, manifest, groups, part, failures):
                if part.key is not None:
                    rows = rows.take(part.key.rows(rows))
                yield from isolated(table_of, rows, failures.presenting)
        if omitted is not None:
            omitted += failures.keys
            continue
        for key in failures.keys:
            logger.warning("omitted from the state: no result for %s", key.text(names))


def _sums(
    node: Node, manifest: Manifest, groups: tuple[int, int], part: StatePart, failures: Failures
) -> Iterator[GroupSums]:
    """The sums of some key groups; with windows, ``panes`` are their starts. Sessions whose fold raises go to
    ``failures``; if a fold raises, closed sessions are not folded: they may have raised when they closed."""
    runs, state, window = manifest.nodes[node.id].runs, node.state, node.state.window
    if window is None:
        folded = fold_keys(node, runs, *groups, part.as_of)
        if folded is not None:
            ttl = state.time_to_live
            yield folded if ttl is None else ttl.living(folded, manifest.nodes[node.id].clock.watermark)
        return
    closed = manifest.nodes[node.id].clock.closed if part.as_of is None else part.as_of
    first, last = window.first_number(closed), part.window
    if last is not None:
        if last < first:
            return
        first = last
    windows = WindowRange(window, first, last, part.as_of)
    parts = parts_of(node, runs, *groups, windows.panes())
    if not isinstance(window, SessionWindow):
        yield from WindowView(windows, state.panes).rows(state.monoid, parts)
        return
    # Another key whose fold raises is not asked for.
    parts = parts if part.key is None else [rows.take(part.key.rows(rows)) for rows in parts]
    parts = [rows for rows in parts if len(rows)]
    nothing = np.zeros(0, np.uint64)
    comparison = Comparison(SessionView(window, state.panes.step, closed, closed, closed, None, nothing), [], parts)
    try:
        yield from [change.new.rows for change in differences(comparison, state.monoid)]
    except NOT_OF_A_ROW:
        raise
    except Exception:
        yield from (change.new.rows for change in isolated_differences(comparison, state.monoid, failures.folding))
