"""An ordered pair is an input (by, value): a value, and the order it is compared by. A pair with None in it counts as
None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from monoids.arrays import python_list
from monoids.column import Column
from monoids.comparing.orders import Order, Stored, repeated
from monoids.monoid import is_column
from monoids.ordered import Ordered
from monoids.pairs import Names, pair, pair_columns
from monoids.scalars import scalar


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
