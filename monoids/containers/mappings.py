"""A mapping holds an element of one monoid for every key.

    combine(a, b)[key] == inner.combine(a[key], b[key])       a missing key has the identity

As columns it is a table: no key needs a Python object, whatever its type and the inner monoid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import plain_array, type_of
from monoids.column import Column, Columns, Ragged, concat, take
from monoids.encoded import check_encoded, encoded_column, encoded_list
from monoids.monoid import Group, Monoid, check, is_column
from monoids.numbers.integers import decoded_as
from monoids.ordered import Ordered
from monoids.records import RecordMonoid
from monoids.scalars import is_missing, shown
from monoids.table import Table, identity_rows
from monoids.values import ALL_KINDS, ValueType, value_type

MappingEntries = dict[Any, Any]
"""An element of a mapping: key to element. A key is a value of type ``key=``, otherwise the encoded bytes of any
value."""


def mapping(monoid: Monoid[Any], *, key: Any = None) -> Monoid[MappingEntries]:
    """``monoid`` for every key; its lift takes a mapping from keys to inputs. A Group if ``monoid`` is an exact one.

    Keys are any plain values, None too. 1, 1.0 and True are different keys; where presenting unites them, as a Python
    dict must, their elements are combined. ``key`` is the type of all keys, such as ``str``. Then keys are compared as
    values of this type (for ``key=float`` 1 and 1.0 are one), None is not a key, and the output is an Arrow map instead
    of JSON, if ``monoid`` has an Arrow output type.

    An input is a mapping, or a list of (key, value) tuples in which keys may repeat; as a column, an Arrow map or
    struct array. An input at the identity makes no entry. An entry that reaches the identity is dropped if ``monoid``
    is exact, because otherwise rounding would decide. A mapping commutes if ``monoid`` does; otherwise each key folds
    its inputs in order. The identity is presented as {}. In JSON, a mapping with two keys of the same text, such as 1
    and "1", is a list of pairs [key, value].

    >>> from monoids.numbers.sums import Sum
    >>> words = mapping(Sum())
    >>> words.present(words.combine(words.lift({"a": 1, "b": 2}), words.lift({"a": 5})))
    {'a': 6, 'b': 2}
    """
    check(monoid)
    return (MappingGroup if isinstance(monoid, Group) and monoid.exact else MappingMonoid)(monoid, key)


class MappingMonoid(Table[MappingEntries]):
    """The result of ``mapping``."""

    inner: Monoid[Any]
    name = "mapping"

    def __init__(self, monoid: Monoid[Any], key: Any = None) -> None:
        typed = value_type("mapping", bytes if key is None else key, ALL_KINDS)
        self.ordered = Ordered(typed)
        super().__init__(self.ordered, monoid)
        self.commutative = monoid.commutative
        self.idempotent = monoid.idempotent
        self.exact = monoid.exact
        self.key: ValueType | None = None
        if key is not None:
            title = f"mapping({monoid!r}, key={typed.written or typed.kind})"
            self.key = replace(typed, title=title, choices=frozenset())
            if has_arrow_output(monoid):
                self.output_type = pa.map_(typed.arrow, monoid.output_type)
        self._nothing = monoid.encode(monoid.identity)

    @property
    def identity(self) -> MappingEntries:
        return {}

    def parameters(self) -> dict[str, Any]:
        typed = {} if self.key is None else {"key": str(self.key.arrow)}
        return {"monoid": self.inner.fingerprint(), **typed}

    def __repr__(self) -> str:
        return f"mapping({self.inner!r})" if self.key is None else self.key.title

    def combine(self, a: MappingEntries, b: MappingEntries) -> MappingEntries:
        if not a or not b:
            return a or b
        total = dict(a)
        for key, element in b.items():
            self._add(total, key, element)
        return total

    def fold(self, elements: Sequence[MappingEntries]) -> MappingEntries:
        gathered: dict[Any, list[Any]] = {}
        for entries in elements:
            for key, item in entries.items():
                gathered.setdefault(key, []).append(item)
        folded = ((key, self.inner.fold(items)) for key, items in gathered.items())
        return {key: element for key, element in folded if not (self.exact and self._is_nothing(element))}

    def lift(self, value: Any) -> MappingEntries:
        """A mapping, a list of (key, value) tuples or None. TypeError for anything else, or keys not of ``key=``."""
        lifted: MappingEntries = {}
        for key, item in self._pairs(value):
            element = self.inner.lift(item)
            if not self._is_nothing(element):
                self._add(lifted, self._accepted(key), element)
        return lifted

    def present(self, element: MappingEntries) -> dict[Any, Any]:
        if self.key is not None:
            return {key: self.inner.present(element[key]) for key in sorted(element, key=encoding.order_key)}
        merged: dict[Any, Any] = {}
        for data in sorted(element):
            key, item = encoding.decode(data), element[data]
            merged[key] = self.inner.combine(merged[key], item) if key in merged else item
        return {key: self.inner.present(item) for key, item in merged.items()}

    def encode(self, element: MappingEntries) -> bytes:
        return encoding.encode({key: self.inner.encode(item) for key, item in element.items()})

    def decode(self, data: bytes) -> MappingEntries:
        entries = decoded_as(self, data, dict)
        if not all(type(item) is bytes for item in entries.values()):
            raise ValueError(f"{self!r}: the encoded element is not of a mapping")
        if self.key is not None:
            self.key.check_decoded(entries)
        elif not all(type(key) is bytes and encoding.encode(encoding.decode(key)) == key for key in entries):
            raise ValueError(f"{self!r}: the encoded element is not of a mapping")
        if self.exact and self._nothing in entries.values():
            raise ValueError(f"{self!r}: the encoded element has an entry at the identity, which is never stored")
        return {key: self.inner.decode(item) for key, item in entries.items()}

    # Columns.

    def entries(self, element: MappingEntries) -> tuple[list[Any], list[Any]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> MappingEntries:
        return dict(zip(keys, inner))

    def lift_columns(self, values: Any) -> Columns:
        """``values``: an Arrow map or struct array (null contributes nothing), or a list of mappings."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            values = values.tolist()
        if isinstance(values, list):
            return self.lift_list(values)
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = plain_array(values)
        if not isinstance(values, (pa.MapArray, pa.StructArray, pa.NullArray)):
            raise TypeError(f"{self!r} takes columns of mappings (Arrow map or struct), not {type_of(values)}")
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        filled = values.drop_null() if values.null_count else values
        if isinstance(filled, pa.MapArray):
            return self._lift_map(filled, rows, len(values))
        if isinstance(filled, pa.StructArray):
            return self._lift_fields([field.name for field in filled.type], filled.flatten(), rows, len(values))
        return self._lift_fields([], [], rows, len(values))

    def lift_list(self, values: list[Any]) -> Columns:
        rows = [self._pairs(value) for value in values]
        keys = [key for row in rows for key, _ in row]
        inner = self.inner.lift_list([item for row in rows for _, item in row])
        segments = np.repeat(np.arange(len(rows)), np.fromiter(map(len, rows), np.int64, len(rows)))
        return self._of_lifted(self._stored(keys), inner, segments, len(rows))

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or a mapping whose items are each a column, or one value for every row."""
        is_one_value = isinstance(values, pa.Scalar) or not isinstance(values, Mapping)
        if is_one_value or not any(map(is_column, values.values())):
            return super().lift_rows(values, length)
        return self._lift_fields(list(values), list(values.values()), np.arange(length), length)

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """As in any table; ValueError, too, for a key that ``encode`` does not write."""
        columns = super().from_arrow(arrays)
        if self.key is None:
            check_encoded(repr(self), columns[0].columns[0].array)
        return columns

    def present_columns(self, columns: Columns) -> pa.Array:
        if self.key is None or self.output_type is None:
            return super().present_columns(columns)
        (table,) = columns
        keys, *inner = table.flat()
        ends = np.concatenate(([0], np.cumsum(table.lengths)))
        if ends[-1] > np.iinfo(np.int32).max:
            raise ValueError(f"{ends[-1]} entries exceed what one Arrow map column holds: use fewer rows at once")
        parts = (self.ordered.show(keys), self.inner.present_columns(tuple(inner)))
        return pa.MapArray.from_arrays(pa.array(ends.astype(np.int32)), *parts, type=self.output_type)

    # Internals.

    def _pairs(self, value: Any) -> Collection[tuple[Any, Any]]:
        """The keys and inputs of one value. Arrow returns a map as a list of pairs, whose keys may repeat."""
        if is_missing(value):
            return ()
        if isinstance(value, Mapping):
            return value.items()
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return value
        raise TypeError(f"{self!r} takes mappings of key to value, not {shown(value)} ({type(value).__name__})")

    def _add(self, total: MappingEntries, key: Any, element: Any) -> None:
        """Combine ``element`` into the entry of a key, in a dict that is not shared."""
        if key not in total:
            total[key] = element
            return
        combined = self.inner.combine(total[key], element)
        if self.exact and self._is_nothing(combined):
            del total[key]
        else:
            total[key] = combined

    def _is_nothing(self, element: Any) -> bool:
        return self.inner.encode(element) == self._nothing

    def _accepted(self, key: Any) -> Any:
        """One key as an element holds it. TypeError for a value that is not a key."""
        if self.key is None:
            return encoding.encode(key)
        accepted = self.key.accept(key)
        if accepted is None:
            raise TypeError(f"{self!r}: {key!r} is not a key")
        return accepted

    def _stored(self, keys: Any) -> Any:
        """A user's keys (a list or an Arrow array) as a column."""
        if self.key is None:
            return encoded_list(keys) if isinstance(keys, list) else encoded_column(keys)
        stored, valid = Ordered(self.key).store(keys)
        if valid is not None and not valid.all():
            self._accepted(keys[int(np.argmin(valid))])
        return stored

    def _lift_map(self, filled: pa.MapArray, rows: Column, length: int) -> Columns:
        offsets = filled.offsets.to_numpy()
        entries = slice(int(offsets[0]), int(offsets[-1]))
        inner = self.inner.lift_columns(filled.items[entries])
        return self._of_lifted(self._stored(filled.keys[entries]), inner, np.repeat(rows, np.diff(offsets)), length)

    def _lift_fields(self, names: list[Any], items: list[Any], rows: Column, length: int) -> Columns:
        """``items``: for each name, what its inner monoid lifted for these rows."""
        for name, item in zip(names, items):
            if is_column(item) and len(item) != len(rows):
                raise ValueError(f"key {name!r} was given a column of {len(item)} values for {len(rows)} rows")
        if not names:
            return self._of_lifted(self._stored([]), self.inner.pack([]), rows[:0], length)
        inner = concat([self.inner.lift_rows(item, len(rows)) for item in items])
        (keys,) = take((self._stored(names),), np.repeat(np.arange(len(names)), len(rows)))
        return self._of_lifted(keys, inner, np.tile(rows, len(names)), length)

    def _of_lifted(self, keys: Any, inner: Columns, segments: Column, count: int) -> Columns:
        """Elements of these entries, entry i in row ``segments[i]``, without entries at the identity."""
        columns: Columns = (keys, *inner)
        if len(segments):
            something = ~identity_rows(self.inner, inner)
            if not something.all():
                segments, columns = segments[something], take(columns, np.flatnonzero(something))
        if (segments[1:] > segments[:-1]).all():
            return (Ragged.of(np.bincount(segments, minlength=count), columns),)
        return (self.merge(Ragged.singles(columns), segments, count),)


class MappingGroup(MappingMonoid, Group[MappingEntries]):
    """A mapping over a Group."""

    inner: Group[Any]

    def inverse(self, a: MappingEntries) -> MappingEntries:
        return {key: self.inner.inverse(element) for key, element in a.items()}


def has_arrow_output(monoid: Monoid[Any]) -> bool:
    """Whether the output is of Arrow types all the way down, with no part of it JSON."""
    parts = monoid.fields.values() if isinstance(monoid, RecordMonoid) else ()
    return monoid.output_type is not None and all(map(has_arrow_output, parts))
