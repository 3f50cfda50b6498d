"""Containers of elements: SetUnion, the union of values, and mapping, a monoid for every key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from monoids import encoding
from monoids.monoid import Columns, Group, Monoid, check, object_column
from monoids.values import ALL_KINDS, value_type

Entries = dict[bytes, Any]
"""An element of a mapping: encoded key to element."""


class SetUnion(Monoid[frozenset[Any]]):
    """The distinct values that are not None, of one type; presented as a sorted list.

    >>> names = SetUnion(str)
    >>> names.present(names.combine(names.lift("b"), names.lift("a")))
    ['a', 'b']
    """

    identity: frozenset[Any] = frozenset()
    commutative = True
    idempotent = True
    name = "SetUnion"

    def __init__(self, type: Any) -> None:
        self.type = value_type("SetUnion", type, ALL_KINDS, default="")
        self.output_type = pa.list_(self.type.arrow)

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def combine(self, a: frozenset[Any], b: frozenset[Any]) -> frozenset[Any]:
        return a | b

    def lift(self, value: Any) -> frozenset[Any]:
        return self.identity if value is None else frozenset((self.type.accept(value),))

    def present(self, element: frozenset[Any]) -> list[Any]:
        return sorted(element, key=encoding.order_key)

    def lift_columns(self, values: Any) -> Columns:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            # Each distinct value is lifted once.
            distinct = self.type.column(values).dictionary_encode()
            lifted = [self.lift(value) for value in distinct.dictionary.to_pylist()]
            codes = distinct.indices.fill_null(len(lifted)).to_numpy()
            return (object_column([*lifted, self.identity])[codes],)
        return super().lift_columns(values)

    def fold(self, elements: Sequence[frozenset[Any]]) -> frozenset[Any]:
        return self.identity.union(*elements)


def mapping(monoid: Monoid[Any]) -> Monoid[Entries]:
    """A monoid for every key; its lift takes a mapping of keys to inputs. An exact Group makes a Group.

    Keys are any plain values; 1, 1.0 and True are different keys (where presenting brings them together, as a
    Python dict must, their elements are combined). An entry at the identity is no entry, unless rounding decides.

    >>> from monoids.numeric import Sum
    >>> words = mapping(Sum())
    >>> words.present(words.combine(words.lift({"a": 1, "b": 2}), words.lift({"a": 5})))
    {'a': 6, 'b': 2}
    """
    check(monoid)
    return MappingGroup(monoid) if isinstance(monoid, Group) and monoid.exact else MappingMonoid(monoid)


class MappingMonoid(Monoid[Entries]):
    """``mapping(m)``: an element is a dict of encoded key to element, without those equal to the identity."""

    name = "mapping"

    def __init__(self, monoid: Monoid[Any]) -> None:
        self.monoid = monoid
        self.commutative = monoid.commutative
        self.idempotent = monoid.idempotent
        self.exact = monoid.exact
        self._nothing = monoid.encode(monoid.identity)

    @property
    def identity(self) -> Entries:
        return {}

    def parameters(self) -> dict[str, Any]:
        return {"monoid": self.monoid.fingerprint()}

    def __repr__(self) -> str:
        return f"mapping({self.monoid!r})"

    def combine(self, a: Entries, b: Entries) -> Entries:
        if not a or not b:
            return a or b
        total = dict(a)
        for key, element in b.items():
            if key not in total:
                total[key] = element
                continue
            combined = self.monoid.combine(total[key], element)
            if self.exact and self._is_nothing(combined):
                del total[key]
            else:
                total[key] = combined
        return total

    def fold(self, elements: Sequence[Entries]) -> Entries:
        gathered: dict[bytes, list[Any]] = {}
        for entries in elements:
            for key, item in entries.items():
                gathered.setdefault(key, []).append(item)
        folded = ((key, self.monoid.fold(items)) for key, items in gathered.items())
        return {key: element for key, element in folded if not (self.exact and self._is_nothing(element))}

    def lift(self, value: Any) -> Entries:
        """TypeError unless ``value`` is a mapping or None."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise TypeError(f"{self!r} takes mappings of key to value, not {value!r} ({type(value).__name__})")
        lifted = ((encoding.encode(key), self.monoid.lift(item)) for key, item in value.items())
        return {key: element for key, element in lifted if not self._is_nothing(element)}

    def present(self, element: Entries) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        for data in sorted(element):
            key, item = encoding.decode(data), element[data]
            merged[key] = self.monoid.combine(merged[key], item) if key in merged else item
        return {key: self.monoid.present(item) for key, item in merged.items()}

    def encode(self, element: Entries) -> bytes:
        return encoding.encode({key: self.monoid.encode(item) for key, item in element.items()})

    def decode(self, data: bytes) -> Entries:
        entries = encoding.decode(data)
        if not isinstance(entries, dict) or not all(type(part) is bytes for entry in entries.items() for part in entry):
            raise ValueError(f"{self!r}: the encoded element is not of a mapping")
        return {key: self.monoid.decode(item) for key, item in entries.items()}

    def _is_nothing(self, element: Any) -> bool:
        return self.monoid.encode(element) == self._nothing


class MappingGroup(MappingMonoid, Group[Entries]):
    """A mapping whose every entry can be taken back."""

    monoid: Group[Any]

    def inverse(self, a: Entries) -> Entries:
        return {key: self.monoid.inverse(element) for key, element in a.items()}
