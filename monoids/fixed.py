"""A fixed-width monoid has tuples of numbers as elements, with one column per number: the shortest way to columns.

    unpack(pack(elements)) == elements == unpack(from_arrow(to_arrow(pack(elements))))

The schema describes everything else; the subclass writes only ``lift_array`` and ``reduce_sorted``. Most subclasses sum
up segments of a column: integers never wrap; floats have one NaN and one zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list
from monoids.column import Column, Columns, is_constant
from monoids.monoid import Monoid, check_schema
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, ValueType, value_type

ONE: Columns = (np.ones(1, np.int64),)
TRUE: Columns = (np.ones(1, np.bool_),)


_COUNTED = "the number of inputs cannot be this large: was an element combined with itself, or subtracted too often?"
_REMEDIES = {"Sum": "use Sum(int, unbounded=True), or Sum(float)", "Product": "use Product(float)"}


def overflow(monoid: Monoid[Any], total: int | None = None) -> OverflowError:
    """The error for a total, or a count of inputs, that int64 cannot hold."""
    subject = "a total" if total is None else f"the total {total}"
    return OverflowError(f"{monoid!r}: {subject} is outside 64-bit integers; {_REMEDIES.get(monoid.name, _COUNTED)}")


def sum_int64(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment. Intermediate sums may wrap if the total fits."""
    rows = len(values)
    if len(starts) == rows:
        return values
    if is_constant(values):
        sizes = _sizes(starts, rows)
        if not INT64_MIN <= int(values[0]) * int(sizes.max()) <= INT64_MAX:
            raise overflow(monoid)
        return sizes if values[0] == 1 else sizes * values[0]
    largest = max(int(values.max()), -int(values.min()))
    if largest * rows > INT64_MAX and largest * int(_sizes(starts, rows).max()) > INT64_MAX:
        return _sum_int64_halves(monoid, values, starts)
    return np.asarray(np.add.reduceat(values, starts))


def _sizes(starts: Column, rows: int) -> Column:
    """The number of rows in each segment."""
    sizes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1:] = rows - starts[-1:]
    return sizes


