"""A storage is a folder of named bytes that survive: the only module that knows fsspec and ``os``."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import pyarrow as pa


class Put(Enum):
    """The answer of put-if-absent. UNKNOWN: the store did not say; read back to learn."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


class Storage(Protocol):
    """Names are relative to ``url``, separated by '/', of our alphabet. Instances pickle without connections or secrets.

    ``shared`` tells whether other processes of this machine see it; ``local`` whether only this machine does.
    """

    url: str
    shared: bool
    local: bool

    def put_if_absent(self, name: str, data: bytes) -> Put:
        """Create ``name`` with exactly ``data`` iff it does not exist: atomic and durable when it answers WON."""

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file of a name never used before; durable (file and directory) on return."""

    def read(self, name: str) -> pa.Buffer:
        """All bytes (memory-mapped where possible). FileNotFoundError if there is none."""

    def list(self, folder: str) -> list[str]:
        """The names of the files directly in ``folder`` (relative to it), sorted; [] if there is no such folder."""

    def rename(self, source: str, target: str) -> None:
        """Move without overwriting, durable on return. FileNotFoundError / FileExistsError."""

    def delete(self, name: str) -> None:
        """Delete; a file already gone is fine."""
