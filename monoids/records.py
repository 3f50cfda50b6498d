"""A record is a monoid of named fields. Each field is a monoid of its own, columnar or scalar independently.

    combine({a: x, b: y}, {a: u, b: v}) == {a: combine(x, u), b: combine(y, v)}

An element is the tuple of the fields' elements, in the order they were written. Its columns are the fields' columns,
in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import plain_array
from monoids.column import Column, Columns, concat, repeat, take
from monoids.groupby.cells import group_codes
from monoids.monoid import Group, Monoid, check, check_schema, is_column
from monoids.scalars import is_missing

Fields = tuple[Any, ...]


def record(**monoids: Monoid[Any]) -> Monoid[Fields]:
    """Monoids side by side, by name. A Group if all of them are; it has the traits that all of them share.

    Its lift takes a mapping from field to input. An omitted field contributes nothing; an unknown field raises.

    >>> from monoids import Count, Max
    >>> visits = record(visits=Count(), longest=Max())
    >>> total = visits.combine(visits.lift({"visits": 1, "longest": 30}), visits.lift({"visits": 1}))
    >>> visits.present(total)
    {'visits': 2, 'longest': 30}
    """
    if not monoids:
        raise ValueError("record() needs at least one field: write record(visits=Count())")
    for name, monoid in monoids.items():
        if not name or "." in name:
            raise ValueError(f"record: the field name {name!r} is empty or holds a '.': give it another")
        try:
            check(monoid)
        except TypeError as error:
            raise TypeError(f"record: field {name!r}: {error}") from error
    groups = all(isinstance(monoid, Group) for monoid in monoids.values())
    return RecordGroup(monoids) if groups else RecordMonoid(monoids)


class RecordMonoid(Monoid[Fields]):
    """The result of ``record``."""

    name = "record"

    def __init__(self, fields: Mapping[str, Monoid[Any]]) -> None:
        self.fields = dict(fields)
        monoids = tuple(self.fields.values())
        self.identity = tuple(monoid.identity for monoid in monoids)
        self.commutative = all(monoid.commutative for monoid in monoids)
        self.idempotent = all(monoid.idempotent for monoid in monoids)
        self.exact = all(monoid.exact for monoid in monoids)
        self.widens = any(monoid.widens for monoid in monoids)
        self.schema = pa.schema([field for name, monoid in self.fields.items() for field in _prefixed(name, monoid)])
        self.output_type: pa.DataType = pa.struct(list(self.output_fields().items()))
        self._monoids = monoids
        self._nothing = tuple(monoid.pack([monoid.identity]) for monoid in monoids)

    def parameters(self) -> dict[str, Any]:
        # A list, because the order of the fields is the order of the columns.
        return {"fields": [[name, monoid.fingerprint()] for name, monoid in self.fields.items()]}

    def __repr__(self) -> str:
        return f"record({', '.join(f'{name}={monoid!r}' for name, monoid in self.fields.items())})"

    def combine(self, a: Fields, b: Fields) -> Fields:
        return tuple(monoid.combine(x, y) for monoid, x, y in zip(self._monoids, a, b))

    def lift(self, value: Any) -> Fields:
        """None contributes nothing. ValueError for an unknown field, TypeError for a value that is not a mapping."""
        if is_missing(value):
            return tuple(self.identity)
        self._check_mapping(value)
        return tuple(
            monoid.lift(value[name]) if name in value else monoid.identity for name, monoid in self.fields.items()
        )

    def present(self, element: Fields) -> dict[str, Any]:
        return {name: monoid.present(part) for (name, monoid), part in zip(self.fields.items(), element)}

    def encode(self, element: Fields) -> bytes:
        return encoding.encode(tuple(monoid.encode(part) for monoid, part in zip(self._monoids, element)))

    def decode(self, data: bytes) -> Fields:
        parts = encoding.decode(data)
        if not isinstance(parts, tuple) or not all(isinstance(part, bytes) for part in parts):
            raise ValueError(f"{self!r}: the encoded element is not of a record")
        if len(parts) != len(self._monoids):
            raise ValueError(f"{self!r}: the encoded element has {len(parts)} fields")
        return tuple(monoid.decode(part) for monoid, part in zip(self._monoids, parts))

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        """``values``: an Arrow struct array, or a list of mappings (None contributes nothing)."""
        if isinstance(values, list):
            return self.lift_list(values)
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = plain_array(values)
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            return self.lift_list(values.tolist())
        if isinstance(values, pa.NullArray):
            return repeat(_join(self._nothing), len(values))
        if not isinstance(values, pa.StructArray):
            raise self._not_fields(values)
        return self._lift_struct(values)

    def lift_list(self, values: list[Any]) -> Columns:
        rows = values if set(map(type, values)) <= {dict} else [self._fields_of(value) for value in values]
        parts, known_count = [], 0
        for name, monoid, nothing in zip(self.fields, self._monoids, self._nothing):
            try:
                column = [row[name] for row in rows]
            except KeyError:
                present = np.fromiter((name in row for row in rows), np.bool_, len(rows))
                column = [row[name] for row in rows if name in row]
                parts.append(_scatter(nothing, monoid.lift_list(column), present))
            else:
                parts.append(monoid.lift_list(column))
            known_count += len(column)
        if known_count != sum(map(len, rows)):
            for row in rows:
                self._check_mapping(row)
        return _join(parts)

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or a mapping whose items are each a column, or one value for every row."""
        if not isinstance(values, Mapping):
            return super().lift_rows(values, length)
        self._check_mapping(values)
        parts = []
        for name, monoid, nothing in zip(self.fields, self._monoids, self._nothing):
            if name not in values:
                parts.append(repeat(nothing, length))
                continue
            item = values[name]
            if is_column(item) and len(item) != length:
                raise ValueError(f"field {name!r} was given a column of {len(item)} values for {length} rows")
            parts.append(monoid.lift_rows(item, length))
        return _join(parts)

    def pack(self, elements: Sequence[Fields]) -> Columns:
        by_field = zip(*elements) if elements else [()] * len(self._monoids)
        return _join(monoid.pack(list(part)) for monoid, part in zip(self._monoids, by_field))

    def unpack(self, columns: Columns) -> list[Fields]:
        return list(zip(*(monoid.unpack(part) for monoid, part in self._split(columns))))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return _join(monoid.reduce_sorted(part, starts) for monoid, part in self._split(columns))

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        fields = zip(self._split(a), self._split(b))
        return _join(monoid.combine_columns(x, y) for (monoid, x), (_, y) in fields)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        """Rows are sorted once for the fields that need it; the other fields do without."""
        fields = list(self._split(columns))
        parts = [monoid.reduce_cells(part, cells, counts, held) for monoid, part in fields]
        if all(part is None for part in parts):
            return None
        if any(part is None for part in parts):
            order, starts = group_codes(cells, np.broadcast_to(np.int64(0), len(cells)))
            parts = [
                monoid.reduce_sorted(take(field_columns, order), starts) if part is None else part
                for part, (monoid, field_columns) in zip(parts, fields)
            ]
        return _join(parts)

    def output_fields(self) -> dict[str, pa.DataType]:
        return {name: monoid.output_type or pa.string() for name, monoid in self.fields.items()}

    def present_fields(self, columns: Columns) -> dict[str, pa.Array]:
        return {name: monoid.present_columns(part) for name, (monoid, part) in zip(self.fields, self._split(columns))}

    def present_columns(self, columns: Columns) -> pa.Array:
        """One struct array: how a record appears as a field of another record."""
        return pa.StructArray.from_arrays(list(self.present_fields(columns).values()), fields=list(self.output_type))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [array for monoid, part in self._split(columns) for array in monoid.to_arrow(part)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        parts, start = [], 0
        for monoid in self._monoids:
            stop = start + len(monoid.schema)
            parts.append(monoid.from_arrow(arrays[start:stop]))
            start = stop
        return _join(parts)

    # Internals.

    def _split(self, columns: Columns) -> Iterator[tuple[Monoid[Any], Columns]]:
        """Each field's monoid with its columns."""
        start = 0
        for monoid, nothing in zip(self._monoids, self._nothing):
            stop = start + len(nothing)
            yield monoid, columns[start:stop]
            start = stop

    def _lift_struct(self, values: pa.StructArray) -> Columns:
        self._check_names([field.name for field in values.type])
        if values.null_count:
            present = values.is_valid()
            lifted = self._lift_struct(values.filter(present))
            return _scatter(_join(self._nothing), lifted, present.to_numpy(zero_copy_only=False))
        columns_by_name = dict(zip([field.name for field in values.type], values.flatten()))
        return self.lift_rows(columns_by_name, len(values))

    def _fields_of(self, value: Any) -> Mapping[str, Any]:
        if is_missing(value):
            return {}
        self._check_mapping(value)
        return value  # type: ignore[no-any-return]

    def _check_mapping(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise self._not_fields(value)
        if not value.keys() <= self.fields.keys():
            self._check_names(value.keys())

    def _check_names(self, names: Any) -> None:
        unknown = [name for name in names if name not in self.fields]
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}: the record's fields are {', '.join(self.fields)}")

    def _not_fields(self, value: Any) -> TypeError:
        known = ", ".join(self.fields)
        return TypeError(f"a record takes a mapping of its fields ({known}), not {type(value).__name__}")


class RecordGroup(RecordMonoid, Group[Fields]):
    """A record of groups."""

    def inverse(self, a: Fields) -> Fields:
        return tuple(monoid.inverse(part) for monoid, part in zip(self._groups, a))

    @property
    def _groups(self) -> tuple[Group[Any], ...]:
        return tuple(monoid for monoid in self._monoids if isinstance(monoid, Group))


def _prefixed(name: str, monoid: Monoid[Any]) -> list[pa.Field]:
    """The schema fields of a monoid, prefixed with its field name in the record."""
    if monoid.schema.names == ["element"]:
        return [monoid.schema.field(0).with_name(name)]
    return [field.with_name(f"{name}.{field.name}") for field in monoid.schema]


def _join(parts: Any) -> Columns:
    return tuple(column for part in parts for column in part)


def _scatter(nothing: Columns, lifted: Columns, present: Column) -> Columns:
    """The rows of ``lifted`` where ``present`` is true, and ``nothing`` elsewhere."""
    return take(concat([nothing, lifted]), np.where(present, np.cumsum(present), 0))
