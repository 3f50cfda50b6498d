"""Rows of a state with other values in them: a count, a mark beside the value, or the number of an entry.

An *entry* is what holds one value: a row; of sessions and lives, one of the stretches of time in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Count, Monoid, SetUnion, Sum, record
from monoids.column import Columns, Ragged, concat, take
from monoids.containers.sessions import Sessions
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.merging import find_rows
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.state.rows import fold
from persistent.time.session_window import result_columns, values_of

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
