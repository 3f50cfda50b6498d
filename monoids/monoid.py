"""A monoid is a set of elements with an associative ``combine`` and an ``identity``.

    combine(a, combine(b, c)) == combine(combine(a, b), c)
    combine(identity, a) == a == combine(a, identity)

A group adds ``inverse``: ``combine(a, inverse(a)) == identity``.

Elements also have a columnar form: ``Columns``, a tuple of equally long columns, one row per element.
A monoid that defines only the scalar half works everywhere: its columns are one array of Python objects.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import from_numpy, is_as_wide, python_list
from monoids.column import Column, Columns, concat, is_constant, object_column, repeat, take
from monoids.html import facts_html
from monoids.scalars import scalar, snapshot

Element = TypeVar("Element")


class Monoid(Generic[Element]):
    """Subclass and give ``identity`` (attribute or property) and ``combine``; all else has a default.

    Traits, declared here and tested by the laws: ``commutative``, ``idempotent``, ``exact`` (any order of folding gives
    the same bits; False: the same within a rounding error).

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
    widens: bool = False
    """Whether elements that outgrow the types of ``schema`` are stored in wider types: see ``monoids.arrays``."""
    takes_constants: bool = False
    """Whether all inputs are values that never change: then they need no snapshot."""
    name: str = ""
    version: int = 1
    schema: pa.Schema = pa.schema([pa.field("element", pa.binary(), nullable=False)])
    output_type: pa.DataType | None = None
    serializer: Serializer | None = None
    """Encodes elements that are not plain Python values."""

    def combine(self, a: Element, b: Element) -> Element:
        """The sum of two elements. Pure: it changes neither operand."""
        raise NotImplementedError(f"{type(self).__name__} does not define combine(self, a, b)")

    def lift(self, value: Any) -> Element:
        """The element that one input contributes."""
        return value  # type: ignore[no-any-return]

    def present(self, element: Element) -> Any:
        """The result that an element stands for, as a user reads it."""
        return element

    def encode(self, element: Element) -> bytes:
        """One element as canonical bytes: equal elements give equal bytes, unless a serializer is named."""
        return encoding.encode(element) if self.serializer is None else self.serializer.dumps(element)

    def decode(self, data: bytes) -> Element:
        """The inverse of ``encode``. ValueError for bytes that ``encode`` does not write."""
        return (encoding.decode if self.serializer is None else self.serializer.loads)(data)  # type: ignore[no-any-return]

    def fold(self, elements: Sequence[Element]) -> Element:
        """The sum of elements, from the left. Override where folding all at once is faster."""
        if not elements:
            return self.identity  # type: ignore[no-any-return]
        total = elements[0]
        for element in elements[1:]:
            total = self.combine(total, element)
        return total

    # Which monoid this is.

    def parameters(self) -> dict[str, Any]:
        """The parameters that distinguish this instance from others of its class, as JSON values."""
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """The description that a checkpoint stores, to refuse the state of another monoid. JSON values only."""
        serializer = self.serializer
        return {
            "name": self.name or type(self).__name__,
            "version": self.version,
            "parameters": self.parameters(),
            "schema": [[field.name, str(field.type)] for field in self.schema],
            **({"serializer": [serializer.name, serializer.version]} if serializer is not None else {}),
        }

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value}" for key, value in self.parameters().items())
        return f"{self.name or type(self).__name__}({arguments})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the laws it keeps, its result, and how its elements are stored."""
        traits = {"commutative": self.commutative, "idempotent": self.idempotent, "a group": isinstance(self, Group)}
        laws = ", ".join(["associative", *(name for name, holds in traits.items() if holds)])
        exact = "exact" if self.exact else "the same within a rounding error"
        return facts_html(
            repr(self),
            [
                ("laws", laws),
                ("in any order of folding", exact),
                ("result", ", ".join(f"{name}: {type_}" for name, type_ in self.output_fields().items())),
                ("result of no input", repr(self.present(self.identity))),
                ("stored as", ", ".join(f"{field.name}: {field.type}" for field in self.schema)),
            ],
        )

    # Columns: override all of these together, or none.

    def lift_columns(self, values: Any) -> Columns:
        """``lift`` of every value of an Arrow array, a NumPy array or a list of Python values."""
        return self.pack([self.lift(snapshot(value)) for value in python_values(values)])

    def pack(self, elements: Sequence[Element]) -> Columns:
        """Elements as columns."""
        return (object_column(elements),)

    def unpack(self, columns: Columns) -> list[Element]:
        """The inverse of ``pack``."""
        return list(columns[0])

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        """The fold of each segment. Segment i is the rows ``starts[i] : starts[i + 1]``; the last one runs to the end.

        ``starts`` is strictly increasing, begins with 0, and is empty iff there are no rows. TypeError if ``combine``
        is caught changing an operand or the identity.
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
        """Optional: the fold of each cell in row order, without sorting. None asks the caller to sort the rows.

        Row i belongs to cell ``cells[i]`` (int64). ``counts`` is the number of rows in every cell; ``held`` lists the
        non-empty cells in ascending order. The result has one row for each of ``held``.
        """
        return None

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        """``combine(a[i], b[i])`` for every row. Override where that is one operation on whole columns."""
        rows = len(a[0])
        if not rows:
            return a
        pairs = np.arange(2 * rows).reshape(2, rows).T.ravel()
        return self.reduce_sorted(take(concat([a, b]), pairs), np.arange(0, 2 * rows, 2))

    def present_columns(self, columns: Columns) -> pa.Array:
        """``present`` of every element, as a column of ``output_type``, otherwise of canonical JSON."""
        presented = [self.present(element) for element in self.unpack(columns)]
        if self.output_type is None:
            return pa.array([encoding.to_json(value) for value in presented], pa.string())
        return arrow_column(presented, self.output_type)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        """Element columns as Arrow arrays of ``schema``. Canonical: equal elements give equal bytes."""
        return [pa.array([self.encode(element) for element in self.unpack(columns)], pa.binary())]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """The inverse of ``to_arrow``. ValueError for arrays that ``to_arrow`` does not write.

        Columns of another monoid may have the same schema: compare fingerprints before reading stored columns.
        """
        check_schema(self, arrays)
        return self.pack([self.decode(data) for data in arrays[0].to_pylist()])

    # Derived: seldom overridden.

    def lift_rows(self, values: Any, length: int) -> Columns:
        """``length`` elements from a user's input for that many rows.

        A list, or a pyarrow or NumPy array, is a column of ``length`` rows (ValueError if its length differs).
        Anything else is one value for every row.
        """
        if is_column(values):
            if len(values) != length:
                raise ValueError(f"{self!r} was given a column of {len(values)} values for {length} rows")
            if is_constant(values) and not isinstance(values, np.ma.MaskedArray):
                return repeat(self.lift_columns(values[:1].copy()), length)
            return self.lift_columns(values)
        return repeat(self.pack([self.lift(snapshot(scalar(values)))]), length)

    def lift_list(self, values: list[Any]) -> Columns:
        """``lift`` of every Python value of a list, one per row."""
        return self.lift_columns(values)

    def output_fields(self) -> dict[str, pa.DataType]:
        """The name and type of each output column: one for each field of a record, ``value`` for any other monoid."""
        return {"value": self.output_type or pa.string()}

    def present_fields(self, columns: Columns) -> dict[str, pa.Array]:
        """The presented elements as the columns of ``output_fields``."""
        return {"value": self.present_columns(columns)}

    def _watched_fold(self, elements: Sequence[Element]) -> Element:
        """The fold, with its first operands and the identity compared before and after."""
        watched = [elements[0], elements[1], self.identity]
        before = [self.encode(element) for element in watched]
        total = self.fold(elements)
        if [self.encode(element) for element in watched] != before:
            raise TypeError(
                f"{self!r}: combine(a, b) changes one of its operands; elements are shared,"
                " so it must return a new one: 'return a | b' rather than 'a.update(b); return a'"
            )
        return total


class Group(Monoid[Element]):
    """A monoid in which every element has an inverse, so it can be subtracted."""

    def inverse(self, a: Element) -> Element:
        """The element with ``combine(a, inverse(a)) == identity``."""
        raise NotImplementedError(f"{type(self).__name__} does not define inverse(self, a)")


def check(monoid: Any) -> None:
    """TypeError, with the remedy, unless ``monoid`` is usable. Call it where a user gives a monoid.

    It checks the identity only; the laws check the rest.
    """
    if isinstance(monoid, type) and issubclass(monoid, Monoid):
        raise TypeError(f"{monoid.__name__} is a class, but a monoid is an instance: write {monoid.__name__}()")
    if not isinstance(monoid, Monoid) and isinstance(monoid, FunctionType):
        raise TypeError(f"{monoid.__name__} is a function: if it returns a monoid, write {monoid.__name__}()")
    if not isinstance(monoid, Monoid):
        raise TypeError(f"{monoid!r} is not a monoid: use Sum(), Count(), record(...) or a subclass of Monoid")
    name = type(monoid).__name__
    try:
        repr(monoid)
    except Exception as error:
        raise TypeError(f"{name}: its repr raises {type(error).__name__}: {error}") from error
    if type(monoid).combine is Monoid.combine:
        raise TypeError(f"{name} does not define combine(self, a, b)")
    if isinstance(monoid, Group) and type(monoid).inverse is Group.inverse:
        raise TypeError(f"{name} does not define inverse(self, a)")
    try:
        identity = monoid.identity
    except Exception as error:
        raise TypeError(
            f"{name} has no identity: give it one as a class attribute, such as 'identity = 0' ({error})"
        ) from error
    try:
        data = monoid.encode(identity)
        again = monoid.encode(monoid.decode(data))
    except Exception as error:
        fault = error if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: {error}"
        raise TypeError(f"{name}: its identity {identity!r} cannot be encoded: {fault}") from error
    if again != data and monoid.serializer is None:
        raise TypeError(f"{name}: its identity {identity!r} decodes to a different element than was encoded")
    try:
        sum_ = monoid.combine(identity, identity)
        doubled = monoid.encode(sum_)
    except Exception as error:
        raise TypeError(f"{name}: combine(identity, identity) raises {type(error).__name__}: {error}") from error
    if doubled != data and (monoid.serializer is None or sum_ != identity):
        raise TypeError(f"{name}: combine(identity, identity) is not the identity {identity!r}")


def decode_lifted(monoid: Monoid[Any], data: bytes) -> Any:
    """The element that ``data`` encodes, if the monoid's elements are lifted values. ValueError otherwise."""
    element = encoding.decode(data)
    try:
        lifted = monoid.lift(element)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{monoid!r}: the encoded element is not of its type: {error}") from error
    if encoding.encode(lifted) != data:
        raise ValueError(f"{monoid!r}: the encoded element {element!r} is not in this monoid's canonical form")
    return lifted


