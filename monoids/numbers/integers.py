"""A monoid of 64-bit integers has one int64 column. Integers never wrap: totals that do not fit raise, or are wide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Columns
from monoids.groupby.segments import overflow
from monoids.monoid import Monoid, check_schema
from monoids.scalars import is_missing, shown
from monoids.values import INT64_MAX, INT64_MIN, ValueType

T = TypeVar("T")


class IntegerMonoid(Monoid[int]):
    """Subclass and define ``identity``, ``name``, ``combine`` and the reductions.

    ``lift``: the identity for None; TypeError for a float, OverflowError for an integer outside int64.
    """

    commutative = True
    takes_constants = True
    schema = pa.schema([pa.field("element", pa.int64(), nullable=False)])
    output_type = pa.int64()

    def __repr__(self) -> str:
        return f"{self.name}()"

    @property
    def type(self) -> ValueType:
        """The type of inputs."""
        return ValueType(repr(self), "int", pa.int64(), frozenset({"int"}))

    def lift(self, value: Any) -> int:
        return int(self.identity if is_missing(value) else self.type.accept(value))

    def decode(self, data: bytes) -> int:
        value = decoded_as(self, data, int)
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{self!r}: the encoded element is outside 64-bit integers")
        return value

    def lift_columns(self, values: Any) -> Columns:
        column = self.type.column(values)
        return ((column.fill_null(self.identity) if column.null_count else column).to_numpy(),)

    def pack(self, elements: Sequence[int]) -> Columns:
        return (np.array(elements, np.int64),)

    def unpack(self, columns: Columns) -> list[int]:
        return list(columns[0].tolist())

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(columns[0])

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return (arrays[0].to_numpy(),)


def int64(monoid: Monoid[Any], total: int) -> int:
    """A total that fits int64; OverflowError for any other."""
    if not INT64_MIN <= total <= INT64_MAX:
        raise overflow(monoid)
    return total


def decoded_as(monoid: Monoid[Any], data: bytes, type: type[T]) -> T:
    """The decoded value, if it is of exactly this type; ValueError otherwise."""
    value = encoding.decode(data)
    if value.__class__ is not type:
        raise ValueError(f"{monoid!r}: the encoded element is {shown(value)}, not of type {type.__name__}")
    return value


def decoded_float(monoid: Monoid[Any], value: Any) -> float:
    """A decoded float, or part of an element. ValueError for anything else, and for -0.0, which is never encoded."""
    if value.__class__ is not float or (value == 0.0 and math.copysign(1.0, value) < 0):
        raise ValueError(f"{monoid!r}: the encoded element holds {shown(value)}, which must be a float and not -0.0")
    return float(value)
