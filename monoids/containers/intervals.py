"""Intervals that touch are joined: sessions of times, each with a sum, and sets of integers as ranges.

Sessions are stretches of time without a long pause, each with the sum of what happened in it.

    element         fragments (start, last, inner element), in the order of time, at least ``gap`` apart
    combine(a, b)   the fragments of both, where a fragment that begins less than ``gap`` after another joins it

An element has all times that two fragments need to be joined later, so any grouping of the inputs gives the same.

Ranges are the seen numbers of a stream, small as long as it has few gaps.

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
from monoids.monoid import Monoid, check, check_schema
from monoids.numbers.integers import decoded_as
from monoids.ordered import words
from monoids.pairs import pair
from monoids.scalars import is_missing
from monoids.table import group_entries, list_array, list_entries, word_codes
from monoids.values import INT64_MAX, INT64_MIN, ValueType, value_type

Fragment = tuple[int, int, Any]
"""The first and the last time, and the inner element."""
NAMES = ("timestamp", "value")
_TIME_MAX = 1 << 62
"""Two times are less than 64 bits apart."""


class Sessions(Monoid[tuple[Fragment, ...]]):
    """The sessions of timestamped inputs: two inputs are in one session if they are less than ``gap`` apart, or linked
    by others that are.

    An input is a tuple (timestamp, value) or a mapping with these names; timestamps are integers. None, or one without
    a timestamp, is no input. ``inner`` commutes: fragments are joined in the order of their times, not of arrival.

    >>> from monoids import Sum
    >>> visits = Sessions(30, Sum())
    >>> several = [visits.lift((0, 1)), visits.lift((100, 1)), visits.lift((40, 1))]
    >>> visits.fold(several)
    ((0, 0, 1), (40, 40, 1), (100, 100, 1))
    >>> visits.combine(visits.fold(several), visits.lift((20, 5)))
    ((0, 40, 7), (100, 100, 1))
    """

    identity: tuple[Fragment, ...] = ()
    name = "Sessions"
    commutative = True

    def __init__(self, gap: int, inner: Monoid[Any]) -> None:
        check(inner)
        if isinstance(gap, bool) or not isinstance(gap, int) or not 1 <= gap < _TIME_MAX:
            raise ValueError(f"Sessions: the gap is a positive integer, not {gap!r}")
        if not inner.commutative:
            raise TypeError(
                f"Sessions: {inner!r} is not declared commutative, and sessions are joined in the order of their "
                "times, not of their inputs. If order does not matter to it, set commutative = True in its class; "
                "First, Last, MinBy and MaxBy keep an order, and commute"
            )
        self.gap, self.inner = gap, inner
        self.idempotent, self.exact, self.widens = inner.idempotent, inner.exact, inner.widens
        # The names of fields of a record never begin with a dot.
        times = [pa.field(name, pa.int64(), nullable=False) for name in (".start", ".last")]
        item = pa.field("item", pa.struct([*times, *inner.schema]), nullable=False)
        self.schema = pa.schema([pa.field("element", pa.list_(item), nullable=False)])
        self._time = value_type("Sessions", int, frozenset({"int"}))

    def parameters(self) -> dict[str, Any]:
        return {"monoid": self.inner.fingerprint(), "gap": self.gap}

    def __repr__(self) -> str:
        return f"Sessions({self.gap}, {self.inner!r})"

    def lift(self, value: Any) -> tuple[Fragment, ...]:
        time, item = (None, None) if is_missing(value) else pair(value, NAMES)
        accepted = None if time is None else self._time.accept(time)
        if accepted is None:
            return ()
        if not -_TIME_MAX < accepted <= _TIME_MAX:
            raise OverflowError(f"{self!r}: the timestamp {accepted} is beyond 2**62")
        return ((accepted, accepted, self.inner.lift(item)),)

    def combine(self, a: tuple[Fragment, ...], b: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
        return self.fold((a, b)) if a and b else a or b

    def fold(self, elements: Sequence[tuple[Fragment, ...]]) -> tuple[Fragment, ...]:
        chains: list[list[Fragment]] = []
        reached = 0
        for fragment in sorted((part for element in elements for part in element), key=lambda part: part[0]):
            if chains and fragment[0] - reached < self.gap:
                chains[-1].append(fragment)
                reached = max(reached, fragment[1])
            else:
                chains.append([fragment])
                reached = fragment[1]
        return tuple(
            (chain[0][0], max(last for _, last, _ in chain), self.inner.fold([element for *_, element in chain]))
            for chain in chains
        )

    def present(self, element: tuple[Fragment, ...]) -> list[dict[str, Any]]:
        """Each session, with its first and last time."""
        return [{"start": start, "last": last, "value": self.inner.present(inner)} for start, last, inner in element]

    def encode(self, element: tuple[Fragment, ...]) -> bytes:
        return encoding.encode(tuple((start, last, self.inner.encode(inner)) for start, last, inner in element))

    def decode(self, data: bytes) -> tuple[Fragment, ...]:
        fragments: list[Fragment] = []
        for part in decoded_as(self, data, tuple):
            if type(part) is not tuple or [*map(type, part)] != [int, int, bytes]:
                raise ValueError(f"{self!r}: the encoded element is not of sessions")
            start, last, inner = part
            apart = not fragments or start - fragments[-1][1] >= self.gap
            if not (apart and -_TIME_MAX < start <= last <= _TIME_MAX):
                raise ValueError(f"{self!r}: the sessions of the encoded element are not in order, or not apart")
            fragments.append((start, last, self.inner.decode(inner)))
        return tuple(fragments)

    # Columns: a table with the columns start and last, then those of the inner monoid.

    def at(self, times: Integers, inner: Columns) -> Columns:
        """One session in each row, of one input at this time."""
        return (Ragged.singles((times, times, *inner)),)

    def pack(self, elements: Sequence[tuple[Fragment, ...]]) -> Columns:
        fragments = [fragment for element in elements for fragment in element]
        lengths = np.fromiter(map(len, elements), np.int64, len(elements))
        times = (np.fromiter((fragment[side] for fragment in fragments), np.int64, len(fragments)) for side in (0, 1))
        return (Ragged.of(lengths, (*times, *self.inner.pack([inner for *_, inner in fragments]))),)

    def unpack(self, columns: Columns) -> list[tuple[Fragment, ...]]:
        (table,) = columns
        start, last, *inner = table.flat()
        fragments = list(zip(start.tolist(), last.tolist(), self.inner.unpack(tuple(inner)), strict=True))
        ends = np.cumsum(table.lengths).tolist()
        return [tuple(fragments[i:j]) for i, j in zip([0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (table,) = columns
        if len(starts) == len(table):
            return columns
        segments = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(table)))
        return (self._joined(table, segments, len(starts)),)

    def _joined(self, table: Ragged, segments: Integers, count: int) -> Ragged:
        """The sum of each of ``count`` segments of rows, which ascend."""
        start, last, *inner_columns = table.flat()
        inner, segment = tuple(inner_columns), table.spread(segments)
        if not len(start):
            return Ragged.of(np.zeros(count, np.int64), (start, last, *inner))
        is_other = segment[1:] != segment[:-1]
        if not (is_other | (start[1:] >= start[:-1])).all():
            codes, bits = word_codes((start - start.min()).astype(np.uint64))
            order, _ = group_entries(segment, codes, bits, count)
            start, last, inner = start[order], last[order], take(inner, order)
        reached = _largest_so_far(segment, last, is_other)
        firsts = segment_starts(is_other | (start[1:] - reached[:-1] >= self.gap))
        if len(firsts) < len(start):
            inner = self.inner.reduce_sorted(inner, firsts)
        ends = np.append(firsts[1:], len(start)) - 1
        return Ragged.of(np.bincount(segment[firsts], minlength=count), (start[firsts], reached[ends], *inner))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        (table,) = columns
        start, last, *inner = table.flat()
        arrays = [pa.array(start), pa.array(last), *self.inner.to_arrow(tuple(inner))]
        item = self.schema.field(0).type.value_field
        fields = [field.with_type(array.type) for field, array in zip(item.type, arrays, strict=True)]
        entries = pa.StructArray.from_arrays(arrays, fields=fields)
        return [list_array(table.lengths, entries, pa.list_(item.with_type(entries.type)))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types, and for sessions that are out of order or less than the gap apart."""
        check_schema(self, arrays)
        lengths, entries = list_entries(arrays[0], self)
        if entries.null_count:
            raise ValueError(f"{self!r}: a session is null")
        start, last, *inner = entries.flatten()
        if start.null_count or last.null_count:
            raise ValueError(f"{self!r}: a session has no time")
        times = start.to_numpy(), last.to_numpy()
        table = Ragged.of(lengths, (*times, *self.inner.from_arrow(inner)))
        rows = table.spread(np.arange(len(table)))
        apart = (rows[1:] != rows[:-1]) | (times[0][1:] - self.gap >= times[1][:-1])
        within = (times[0] > -_TIME_MAX) & (times[0] <= times[1]) & (times[1] <= _TIME_MAX)
        if not (apart.all() and within.all()):
            raise ValueError(f"{self!r}: the sessions of an element are not in order, or not apart")
        return (table,)


def _largest_so_far(segment: Integers, values: Integers, is_other: Any) -> Integers:
    """The largest value so far in its segment, in each row. Segments ascend; ``is_other``: for each row but the first,
    whether its segment differs from the previous row's.

    >>> _largest_so_far(np.array([0, 0, 0, 1]), np.array([5, 9, 7, 1]), np.array([False, False, True])).tolist()
    [5, 9, 9, 1]
    """
    if (is_other | (values[1:] >= values[:-1])).all():
        return values
    distinct, ranks = np.unique(values, return_inverse=True)
    bases = segment * len(distinct)
    return distinct[np.maximum.accumulate(ranks + bases) - bases]


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
