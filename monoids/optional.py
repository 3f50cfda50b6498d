"""An option adds "nothing" to a monoid: an element below all others, distinct from the monoid's identity.

    combine((), a) == a == combine(a, ())       combine((x,), (y,)) == (inner.combine(x, y),)

As columns: a flag for presence, then the monoid's columns, at its identity where the flag is false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import from_numpy, no_column, plain_array
from monoids.column import Column, Columns, concat, repeat, take
from monoids.containers.mappings import has_arrow_output
from monoids.monoid import Monoid, check, check_schema, is_column
from monoids.numbers.integers import decoded_as
from monoids.scalars import is_missing, scalar
from monoids.table import identity_rows

Maybe = tuple[Any, ...]
"""An element of an option: () or (element,)."""


def option(monoid: Monoid[Any]) -> OptionMonoid:
    """``monoid`` or nothing: presents None until an input is not None, then what ``monoid`` presents.

        combine((), a) == a == combine(a, ())       combine((x,), (y,)) == (monoid.combine(x, y),)

    So a sum of nothing is None and a sum of zeros is 0. An option is not a Group, because an input cannot be unseen:
    subtracting everything leaves the identity of ``monoid``. ``monoid.lift`` never sees None.

    >>> from monoids.numbers.sums import Sum
    >>> total = option(Sum())
    >>> total.present(total.lift(None)), total.present(total.lift(0))
    (None, 0)
    """
    check(monoid)
    return OptionMonoid(monoid)


class OptionMonoid(Monoid[Maybe]):
    """The result of ``option``. Columns: a flag for presence, then the monoid's columns (its identity where false)."""

    identity: Maybe = ()
    name = "option"

    def __init__(self, monoid: Monoid[Any]) -> None:
        self.inner = monoid
        self.commutative = monoid.commutative
        self.idempotent = monoid.idempotent
        self.exact = monoid.exact
        self.widens = monoid.widens
        fields = [field.with_name(_inner_field(field.name)) for field in monoid.schema]
        self.schema = pa.schema([pa.field("something", pa.bool_(), nullable=False), *fields])
        self.output_type = monoid.output_type if has_arrow_output(monoid) else None

    def parameters(self) -> dict[str, Any]:
        return {"monoid": self.inner.fingerprint()}

    def __repr__(self) -> str:
        return f"option({self.inner!r})"

    def combine(self, a: Maybe, b: Maybe) -> Maybe:
        return (self.inner.combine(a[0], b[0]),) if a and b else a or b

    def fold(self, elements: Sequence[Maybe]) -> Maybe:
        inner_elements = [element[0] for element in elements if element]
        return (self.inner.fold(inner_elements),) if inner_elements else ()

    def lift(self, value: Any) -> Maybe:
        return () if is_missing(value) else (self.inner.lift(value),)

    def present(self, element: Maybe) -> Any:
        return self.inner.present(element[0]) if element else None

    def encode(self, element: Maybe) -> bytes:
        return encoding.encode(tuple(map(self.inner.encode, element)))

    def decode(self, data: bytes) -> Maybe:
        parts = decoded_as(self, data, tuple)
        if len(parts) > 1 or not all(type(part) is bytes for part in parts):
            raise ValueError(f"{self!r}: the encoded element is not of an option")
        return tuple(map(self.inner.decode, parts))

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        something = not_null(values)
        return something, *lift_not_null(self.inner, self.inner.lift_columns, values, something)

    def lift_list(self, values: list[Any]) -> Columns:
        something = not_null(values)
        return something, *lift_not_null(self.inner, self.inner.lift_list, values, something)

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As the monoid does. If a row has fields, each a column or one value for every row, every row is present."""
        if is_column(values) or scalar(values) is None:
            return super().lift_rows(values, length)
        return np.broadcast_to(np.True_, length), *self.inner.lift_rows(values, length)

    def pack(self, elements: Sequence[Maybe]) -> Columns:
        something = np.fromiter(map(bool, elements), np.bool_, len(elements))
        inner = self.inner.pack([element[0] if element else self.inner.identity for element in elements])
        return something, *inner

    def unpack(self, columns: Columns) -> list[Maybe]:
        something, *inner = columns
        return [(x,) if filled else () for filled, x in zip(something.tolist(), self.inner.unpack(tuple(inner)))]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        something, *inner = columns
        if len(starts) == len(something):
            return columns
        return np.logical_or.reduceat(something, starts), *self.inner.reduce_sorted(tuple(inner), starts)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        something, *inner = columns
        reduced = self.inner.reduce_cells(tuple(inner), cells, counts, held)
        if reduced is None:
            return None
        filled_cells = np.zeros(len(counts), np.bool_)
        filled_cells[cells[something]] = True
        return filled_cells[held], *reduced

    def present_columns(self, columns: Columns) -> pa.Array:
        if self.output_type is None:
            return super().present_columns(columns)
        something, *inner = columns
        presented = self.inner.present_columns(tuple(inner))
        if something.all():
            return presented
        return presented.take(pa.array(np.arange(len(something)), mask=~something))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        something, *inner = columns
        return [pa.array(something), *self.inner.to_arrow(tuple(inner))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        if arrays[0].null_count:
            raise ValueError(f"{self!r}: an element is null")
        something = arrays[0].to_numpy(zero_copy_only=False)
        inner = self.inner.from_arrow(arrays[1:])
        nothing = np.flatnonzero(~something)
        if len(nothing) and not identity_rows(self.inner, take(inner, nothing)).all():
            raise ValueError(f"{self!r}: an element marked as nothing holds a value")
        return something, *inner


def not_null(values: Any) -> Column:
    """Which values of a column are not null; in a list, not None."""
    if isinstance(values, np.ma.MaskedArray) or (isinstance(values, np.ndarray) and values.dtype.kind in "mM"):
        values = from_numpy(values)
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return np.ones(len(values), np.bool_)
    if isinstance(values, (list, np.ndarray)):
        return np.fromiter((not is_missing(value) for value in values), np.bool_, len(values))
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        raise no_column("option(...)", values)
    return np.asarray(plain_array(values).is_valid().to_numpy(zero_copy_only=False))


def lift_not_null(monoid: Monoid[Any], lift: Callable[[Any], Columns], values: Any, something: Column) -> Columns:
    """The lifted values where ``something`` is true, and the identity elsewhere."""
    nothing = monoid.pack([monoid.identity])
    if not something.any():
        return repeat(nothing, len(something))
    if something.all():
        return lift(values)
    if isinstance(values, list):
        present: Any = [value for value in values if not is_missing(value)]
    elif isinstance(values, np.ndarray):
        present = values[something]
    else:
        present = plain_array(values).drop_null()
    return take(concat([nothing, lift(present)]), np.where(something, np.cumsum(something), 0))


def _inner_field(name: str) -> str:
    """The stored name of an inner field, distinct from the option's own fields."""
    return "value" if name == "element" else f"value.{name}"
