"""A serializer for any Python object, chosen by name: cloudpickle, signed.

    class Models(Monoid[Model]):
        serializer = cloudpickle(key=lambda: bytes.fromhex(os.environ["STATE_KEY"]))

Unpickling runs code, so anyone who can write the bytes can run code where they are read. Therefore the bytes begin
with an HMAC-SHA256 under the user's key, verified in constant time before anything is unpickled. No checkpoint, repr or
pickle holds the key: a worker receives the function, and calls it where it runs.

The signature covers the bytes, not their place: someone who can write the checkpoint can still swap signed elements.
Pickles are not canonical (equal elements can have different bytes) and need the classes they were made from. For
elements that must outlive a release, or be compared, define ``encode`` and ``decode`` of the monoid over plain values.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import cloudpickle as pickler

from monoids.monoid import Serializer
from persistent.errors import CorruptCheckpoint

KEY_BYTES_MIN = 32
_SIGNATURE_BYTES = 32
_DOMAIN = b"persistent.serializers.cloudpickle 1\0"
_PROTOCOL = 5

SigningKey = bytes | Callable[[], bytes]


class WrongSignature(CorruptCheckpoint, ValueError):
    """Bytes that were signed with another key, or changed since. They were not unpickled."""


def cloudpickle(*, key: SigningKey) -> Serializer:
    """The serializer of a monoid whose elements are objects of any class. ValueError if the key is too short.

    ``key``: at least 32 bytes, or a function that returns them, called once in every process that needs them.
    On Spark it must be a function, and one that fetches the key rather than holds it.

    >>> serializer = cloudpickle(key=lambda: bytes(range(32)))
    >>> serializer.loads(serializer.dumps({"a": 1j})), serializer
    ({'a': 1j}, cloudpickle(key=...))
    """
    if not callable(key):
        _checked(key)
    return _Cloudpickle(key)


class _Cloudpickle:
    """Without ``__dict__``: printing all attributes must not show the key."""

    __slots__ = ("_found", "_key")

    name = "cloudpickle"
    version = 1

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self._found: bytes | None = None

    def dumps(self, element: Any) -> bytes:
        data: bytes = pickler.dumps(element, protocol=_PROTOCOL)
        return self._signature(data) + data

    def loads(self, data: bytes) -> Any:
        signature, pickled = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(pickled)):
            raise WrongSignature(
                "the signature of a pickled element differs: the key is not the one it was signed with, or its bytes "
                "were changed. Nothing was unpickled; give the key that the checkpoint was made with"
            )
        return pickler.loads(pickled)

    def __repr__(self) -> str:
        return "cloudpickle(key=...)"

    def __deepcopy__(self, memo: Any) -> _Cloudpickle:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if not callable(self._key) or self._bytes() in pickler.dumps(self._key):
            raise TypeError(
                "the key of the cloudpickle serializer would be part of the data sent to the workers: give a function "
                "that fetches it where it is called, such as key=lambda: bytes.fromhex(os.environ['STATE_KEY'])"
            )
        return _Cloudpickle, (self._key,)

    def _bytes(self) -> bytes:
        if self._found is None:
            self._found = _checked(self._key() if callable(self._key) else self._key)
        return self._found

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._bytes(), _DOMAIN + data, "sha256")


def _checked(key: Any) -> bytes:
    if type(key) is not bytes:
        raise TypeError(f"the key of the cloudpickle serializer is bytes, not {type(key).__name__}")
    if len(key) < KEY_BYTES_MIN:
        raise ValueError(
            f"the key of the cloudpickle serializer has {len(key)} bytes, at least {KEY_BYTES_MIN} are needed: make "
            "one with secrets.token_bytes(32), and keep it apart from the checkpoint"
        )
    return key
