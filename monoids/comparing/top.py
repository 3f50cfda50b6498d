"""The top of many values: the k largest, or smallest, with repetitions.

    combine(a, b) == the first k of the values of a and b together, sorted

A value that is cut off has k values before it, and always will: so ``combine`` is associative and commutative. It is
not idempotent: a value that occurs twice counts twice. NaN is above all numbers, strings compare by code point.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, Ragged, take
from monoids.comparing.orders import OrderedPair, order_of, spelled
from monoids.groupby.cells import Integers, cell_ranks, segment_starts
from monoids.monoid import Monoid, check_schema, is_column
from monoids.ordered import Ordered, words
from monoids.scalars import is_missing
from monoids.table import group_entries, list_array, list_entries, word_codes
from monoids.text import Words
from monoids.values import ALL_KINDS, value_type

TopEntries = tuple[Any, ...]
"""An element: the values, or pairs (by, value), in the order of presentation."""


class _Top(Monoid[TopEntries]):
    """Columns: one table per row, with the values, preceded by ``by`` if there is one.

    ``type``: the type of the inputs if they are values; None if they are pairs.
    """

    identity: TopEntries = ()
    commutative = True
    _largest: ClassVar[bool]

    def __init__(self, k: int, type: Any = int, *, by: Any = None) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise TypeError(f"{self.name}({k!r}): k is the number of values to keep, 1 or more")
        if isinstance(by, (tuple, dict)):
            raise TypeError(f"{self.name}(..., by={spelled(by)}): write one type, such as by=float")
        self.k = k
        self.by = by
        value = Ordered(value_type(self.name, type, ALL_KINDS, leading=str(k)))
        self.pairs = None if by is None else OrderedPair(order_of(self.name, "by", by), value, ("by", "value"))
        self.stored = (value,) if self.pairs is None else self.pairs.stored
        self.type = value.type if by is None else None
        self.schema = pa.schema([pa.field("element", _entries_type([kind.arrow for kind in self.stored]), False)])
        self.output_type = _entries_type([kind.type.arrow for kind in self.stored])

    def parameters(self) -> dict[str, Any]:
        *by, value = (str(kind.type.arrow) for kind in self.stored)
        return {"k": self.k, "type": value, "by": by}

    def __repr__(self) -> str:
        by = "" if self.by is None else f"by={spelled(self.by)}"
        return f"{self.name}({', '.join(filter(None, (str(self.k), self.stored[-1].type.written, by)))})"

    def combine(self, a: TopEntries, b: TopEntries) -> TopEntries:
        return self._first((*a, *b)) if a and b else a or b

    def fold(self, elements: Sequence[TopEntries]) -> TopEntries:
        return self._first(chain.from_iterable(elements))

    def _first(self, entries: Any) -> TopEntries:
        chosen = heapq.nlargest if self._largest else heapq.nsmallest
        return tuple(chosen(self.k, entries, key=encoding.order_key))

    def lift(self, value: Any) -> TopEntries:
        """One value, or with ``by=`` a pair (by, value). None, and a pair with None in it, contributes nothing."""
        if self.pairs is not None:
            accepted = self.pairs.accept(value)
        else:
            accepted = None if is_missing(value) else self.stored[0].type.accept(value)
        return () if accepted is None else (accepted,)

    def present(self, element: TopEntries) -> list[Any]:
        """The values, sorted; with ``by=`` mappings of ``by`` and ``value``."""
        return list(element) if self.pairs is None else [{"by": by, "value": value} for by, value in element]

    def decode(self, data: bytes) -> TopEntries:
        element = encoding.decode(data)
        if not isinstance(element, tuple) or len(element) > self.k:
            raise ValueError(f"{self!r}: the encoded element is not a tuple of at most {self.k} values")
        try:
            entries = self.fold([self.lift(entry) for entry in element])
        except (TypeError, ArithmeticError) as error:
            raise ValueError(f"{self!r}: the encoded element is not of its type: {error}") from error
        if encoding.encode(entries) != data:
            raise ValueError(f"{self!r}: the encoded element is not in this monoid's canonical form")
        return entries

    # Columns.

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; with ``by=`` also a pair whose parts are each a column or one value for every row."""
        stored = None if self.pairs is None or is_column(values) else self.pairs.store_rows(values, length)
        return super().lift_rows(values, length) if stored is None else _singles(*stored)

    def lift_columns(self, values: Any) -> Columns:
        if self.pairs is not None:
            return _singles(*self.pairs.store(values))
        column, valid = self.stored[0].store(values)
        return _singles(valid, [column])

    def pack(self, elements: Sequence[TopEntries]) -> Columns:
        lengths = np.array([len(element) for element in elements], np.int64)
        (singles,) = self.lift_columns(list(chain.from_iterable(elements)))
        return (Ragged.of(lengths, singles.columns),)

    def unpack(self, columns: Columns) -> list[TopEntries]:
        (table,) = columns
        loaded = [kind.load(column) for kind, column in zip(self.stored, table.flat())]
        entries = loaded[0] if self.pairs is None else list(zip(*loaded))
        ends = np.cumsum(table.lengths).tolist()
        return [tuple(entries[begin:end]) for begin, end in zip([0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (table,) = columns
        if len(starts) == len(table):
            return columns
        segments = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(table)))
        return self._merge(table, segments, len(starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return self._merge(columns[0], cell_ranks(cells, len(counts), held), len(held))

    def _merge(self, table: Ragged, segments: Integers, count: int) -> Columns:
        entries = table.flat()
        of_entry = table.spread(segments)
        first = first_entries(of_entry, entries, count, self.k, self._largest)
        return (Ragged.of(np.bincount(of_entry[first], minlength=count), take(entries, first)),)

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        arrays = [kind.show(column) for kind, column in zip(self.stored, table.flat())]
        return list_array(table.lengths, _entries_array(arrays, self.output_type), self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        (table,) = columns
        type = self.schema.field(0).type
        stored = [kind.to_arrow(column) for kind, column in zip(self.stored, table.flat())]
        return [list_array(table.lengths, _entries_array(stored, type), type)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError if an entry is null, or an element is unsorted or has more than ``k`` entries."""
        check_schema(self, arrays)
        lengths, entries = list_entries(arrays[0], self)
        parts = [entries] if self.pairs is None else entries.flatten()
        if any(part.null_count for part in parts):
            raise ValueError(f"{self!r}: an entry is null")
        if len(lengths) and int(lengths.max()) > self.k:
            raise ValueError(f"{self!r}: an element has more than {self.k} entries")
        table = Ragged.of(lengths, tuple(kind.from_arrow(part) for kind, part in zip(self.stored, parts)))
        if not self._is_sorted(table):
            raise ValueError(f"{self!r}: the entries of an element are not sorted")
        return (table,)

    def _is_sorted(self, table: Ragged) -> bool:
        row = table.spread(np.arange(len(table)))
        tied = row[1:] == row[:-1]
        wrong = np.zeros(len(tied), np.bool_)
        for column in table.columns:
            order = _directed(column, self._largest)
            wrong |= tied & (order[1:] < order[:-1])
            tied &= order[1:] == order[:-1]
        return not wrong.any()


class TopK(_Top):
    """The ``k`` largest values, with repetitions; presented as a list, largest first.

    ``type``: the type of values. ``by``: the type they are compared by, instead of the values themselves; lift then
    takes pairs (by, value), ties go to the largest value, and the list holds mappings ``{"by": ..., "value": ...}``.
    NaN is above all numbers. None, and a pair with None in it, contributes nothing. Without input the list is empty.
    Exact. The most *frequent* values are another question, which ``HeavyHitters`` answers approximately, and ``Bag``
    exactly.

    >>> top = TopK(2)
    >>> top.present(top.fold([top.lift(5), top.lift(9), top.lift(9)]))
    [9, 9]
    >>> slowest = TopK(10, str, by=float)
    >>> slowest.present(slowest.combine(slowest.lift((0.2, "/a")), slowest.lift((1.5, "/b"))))
    [{'by': 1.5, 'value': '/b'}, {'by': 0.2, 'value': '/a'}]
    """

    name = "TopK"
    _largest = True


class BottomK(_Top):
    """The ``k`` smallest values, with repetitions; presented as a list, smallest first.

    The mirror image of ``TopK``; with ``by=`` ties go to the smallest value.

    >>> bottom = BottomK(2, str)
    >>> bottom.present(bottom.fold([bottom.lift("b"), bottom.lift("c"), bottom.lift("a")]))
    ['a', 'b']
    """

    name = "BottomK"
    _largest = False


def first_entries(segments: Integers, columns: Columns, count: int, k: int, descending: bool) -> Integers:
    """The row numbers of the first ``k`` entries of each segment, by the columns in turn: segment by segment, sorted.

    ``segments``: the segment of each entry, below ``count``, in any order.
    """
    codes, bits = word_codes(_directed(columns[0], descending))
    order, starts = group_entries(segments, codes, bits, count)
    rank = _ranks(segments[order])
    if len(columns) == 1 or not len(order):
        return order[rank < k]
    sizes = np.diff(starts, append=len(order))
    near = np.repeat(rank[starts] < k, sizes)
    order, group, tied = order[near], np.repeat(np.arange(len(starts)), sizes)[near], np.repeat(sizes > 1, sizes)[near]
    rows = order[tied]
    if len(rows):
        keys = [_directed(column[rows], descending) for column in columns[:0:-1]]
        order[tied] = rows[np.lexsort((*keys, group[tied]))]
    return order[_ranks(segments[order]) < k]


def _ranks(segments: Integers) -> Integers:
    """The rank of each entry in its segment; the entries of a segment are adjacent."""
    if not len(segments):
        return np.zeros(0, np.int64)
    starts = segment_starts(segments[1:] != segments[:-1])
    return np.arange(len(segments)) - np.repeat(starts, np.diff(starts, append=len(segments)))


def _directed(column: Any, descending: bool) -> Words:
    """Words that compare as the values do, or in reverse."""
    ascending = words(column)
    return ~ascending if descending else ascending


def _singles(valid: Column | None, stored: Sequence[Any]) -> Columns:
    """Elements of one entry each, or of none where ``valid`` is false."""
    table = Ragged.singles(tuple(stored))
    return (table if valid is None else Ragged(table.starts, valid.astype(np.int64), table.columns),)


def _entries_type(types: Sequence[pa.DataType]) -> pa.DataType:
    if len(types) == 1:
        return pa.list_(pa.field("item", types[0], nullable=False))
    fields = [pa.field(name, type, nullable=False) for name, type in zip(("by", "value"), types)]
    return pa.list_(pa.field("item", pa.struct(fields), nullable=False))


def _entries_array(columns: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """The entries of all elements, as the values of a list array of this type."""
    if len(columns) == 1:
        return columns[0]
    return pa.StructArray.from_arrays(list(columns), fields=list(type.value_type))
