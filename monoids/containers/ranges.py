"""A set of integers as ranges: the seen numbers of a stream, small as long as it has few gaps.

    combine(a, b) == the union of a and b, in as few ranges as possible

An element is its ranges ``(first, last)``, both included, ascending, with at least one missing integer between two of
them. So equal sets are equal elements, and a set takes the space of its gaps, whatever it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, Ragged, take
from monoids.groupby.cells import Integers, cell_ranks, segment_starts
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as
from monoids.ordered import words
from monoids.scalars import is_missing
from monoids.table import group_entries, list_array, list_entries, word_codes
from monoids.values import INT64_MAX, INT64_MIN, ValueType

RangeSet = tuple[tuple[int, int], ...]
"""An element: ranges (first, last), both included, ascending; between two of them an integer is missing."""

_RANGE = pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("first", "last")])


class Ranges(Monoid[RangeSet]):
    """A set of 64-bit integers, kept as ranges; presented as a list of ``{"first", "last"}``, empty without input.

    The seen numbers of messages are mostly one range per sender: its size is the number of gaps, not of messages.
    None contributes nothing. A float raises TypeError, an integer outside int64 OverflowError.

    >>> seen = Ranges()
    >>> element = seen.fold([seen.lift(number) for number in (7, 2, 1, 3, 2)])
    >>> seen.present(element)
    [{'first': 1, 'last': 3}, {'first': 7, 'last': 7}]
    >>> [seen.contains(element, number) for number in (3, 4)]
    [True, False]
    """

    identity: RangeSet = ()
    commutative = idempotent = True
    name = "Ranges"
    schema = pa.schema([pa.field("element", pa.list_(pa.field("item", _RANGE, nullable=False)), nullable=False)])
    output_type = schema.field(0).type

    def __repr__(self) -> str:
        return "Ranges()"

    @property
    def type(self) -> ValueType:
        """The type of inputs."""
        return ValueType(repr(self), "int", pa.int64(), frozenset({"int"}))

    def combine(self, a: RangeSet, b: RangeSet) -> RangeSet:
        return _united((*a, *b)) if a and b else a or b

    def fold(self, elements: Sequence[RangeSet]) -> RangeSet:
        return _united(chain.from_iterable(elements))

    def lift(self, value: Any) -> RangeSet:
        accepted = None if is_missing(value) else self.type.accept(value)
        return self.identity if accepted is None else ((accepted, accepted),)

    def present(self, element: RangeSet) -> list[dict[str, int]]:
        return [{"first": first, "last": last} for first, last in element]

    def contains(self, element: RangeSet, number: int) -> bool:
        """Whether the number is in the set."""
        at = bisect_right(element, number, key=lambda bounds: bounds[0])
        return at > 0 and number <= element[at - 1][1]

    def decode(self, data: bytes) -> RangeSet:
        element = decoded_as(self, data, tuple)
        for bounds in element:
            if type(bounds) is not tuple or [type(bound) for bound in bounds] != [int, int]:
                raise ValueError(f"{self!r}: the encoded element has {bounds!r:.60}, which is not a range")
            if not INT64_MIN <= bounds[0] <= bounds[1] <= INT64_MAX:
                raise ValueError(f"{self!r}: the encoded element has the range {bounds!r:.60}, which is empty")
        if encoding.encode(_united(element)) != data:
            raise ValueError(f"{self!r}: the ranges of the encoded element are not ascending with a gap between them")
        return element

    # Columns: one table per row, of the first and the last number of each range.

    def lift_columns(self, values: Any) -> Columns:
        column = self.type.column(values)
        numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
        table = Ragged.singles((numbers, numbers))
        if not column.null_count:
            return (table,)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return (Ragged(table.starts, valid.astype(np.int64), table.columns),)

    def pack(self, elements: Sequence[RangeSet]) -> Columns:
        bounds = np.array(list(chain.from_iterable(elements)), np.int64).reshape(-1, 2)
        columns = tuple(np.ascontiguousarray(bounds[:, side]) for side in (0, 1))
        return (Ragged.of(np.fromiter(map(len, elements), np.int64, len(elements)), columns),)

    def unpack(self, columns: Columns) -> list[RangeSet]:
        (table,) = columns
        firsts, lasts = table.flat()
        pairs = list(zip(firsts.tolist(), lasts.tolist()))
        ends = np.cumsum(table.lengths).tolist()
        return [tuple(pairs[i:j]) for i, j in zip([0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (table,) = columns
        if len(starts) == len(table):
            return columns
        segments = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(table)))
        return (united(table, segments, len(starts)),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return (united(columns[0], cell_ranks(cells, len(counts), held), len(held)),)

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.to_arrow(columns)[0]

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        (table,) = columns
        bounds = [pa.array(np.ascontiguousarray(column)) for column in table.flat()]
        ranges = pa.StructArray.from_arrays(bounds, fields=list(_RANGE))
        return [list_array(table.lengths, ranges, self.schema.field(0).type)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types, empty ranges, and ranges out of order or without a gap between."""
        check_schema(self, arrays)
        lengths, ranges = list_entries(arrays[0], self)
        fields = ranges.flatten()
        if ranges.null_count or any(field.null_count for field in fields):
            raise ValueError(f"{self!r}: a range is null")
        firsts, lasts = (field.to_numpy() for field in fields)
        table = Ragged.of(lengths, (firsts, lasts))
        row = table.spread(np.arange(len(table)))
        if (lasts < firsts).any():
            raise ValueError(f"{self!r}: a range ends before it begins")
        if not (_is_beyond(firsts[1:], lasts[:-1]) | (row[1:] != row[:-1])).all():
            raise ValueError(f"{self!r}: the ranges of an element are not ascending with a gap between them")
        return (table,)


def united(table: Ragged, segments: Integers, count: int) -> Ragged:
    """The union of each of ``count`` segments of rows of (first, last); row i belongs to ``segments[i]``, in any
    order."""
    firsts, lasts = table.flat()
    segment = table.spread(segments)
    if not len(segment):
        return Ragged.of(np.zeros(count, np.int64), (firsts, lasts))
    codes, bits = word_codes(words(firsts))
    order, _ = group_entries(segment, codes, bits, count)
    segment, firsts, lasts = take((segment, firsts, lasts), order)
    reach = _reach(segment, lasts)
    starts = segment_starts((segment[1:] != segment[:-1]) | _is_beyond(firsts[1:], reach[:-1]))
    ends = np.append(starts[1:], len(reach)) - 1
    return Ragged.of(np.bincount(segment[starts], minlength=count), (firsts[starts], reach[ends]))


def _reach(segment: Integers, lasts: Column) -> Column:
    """For each range, the largest last number of its segment so far."""
    if ((lasts[1:] >= lasts[:-1]) | (segment[1:] != segment[:-1])).all():
        return lasts
    values, ranks = np.unique(lasts, return_inverse=True)
    return np.asarray(values[np.maximum.accumulate(segment * len(values) + ranks) % len(values)])


def _is_beyond(firsts: Column, reach: Column) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether a number is missing between what is reached and a first number. It holds at the ends of 64 bits."""
    return np.asarray((firsts > reach) & (firsts - 1 > reach))


def _united(ranges: Iterable[tuple[int, int]]) -> RangeSet:
    """The same numbers, in as few ranges as possible."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
