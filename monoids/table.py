"""A table is a monoid whose element is a set of entries, one for each key: a set, bag, mapping or sketch.

    combine(a, b)[key] == inner.combine(a[key], b[key])       a missing entry is the identity of ``inner``

As columns, an element is one row of a ``Ragged``: its entries, ordered by key. So one group-by of all entries by
(element, key) sums the tables of any number of elements, without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.column import Column, Columns, Ragged, take
from monoids.groupby.cells import Integers, cell_counts, cell_ranks, fits_cells, segment_starts
from monoids.groupby.sorting import stable_order
from monoids.monoid import Element, Monoid, check_schema
from monoids.ordered import Keys, words
from monoids.text import Words


class Table(Monoid[Element]):
    """Subclasses define ``entries``, ``of_entries`` and a lift, and may override the rest for speed.

    ``keys``: how keys are stored. ``inner``: the monoid of the values; None: the table has keys only.
    ``entries_max``: an element keeps only its first entries, in key order; None: all of them.
    An entry whose value is the identity of an exact ``inner`` is dropped.
    """

    commutative = True

    def __init__(self, keys: Keys, inner: Monoid[Any] | None = None, entries_max: int | None = None) -> None:
        self.keys = keys
        self.inner = inner
        self.entries_max = entries_max
        self.widens = inner is not None and inner.widens
        self.schema = pa.schema([pa.field("element", _entries_type(keys, inner), nullable=False)])
        self._inner_width = 0 if inner is None else len(inner.pack([inner.identity]))

    # Defined by a subclass.

    def entries(self, element: Element) -> tuple[Sequence[Any], Sequence[Any]]:
        """The keys of an element, in any order, and the value of each (nothing without ``inner``)."""
        raise NotImplementedError(f"{type(self).__name__} does not define entries(self, element)")

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> Element:
        """The element with these entries, given in key order. The inverse of ``entries``."""
        raise NotImplementedError(f"{type(self).__name__} does not define of_entries(self, keys, inner)")

    # Columns.

    def pack(self, elements: Sequence[Element]) -> Columns:
        lengths: list[int] = []
        keys: list[Any] = []
        inner: list[Any] = []
        for element in elements:
            of_element = self.entries(element)
            lengths.append(len(of_element[0]))
            keys += of_element[0]
            inner += of_element[1]
        columns = (self.keys.store(keys)[0], *(() if self.inner is None else self.inner.pack(inner)))
        return (self.merge(Ragged.of(np.array(lengths, np.int64), columns), np.arange(len(elements)), len(elements)),)

    def unpack(self, columns: Columns) -> list[Element]:
        (table,) = columns
        keys, *inner_columns = table.flat()
        loaded = self.keys.load(keys)
        inner = [] if self.inner is None else self.inner.unpack(tuple(inner_columns))
        ends = np.cumsum(table.lengths).tolist()
        return [self.of_entries(loaded[i:j], inner[i:j]) for i, j in zip([0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (table,) = columns
        if len(starts) == len(table):
            return columns
        segments = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(table)))
        return (self.merge(table, segments, len(starts)),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return (self.merge(columns[0], cell_ranks(cells, len(counts), held), len(held)),)

    def merge(self, table: Ragged, segments: Integers, count: int) -> Ragged:
        """The sum of each of ``count`` segments of rows; row i belongs to ``segments[i]``, in any order."""
        keys, *inner_columns = table.flat()
        inner: Columns = tuple(inner_columns)
        segment = table.spread(segments)
        codes, bits = word_codes(words(keys))
        group_rows, reduced = self._merge_cells(segment, codes, bits, count, inner)
        if group_rows is None:
            order, starts = group_entries(segment, codes, bits, count)
            group_rows = order[starts]
            if self.inner is not None:
                reduced = take(inner, order)
                reduced = self.inner.reduce_sorted(reduced, starts) if len(starts) != len(order) else reduced
        segment, kept = segment[group_rows], (keys[group_rows], *reduced)
        if self.inner is not None and self.inner.exact and len(segment):
            something = ~identity_rows(self.inner, reduced)
            if not something.all():
                segment, kept = segment[something], take(kept, np.flatnonzero(something))
        merged = Ragged.of(np.bincount(segment, minlength=count), kept)
        return merged if self.entries_max is None else merged.head(self.entries_max)

    def _merge_cells(
        self, segment: Integers, codes: Words, bits: int, count: int, inner: Columns
    ) -> tuple[Integers | None, Columns]:
        """As ``merge``, with one cell for each (segment, key) if there are few: a row of each group, and its sum."""
        if not len(segment) or not fits_cells(count << bits, len(segment)):
            return None, ()
        cells = (segment << bits) + codes.astype(np.int64)
        counts, held = cell_counts(cells, count << bits)
        reduced: Columns | None = () if self.inner is None else self.inner.reduce_cells(inner, cells, counts, held)
        if reduced is None:
            return None, ()
        rows = np.empty(len(counts), np.int64)
        rows[cells] = np.arange(len(cells))
        return rows[held], reduced

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        (table,) = columns
        keys, *inner = table.flat()
        entries = self._entries_array(keys, tuple(inner))
        item = self.schema.field(0).type.value_field
        return [list_array(table.lengths, entries, pa.list_(item.with_type(entries.type)))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types, keys out of order or repeated, and entries at the identity."""
        check_schema(self, arrays)
        lengths, entries = list_entries(arrays[0], self)
        if entries.null_count:
            raise ValueError(f"{self!r}: an entry is null")
        if self.inner is None:
            columns: Columns = (self.keys.from_arrow(entries),)
        else:
            key, *inner = entries.flatten()
            if key.null_count:
                raise ValueError(f"{self!r}: the key of an entry is null")
            columns = (self.keys.from_arrow(key), *self._inner_from_arrow(self.inner, inner))
        table = Ragged.of(lengths, columns)
        self._check_order(table)
        return (table,)

    def _inner_from_arrow(self, monoid: Monoid[Any], arrays: Sequence[pa.Array]) -> Columns:
        inner = monoid.from_arrow(arrays)
        if monoid.exact and len(inner[0]) and identity_rows(monoid, inner).any():
            raise ValueError(f"{self!r}: an entry holds the identity, which is never stored")
        return inner

    def single(self, keys: Any, valid: Column | None, inner: Columns = ()) -> Columns:
        """Elements of one entry each, or of none where ``valid`` is false: what lifting a column returns."""
        table = Ragged.singles((keys, *inner))
        return (table if valid is None else Ragged(table.starts, valid.astype(np.int64), table.columns),)

    def _entries_array(self, keys: Any, inner: Columns) -> pa.Array:
        stored = self.keys.to_arrow(keys)
        if self.inner is None:
            return stored
        arrays = [stored, *self.inner.to_arrow(inner)]
        fields = self.schema.field(0).type.value_type
        return pa.StructArray.from_arrays(
            arrays, fields=[field.with_type(array.type) for field, array in zip(fields, arrays, strict=True)]
        )

    def _check_order(self, table: Ragged) -> None:
        if self.entries_max is not None and len(table) and int(table.lengths.max()) > self.entries_max:
            raise ValueError(f"{self!r}: an element has more than {self.entries_max} entries")
        order = words(table.columns[0])
        row = table.spread(np.arange(len(table)))
        rising = (order[1:] > order[:-1]) | (row[1:] != row[:-1])
        if not rising.all():
            raise ValueError(f"{self!r}: the entries of an element are not in key order")


