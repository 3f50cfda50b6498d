"""An order is the type that values are compared by: one type, or several in turn.

A user writes ``int``, ``float``, ``str``, ...; a tuple of orders, whose values are tuples; or a mapping of names to
orders, whose values are tuples or mappings. A value with a part that is None counts as None.

An ordered pair is an input (by, value): a value, and its place in an order. A pair with None in it counts as None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import values as value_types
from monoids.arrays import python_list
from monoids.column import Column, repeat
from monoids.monoid import is_column
from monoids.ordered import Ordered
from monoids.pairs import Names, pair, pair_columns
from monoids.scalars import is_missing, scalar, shown
from monoids.values import ALL_KINDS, value_type

Stored = tuple[Any, Column | None]
"""A column, and which of its rows hold a value (None: all)."""


@dataclass(frozen=True)
class Order:
    """Either ``single``, how one value is stored, or ``parts``, the orders of several, with or without ``names``."""

    title: str
    single: Ordered | None = None
    parts: tuple[Order, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Ordered, ...]:
        """How each column is stored, most significant first."""
        return (self.single,) if self.single else tuple(leaf for part in self.parts for leaf in part.leaves)

    def accept(self, value: Any) -> Any:
        """A value of this order with its parts as they are stored; None if it, or a part of it, is None.

        TypeError for a value of another type or shape.
        """
        if is_missing(value):
            return None
        if self.single:
            return self.single.type.accept(scalar(value))
        accepted = tuple(part.accept(item) for part, item in zip(self.parts, self._split(value)))
        return None if any(item is None for item in accepted) else accepted

    @property
    def paths(self) -> tuple[str, ...]:
        """The path to each leaf: the names or indices on the way to it; "" for a single value."""
        if self.single:
            return ("",)
        names = self.names or tuple(map(str, range(len(self.parts))))
        return tuple(f".{name}{path}" for name, part in zip(names, self.parts) for path in part.paths)

    def flatten(self, value: Any) -> list[Any]:
        """An accepted value, or None, as one value per leaf."""
        if self.single:
            return [value]
        values = [None] * len(self.parts) if value is None else value
        return [leaf for part, item in zip(self.parts, values) for leaf in part.flatten(item)]

    def nest(self, values: Sequence[Any]) -> Any:
        """The inverse of ``flatten``."""
        if self.single:
            return values[0]
        nested, at = [], 0
        for part in self.parts:
            count = len(part.leaves)
            nested.append(part.nest(values[at : at + count]))
            at += count
        return tuple(nested)

    def store(self, values: Any, length: int) -> list[Stored]:
        """A user's input for ``length`` rows as columns, one per leaf.

        An Arrow or NumPy array is a column; so is a list, because no value of an order is a list. Several parts are a
        struct array with their names, or a tuple or mapping whose parts are each a column or one value for every row.
        ValueError for a column of another length.
        """
        if isinstance(values, pa.Scalar):
            values = values.as_py()
        if is_column(values) or isinstance(values, list):
            if len(values) != length:
                raise ValueError(f"{self.title}: a column of {len(values)} values for {length} rows")
            return self._store_column(values, length)
        if self.single or values is None:
            flat = self.flatten(self.accept(values))
            return [repeated(leaf.store([value]), length) for leaf, value in zip(self.leaves, flat)]
        return self._store_parts(self._split(values), length)

    def _store_parts(self, values: Sequence[Any], length: int) -> list[Stored]:
        return [column for part, item in zip(self.parts, values) for column in part.store(item, length)]

    def _split(self, value: Any) -> Sequence[Any]:
        """The input of each part."""
        if isinstance(value, Mapping) and self.names and value.keys() == set(self.names):
            return [value[name] for name in self.names]
        if not isinstance(value, (tuple, list)) or len(value) != len(self.parts):
            raise self._refused(shown(value))
        return value

    def _store_column(self, values: Any, length: int) -> list[Stored]:
        if self.single:
            return [self.single.store(values)]
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.StructArray):
            columns = dict(zip((field.name for field in values.type), values.flatten()))
            if not self.names or columns.keys() != set(self.names):
                raise self._refused(f"a column of {values.type}")
            return self._store_parts(self._split(columns), length)
        if isinstance(values, pa.NullArray):
            return [leaf.store(values) for leaf in self.leaves]
        if isinstance(values, pa.Array) and not pa.types.is_list(values.type):
            raise self._refused(f"a column of {values.type}")
        return self._store_list(values if isinstance(values, list) else list(values.tolist()), length)

    def _store_list(self, values: list[Any], length: int) -> list[Stored]:
        if set(map(type, values)) == {tuple} and set(map(len, values)) == {len(self.parts)}:
            return self._store_parts([list(column) for column in zip(*values)], length)
        flat = [self.flatten(self.accept(value)) for value in values]
        return [leaf.store([row[at] for row in flat]) for at, leaf in enumerate(self.leaves)]

    def _refused(self, description: str) -> TypeError:
        description = description if len(description) <= 60 else description[:57] + "..."
        known = f" or mappings of {', '.join(self.names)}" if self.names else ""
        return TypeError(f"{self.title} takes tuples of {len(self.parts)} parts{known}, not {description}")


def order_of(owner: str, option: str, type: Any) -> Order:
    """The order that a user wrote as the option ``option`` of monoid ``owner``. TypeError for anything else."""
    return _order(f"{owner}(..., {option}={spelled(type)})", option, type)


def _order(title: str, option: str, type: Any) -> Order:
    if not isinstance(type, (tuple, Mapping)):
        try:
            value = value_type(option, type, ALL_KINDS)
        except TypeError as error:
            raise TypeError(f"{title}: {error}, a tuple of these, or a mapping of names to them") from None
        # The remedy is another value of this option, which the title shows, not another monoid.
        return Order(title, Ordered(replace(value, title=title, choices=frozenset())))
    if not type:
        raise TypeError(f"{title} orders nothing: write at least one type")
    names = tuple(type) if isinstance(type, Mapping) else ()
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{title}: the names of the parts are strings")
    for name in names:
        if not name or "." in name:
            raise ValueError(f"{title}: the name {name!r} of a part is empty or holds a '.': give it another")
    parts = type.values() if isinstance(type, Mapping) else type
    named = zip(names or range(len(type)), parts)
    return Order(title, None, tuple(_order(f"{title}: part {name!r}", option, part) for name, part in named), names)


def spelled(type: Any) -> str:
    """An order as a user writes it."""
    if isinstance(type, tuple):
        items = ", ".join(map(spelled, type))
        return f"({items},)" if len(type) == 1 else f"({items})"
    if isinstance(type, Mapping):
        return "{" + ", ".join(f"{name!r}: {spelled(part)}" for name, part in type.items()) + "}"
    return value_types.spelled(type)


def repeated(stored: Stored, length: int) -> Stored:
    """The only row of a column, ``length`` times."""
    column, valid = stored
    return repeat((column,), length)[0], None if valid is None else np.broadcast_to(valid[:1], length)


@dataclass(frozen=True)
class OrderedPair:
    """How pairs are read and stored: ``by`` and ``value``, under ``names`` if the input is a mapping."""

    by: Order
    value: Ordered
    names: Names

    @property
    def stored(self) -> tuple[Ordered, ...]:
        """How each column is stored: the parts of ``by``, most significant first, then the value."""
        return (*self.by.leaves, self.value)

    def accept(self, value: Any) -> tuple[Any, Any] | None:
        """One pair; None for None or for a pair with None in it. TypeError for anything else."""
        by, chosen = pair(value, self.names)
        accepted_by, accepted_value = self.by.accept(by), None if chosen is None else self.value.type.accept(chosen)
        return None if accepted_by is None or accepted_value is None else (accepted_by, accepted_value)

    def flatten(self, accepted: tuple[Any, Any] | None) -> list[Any]:
        """One value per column."""
        by, value = accepted or (None, None)
        return [*self.by.flatten(by), value]

    def nest(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """The inverse of ``flatten``."""
        return self.by.nest(values[:-1]), values[-1]

    def store(self, values: Any) -> tuple[Column | None, list[Any]]:
        """A column of pairs (Arrow struct array or list) as columns, and which rows hold a pair (None: all)."""
        if isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_list(values.type):
            values = python_list(values)
        by, chosen = pair_columns(values, self.names)
        return self._with_fillers([*self.by.store(by, len(values)), self.value.store(chosen)])

    def store_rows(self, values: Any, length: int) -> tuple[Column | None, list[Any]] | None:
        """As ``store``, for a pair whose parts are each a column or one value for every row; None if it is not one.

        ``by`` may then also be a list, one item per row. ValueError for a column of another length.
        """
        if isinstance(values, Mapping) and values.keys() == set(self.names):
            values = tuple(values[name] for name in self.names)
        if not isinstance(values, (tuple, list)) or len(values) != 2:
            return None
        by, chosen = values
        if not is_column(chosen):
            stored = repeated(self.value.store([scalar(chosen)]), length)
        elif len(chosen) != length:
            raise ValueError(f"{self.value.type.title} was given a column of {len(chosen)} values for {length} rows")
        else:
            stored = self.value.store(chosen)
        return self._with_fillers([*self.by.store(by, length), stored])

    def _with_fillers(self, columns: Sequence[Stored]) -> tuple[Column | None, list[Any]]:
        """The columns, with a filler in all of them where one has no value: equal elements give equal bytes."""
        valid: Column | None = None
        for _, of_column in columns:
            if of_column is not None:
                valid = of_column if valid is None else valid & of_column
        if valid is None or valid.all():
            return None, [column for column, _ in columns]
        blanked = [kind.from_arrow(kind.to_arrow(column, valid)) for kind, (column, _) in zip(self.stored, columns)]
        return valid, blanked
