"""State rows are the sum of updates as columns: one row per (key, pane), sorted by (key hash, key, pane).

fold(fold(a, b), c) == fold(a, b, c)          by associativity
group_by(a + b)     == fold(group_by(a), group_by(b))

An agenda lists the ends of the sessions in a run, or of the lives of keys, and the hashes of their keys.

An agenda is a hint. The fragments of a session can be in several runs, and a later run can make the session longer:
the session then ends with another of its fragments. So a session ends within a stretch of time only if a fragment does,
and the largest end of all fragments is the end of a session. The agenda says which keys to look up; the sum of the runs
decides which sessions are due.

Rows can hold other values than their state's: a count, a mark beside the value, or the number of an entry. An *entry*
is what holds one value: a row; of sessions and lives, one of the stretches of time in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Count, SetUnion, Sum, record
from monoids.arrays import columnar
from monoids.column import Columns, Ragged, concat, take
from monoids.containers.intervals import Fragment, Sessions
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.merging import find_rows, merge_groups
from monoids.groupby.summing import GroupSums
from monoids.monoid import Monoid
from monoids.scalars import snapshot
from monoids.text import Words
from persistent.codec.fields import INT64_MIN, agreed_types
from persistent.errors import InvalidPipeline
from persistent.time.session_window import Gaps, SessionWindow
from persistent.time.window import AnyWindow

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


COUNT, NUMBERS = Count(), SetUnion(int)
_NO_ROWS = np.zeros(0, np.int64)
_SIDES = record(one=Sum(), other=Sum())


def over(kept: Monoid[Any], values: Monoid[Any]) -> Monoid[Any]:
    """The monoid of the same rows with values of another monoid. ``kept``: the monoid of the rows of a state."""
    return Sessions(kept.gap, values) if isinstance(kept, Sessions) else values


def with_values(kept: Monoid[Any], rows: GroupSums, values: Columns) -> GroupSums:
    """The rows with other values, one for each entry."""
    if not isinstance(kept, Sessions):
        return replace(rows, columns=values)
    (table,) = rows.columns
    start, last, *_ = table.flat()
    return replace(rows, columns=(Ragged.of(table.lengths, (start, last, *values)),))


def entries(kept: Monoid[Any], rows: GroupSums) -> int:
    """The number of entries of the rows."""
    return int(rows.columns[0].entries) if isinstance(kept, Sessions) else len(rows)


def counted(kept: Monoid[Any], parts: Sequence[GroupSums]) -> list[GroupSums]:
    """The parts without their values, as rows of ``over(kept, COUNT)``: no fold of them raises."""
    return [with_values(kept, part, (np.ones(entries(kept, part), np.int64),)) for part in parts]


def marking(kept: Monoid[Any]) -> Monoid[Any]:
    """The monoid of rows whose entries have a mark beside the value: how many marked entries are in the sum."""
    return over(kept, record(value=values_of(kept), mark=COUNT))


def marked(kept: Monoid[Any], parts: Sequence[GroupSums], mark: int) -> list[GroupSums]:
    """The parts as rows of ``marking(kept)``, with this mark in every entry."""
    return [
        with_values(kept, part, (*result_columns(kept, part.columns), np.full(entries(kept, part), mark, np.int64)))
        for part in parts
    ]


def numbered(kept: Monoid[Any], parts: Sequence[GroupSums]) -> tuple[Columns, list[GroupSums]]:
    """The values of all entries, in the order in which they are summed up, and the parts as rows of
    ``over(kept, NUMBERS)``: each entry holds the number of its value."""
    values = concat([result_columns(kept, part.columns) for part in parts])
    panes = [part.columns[0].spread(part.panes) if isinstance(kept, Sessions) else part.panes for part in parts]
    order = np.argsort(np.concatenate(panes), kind="stable")
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    ends = np.cumsum([entries(kept, part) for part in parts]).tolist()
    chosen = [numbers[start:stop] for start, stop in zip([0, *ends], ends)]
    return take(values, order), [
        with_values(kept, part, NUMBERS.lift_columns(places)) for part, places in zip(parts, chosen, strict=True)
    ]


def concat_rows(parts: Sequence[GroupSums]) -> GroupSums:
    """The rows of all parts, one after the other. At least one part; the key columns of all have the same types."""
    if len(parts) == 1:
        return parts[0]
    return GroupSums(
        np.concatenate([part.hashes for part in parts]),
        tuple(pa.concat_arrays(columns) for columns in zip(*(part.keys for part in parts))),
        np.concatenate([part.panes for part in parts]),
        concat([part.columns for part in parts]),
    )


def same_rows(first: GroupSums, second: GroupSums, step: int) -> tuple[Integers, Integers]:
    """For each key and pane in both: its row number in ``first`` and in ``second``. Each has a key and pane once, in
    the order (hash, key, pane). ``step``: a divisor of all panes."""
    if not (len(first) and len(second)):
        return _NO_ROWS, _NO_ROWS
    matches = None
    if _key_types(first) == _key_types(second):
        matches = find_rows(first, second)
    if matches is None:
        return _same_by_sum(first, second, step)
    places, is_found = matches
    here = np.flatnonzero(is_found)
    return here, places[here]


def _key_types(rows: GroupSums) -> list[pa.DataType]:
    return [column.type for column in rows.keys]


def _same_by_sum(first: GroupSums, second: GroupSums, step: int) -> tuple[Integers, Integers]:
    """``same_rows`` if two keys share a hash, or key types differ. Each side sums its row numbers, counted from one, by
    key and pane: the sum over one row is its number."""
    numbers = [np.arange(1, len(rows) + 1) for rows in (first, second)]
    nothing = [np.zeros(len(rows), np.int64) for rows in (first, second)]
    sums = fold(
        _SIDES,
        [replace(first, columns=(numbers[0], nothing[0])), replace(second, columns=(nothing[1], numbers[1]))],
        step,
    )
    here, there = sums.columns
    both = (here > 0) & (there > 0)
    return here[both] - 1, there[both] - 1


def hashes_of(parts: Sequence[GroupSums]) -> Words:
    """The hashes of the keys of parts, ascending, each once."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        hashes = parts[0].hashes
        return hashes[segment_starts(hashes[1:] != hashes[:-1])]
    return np.unique(np.concatenate([part.hashes for part in parts])) if parts else np.zeros(0, np.uint64)


