"""A count table maps keys to non-zero integers; a bag is a count table whose keys are values.

    combine(a, b)[key] == a[key] + b[key]       inverse(a)[key] == -a[key]

Counts are int64 and never wrap: a total outside int64 raises OverflowError.

A list of values is the free monoid: it combines nothing and keeps everything, in order.

    combine(a, b) == a + b

It does not commute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, Ragged, repeat
from monoids.fixed import ONE
from monoids.monoid import Group, Monoid, check_schema
from monoids.numbers.integers import EntrySum, decoded_as
from monoids.ordered import Keys, Ordered
from monoids.scalars import is_missing
from monoids.table import Table, list_array, list_entries
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, value_type

Tally = dict[Any, int]


class CountTable(Table[Tally], Group[Tally]):
    """A Group. Subclasses define the keys, and how to lift and present them."""

    inner: EntrySum

    def __init__(self, keys: Keys) -> None:
        super().__init__(keys, EntrySum(self))

    @property
    def identity(self) -> Tally:
        return {}

    def combine(self, a: Tally, b: Tally) -> Tally:
        if not a or not b:
            return a or b
        total = dict(a)
        for key, count in b.items():
            total[key] = self.inner.combine(total.get(key, 0), count)
            if not total[key]:
                del total[key]
        return total

    def fold(self, elements: Sequence[Tally]) -> Tally:
        """The sum. OverflowError for a count outside int64; intermediate counts may leave it."""
        total: Tally = {}
        for element in elements:
            for key, count in element.items():
                total[key] = total.get(key, 0) + count
        return {key: self.inner.combine(0, count) for key, count in total.items() if count}

    def inverse(self, a: Tally) -> Tally:
        """OverflowError for a count of -2**63, whose negative int64 cannot hold."""
        return {key: self.inner.inverse(count) for key, count in a.items()}

    def decode(self, data: bytes) -> Tally:
        counts = decoded_as(self, data, dict)
        if not all(type(count) is int and INT64_MIN <= count <= INT64_MAX and count for count in counts.values()):
            raise ValueError(f"{self!r}: the encoded element has a count that is 0 or outside 64-bit integers")
        self.check_keys(counts)
        return counts

    def check_keys(self, keys: Iterable[Any]) -> None:
        """ValueError if a decoded key is not valid."""
        raise NotImplementedError(f"{type(self).__name__} does not define check_keys(self, keys)")

    # Columns.

    def entries(self, element: Tally) -> tuple[list[Any], list[int]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> Tally:
        return dict(zip(keys, inner))


class Bag(CountTable):
    """The non-None values of one type, each with its multiplicity: how often it occurs. A Group.

    Presented as a list of ``{"value", "count"}`` sorted by value, empty without input. Subtracting more than was added
    leaves a negative multiplicity, which is presented; an entry with multiplicity 0 is dropped. All NaN are one value,
    -0.0 is 0.0. A multiplicity outside int64 raises OverflowError.

    >>> words = Bag(str)
    >>> words.present(words.fold([words.lift(word) for word in ("b", "a", "b")]))
    [{'value': 'a', 'count': 1}, {'value': 'b', 'count': 2}]
    """

    name = "Bag"

    def __init__(self, type: Any) -> None:
        self.type = value_type("Bag", type, ALL_KINDS, default="")
        self.values = Ordered(self.type)
        super().__init__(self.values)
        self._shown = pa.struct([pa.field("value", self.type.arrow), pa.field("count", pa.int64())])
        self.output_type = pa.list_(self._shown)

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def lift(self, value: Any) -> Tally:
        accepted = None if is_missing(value) else self.type.accept(value)
        return {} if accepted is None else {accepted: 1}

    def present(self, element: Tally) -> list[dict[str, Any]]:
        return [{"value": value, "count": element[value]} for value in sorted(element, key=encoding.order_key)]

    def check_keys(self, keys: Iterable[Any]) -> None:
        self.type.check_decoded(keys)

    def lift_columns(self, values: Any) -> Columns:
        column, valid = self.values.store(values)
        return self.single(column, valid, repeat(ONE, len(column)))

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        keys, counts = table.flat()
        entries = pa.StructArray.from_arrays(
            [self.values.show(keys), pa.array(np.ascontiguousarray(counts))], fields=list(self._shown)
        )
        return list_array(table.lengths, entries, self.output_type)


class ListConcat(Monoid[tuple[Any, ...]]):
    """The non-None values of one type, in order of arrival; presented as a list.

    Not commutative: the order of the operands is the order of the values. Use it where messages are folded in order;
    states whose windows are folded pane by pane refuse it. It grows with its input: ``TopK``, ``Reservoir`` and
    ``Last`` are bounded. NaN is kept, -0.0 is 0.0. The identity is presented as an empty list.

    >>> steps = ListConcat(str)
    >>> steps.present(steps.combine(steps.combine(steps.lift("b"), steps.lift(None)), steps.lift("a")))
    ['b', 'a']
    """

    identity: tuple[Any, ...] = ()
    name = "ListConcat"

    def __init__(self, type: Any) -> None:
        self.type = value_type("ListConcat", type, ALL_KINDS, default="")
        self.values = Ordered(self.type)
        item = pa.field("item", self.values.arrow, nullable=False)
        self.schema = pa.schema([pa.field("element", pa.list_(item), nullable=False)])
        self.output_type = pa.list_(self.type.arrow)

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def combine(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return a + b

    def fold(self, elements: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(elements))

    def lift(self, value: Any) -> tuple[Any, ...]:
        accepted = None if is_missing(value) else self.type.accept(value)
        return () if accepted is None else (accepted,)

    def present(self, element: tuple[Any, ...]) -> list[Any]:
        return list(element)

    def decode(self, data: bytes) -> tuple[Any, ...]:
        element = decoded_as(self, data, tuple)
        self.type.check_decoded(element)
        return element

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        column, valid = self.values.store(values)
        table = Ragged.singles((column,))
        return (table if valid is None else Ragged(table.starts, valid.astype(np.int64), table.columns),)

    def pack(self, elements: Sequence[tuple[Any, ...]]) -> Columns:
        lengths = np.fromiter(map(len, elements), np.int64, len(elements))
        return (Ragged.of(lengths, (self.values.store(list(chain.from_iterable(elements)))[0],)),)

    def unpack(self, columns: Columns) -> list[tuple[Any, ...]]:
        (table,) = columns
        loaded = self.values.load(table.flat()[0])
        ends = np.cumsum(table.lengths).tolist()
        return [tuple(loaded[i:j]) for i, j in zip([0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        """The rows of a segment are adjacent, and so are their values: only the lengths are added."""
        (table,) = columns
        if len(starts) == len(table):
            return columns
        return (Ragged.of(np.add.reduceat(table.lengths, starts), table.flat()),)

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        return list_array(table.lengths, self.values.show(table.flat()[0]), self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        (table,) = columns
        return [list_array(table.lengths, self.values.to_arrow(table.flat()[0]), self.schema.field(0).type)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        lengths, entries = list_entries(arrays[0], self)
        if entries.null_count:
            raise ValueError(f"{self!r}: a value is null")
        return (Ragged.of(lengths, (self.values.from_arrow(entries),)),)
