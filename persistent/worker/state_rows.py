"""State rows are the sum of updates as columns: one row a (key, pane), sorted by (key hash, key, pane).

fold(fold(a, b), c) == fold(a, b, c)          by associativity
sum_up(a + b)       == fold(sum_up(a), sum_up(b))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.column import Columns, take
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys
from monoids.groupby.merging import merge_groups
from monoids.groupby.summing import GroupSums, group_by
from monoids.text import Words
from persistent.errors import InvalidPipeline

OPEN_PANE = -1
"""The pane of state without an end: all event time."""

_HASH_LIMIT = 1 << 64
_KEY_BYTES_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Rows:
    """``hashes`` uint64, ``keys`` Arrow columns, ``panes`` int64 (the starting cut, ms), ``columns`` the elements."""

    hashes: Words
    keys: tuple[pa.Array, ...]
    panes: Integers
    columns: Columns

    def __len__(self) -> int:
        return len(self.panes)

    def between(self, low: int, high: int) -> Rows:
        """The rows whose key hash is in ``low <= hash < high`` (0 to 2**64): a slice."""
        start = int(np.searchsorted(self.hashes, np.uint64(low))) if low else 0
        stop = int(np.searchsorted(self.hashes, np.uint64(high))) if high < _HASH_LIMIT else len(self)
        return self.slice(start, stop)

    def slice(self, start: int, stop: int) -> Rows:
        if start == 0 and stop == len(self):
            return self
        return Rows(
            self.hashes[start:stop],
            tuple(column[start:stop] for column in self.keys),
            self.panes[start:stop],
            tuple(column[start:stop] for column in self.columns),
        )

    def take(self, rows: Integers) -> Rows:
        """The rows of these numbers."""
        numbers = pa.array(rows)
        return Rows(
            self.hashes[rows],
            tuple(column.take(numbers) for column in self.keys),
            self.panes[rows],
            take(self.columns, rows),
        )


def sum_up(monoid: Monoid[Any], keys: Sequence[pa.Array], panes: Integers, columns: Columns, step: int) -> Rows:
    """The sum of updates: row i adds ``columns[i]`` to (``keys[i]``, ``panes[i]``). Panes are multiples of
    ``step`` apart."""
    return Rows(*group_by(monoid, keys, panes, columns, step))


def fold(monoid: Monoid[Any], parts: Sequence[Rows], step: int) -> Rows:
    """The sum of sums, oldest first: each (key, pane) once."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    runs = [
        GroupSums(part.hashes, keys, part.panes, part.columns)
        for part, keys in zip(parts, _agreed_keys(parts), strict=True)
    ]
    return Rows(*merge_groups(monoid, runs, step))


def in_panes(monoid: Monoid[Any], rows: Rows, panes: Integers) -> Rows:
    """The same rows under other panes, of the order that theirs have: where they have become one pane, their sum."""
    if not len(rows):
        return rows
    keys, _ = number_keys(rows.keys, rows.hashes)
    starts = segment_starts((keys[1:] != keys[:-1]) | (panes[1:] != panes[:-1]))
    if len(starts) == len(rows):
        return Rows(rows.hashes, rows.keys, panes, rows.columns)
    first = pa.array(starts)
    sums = monoid.reduce_sorted(rows.columns, starts)
    return Rows(rows.hashes[starts], tuple(column.take(first) for column in rows.keys), panes[starts], sums)


def empty(monoid: Monoid[Any], key_columns: int) -> Rows:
    """No rows."""
    nothing = np.zeros(0, np.int64)
    keys = tuple(pa.nulls(0) for _ in range(key_columns))
    return Rows(nothing.astype(np.uint64), keys, nothing, monoid.pack([]))


def agreed_types(tuples: Sequence[Sequence[pa.DataType]]) -> tuple[pa.DataType, ...]:
    """For each key column the one type that all parts agree on (null agrees with any); TypeError if they do not."""
    agreed = list(tuples[0])
    for types in tuples[1:]:
        for column, type_ in enumerate(types):
            if pa.types.is_null(agreed[column]):
                agreed[column] = type_
            elif pa.types.is_decimal(type_) and pa.types.is_decimal(agreed[column]):
                agreed[column] = _common_decimal(agreed[column], type_)
            elif not pa.types.is_null(type_) and type_ != agreed[column]:
                raise TypeError(f"key column {column} holds both {agreed[column]} and {type_}: give it one type")
    return tuple(agreed)


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The decimal type that holds the values of both; equal values are equal keys whatever their scale."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale > 38:
        raise TypeError(f"a key column holds both {a} and {b}, more than 38 digits together: give it one type")
    return pa.decimal128(whole + scale, scale)


def _agreed_keys(parts: Sequence[Rows]) -> list[tuple[pa.Array, ...]]:
    """The key columns of each part, in the types that all agree on, and short enough to be one column."""
    types = agreed_types([[column.type for column in part.keys] for part in parts])
    for number, type_ in enumerate(types):
        size = sum(part.keys[number].nbytes for part in parts)
        if size > _KEY_BYTES_MAX and (pa.types.is_binary(type_) or pa.types.is_string(type_)):
            raise InvalidPipeline(
                f"key column {number} has {size} bytes in {sum(map(len, parts))} rows to sum up at once; at most "
                f"{_KEY_BYTES_MAX} can be. Make the keys shorter: take a hash of long ones"
            )
    return [tuple(column.cast(type_) for column, type_ in zip(part.keys, types)) for part in parts]