def kept_as(monoid: Monoid[Any], window: Any) -> Monoid[Any]:
    """The monoid of the rows of a state: ``monoid`` itself; for session windows, the sessions of ``monoid``."""
    return Sessions(window.gap_ms, monoid) if isinstance(window, SessionWindow) else monoid


def values_of(monoid: Monoid[Any]) -> Monoid[Any]:
    """The inverse of ``kept_as``: the monoid that lifts values, and presents them."""
    return monoid.inner if isinstance(monoid, Sessions) else monoid


def at_times(monoid: Monoid[Any], times: Integers, values: Columns) -> Columns:
    """Lifted values as elements of a row's monoid."""
    return monoid.at(times, values) if isinstance(monoid, Sessions) else values


def lift_at(monoid: Monoid[Any], time: int, value: Any) -> Any:
    """One value, as it is now, as an element of a row's monoid."""
    taken = snapshot(value)
    return monoid.lift((time, taken)) if isinstance(monoid, Sessions) else monoid.lift(taken)


def lift_rows(monoid: Monoid[Any], values: Any, length: int) -> Columns:
    """``length`` values as elements of the monoid of values: columns in any form, or one value for every row."""
    return values_of(monoid).lift_rows(columnar(values), length)


def presented(monoid: Monoid[Any], elements: Sequence[Any]) -> Any:
    """The presented sum of the elements. Changing the result does not change the elements."""
    return snapshot(monoid.present(monoid.fold(elements)))


def result_columns(monoid: Monoid[Any], columns: Columns) -> Columns:
    """Results as elements of the monoid of values. Rows of sessions have one session each."""
    if not isinstance(monoid, Sessions):
        return columns
    _, _, *inner = columns[0].flat()
    return tuple(inner)


def presented_fields(monoid: Monoid[Any], columns: Columns) -> dict[str, pa.Array]:
    """The presented values of results."""
    return values_of(monoid).present_fields(result_columns(monoid, columns))


def ends_of(window: AnyWindow, rows: GroupSums) -> Integers:
    """The ends of results. ``panes`` are the starts of their windows; rows of sessions have one session each."""
    if not isinstance(window, SessionWindow):
        return np.asarray(window.ends(rows.panes))
    return window.session_ends(*rows.columns[0].flat()[:2])


def presented_sessions(
    monoid: Monoid[Any], window: SessionWindow, elements: Iterable[tuple[Fragment, ...]]
) -> dict[tuple[int, int], Any]:
    """The sessions of the elements of cells: start and end to presented value."""
    inner = values_of(monoid)
    return {
        (start, min(last + window.gap_ms, window.last_end(start))): presented(inner, [value])
        for element in elements
        for start, last, value in element
    }
