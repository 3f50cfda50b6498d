"""A monoid of floats has one float64 column, with one zero and one NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, repeat
from monoids.groupby.segments import TRUE, canonical_floats
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as, decoded_float
from monoids.scalars import is_missing
from monoids.values import ValueType


class FloatMonoid(Monoid[float]):
    """Subclass and define ``identity``, ``name``, ``accepted``, ``combine`` and the reductions.

    ``accepted``: the type of inputs. ``lift``: the identity for None.
    """

    accepted: ClassVar[ValueType]
    commutative = True
    takes_constants = True
    exact = False
    schema = pa.schema([pa.field("element", pa.float64(), nullable=False)])
    output_type = pa.float64()

    def parameters(self) -> dict[str, Any]:
        return {"type": "double"}

    def __repr__(self) -> str:
        return f"{self.name}(float)"

    def lift(self, value: Any) -> float:
        return float(self.identity if is_missing(value) else self.accepted.accept(value))

    def decode(self, data: bytes) -> float:
        return decoded_float(self, decoded_as(self, data, float))

    def lift_columns(self, values: Any) -> Columns:
        return (float_column(self.accepted, values, self.identity)[0],)

    def pack(self, elements: Sequence[float]) -> Columns:
        return (np.array(elements, np.float64),)

    def unpack(self, columns: Columns) -> list[float]:
        return list((columns[0] + 0.0).tolist())

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(canonical_floats(columns[0]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(canonical_floats(columns[0]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return (arrays[0].to_numpy(),)


def float_column(type: ValueType, values: Any, null: float) -> tuple[Column, Column]:
    """A column as float64, ``null`` where there is no value; and a mask of the values."""
    column = type.column(values)
    if not column.null_count:
        return column.to_numpy(), repeat(TRUE, len(column))[0]
    return column.fill_null(null).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)
