"""A serializer turns elements that are not plain Python values into bytes, for monoids that name one.

    class Forests(Monoid[Forest]):
        serializer = persistent.serializers.cloudpickle(key=fetch_key)

The bytes need not be canonical: equal elements may have different bytes.
"""

from __future__ import annotations

from typing import Any, Protocol


class Serializer(Protocol):
    """``loads(dumps(element))`` equals the element. ``name`` and ``version`` are part of the monoid's fingerprint."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def dumps(self, element: Any) -> bytes:
        """An element as bytes."""

    def loads(self, data: bytes) -> Any:
        """The inverse of ``dumps``. ValueError for bytes that ``dumps`` did not write, before any object is created."""
