"""A monoid is a set of elements with an associative ``combine`` and an ``identity``.

    combine(a, combine(b, c)) == combine(combine(a, b), c)
    combine(identity, a) == a == combine(a, identity)

A group adds ``inverse``: ``combine(a, inverse(a)) == identity``.

Elements have a second, columnar form: ``Columns``, a tuple of equally long NumPy arrays, one row an element.
A monoid that only defines the scalar half works everywhere: its columns are one array of Python objects.
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


class Monoid(Generic[Element]):
    """Subclass and give ``identity`` (attribute or property) and ``combine``; all else has a default.

    Traits, declared here and tested by the laws: ``commutative``, ``idempotent``, ``exact`` (equal up to the
    bit in any order of folding; False: within a rounding error).

    >>> class Longest(Monoid[str]):
    ...     identity = ""
    ...     def combine(self, a: str, b: str) -> str:
    ...         return b if len(b) > len(a) else a
    >>> Longest().combine("ab", "abc")
    'abc'
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

    def encode(self, element: Element) -> bytes:
        """One element as canonical bytes: equal elements, equal bytes."""
        return encoding.encode(element)

    def decode(self, data: bytes) -> Element:
        """The inverse of ``encode``. ValueError for bytes that are none of its."""
        return encoding.decode(data)  # type: ignore[no-any-return]

    def fold(self, elements: Sequence[Element]) -> Element:
        """The sum of elements, from the left. Override where all of them at once is faster."""
        if not elements:
            return self.identity  # type: ignore[no-any-return]
        total = elements[0]
        for element in elements[1:]:
            total = self.combine(total, element)
        return total

    # Which monoid this is.

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

    # Columns: override all of these together, or none.

    def lift_columns(self, values: Any) -> Columns:
        """``lift`` of every value. ``values``: an Arrow array, a NumPy array or a list of Python values."""
        return self.pack([self.lift(value) for value in python_values(values)])

    def pack(self, elements: Sequence[Element]) -> Columns:
        """Elements as columns."""
        return (object_column(elements),)

    def unpack(self, columns: Columns) -> list[Element]:
        """The inverse of ``pack``."""
        return list(columns[0])

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        """The fold of each segment: rows ``starts[i] : starts[i + 1]`` are segment i, the last to the end.

        ``starts`` is strictly increasing, begins with 0, and is empty iff there are no rows. TypeError if
        ``combine`` is seen to change an operand or the identity.
        """
        elements = self.unpack(columns)
        if len(starts) == len(elements):
            return columns
        begins = starts.tolist()
        ends = [*begins[1:], len(elements)]
        first = next(row for row, (begin, end) in enumerate(zip(begins, ends)) if end - begin > 1)
        folded = [elements[begin] for begin in begins[:first]]
        folded.append(self._watched_fold(elements[begins[first] : ends[first]]))
        folded += [
            elements[begin] if end - begin == 1 else self.fold(elements[begin:end])
            for begin, end in zip(begins[first + 1 :], ends[first + 1 :])
        ]
        return self.pack(folded)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        """Optional: the fold of each cell in the order of its rows, without sorting; None to have the rows sorted.

        Row i belongs to cell ``cells[i]`` (int64); ``counts`` is the number of rows of every cell; the result
        has one row for each of ``held``, the cells that have any, ascending.
        """
        return None

    def present_columns(self, columns: Columns) -> pa.Array:
        """``present`` of every element, as a column of ``output_type`` or of canonical JSON."""
        presented = [self.present(element) for element in self.unpack(columns)]
        if self.output_type is None:
            return pa.array([encoding.to_json(value) for value in presented], pa.string())
        return arrow_column(presented, self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        """Element columns as Arrow arrays of ``schema``; canonical: equal elements, equal bytes."""
        return [pa.array([self.encode(element) for element in self.unpack(columns)], pa.binary())]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """The inverse of ``to_arrow``. ValueError for bytes that are none of its."""
        return self.pack([self.decode(data) for data in arrays[0].to_pylist()])

    # Derived: seldom overridden.

    def lift_rows(self, values: Any, length: int) -> Columns:
        """``length`` elements from what a user gives for as many rows.

        A pyarrow or NumPy array is a column of ``length`` rows (ValueError if it has another length);
        anything else, a list too, is one value for every row.
        """
        if is_column(values):
            if len(values) != length:
                raise ValueError(f"{self!r} was given a column of {len(values)} values for {length} rows")
            if isinstance(values, np.ndarray) and is_constant(values):
                return repeat(self.lift_columns(values[:1].copy()), length)
            return self.lift_columns(values)
        return repeat(self.pack([self.lift(scalar(values))]), length)

    def lift_list(self, values: list[Any]) -> Columns:
        """``lift`` of every Python value of a list, one a row."""
        return self.lift_columns(values)

    def output_fields(self) -> dict[str, pa.DataType]:
        """The name and type of each output column: a record has one a field, any other monoid ``value``."""
        return {"value": self.output_type or pa.string()}

    def present_fields(self, columns: Columns) -> dict[str, pa.Array]:
        """The presented elements as the columns of ``output_fields``."""
        return {"value": self.present_columns(columns)}

    def _watched_fold(self, elements: Sequence[Element]) -> Element:
        """The fold, comparing its first operands and the identity before and after."""
        watched = [elements[0], elements[1], self.identity]
        before = [self.encode(element) for element in watched]
        total = self.fold(elements)
        if [self.encode(element) for element in watched] != before:
            raise TypeError(
                f"{self!r}: combine(a, b) changes an element that it was given; elements are shared,"
                " so it must return a new one: 'return a | b' rather than 'a.update(b); return a'"
            )
        return total


class Group(Monoid[Element]):
    """A monoid in which every element can be taken back."""

    def inverse(self, a: Element) -> Element:
        """The element with ``combine(a, inverse(a)) == identity``."""
        raise NotImplementedError(f"{type(self).__name__} does not define inverse(self, a)")


def check(monoid: Any) -> None:
    """TypeError, with what to write instead, unless ``monoid`` is usable: to be called where one is given.

    Looks at the identity only; the laws look at the rest.
    """
    if isinstance(monoid, type) and issubclass(monoid, Monoid):
        raise TypeError(f"{monoid.__name__} is a class, a monoid is an instance of it: write {monoid.__name__}()")
    if not isinstance(monoid, Monoid):
        raise TypeError(f"{monoid!r} is not a monoid: use Sum(), Count(), record(...) or a subclass of Monoid")
    name = type(monoid).__name__
    for owner, method, arguments in ((Monoid, "combine", "a, b"), (Group, "inverse", "a")):
        if isinstance(monoid, owner) and getattr(type(monoid), method) is getattr(owner, method):
            raise TypeError(f"{name} does not define {method}(self, {arguments})")
    try:
        identity = monoid.identity
    except AttributeError as error:
        raise TypeError(
            f"{name} has no identity: give it one as a class attribute, such as 'identity = 0' ({error})"
        ) from error
    try:
        data = monoid.encode(identity)
        again = monoid.encode(monoid.decode(data))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: its identity {identity!r} cannot be encoded: {error}") from error
    if again != data:
        raise TypeError(f"{name}: its identity {identity!r} is another element once encoded and decoded")
    if monoid.encode(monoid.combine(identity, identity)) != data:
        raise TypeError(f"{name}: combine(identity, identity) is not the identity {identity!r}")


# Columns.


def object_column(elements: Sequence[Any]) -> Column:
    """A one-dimensional array of Python objects, whatever they are (NumPy would unpack lists)."""
    return np.fromiter(elements, dtype=object, count=len(elements))


def is_constant(column: Column) -> bool:
    """Whether all rows are known to be equal, without looking: the stride is 0."""
    return len(column) > 0 and column.strides[0] == 0


def repeat(columns: Columns, length: int) -> Columns:
    """The first row of ``columns`` as ``length`` rows, in the space of one."""
    return tuple(np.broadcast_to(column[:1], (length, *column.shape[1:])) for column in columns)


def take(columns: Columns, rows: Column) -> Columns:
    """The given rows of every column; constants stay constants."""
    return tuple(
        np.broadcast_to(column[:1], (len(rows), *column.shape[1:])) if is_constant(column) else column[rows]
        for column in columns
    )


def concat(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts, one after the other; columns constant in all of them, at one value, stay so."""
    if len(parts) == 1:
        return parts[0]
    return tuple(_concat_column(columns) for columns in zip(*parts, strict=True))


def _concat_column(columns: Sequence[Column]) -> Column:
    filled = [column for column in columns if len(column)]
    if not filled:
        return columns[0]
    if all(is_constant(column) for column in filled) and len({_row_bytes(column) for column in filled}) == 1:
        return repeat((filled[0],), sum(map(len, filled)))[0]
    return np.concatenate(filled)


def _row_bytes(column: Column) -> bytes:
    """The first row as bytes (of an object column: the reference to it)."""
    return column[:1].tobytes()


# Values.


def is_column(values: Any) -> bool:
    """Whether ``values`` are one a row: a pyarrow array, or a NumPy array of at least one dimension."""
    return isinstance(values, (pa.Array, pa.ChunkedArray)) or (isinstance(values, np.ndarray) and values.ndim > 0)


def scalar(value: Any) -> Any:
    """One value as a Python value: Arrow and NumPy scalars are unwrapped."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, (np.generic, np.ndarray)):
        return value.item()
    return value


def python_values(values: Any) -> list[Any]:
    """A column as a list of Python values, None where it is null."""
    if isinstance(values, list):
        return values
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "mM" or isinstance(values, np.ma.MaskedArray):
            values = pa.array(values)
        else:
            return list(values.tolist())
    return list(values.to_pylist())


def arrow_column(values: list[Any], type: pa.DataType) -> pa.Array:
    """Presented values as an Arrow array; a lone surrogate, which Arrow cannot hold, is escaped."""
    try:
        return pa.array(values, type)
    except UnicodeEncodeError:
        return pa.array([_printable(value) for value in values], type)


def _printable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list() | tuple():
            return [_printable(item) for item in value]
        case dict():
            return {key: _printable(item) for key, item in value.items()}
        case _:
            return value


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
