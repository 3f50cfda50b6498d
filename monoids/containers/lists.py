"""A list of values is the free monoid: it combines nothing and keeps everything, in order.

    combine(a, b) == a + b

It does not commute.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as
from monoids.ordered import Ordered
from monoids.scalars import is_missing
from monoids.table import list_array, list_entries
from monoids.values import ALL_KINDS, value_type


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
