"""A monoid of 64-bit integers has one int64 column. Integers never wrap: totals that do not fit raise, or are wide.

An entry sum is one count of a table: a sum in int64 whose overflow error names the table.

Bitwise monoids: And, Or and Xor of 64-bit integers, in two's complement.

BitAnd  identity -1 (all bits set)   idempotent
BitOr   identity 0                   idempotent
BitXor  identity 0                   a Group: every element is its own inverse
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, is_constant
from monoids.fixed import add_int64, overflow, sum_int64
from monoids.monoid import Group, Monoid, check_schema
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


class EntrySum(IntegerMonoid, Group[int]):
    """A sum of the entries of ``owner``. A count outside int64 raises an OverflowError that names ``owner``."""

    identity = 0
    name = "Sum"

    def __init__(self, owner: Monoid[Any]) -> None:
        self.owner = owner

    def parameters(self) -> dict[str, Any]:
        return {"type": "int64"}

    def combine(self, a: int, b: int) -> int:
        total = a + b
        if not INT64_MIN <= total <= INT64_MAX:
            raise self._overflow()
        return total

    def inverse(self, a: int) -> int:
        """OverflowError for -2**63, whose negative int64 cannot hold."""
        return self.combine(0, -a)

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        try:
            return (sum_int64(self, columns[0], starts),)
        except OverflowError:
            raise self._overflow() from None

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = add_int64(columns[0], cells, counts, held)
        return None if totals is None else (totals,)

    def _overflow(self) -> OverflowError:
        return OverflowError(
            f"{self.owner!r}: a count is outside 64-bit integers; use smaller weights, or a shorter window"
        )


class Bits(IntegerMonoid):
    """A bitwise operation on int64; never overflows."""

    _kernel: ClassVar[np.ufunc]

    def combine(self, a: int, b: int) -> int:
        return int(self._kernel(a, b))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return columns if len(starts) == len(columns[0]) else (self._kernel.reduceat(columns[0], starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = np.full(len(counts), self.identity, np.int64)
        self._kernel.at(totals, cells, columns[0])
        return (totals[held],)


class BitAnd(Bits):
    """The bits set in all non-None integers; without input -1, which has all bits set.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> flags = BitAnd()
    >>> flags.combine(flags.lift(0b110), flags.lift(0b011)), flags.lift(None)
    (2, -1)
    """

    identity = -1
    idempotent = True
    name = "BitAnd"
    _kernel = np.bitwise_and


class BitOr(Bits):
    """The bits set in any of the non-None integers; 0 without input.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> flags = BitOr()
    >>> flags.combine(flags.lift(0b100), flags.lift(0b001))
    5
    """

    identity = 0
    idempotent = True
    name = "BitOr"
    _kernel = np.bitwise_or


class BitXor(Bits, Group[int]):
    """The bits set in an odd number of the non-None integers; 0 without input. A Group, so checksums can be subtracted.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> parity = BitXor()
    >>> total = parity.combine(parity.lift(0b110), parity.lift(0b011))
    >>> total, parity.combine(total, parity.inverse(0b011))
    (5, 6)
    """

    identity = 0
    name = "BitXor"
    _kernel = np.bitwise_xor

    def inverse(self, a: int) -> int:
        return a

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        values = columns[0]
        if is_constant(values):
            return ((np.diff(starts, append=len(values)) & 1) * values[0],)
        return super().reduce_sorted(columns, starts)
