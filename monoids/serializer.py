"""A serializer turns elements that are not plain Python values into bytes, for a monoid that names it.

    class Forests(Monoid[Forest]):
        serializer = persistent.serializers.cloudpickle(key=fetch_key)

The bytes need not be canonical: of two equal elements they may differ.
"""

from __future__ import annotations

from typing import Any, Protocol


class Serializer(Protocol):
    """``loads(dumps(element))`` is the element again; ``name`` and ``version`` stand in the fingerprint."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def dumps(self, element: Any) -> bytes:
        """An element as bytes."""

    def loads(self, data: bytes) -> Any:
        """The inverse of ``dumps``. ValueError for bytes that are none of its, before anything is made of them."""
