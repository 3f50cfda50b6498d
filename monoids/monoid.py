"""A monoid is a set of elements with an associative ``combine`` and an ``identity``.

    combine(a, combine(b, c)) == combine(combine(a, b), c)
    combine(identity, a) == a == combine(a, identity)

A group adds ``inverse``: ``combine(a, inverse(a)) == identity``.

Elements have a second, columnar form: ``Columns``, a tuple of equally long NumPy arrays, one row an element. A monoid that
only defines the scalar half works everywhere: its columns are one array of Python objects.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from monoids import encoding

Element = TypeVar("Element")

Column = np.ndarray[Any, Any]
Columns = tuple[Column, ...]
"""Elements as columns. A column of stride 0 (``np.broadcast_to``) is a constant; kernels may exploit it."""


def object_column(elements: Sequence[Any]) -> Column:
    """A one-dimensional array of Python objects, whatever they are (NumPy would unpack lists)."""
    column = np.empty(len(elements), dtype=object)
    for row, element in enumerate(elements):
        column[row] = element
    return column


class Monoid(Generic[Element]):
    """Subclass and give ``identity`` (attribute or property) and ``combine``; all else has a default.

    Traits, declared here and tested by the laws: ``commutative``, ``idempotent``, ``exact`` (equal up to the bit in any
    order of folding; False: within a rounding error).
    """

    identity: Any
    commutative: bool = False
    idempotent: bool = False
    exact: bool = True
    name: str = ""
    version: int = 1
    schema: pa.Schema = pa.schema([pa.field("element", pa.binary(), nullable=False)])
    output_type: pa.DataType | None = None

    def combine(self, a: Element, b: Element) -> Element:
        """The sum of two elements. Pure: neither operand is changed."""
        raise NotImplementedError(f"{type(self).__name__} does not define combine(self, a, b)")

    def lift(self, value: Any) -> Element:
        """The element that one input contributes."""
        return value  # type: ignore[no-any-return]

    def present(self, element: Element) -> Any:
        """What a user reads of an element."""
        return element

    # -- identity of the definition ------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """What distinguishes this instance from others of its class, as JSON values."""
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint remembers, to refuse state of another monoid: JSON values only."""
        return {
            "name": self.name or type(self).__name__,
            "version": self.version,
            "parameters": self.parameters(),
            "schema": [[field.name, str(field.type)] for field in self.schema],
        }

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value}" for key, value in self.parameters().items())
        return f"{self.name or type(self).__name__}({arguments})"

    # -- columns: override all of these together, or none -----------------------------------------------------------

    def lift_columns(self, values: Any) -> Columns:
        """``lift`` of every value. ``values``: an Arrow array, a NumPy array or a list of Python values."""
        rows = values if isinstance(values, list) else pa.array(values).to_pylist()
        return (object_column([self.lift(value) for value in rows]),)

    def pack(self, elements: Sequence[Element]) -> Columns:
        """Elements as columns."""
        return (object_column(elements),)

    def unpack(self, columns: Columns) -> list[Element]:
        """The inverse of ``pack``."""
        return list(columns[0])

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        """The fold of each segment: segment i is the rows ``starts[i] : starts[i + 1]`` (the last to the end).

        ``starts`` is strictly increasing, begins with 0, and is empty iff there are no rows.
        """
        elements = self.unpack(columns)
        stops = [*starts[1:].tolist(), len(elements)]
        return self.pack([self._fold(elements[i:j]) for i, j in zip(starts.tolist(), stops)])

    def present_columns(self, columns: Columns) -> pa.Array:
        """``present`` of every element, as a column of ``output_type`` or of canonical JSON."""
        presented = [self.present(element) for element in self.unpack(columns)]
        if self.output_type is None:
            return pa.array([encoding.to_json(value) for value in presented], pa.string())
        return pa.array(presented, self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        """Element columns as Arrow arrays of ``schema``; canonical: equal elements, equal bytes."""
        return [pa.array([self.encode(element) for element in self.unpack(columns)], pa.binary())]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """The inverse of ``to_arrow``."""
        return self.pack([self.decode(data) for data in arrays[0].to_pylist()])

    def encode(self, element: Element) -> bytes:
        """One element as canonical bytes."""
        return encoding.encode(element)

    def decode(self, data: bytes) -> Element:
        """The inverse of ``encode``."""
        return encoding.decode(data)  # type: ignore[no-any-return]

    def _fold(self, elements: list[Element]) -> Element:
        total = elements[0]
        for element in elements[1:]:
            total = self.combine(total, element)
        return total


class Group(Monoid[Element]):
    """A monoid in which every element can be taken back."""

    def inverse(self, a: Element) -> Element:
        """The element with ``combine(a, inverse(a)) == identity``."""
        raise NotImplementedError(f"{type(self).__name__} does not define inverse(self, a)")


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
