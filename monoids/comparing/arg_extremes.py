"""MinBy, MaxBy, First and Last keep the smallest or largest pair (by, value), and present its value.

    MinBy   combine(a, b) == min(a, b)    of pairs (by, value)
    MaxBy   combine(a, b) == max(a, b)
    First, Last   the same, by message order: timestamp, then position in the source

Pairs are compared by ``by`` first. Ties go to the smallest value in MinBy and First, to the largest in MaxBy and Last.
So all of them are commutative and idempotent. NaN is above all numbers, in ``by`` and in values; strings compare by
code point. A pair with None as value, as ``by`` or in a part of ``by`` contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, is_constant, repeat, take
from monoids.comparing.extremes import RowKey, keys_of, least_of_cells, least_of_segments, present_first
from monoids.comparing.orders import OrderedPair, order_of, spelled
from monoids.fixed import TRUE
from monoids.monoid import Monoid, check_schema, decode_lifted, is_column
from monoids.ordered import Ordered
from monoids.values import ALL_KINDS, value_type

MESSAGE_ORDER: Mapping[str, Any] = {"timestamp": int, "partition": str, "position": {"ordinal": int, "offset": int}}
"""The fields of ``message.order`` and ``batch.order``."""

Chosen = tuple[Any, Any] | None
"""An element: (by, value); None for no pair."""


class _Chosen(Monoid[Chosen]):
    """Columns: a flag for whether there is a pair, the parts of ``by``, the value."""

    identity = None
    commutative = True
    idempotent = True
    _by: ClassVar[str]
    _largest: ClassVar[bool]

    def __init__(self, type: Any, by: Any) -> None:
        value = value_type(self.name, type, ALL_KINDS)
        order = order_of(self.name, self._by, by)
        self.pairs = OrderedPair(order, Ordered(value), (self._by, "value"))
        self.output_type = value.arrow
        names = [*(f"{self._by}{path}" for path in order.paths), "value"]
        self.schema = pa.schema([pa.field(name, kind.arrow) for name, kind in zip(names, self.pairs.stored)])
        self._options = "" if by is MESSAGE_ORDER else f"{self._by}={spelled(by)}"

    def parameters(self) -> dict[str, Any]:
        order = self.pairs.by
        parts = zip(order.paths, order.leaves)
        return {"type": str(self.output_type), self._by: [[path, str(leaf.type.arrow)] for path, leaf in parts]}

    def __repr__(self) -> str:
        arguments = (self.pairs.value.type.written, self._options)
        return f"{self.name}({', '.join(filter(None, arguments))})"

    def combine(self, a: Chosen, b: Chosen) -> Chosen:
        if a is None or b is None:
            return b if a is None else a
        return b if (encoding.order_key(b) > encoding.order_key(a)) == self._largest else a

    def lift(self, value: Any) -> Chosen:
        """``value``: a pair, as a tuple or as a mapping of both names, or None. TypeError for anything else."""
        return self.pairs.accept(value)

    def present(self, element: Chosen) -> Any:
        return None if element is None else element[1]

    def decode(self, data: bytes) -> Chosen:
        element: Chosen = decode_lifted(self, data)
        return element

    # Columns.

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or a pair (tuple or mapping) whose parts are each a column or one value for every row.

        ``by`` may then also be a list, one item per row; if it has several parts, a struct array such as
        ``batch.order``, or a tuple or mapping of columns. ValueError for a column of another length.
        """
        stored = None if is_column(values) else self.pairs.store_rows(values, length)
        return super().lift_rows(values, length) if stored is None else self._columns(*stored)

    def lift_columns(self, values: Any) -> Columns:
        return self._columns(*self.pairs.store(values))

    def _columns(self, valid: Column | None, stored: Sequence[Any]) -> Columns:
        return (repeat(TRUE, len(stored[-1]))[0] if valid is None else valid, *stored)

    def pack(self, elements: Sequence[Chosen]) -> Columns:
        return self.lift_columns(list(elements))

    def unpack(self, columns: Columns) -> list[Chosen]:
        valid, *stored = columns
        loaded = zip(*(kind.load(column) for kind, column in zip(self.pairs.stored, stored)))
        return [self.pairs.nest(row) if is_valid else None for is_valid, row in zip(valid.tolist(), loaded)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        return take(columns, least_of_segments(self._keys(columns), starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return take(columns, least_of_cells(self._keys(columns), cells, len(counts), held))

    def _keys(self, columns: Columns) -> Iterator[RowKey]:
        valid, *stored = columns
        yield from present_first(valid)
        for column in stored:
            yield from keys_of(column, self._largest)

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.pairs.value.show(columns[-1], _mask(columns[0]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        valid, *stored = columns
        mask = _mask(valid)
        return [kind.to_arrow(column, mask) for kind, column in zip(self.pairs.stored, stored)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError if some columns of an element are null and others are not."""
        check_schema(self, arrays)
        stored = [kind.from_arrow(array) for kind, array in zip(self.pairs.stored, arrays)]
        if not any(array.null_count for array in arrays):
            return (repeat(TRUE, len(arrays[0]))[0], *stored)
        valids = [array.is_valid().to_numpy(zero_copy_only=False) for array in arrays]
        if any((valid != valids[0]).any() for valid in valids):
            raise ValueError(f"{self!r}: an element is null in some of its columns")
        return (valids[0], *stored)


class MinBy(_Chosen):
    """The value with the smallest ``by``; None without input. Lift takes pairs (by, value).

    ``type``: the type of values. ``by``: the type they are compared by, or a tuple of types. Ties in ``by`` go to the
    smallest value. NaN is above all numbers; a pair with None in it contributes nothing.

    >>> cheapest = MinBy(str, by=float)
    >>> cheapest.present(cheapest.fold([cheapest.lift((2.5, "tea")), cheapest.lift((1.5, "milk"))]))
    'milk'
    """

    name = "MinBy"
    _by = "by"
    _largest = False

    def __init__(self, type: Any = int, *, by: Any = int) -> None:
        super().__init__(type, by)


class MaxBy(_Chosen):
    """The value with the largest ``by``; None without input. Lift takes pairs (by, value).

    ``type``: the type of values. ``by``: the type they are compared by, or a tuple of types. Ties in ``by`` go to the
    largest value. NaN is above all numbers; a pair with None in it contributes nothing.

    >>> slowest = MaxBy(str, by=int)
    >>> slowest.present(slowest.fold([slowest.lift((80, "/a")), slowest.lift({"by": 95, "value": "/b"})]))
    '/b'
    """

    name = "MaxBy"
    _by = "by"
    _largest = True

    def __init__(self, type: Any = int, *, by: Any = int) -> None:
        super().__init__(type, by)


class First(_Chosen):
    """The value first in order; None without input. Lift takes pairs (order, value).

    ``type``: the type of values. ``order``: the type of the order, by default that of ``message.order``: timestamp,
    partition, position. That order is total, so First commutes: late and shuffled messages do not change the result.
    If an order occurs twice, the smallest value wins. None contributes nothing: this is the first non-None value.

        state.update(t, (message.order, message.value["page"]))
        state.update_batch(batch.timestamps, (batch.order, batch["page"]))

    >>> opened = First(str, order=int)
    >>> opened.present(opened.combine(opened.lift((20, "b")), opened.lift((10, "a"))))
    'a'
    """

    name = "First"
    _by = "order"
    _largest = False

    def __init__(self, type: Any = int, *, order: Any = MESSAGE_ORDER) -> None:
        super().__init__(type, order)


class Last(_Chosen):
    """The value last in order; None without input. Lift takes pairs (order, value).

    The mirror image of ``First``; if an order occurs twice, the largest value wins.

    >>> latest = Last(float)
    >>> a, b = latest.lift(((1000, "p0", (0, 8)), 20.5)), latest.lift(((1000, "p0", (0, 7)), 21.0))
    >>> latest.present(latest.combine(a, b))
    20.5
    """

    name = "Last"
    _by = "order"
    _largest = True

    def __init__(self, type: Any = int, *, order: Any = MESSAGE_ORDER) -> None:
        super().__init__(type, order)


def _mask(valid: Column) -> Column | None:
    """Which rows hold a pair; None if all do."""
    return None if (is_constant(valid) and valid[0]) or np.all(valid) else valid
