"""Combinators derive a monoid from another one. It keeps that monoid's elements, columns, laws and traits.

    dual(m)          m with the operands of ``combine`` swapped
    contramap(f, m)  m over f(input)

``option``, which adds an element, is in optional.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import from_numpy, no_column, plain_array
from monoids.column import Column, Columns, take
from monoids.containers.mappings import has_arrow_output
from monoids.monoid import Group, Monoid, check, check_schema, is_column, python_values
from monoids.optional import lift_not_null, not_null
from monoids.scalars import is_missing
from monoids.values import spelled


def dual(monoid: Monoid[Any]) -> Monoid[Any]:
    """``monoid`` with the operands swapped: ``combine(a, b) == monoid.combine(b, a)``.

    So a list grows at its head, and "the first wins" becomes "the last wins". The dual of a Group is a Group. A
    commutative monoid is its own dual, and the dual of a dual is the original monoid.

    >>> from monoids.containers.bags import ListConcat
    >>> newest_first = dual(ListConcat(int))
    >>> newest_first.fold([newest_first.lift(n) for n in (1, 2, 3)])
    (3, 2, 1)
    """
    check(monoid)
    if isinstance(monoid, Dual):
        return monoid.inner
    if monoid.commutative:
        return monoid
    return (DualGroup if isinstance(monoid, Group) else Dual)(monoid)


class _Same(Monoid[Any]):
    """A monoid whose elements and columns are those of another one, ``inner``."""

    def __init__(self, monoid: Monoid[Any]) -> None:
        self.inner = monoid
        self.commutative = monoid.commutative
        self.idempotent = monoid.idempotent
        self.exact = monoid.exact
        self.widens = monoid.widens
        self.schema = monoid.schema
        self.output_type = monoid.output_type if has_arrow_output(monoid) else None

    @property
    def identity(self) -> Any:
        return self.inner.identity

    def parameters(self) -> dict[str, Any]:
        return {"monoid": self.inner.fingerprint()}

    def combine(self, a: Any, b: Any) -> Any:
        return self.inner.combine(a, b)

    def fold(self, elements: Sequence[Any]) -> Any:
        return self.inner.fold(elements)

    def lift(self, value: Any) -> Any:
        return self.inner.lift(value)

    def present(self, element: Any) -> Any:
        return self.inner.present(element)

    def encode(self, element: Any) -> bytes:
        return self.inner.encode(element)

    def decode(self, data: bytes) -> Any:
        return self.inner.decode(data)

    def lift_columns(self, values: Any) -> Columns:
        return self.inner.lift_columns(values)

    def lift_list(self, values: list[Any]) -> Columns:
        return self.inner.lift_list(values)

    def lift_rows(self, values: Any, length: int) -> Columns:
        return self.inner.lift_rows(values, length)

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self.inner.pack(elements)

    def unpack(self, columns: Columns) -> list[Any]:
        return self.inner.unpack(columns)

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return self.inner.reduce_sorted(columns, starts)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return self.inner.reduce_cells(columns, cells, counts, held)

    def present_columns(self, columns: Columns) -> pa.Array:
        return super().present_columns(columns) if self.output_type is None else self.inner.present_columns(columns)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return self.inner.to_arrow(columns)

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return self.inner.from_arrow(arrays)


class Dual(_Same):
    """The result of ``dual`` for a monoid that does not commute."""

    name = "dual"

    def __repr__(self) -> str:
        return f"dual({self.inner!r})"

    def combine(self, a: Any, b: Any) -> Any:
        return self.inner.combine(b, a)

    def fold(self, elements: Sequence[Any]) -> Any:
        return self.inner.fold(elements[::-1])

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        rows = len(columns[0])
        if len(starts) == rows:
            return columns
        ends = np.append(starts[1:], rows)
        backwards = np.repeat(starts + ends - 1, ends - starts) - np.arange(rows)
        return self.inner.reduce_sorted(take(columns, backwards), starts)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        backwards = np.arange(len(cells))[::-1]
        return self.inner.reduce_cells(take(columns, backwards), cells[backwards], counts, held)


class DualGroup(Dual, Group[Any]):
    """The dual of a Group."""

    inner: Group[Any]

    def inverse(self, a: Any) -> Any:
        return self.inner.inverse(a)


def contramap(
    prepare: Callable[[Any], Any],
    monoid: Monoid[Any],
    present: Callable[[Any], Any] | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    columns: Callable[[pa.Array], Any] | None = None,
    output_type: pa.DataType | None = None,
) -> Aggregator:
    """An aggregator: ``prepare`` each input, fold with ``monoid``, ``present`` the sum. A Group if ``monoid`` is one.

        lift(x) == monoid.lift(prepare(x))          present(a) == present(monoid.present(a))

    ``prepare`` is a pure function of one input. It is never called with None, which contributes nothing, and may return
    None to contribute nothing. ``columns`` is the same function over a whole column, for speed: it takes an Arrow array
    without nulls or dictionary and returns an Arrow or NumPy array of as many rows. Without it ``prepare`` is called
    for every row. ``present`` takes what ``monoid`` presents. ``output_type`` is the Arrow type of its results; without
    it the output column is JSON.

    A checkpoint identifies ``prepare`` by ``name`` and ``version``, because functions themselves cannot be compared.
    The name defaults to the function's own; a lambda needs one. Raise the version when ``prepare`` changes its meaning.

    >>> from monoids.numbers.sums import Sum
    >>> letters = contramap(len, Sum(), lambda total: f"{total} letters")
    >>> letters.present(letters.fold([letters.lift("ab"), letters.lift("cde"), letters.lift(None)]))
    '5 letters'
    """
    check(monoid)
    for argument, function in (("prepare", prepare), ("present", present), ("columns", columns)):
        if not callable(function) and (function is not None or argument == "prepare"):
            raise TypeError(f"contramap: {argument} is {function!r:.60}: give a function of one argument")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise TypeError(f"contramap: version={version!r}: write an integer, 1 or more")
    if output_type is not None and (present is None or not isinstance(output_type, pa.DataType)):
        raise TypeError(
            f"contramap: output_type={output_type!r} is the Arrow type of what present returns, such as pa.string()"
        )
    known = name or _function_name(prepare, "<lambda>")
    if not isinstance(known, str) or "<lambda>" in known:
        raise TypeError(f"contramap: {prepare!r:.60} has no name to identify it in a checkpoint: give name='...'")
    kind = AggregatorGroup if isinstance(monoid, Group) else Aggregator
    return kind(monoid, Preparation(prepare, known, version, columns), present, output_type)


@dataclass(frozen=True)
class Preparation:
    """A function of one input, the name and version that identify it, and the same function over a column."""

    function: Callable[[Any], Any]
    name: str
    version: int
    columns: Callable[[pa.Array], Any] | None


class Aggregator(_Same):
    """The result of ``contramap``."""

    name = "contramap"

    def __init__(
        self,
        monoid: Monoid[Any],
        prepare: Preparation,
        present: Callable[[Any], Any] | None,
        output_type: pa.DataType | None,
    ) -> None:
        super().__init__(monoid)
        self.version = prepare.version
        if present is not None:
            self.output_type = output_type
        self._prepare = prepare
        self._present = present

    def parameters(self) -> dict[str, Any]:
        return {"prepare": self._prepare.name, "monoid": self.inner.fingerprint()}

    def __repr__(self) -> str:
        """The call as the user wrote it, with functions by name."""
        prepare = _function_name(self._prepare.function)
        options = {
            "name": None if self._prepare.name == prepare else repr(self._prepare.name),
            "version": None if self.version == 1 else self.version,
            "columns": self._prepare.columns and _function_name(self._prepare.columns),
            "output_type": self._present and self.output_type and spelled(self.output_type),
        }
        written = [f"{name}={value}" for name, value in options.items() if value is not None]
        present = [_function_name(self._present)] if self._present else []
        return f"contramap({', '.join([prepare, repr(self.inner), *present, *written])})"

    def lift(self, value: Any) -> Any:
        prepared = None if is_missing(value) else self._prepare.function(value)
        return self.inner.identity if prepared is None else self.inner.lift(prepared)

    def present(self, element: Any) -> Any:
        presented = self.inner.present(element)
        return presented if self._present is None else self._present(presented)

    def lift_columns(self, values: Any) -> Columns:
        if self._prepare.columns is None or isinstance(values, list):
            return self.lift_list(python_values(values))
        if isinstance(values, np.ndarray):
            try:
                values = from_numpy(values)
            except UnicodeEncodeError:  # Arrow cannot hold lone surrogates: ``prepare`` computes the same
                return self.lift_list(python_values(values))
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            raise no_column(repr(self), values)
        array = plain_array(values)
        return lift_not_null(self.inner, self._lift_prepared, array, not_null(array))

    def lift_list(self, values: list[Any]) -> Columns:
        prepare = self._prepare.function
        prepared = [None if is_missing(value) else prepare(value) for value in values]
        return lift_not_null(self.inner, self.inner.lift_list, prepared, not_null(prepared))

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid. A mapping with at least one column among its items is a column of mappings."""
        is_one_value = isinstance(values, pa.Scalar) or not isinstance(values, Mapping)
        if is_one_value or not any(map(is_column, values.values())):
            return Monoid.lift_rows(self, values, length)
        for name, item in values.items():
            if is_column(item) and len(item) != length:
                raise ValueError(f"field {name!r} was given a column of {len(item)} values for {length} rows")
        if any(isinstance(item, list) for item in values.values()):
            lists = [python_values(item) if is_column(item) else [item] * length for item in values.values()]
            return self.lift_list([dict(zip(values, row)) for row in zip(*lists)])
        columns = [item if is_column(item) else pa.repeat(pa.scalar(item), length) for item in values.values()]
        return self.lift_columns(pa.table(columns, names=list(values)).to_struct_array())

    def present_columns(self, columns: Columns) -> pa.Array:
        return super().present_columns(columns) if self._present is None else Monoid.present_columns(self, columns)

    def _lift_prepared(self, array: pa.Array) -> Columns:
        assert self._prepare.columns is not None
        prepared = self._prepare.columns(array)
        if isinstance(prepared, list) or not is_column(prepared) or len(prepared) != len(array):
            raise ValueError(
                f"{self!r}: columns= was given an Arrow array of {len(array)} rows and returned {prepared!r:.60}:"
                " return an Arrow or NumPy array of as many rows"
            )
        return lift_not_null(self.inner, self.inner.lift_columns, prepared, not_null(prepared))


def _function_name(function: Callable[..., Any], unnamed: str = "") -> str:
    return str(getattr(function, "__qualname__", unnamed or function))


class AggregatorGroup(Aggregator, Group[Any]):
    """An aggregator over a Group."""

    inner: Group[Any]

    def inverse(self, a: Any) -> Any:
        return self.inner.inverse(a)
