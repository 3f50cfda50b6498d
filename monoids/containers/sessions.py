"""Sessions are stretches of time without a long pause, each with the sum of what happened in it.

    element         fragments (start, last, inner element), in the order of time, at least ``gap`` apart
    combine(a, b)   the fragments of both, where a fragment that begins less than ``gap`` after another joins it

An element has all times that two fragments need to be joined later, so any grouping of the inputs gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, Ragged, take
from monoids.groupby.cells import Integers, segment_starts
from monoids.monoid import Monoid, check, check_schema
from monoids.numbers.integers import decoded_as
from monoids.pairs import pair
from monoids.scalars import is_missing
from monoids.table import group_entries, list_array, list_entries, word_codes
from monoids.values import value_type

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
