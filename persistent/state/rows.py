"""State rows are the sum of updates as columns: one row per (key, pane), sorted by (key hash, key, pane).

fold(fold(a, b), c) == fold(a, b, c)          by associativity
group_by(a + b)     == fold(group_by(a), group_by(b))

An agenda lists the ends of the sessions in a run, or of the lives of keys, and the hashes of their keys.

An agenda is a hint. The fragments of a session can be in several runs, and a later run can make the session longer:
the session then ends with another of its fragments. So a session ends within a stretch of time only if a fragment does,
and the largest end of all fragments is the end of a session. The agenda says which keys to look up; the sum of the runs
decides which sessions are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.column import Ragged
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.merging import merge_groups
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.fields import INT64_MIN
from persistent.codec.key_types import agreed_types
from persistent.errors import InvalidPipeline
from persistent.time.session_window import Gaps

OPEN_PANE = INT64_MIN
"""The pane that covers all event time. No pane of a window starts there, as no record has that timestamp."""

_KEY_BYTES_MAX = (1 << 31) - 1


def open_panes(timestamps: Integers) -> Integers:
    """The open pane for each time."""
    return np.broadcast_to(np.int64(OPEN_PANE), len(timestamps))


def fold(monoid: Monoid[Any], parts: Sequence[GroupSums], step: int) -> GroupSums:
    """The sum of parts, oldest first: each (key, pane) once."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    agreed = [replace(part, keys=keys) for part, keys in zip(parts, _agreed_keys(parts), strict=True)]
    return merge_groups(monoid, agreed, step)


def in_panes(monoid: Monoid[Any], rows: GroupSums, panes: Integers) -> GroupSums:
    """The rows under other panes in the same order. Rows whose panes become equal are summed."""
    if not len(rows):
        return rows
    keys, _ = number_keys(rows.keys, rows.hashes)
    starts = segment_starts((keys[1:] != keys[:-1]) | (panes[1:] != panes[:-1]))
    if len(starts) == len(rows):
        return replace(rows, panes=panes)
    sums = monoid.reduce_sorted(rows.columns, starts)
    return GroupSums(rows.hashes[starts], take_keys(rows.keys, starts), panes[starts], sums)


def _agreed_keys(parts: Sequence[GroupSums]) -> list[tuple[pa.Array, ...]]:
    """The key columns of each part in their common types. InvalidPipeline if they are too long for one column."""
    types = agreed_types([[column.type for column in part.keys] for part in parts])
    for number, type_ in enumerate(types):
        size = sum(part.keys[number].nbytes for part in parts)
        if size > _KEY_BYTES_MAX and (pa.types.is_binary(type_) or pa.types.is_string(type_)):
            raise InvalidPipeline(
                f"key column {number} has {size} bytes in {sum(map(len, parts))} rows to sum up at once; at most "
                f"{_KEY_BYTES_MAX} can be. Make the keys shorter: take a hash of long ones"
            )
    return [tuple(column.cast(type_) for column, type_ in zip(part.keys, types)) for part in parts]


@dataclass(frozen=True)
class Agenda:
    """``ends`` ascend; ``hashes``: the hash of the key of each end. ``earliest``: the time of the first message."""

    ends: Integers
    hashes: Words
    earliest: int

    def between(self, closed: int, until: int) -> slice:
        """The places of the ends with ``closed < end <= until``."""
        return slice(*np.searchsorted(self.ends, (closed, until), side="right").tolist())


def agenda_of(gaps: Gaps, rows: GroupSums) -> Agenda:
    """The agenda of the rows of a run of sessions, or of lives."""
    (table,) = rows.columns
    return _agenda(gaps, rows.hashes, table)


def agenda_of_table(window: Gaps, table: pa.Table) -> Agenda:
    """The agenda of a stored run, without the monoid of its values."""
    elements = table.column("element:element").combine_chunks()
    fragments = elements.flatten()
    times = tuple(fragments.field(name).to_numpy() for name in (".start", ".last"))
    lengths = np.diff(elements.offsets.to_numpy()).astype(np.int64)
    return _agenda(window, table.column("hash").to_numpy(), Ragged.of(lengths, times))


def _agenda(window: Gaps, hashes: Words, table: Ragged) -> Agenda:
    starts, lasts = table.flat()[:2]
    ends = window.session_ends(starts, lasts)
    order = np.argsort(ends, kind="stable")
    return Agenda(ends[order], table.spread(hashes)[order], int(starts.min()))