def _sum_int64_halves(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment by 32-bit halves, which cannot wrap below 2**31 rows."""
    low = np.add.reduceat(values & 0xFFFFFFFF, starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    if high.min() < -(2**31) or high.max() >= 2**31:
        raise overflow(monoid)
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def add_int64(values: Column, cells: Column, counts: Column, held: Column) -> Column | None:
    """The sum of each held cell; None if a total might not fit."""
    if not len(values):
        return values[:0]
    distinct = values[:1] if is_constant(values) else values
    if max(int(distinct.max()), -int(distinct.min())) * int(counts.max()) > INT64_MAX:
        return None
    if is_constant(values):
        return counts[held] if values[0] == 1 else counts[held] * values[0]
    totals = np.zeros(len(counts), np.int64)
    np.add.at(totals, cells, values)
    return totals[held]


def add_float64(values: Column, cells: Column, counts: Column, held: Column) -> Column:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.bincount(cells, weights=values, minlength=len(counts))[held]


def sum_float64(values: Column, starts: Column) -> Column:
    if len(starts) == len(values):
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.add.reduceat(values, starts))


def canonical_floats(values: Column) -> Column:
    """Floats with one zero and one NaN."""
    floats = np.asarray(values + 0.0)
    holes = np.isnan(floats)
    if holes.any():
        floats[holes] = math.nan
    return floats


_INTEGERS: tuple[type, ...] = (int, np.integer, np.bool_)
_TAKES = {"i": _INTEGERS, "u": _INTEGERS, "b": (bool, np.bool_), "f": (*_INTEGERS, float, np.floating)}


class FixedWidth(Monoid[tuple[Any, ...]]):
    """Subclass and give ``schema``: one non-nullable field of integers, float64 or bools for each number.

    An element is a tuple with one Python number for each field, of the field's type and in its range. ``combine`` stays
    the definition. For speed, override ``reduce_sorted``, and ``lift_array`` together with its ``input_type``. Columns
    are NumPy arrays of the schema's types. The laws check that both halves agree.

    >>> class Range(FixedWidth):
    ...     input_type = pa.int64()
    ...     schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("low", "high")])
    ...     identity = (2**63 - 1, -(2**63))
    ...     commutative = idempotent = True
    ...     def lift(self, value):
    ...         value = None if value is None else self.type.accept(value)
    ...         return self.identity if value is None else (value, value)
    ...     def combine(self, a, b):
    ...         return (min(a[0], b[0]), max(a[1], b[1]))
    ...     def lift_array(self, array):
    ...         return tuple(array.fill_null(nothing).to_numpy() for nothing in self.identity)
    ...     def reduce_sorted(self, columns, starts):
    ...         return (np.minimum.reduceat(columns[0], starts), np.maximum.reduceat(columns[1], starts))
    >>> span = Range()
    >>> span.unpack(span.reduce_sorted(span.lift_columns([3, 1, None, 7]), np.array([0, 2])))
    [(1, 3), (7, 7)]
    """

    input_type: pa.DataType | None = None
    """The Arrow type of inputs. Columns of other types are cast if nothing is lost, or refused.

    Write int64 for integers, float64 for floats, string for text, binary for bytes: other widths are cast to these.
    """

    @property
    def type(self) -> ValueType | None:
        """The inputs that ``input_type`` accepts. TypeError for an input type that is not the widest of its kind."""
        if self.input_type is None:
            return None
        accepted = value_type(type(self).__name__, self.input_type, ALL_KINDS)
        if accepted.arrow != self.input_type:
            raise TypeError(
                f"{self!r}: input_type is {self.input_type}: write {accepted.arrow}, to which its other widths are cast"
            )
        # Its input type is fixed: no error may advise to choose another.
        return replace(accepted, title=f"{type(self).__name__}()", choices=frozenset({accepted.kind}))

    def lift_array(self, array: pa.Array) -> Columns:
        """``lift`` of every value of an Arrow array of ``input_type``, possibly with nulls."""
        return self.pack([self.lift(value) for value in python_list(array)])

    def lift_columns(self, values: Any) -> Columns:
        accepted = self.type
        return super().lift_columns(values) if accepted is None else self.lift_array(accepted.column(values))

    def encode(self, element: tuple[Any, ...]) -> bytes:
        """The numbers in their fields' types, with one zero and one NaN. Raises as ``pack`` does."""
        return super().encode(self.unpack(self.pack([element]))[0])

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """The inverse of ``encode``. ValueError for bytes that ``encode`` does not write."""
        element = super().decode(data)
        try:
            canonical = element.__class__ is tuple and self.encode(element) == data
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{self!r}: the encoded element is {element!r:.60}: {error}") from error
        if not canonical:
            raise ValueError(f"{self!r}: the encoded element is {element!r:.60}, not the numbers of its schema")
        return tuple(element)

    def pack(self, elements: Sequence[tuple[Any, ...]]) -> Columns:
        """TypeError for a number whose type is not its field's, OverflowError for one outside the field's range."""
        by_field = list(zip(*elements, strict=True)) if elements else [()] * len(self.schema)
        if len(by_field) != len(self.schema):
            raise ValueError(f"{self!r}: an element has {len(by_field)} numbers, the schema {len(self.schema)} fields")
        return tuple(self._packed(part, field) for part, field in zip(by_field, self.schema))

    def unpack(self, columns: Columns) -> list[tuple[Any, ...]]:
        return list(zip(*((column + 0.0 if column.dtype.kind == "f" else column).tolist() for column in columns)))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [
            pa.array(canonical_floats(column) if column.dtype.kind == "f" else column, field.type)
            for column, field in zip(columns, self.schema)
        ]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types and for nulls."""
        check_schema(self, arrays)
        return tuple(array.to_numpy(zero_copy_only=False) for array in arrays)

    def _packed(self, numbers: Sequence[Any], field: pa.Field) -> Column:
        """The numbers of one field."""
        dtype = self._dtype(field)
        takes = _TAKES[np.dtype(dtype).kind]
        wrong = [kind for kind in {number.__class__ for number in numbers} if not issubclass(kind, takes)]
        if wrong:
            raise TypeError(f"{self!r}: field {field.name!r} is {field.type}, but an element has a {wrong[0].__name__}")
        try:
            return np.array(numbers, dtype)
        except OverflowError as error:
            raise OverflowError(f"{self!r}: field {field.name!r} is {field.type}: {error}") from error

    def _dtype(self, field: pa.Field) -> Any:
        width = field.type
        if pa.types.is_floating(width) and width != pa.float64():
            raise TypeError(f"{self!r}: field {field.name!r} of the schema is {width}: write float64, as in Python")
        if not (pa.types.is_integer(width) or width == pa.float64() or pa.types.is_boolean(width)):
            raise TypeError(
                f"{self!r}: field {field.name!r} of the schema is {width}: numbers and bools are fixed-width"
            )
        return width.to_pandas_dtype()
