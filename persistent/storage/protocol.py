"""A storage is a folder of named bytes that survive, behind six verbs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Protocol, runtime_checkable

import pyarrow as pa

from persistent.errors import StorageError

TEMPORARY = ".tmp-"
"""The prefix of the names of unfinished files; no verb shows them."""

_NAME = re.compile(r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=@+-]+(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._=@+-]+)*")


class Put(Enum):
    """The answer of put-if-absent. UNKNOWN: the store gave no answer; read back to find out."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


@runtime_checkable
class Storage(Protocol):
    """Names are relative to ``url``, separated by '/', from our alphabet. Pickles hold no connection or secret.

    ``shared``: whether other processes of this machine see the files. ``local``: whether no other machine sees them.
    A name outside the alphabet ``[A-Za-z0-9._=@+-]``, with ``..``, absolute, or whose last part begins with
    ``.tmp-`` raises ValueError. A failure raises ``StorageError`` with operation, place, cause and remedy.
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
        """Write a file under a name never used before; durable (file and folder) on return. FileExistsError."""

    def read(self, name: str) -> pa.Buffer:
        """All bytes (memory-mapped where possible). FileNotFoundError if the file does not exist."""

    def list(self, folder: str) -> list[str]:
        """The sorted names of the files directly in ``folder`` ("" is the root); [] if it does not exist."""

    def rename(self, source: str, target: str) -> None:
        """Move without overwriting, durable on return. FileNotFoundError / FileExistsError.

        Repeatable: if an earlier call was interrupted after the target appeared, this one completes it.
        """

    def delete(self, name: str) -> None:
        """Delete; a file already gone is fine. A loss of power may bring the file back."""


@runtime_checkable
class BulkDeletion(Protocol):
    """A storage, or the requests of one, that can delete many files at once."""

    def delete_all(self, names: Sequence[str]) -> None: ...


def put_or_read(storage: Storage, name: str, data: bytes | pa.Buffer, tries_max: int = 3) -> pa.Buffer | None:
    """Put ``data`` and return None. If ``name`` exists, return its content: an earlier file, or ``data`` itself, put
    without an answer. StorageError if the store neither accepted nor showed the file in ``tries_max`` tries.
    """
    for _ in range(tries_max):
        if storage.put_if_absent(name, data) is Put.WON:
            return None
        with suppress(FileNotFoundError):
            return storage.read(name)
    raise StorageError(
        f"cannot create {storage.url}/{name}: the store neither accepted nor showed it in {tries_max} tries. Run "
        "again: the last checkpoint is good."
    )


def put_once(storage: Storage, name: str, data: bytes) -> bytes:
    """Put ``data`` unless ``name`` exists, and return the content of the file. StorageError as in ``put_or_read``."""
    content = put_or_read(storage, name, data)
    return data if content is None else content.to_pybytes()


def delete_all(storage: Storage, names: Sequence[str]) -> None:
    """Delete these files, with as few requests as the store allows."""
    if isinstance(storage, BulkDeletion):
        storage.delete_all(names)
    else:
        for name in names:
            storage.delete(name)


def checked_name(name: str) -> str:
    """``name``, if it is in our alphabet; otherwise ValueError."""
    if _NAME.fullmatch(name):
        if not name.rpartition("/")[2].startswith(TEMPORARY):
            return name
        raise ValueError(f"name {name!r}: {TEMPORARY!r} is reserved for unfinished files; choose another name")
    raise ValueError(
        f"name {name!r}: parts of A-Z a-z 0-9 . _ = @ + - separated by '/', none of them '.', '..' or empty"
    )
