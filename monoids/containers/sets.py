"""Sets of values of one type: their union, and their intersection.

Values are compared as their type compares them: -0.0 is 0.0, all NaN are one value, equal instants are one datetime.
None and null are missing values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import encoding
from monoids.arrays import from_numpy, no_column, plain_array
from monoids.column import Column, Columns, Ragged, take
from monoids.groupby.cells import cell_counts, cell_ranks, fits_cells
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as
from monoids.ordered import Ordered, words
from monoids.scalars import is_missing, shown
from monoids.table import Table, group_entries, list_array
from monoids.values import ALL_KINDS, value_type


class SetUnion(Table[frozenset[Any]]):
    """The distinct non-None values of one type; presented as a sorted list, empty without input.

    All NaN are one value, above all numbers; -0.0 is 0.0.

    >>> names = SetUnion(str)
    >>> names.present(names.combine(names.lift("b"), names.lift("a")))
    ['a', 'b']
    """

    identity: frozenset[Any] = frozenset()
    idempotent = True
    name = "SetUnion"

    def __init__(self, type: Any) -> None:
        self.type = value_type("SetUnion", type, ALL_KINDS, default="")
        self.values = Ordered(self.type)
        super().__init__(self.values)
        self.output_type = pa.list_(self.type.arrow)

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def combine(self, a: frozenset[Any], b: frozenset[Any]) -> frozenset[Any]:
        return a | b

    def lift(self, value: Any) -> frozenset[Any]:
        accepted = None if is_missing(value) else self.type.accept(value)
        return self.identity if accepted is None else frozenset((accepted,))

    def present(self, element: frozenset[Any]) -> list[Any]:
        return sorted(element, key=encoding.order_key)

    def decode(self, data: bytes) -> frozenset[Any]:
        element = decoded_as(self, data, frozenset)
        self.type.check_decoded(element)
        return element

    def fold(self, elements: Sequence[frozenset[Any]]) -> frozenset[Any]:
        return self.identity.union(*elements)

    def entries(self, element: frozenset[Any]) -> tuple[list[Any], tuple[()]]:
        return list(element), ()

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> frozenset[Any]:
        return frozenset(keys)

    def lift_columns(self, values: Any) -> Columns:
        return self.single(*self.values.store(values))

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        (keys,) = table.flat()
        return list_array(table.lengths, self.values.show(keys), self.output_type)


class SetIntersection(Monoid[frozenset[Any] | None]):
    """The values that are in all sets. Every input is a whole set of values of one type.

        combine(a, b) == a & b          combine(None, a) == a

    The identity is None, "everything": no set has ruled out a value yet. It is presented as None, any other element as
    a sorted list, empty if the sets have nothing in common. ``lift`` takes a set, frozenset, list or tuple (as a
    column, an Arrow list array or a list of sets). None contributes nothing; None or null inside a set is ignored. All
    NaN are one value, above all numbers; -0.0 is 0.0. TypeError for anything else, even a single value.

    >>> features = SetIntersection(str)
    >>> features.present(features.combine(features.lift({"wifi", "bar"}), features.lift(["bar", "pool"])))
    ['bar']
    >>> features.present(features.identity) is None
    True
    """

    identity: frozenset[Any] | None = None
    commutative = idempotent = True
    name = "SetIntersection"

    def __init__(self, type: Any) -> None:
        self.type = value_type("SetIntersection", type, ALL_KINDS, default="")
        self.schema = pa.schema([pa.field("element", SetUnion(type).schema.field(0).type)])
        self.output_type = pa.list_(self.type.arrow)
        self._sets = SetUnion(type)

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def combine(self, a: frozenset[Any] | None, b: frozenset[Any] | None) -> frozenset[Any] | None:
        if a is None or b is None:
            return b if a is None else a
        return a & b

    def lift(self, value: Any) -> frozenset[Any] | None:
        if is_missing(value):
            return None
        if not isinstance(value, (set, frozenset, list, tuple)) or isinstance(value, pa.MonthDayNano):
            raise TypeError(
                f"{self!r} takes sets of values, not {shown(value)} ({type(value).__name__}): write {{...}}"
            )
        accepted = (self.type.accept(item) for item in value if not is_missing(item))
        return frozenset(item for item in accepted if item is not None)

    def present(self, element: frozenset[Any] | None) -> list[Any] | None:
        return None if element is None else self._sets.present(element)

    def decode(self, data: bytes) -> frozenset[Any] | None:
        return None if data == _EVERYTHING else self._sets.decode(data)

    # Columns: the sets, empty for "everything"; and a flag for "everything".

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, np.ndarray) and values.dtype.kind == "O" and values.ndim == 1:
            values = values.tolist()
        if isinstance(values, list):
            return self.pack([self.lift(value) for value in values])
        if isinstance(values, np.ndarray):
            values = from_numpy(values)
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            raise no_column(repr(self), values)
        values = plain_array(values)
        everything = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
        rows = np.flatnonzero(~everything)
        if len(rows) != len(values):
            values = values.drop_null()
        segments, items = _flattened(self, values)
        keys, valid = self._sets.values.store(items)
        if valid is not None:
            segments, (keys,) = segments[valid], take((keys,), np.flatnonzero(valid))
        return self._sets.merge(Ragged.singles((keys,)), rows[segments], len(everything)), everything

    def pack(self, elements: Sequence[frozenset[Any] | None]) -> Columns:
        (table,) = self._sets.pack([self._sets.identity if element is None else element for element in elements])
        return table, np.fromiter((element is None for element in elements), np.bool_, len(elements))

    def unpack(self, columns: Columns) -> list[frozenset[Any] | None]:
        table, everything = columns
        return [None if free else members for members, free in zip(self._sets.unpack((table,)), everything.tolist())]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        rows = len(columns[1])
        if len(starts) == rows:
            return columns
        return self._intersect(columns, np.repeat(np.arange(len(starts)), np.diff(starts, append=rows)), len(starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return self._intersect(columns, cell_ranks(cells, len(counts), held), len(held))

    def _intersect(self, columns: Columns, segments: Column, count: int) -> Columns:
        """A value is in the result of a segment iff it is in as many rows as the segment has sets."""
        table, everything = columns
        sets = np.bincount(segments[~everything], minlength=count)
        return _common_entries(table, segments, sets), sets == 0

    def present_columns(self, columns: Columns) -> pa.Array:
        table, everything = columns
        return _nullable(self._sets.present_columns((table,)), everything)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        table, everything = columns
        return [_nullable(self._sets.to_arrow((table,))[0], everything)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        everything = np.asarray(arrays[0].is_null().to_numpy(zero_copy_only=False))
        (filled,) = self._sets.from_arrow([arrays[0].drop_null()])
        lengths = np.zeros(len(everything), np.int64)
        lengths[~everything] = filled.lengths
        return Ragged.of(lengths, filled.columns), everything


def _common_entries(table: Ragged, segments: Column, sets: Column) -> Ragged:
    """For each segment, the keys that occur in as many of its rows as ``sets`` says. No row repeats a key."""
    (keys,) = table.flat()
    segment, count = table.spread(segments), len(sets)
    if not len(segment):
        return Ragged.of(np.zeros(count, np.int64), (keys,))
    codes = words(keys)
    codes = codes - codes.min()
    bits = int(codes.max()).bit_length()
    if fits_cells(count << bits, len(segment)):
        cells = (segment << bits) + codes.astype(np.int64)
        counts, held = cell_counts(cells, count << bits)
        kept = held[counts[held] == sets[held >> bits]]
        row_of = np.empty(len(counts), np.int64)
        row_of[cells] = np.arange(len(cells))
        rows = row_of[kept]
    else:
        order, starts = group_entries(segment, codes, bits, count)
        rows = order[starts]
        rows = rows[np.diff(starts, append=len(order)) == sets[segment[rows]]]
    return Ragged.of(np.bincount(segment[rows], minlength=count), take((keys,), rows))


def _flattened(monoid: Monoid[Any], lists: Any) -> tuple[Column, pa.Array]:
    """The row of each value in an Arrow list array without nulls, and the values. TypeError for another column."""
    if isinstance(lists, pa.NullArray):
        return np.zeros(0, np.int64), pa.nulls(0)
    kinds = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.ListViewArray)
    if not isinstance(lists, kinds) or isinstance(lists, pa.MapArray):
        column_type = lists.type if isinstance(lists, pa.Array) else lists.dtype
        raise TypeError(f"{monoid!r} takes columns of lists, not {column_type}: each input is a whole set of values")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


_EVERYTHING = encoding.encode(None)


def _nullable(lists: pa.Array, nulls: Column) -> pa.Array:
    """An Arrow list array, null where ``nulls`` is true."""
    if not nulls.any():
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=pa.array(nulls))
