"""What a storage is: a folder of named bytes that survive, behind six verbs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import pyarrow as pa

from persistent.errors import StorageError

TEMPORARY = ".tmp-"
"""How the names of files being made begin; no verb shows them."""

_PART = re.compile(r"[A-Za-z0-9._=@+-]+")


class Put(Enum):
    """The answer of put-if-absent. UNKNOWN: the store did not say; read back to learn."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


class Storage(Protocol):
    """Names are relative to ``url``, separated by '/', of our alphabet. Pickles hold no connection or secret.

    ``shared`` tells whether other processes of this machine see it; ``local`` whether only this machine does.
    A name outside the alphabet ``[A-Za-z0-9._=@+-]``, with ``..``, absolute, or whose last part begins with
    ``.tmp-`` raises ValueError. What the store refuses raises ``StorageError``: operation, place, cause,
    remedy.
    """

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool: ...

    @property
    def local(self) -> bool: ...

    def put_if_absent(self, name: str, data: bytes) -> Put:
        """Create ``name`` iff it does not exist: atomic, and durable if the answer is WON."""

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file of a name never used before; durable (file and folder) on return. FileExistsError."""

    def read(self, name: str) -> pa.Buffer:
        """All bytes (memory-mapped where possible). FileNotFoundError if there is none."""

    def list(self, folder: str) -> list[str]:
        """The sorted names of the files directly in ``folder`` ("" is the root); [] if it is not there."""

    def rename(self, source: str, target: str) -> None:
        """Move without overwriting, durable on return. FileNotFoundError / FileExistsError.

        Repeatable: where an earlier call was cut off after the target appeared, this one finishes it.
        """

    def delete(self, name: str) -> None:
        """Delete; a file already gone is fine. A loss of power may bring the file back."""


def put_once(storage: Storage, name: str, data: bytes, tries_max: int = 3) -> bytes:
    """What ``name`` holds: ``data``, or what was there before. StorageError if the store does not say."""
    for _ in range(tries_max):
        if storage.put_if_absent(name, data) is Put.WON:
            return data
        try:
            return bytes(storage.read(name))
        except FileNotFoundError:
            continue
    raise StorageError(f"cannot create {storage.url}/{name}: the store gave no answer {tries_max} times. Run again.")


def delete_all(storage: Storage, names: Sequence[str]) -> None:
    """Delete these; in as few requests as the store needs, if it has ``delete_all`` itself."""
    at_once = getattr(storage, "delete_all", None)
    if at_once is not None:
        at_once(names)
        return
    for name in names:
        storage.delete(name)


def checked_name(name: str) -> str:
    """``name``, if it is of the alphabet; else ValueError."""
    parts = name.split("/")
    if all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        if not parts[-1].startswith(TEMPORARY):
            return name
        raise ValueError(f"name {name!r}: {TEMPORARY!r} is kept for files being made; choose another name")
    raise ValueError(
        f"name {name!r}: parts of A-Z a-z 0-9 . _ = @ + - separated by '/', none of them '.', '..' or empty"
    )
