"""Monoids of truth values: how many inputs are True, whether any is, whether all are. None contributes nothing."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, is_constant
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as
from monoids.numbers.sums import IntegerSum
from monoids.scalars import is_missing
from monoids.values import ValueType


class CountIf(IntegerSum):
    """The number of inputs that are True; 0 without input. A Group in int64.

    Inputs are bools or None; TypeError for anything else, even NaN and 1: write the comparison instead.

    >>> failures = CountIf()
    >>> failures.combine(failures.lift(True), failures.lift(None)), failures.lift(False)
    (1, 0)
    """

    name = "CountIf"

    def parameters(self) -> dict[str, typing.Any]:
        return {}

    @property
    def type(self) -> ValueType:
        return _bools("CountIf()")

    def lift_columns(self, values: typing.Any) -> Columns:
        return (_column(self.type, values, False).astype(np.int64),)


class Truth(Monoid[bool]):
    """``Any`` and ``All``: one column of bools. The identity is the value that no other input can change back to."""

    commutative = True
    takes_constants = True
    idempotent = True
    schema = pa.schema([pa.field("element", pa.bool_(), nullable=False)])
    output_type = pa.bool_()
    _kernel: ClassVar[np.ufunc]

    def __repr__(self) -> str:
        return f"{self.name}()"

    def lift(self, value: typing.Any) -> bool:
        return bool(self.identity if is_missing(value) else _bools(repr(self)).accept(value))

    def decode(self, data: bytes) -> bool:
        return decoded_as(self, data, bool)

    def lift_columns(self, values: typing.Any) -> Columns:
        return (_column(_bools(repr(self)), values, self.identity),)

    def pack(self, elements: Sequence[bool]) -> Columns:
        return (np.array(elements, np.bool_),)

    def unpack(self, columns: Columns) -> list[bool]:
        return list(columns[0].tolist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (values,) = columns
        if len(starts) == len(values):
            return columns
        if is_constant(values):
            return (np.broadcast_to(values[:1], len(starts)),)
        return (self._kernel.reduceat(values, starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        (values,) = columns
        totals = np.full(len(counts), self.identity, np.bool_)
        totals[cells[values != self.identity]] = not self.identity
        return (totals[held],)

    def present_columns(self, columns: Columns) -> pa.Array:
        return pa.array(columns[0])

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [pa.array(columns[0])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return (arrays[0].to_numpy(zero_copy_only=False),)


class Any(Truth):
    """Whether any input is True; False without input. Inputs are bools or None; TypeError for anything else, even 1.

    >>> alarm = Any()
    >>> alarm.combine(alarm.lift(False), alarm.lift(True)), alarm.lift(None)
    (True, False)
    """

    identity = False
    name = "Any"
    _kernel = np.logical_or

    def combine(self, a: bool, b: bool) -> bool:
        return a or b


class All(Truth):
    """Whether all inputs are True; True without input. Inputs are bools or None; TypeError for anything else, even 1.

    >>> healthy = All()
    >>> healthy.combine(healthy.lift(False), healthy.lift(True)), healthy.lift(None)
    (False, True)
    """

    identity = True
    name = "All"
    _kernel = np.logical_and

    def combine(self, a: bool, b: bool) -> bool:
        return a and b


def _bools(title: str) -> ValueType:
    return ValueType(title, "bool", pa.bool_(), frozenset({"bool"}))


def _column(type: ValueType, values: typing.Any, null: bool) -> Column:
    column = type.column(values)
    return np.asarray((column.fill_null(null) if column.null_count else column).to_numpy(zero_copy_only=False))