def check_schema(monoid: Monoid[Any], arrays: Sequence[pa.Array]) -> None:
    """ValueError unless the arrays have one length, the schema's types, and nulls only where the schema allows them."""
    types, schema = [array.type for array in arrays], monoid.schema.types
    wider = monoid.widens and len(types) == len(schema) and all(map(is_as_wide, types, schema))
    if types != schema and not wider:
        raise ValueError(
            f"{monoid!r} is stored as columns of {_type_names(monoid.schema.types)}, not {_type_names(types)}:"
            " these columns belong to another monoid"
        )
    if len(set(map(len, arrays))) > 1:
        raise ValueError(f"{monoid!r}: its columns differ in length: {[*map(len, arrays)]} rows")
    for field, array in zip(monoid.schema, arrays):
        if array.null_count and not field.nullable:
            raise ValueError(f"{monoid!r}: an element is null in the column {field.name!r}, which allows no nulls")


def _type_names(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def is_column(values: Any) -> bool:
    """Whether ``values`` hold one value per row: a list, pyarrow array, or NumPy array of at least one dimension."""
    return isinstance(values, (list, pa.Array, pa.ChunkedArray)) or (isinstance(values, np.ndarray) and values.ndim > 0)


def python_values(values: Any) -> list[Any]:
    """A column as a list of Python values; null becomes None."""
    if isinstance(values, list):
        return values
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "mM" or isinstance(values, np.ma.MaskedArray):
            values = from_numpy(values)
        else:
            return list(values.tolist())
    return python_list(values)


def arrow_column(values: list[Any], type: pa.DataType) -> pa.Array:
    """Presented values as an Arrow array. Lone surrogates, which Arrow cannot hold, are escaped."""
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
            return {_printable(key): _printable(item) for key, item in value.items()}
        case _:
            return value


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class Serializer(Protocol):
    """Turns elements that are not plain Python values into bytes, for monoids that name one.

    ``loads(dumps(element))`` equals the element. The bytes need not be canonical: equal elements may have different
    bytes. ``name`` and ``version`` are part of the monoid's fingerprint.

        class Forests(Monoid[Forest]):
            serializer = persistent.serializers.cloudpickle(key=fetch_key)
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def dumps(self, element: Any) -> bytes:
        """An element as bytes."""

    def loads(self, data: bytes) -> Any:
        """The inverse of ``dumps``. ValueError for bytes that ``dumps`` did not write, before any object is created."""
