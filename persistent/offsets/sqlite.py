"""Offsets in a SQLite file, for any number of processes on one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from persistent.clients.sqlite_file import connected
from persistent.errors import StorageError
from persistent.offsets.protocol import checked_document

_TABLE = "persistent_offsets"
_WAIT_MS = 60_000


class SqliteOffsets:
    """The file at ``path``. It is created with the first document, and can hold other tables too."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"SqliteOffsets({self.path!r})"

    def load(self, reader: str) -> tuple[int, bytes]:
        if not os.path.exists(self.path):
            return 0, b""
        with self._transaction("read") as database:
            return self._found(database, reader)

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        with self._transaction("write") as database:
            if self._found(database, reader)[0] != version:
                return False
            database.execute(
                f"INSERT INTO {_TABLE} (reader, version, data) VALUES (?, ?, ?) "
                "ON CONFLICT (reader) DO UPDATE SET version = excluded.version, data = excluded.data",
                (reader, version + 1, data),
            )
        return True

    def close(self) -> None:
        """Nothing to do: each call has a connection of its own."""

    def _found(self, database: sqlite3.Connection, reader: str) -> tuple[int, bytes]:
        rows: list[tuple[Any, Any]] = database.execute(
            f"SELECT version, data FROM {_TABLE} WHERE reader = ?", (reader,)
        ).fetchall()
        return checked_document(f"{self!r}, reader {reader!r}", *rows[0]) if rows else (0, b"")

    @contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connected(self.path, _WAIT_MS)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_TABLE} "
                    "(reader TEXT PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL)"
                )
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot {what} {self!r}: {error}. Check the file, its folder, and which other programs use it; then "
                "read again: what was flushed before is stored"
            ) from error
