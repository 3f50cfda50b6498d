"""The product of the non-None values: of integers in int64, or of floats within rounding.

    combine(a, b) == a * b, identity 1

Not a Group: a factor 0 cannot be divided out. A product of integers that has left 64 bits does not return, whatever the
further factors, except by 0, and by -1 from 2**63 to -2**63. So all larger products are one element, ``BEYOND``.

A monoid of floats has one float64 column, with one zero and one NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, overload

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, repeat
from monoids.fixed import TRUE, canonical_floats, overflow
from monoids.monoid import Monoid, check_schema
from monoids.numbers.integers import decoded_as, decoded_float
from monoids.numbers.wide import WideIntegers, is_wide, narrow, packed
from monoids.scalars import is_missing
from monoids.values import INT64_MAX, ValueType, value_type


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


_KINDS = frozenset({"int", "float"})


@overload
def Product() -> IntegerProduct: ...
@overload
def Product(type: type[int]) -> IntegerProduct: ...
@overload
def Product(type: type[float]) -> FloatProduct: ...
@overload
def Product(type: pa.DataType) -> Any: ...
def Product(type: Any = int) -> IntegerProduct | FloatProduct:
    """The product; 1 without input. Of integers and bools, exact in int64; ``Product(float)`` of floats, with rounding.

    Presenting a product of integers outside int64 raises OverflowError. A factor 0 makes the product 0, whatever the
    other factors.

    >>> growth = Product()
    >>> growth.combine(growth.lift(6), growth.lift(7)), growth.lift(None)
    (42, 1)
    """
    value = value_type("Product", type, _KINDS)
    return IntegerProduct() if value.kind == "int" else FloatProduct()


BEYOND = 2**64
"""Stands for every product of integers with a magnitude above 2**63."""


class IntegerProduct(WideIntegers):
    """``Product()``: one int64 column, which is wide where a product does not fit."""

    identity = 1
    name = "Product"

    def parameters(self) -> dict[str, Any]:
        return {"type": "int64"}

    @property
    def type(self) -> ValueType:
        return value_type("Product", int, _KINDS)

    def combine(self, a: int, b: int) -> int:
        product = a * b
        return product if -_EDGE <= product <= _EDGE else BEYOND

    def is_element(self, number: int) -> bool:
        return -_EDGE <= number <= _EDGE or number == BEYOND

    def present(self, element: int) -> int:
        """OverflowError outside int64."""
        if not -_EDGE <= element < _EDGE:
            raise overflow(self)
        return element

    def present_columns(self, columns: Columns) -> pa.Array:
        column = narrow(columns[0])
        if is_wide(column):
            raise overflow(self)
        return pa.array(column)

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        (values,) = columns
        if len(starts) == len(values):
            return columns
        # As floats, a product of up to 2**32 factors errs by 1 part in 2**20. NaN means infinity times 0, so 0.
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.abs(np.multiply.reduceat(values.astype(np.float64), starts))
        # A segment with a wide factor is large, or 0 because of another factor.
        factors = np.where(values > INT64_MAX, 1, values).astype(np.int64) if is_wide(values) else values
        totals = np.multiply.reduceat(factors, starts)
        large = np.flatnonzero(sizes >= 2.0**62)
        if not len(large):
            return (totals,)
        stops = np.append(starts[1:], len(values))[large]
        segments = [values[start:stop] for start, stop in zip(starts[large], stops)]
        products = packed([self._product(*pair) for pair in zip(segments, sizes[large].tolist())])
        totals = totals.astype(products.dtype)
        totals[large] = products
        return (totals,)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        """None where a product might not fit. Intermediate products may wrap if the result fits."""
        (values,) = columns
        if is_wide(values):
            return None
        sizes, totals = np.ones(len(counts)), np.ones(len(counts), np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply.at(sizes, cells, values.astype(np.float64))
        if not (np.abs(sizes) < 2.0**62).all():
            return None
        np.multiply.at(totals, cells, values)
        return (totals[held],)

    def _product(self, factors: Column, size: float) -> int:
        """A product of about this size, which may be too large for int64."""
        return self.combine(1, math.prod(factors.tolist())) if size < 2.0**64 else BEYOND


class FloatProduct(FloatMonoid):
    """``Product(float)``: one float64 column, with the rules of IEEE 754.

    The relative error of n factors is at most n * 2**-53 while every intermediate product is a normal float (2.2e-308
    to 1.8e308). Outside that range products are infinite or lose digits, depending on the order. NaN makes the product
    NaN, and so does infinity times 0. There is one zero.
    """

    identity = 1.0
    name = "Product"
    accepted = value_type("Product", float, _KINDS)

    def combine(self, a: float, b: float) -> float:
        return a * b + 0.0

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return (np.multiply.reduceat(columns[0], starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = np.ones(len(counts))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            np.multiply.at(totals, cells, columns[0])
        return (totals[held],)

    def present(self, element: float) -> float:
        return element + 0.0


_EDGE = 2**63