def group_entries(segments: Integers, codes: Words, bits: int, count: int) -> tuple[Integers, Integers]:
    """Order entries by (segment, code, arrival): the permutation, and the starts of the groups in it.

    ``codes`` are below ``2**bits``, segments below ``count``.
    """
    if not len(codes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    segment_bits = (count - 1).bit_length()
    if segment_bits + bits <= 64:
        packed = codes | segments.astype(np.uint64) << np.uint64(bits) if segment_bits else codes
        if (packed[1:] >= packed[:-1]).all():
            return np.arange(len(packed)), segment_starts(packed[1:] != packed[:-1])
        order, packed = stable_order(packed, segment_bits + bits)
        return order, segment_starts(packed[1:] != packed[:-1])
    by_code, _ = stable_order(codes, bits)
    by_segment, ordered_segments = stable_order(segments[by_code].astype(np.uint64), segment_bits)
    order = by_code[by_segment]
    ordered = codes[order]
    return order, segment_starts((ordered[1:] != ordered[:-1]) | (ordered_segments[1:] != ordered_segments[:-1]))


def word_codes(values: Words) -> tuple[Words, int]:
    """Each value minus the smallest, and the number of bits that the largest then needs."""
    if not len(values):
        return values, 0
    low = values.min()
    codes = values - low
    return codes, int(codes.max()).bit_length()


def identity_rows(monoid: Monoid[Any], columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which elements are the identity."""
    same = np.ones(len(columns[0]), bool)
    nothing = monoid.to_arrow(monoid.pack([monoid.identity]))
    for array, none in zip(monoid.to_arrow(columns), nothing):
        same &= _equal_rows(array, none)
    return same


def _equal_rows(array: pa.Array, single: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows of ``array`` equal the only row of ``single``."""
    if single.null_count:
        return np.asarray(array.is_null())
    if pa.types.is_list(array.type) and not len(single[0]):
        return np.asarray(pc.equal(pc.list_value_length(array), 0).fill_null(False))
    if pa.types.is_struct(array.type):
        same = np.asarray(array.is_valid())
        for field, none in zip(array.flatten(), single.flatten()):
            same = same & _equal_rows(field, none)
        return same
    if pa.types.is_nested(array.type):
        value = single[0].as_py()
        return np.array([row == value for row in array.to_pylist()], bool)
    return np.asarray(pc.equal(array, single[0]).fill_null(False))


def list_array(lengths: Column, entries: pa.Array, type: pa.DataType) -> pa.Array:
    """Rows of these lengths as an Arrow list array. ValueError beyond 2**31 - 1 entries, the most one array holds."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{offsets[-1]} entries exceed what one Arrow list column holds: use fewer rows at once")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries, type=type)


def list_entries(array: pa.Array, owner: Any) -> tuple[Column, pa.Array]:
    """The length of each row of an Arrow list array, and all entries. ValueError if a row is null."""
    if array.null_count:
        raise ValueError(f"{owner!r}: an element is null")
    return np.diff(array.offsets.to_numpy()).astype(np.int64), array.flatten()


def _entries_type(keys: Keys, inner: Monoid[Any] | None) -> pa.DataType:
    if inner is None:
        return pa.list_(pa.field("item", keys.arrow, nullable=False))
    fields = [pa.field("key", keys.arrow, nullable=False)]
    # A record may have a field called "key" or "value" too; none begins with a dot.
    names = {"element": ".value" if "value" in inner.schema.names else "value", "key": ".key"}
    fields += [field.with_name(names.get(field.name, field.name)) for field in inner.schema]
    return pa.list_(pa.field("item", pa.struct(fields), nullable=False))
