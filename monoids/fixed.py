"""A fixed-width monoid has tuples of numbers as elements, with one column per number: the shortest way to columns.

    unpack(pack(elements)) == elements == unpack(from_arrow(to_arrow(pack(elements))))

The schema describes everything else; the subclass writes only ``lift_array`` and ``reduce_sorted``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list
from monoids.column import Column, Columns
from monoids.groupby.segments import canonical_floats
from monoids.monoid import Monoid, check_schema
from monoids.values import ALL_KINDS, ValueType, value_type

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
