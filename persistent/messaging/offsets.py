"""An offset store keeps one document for each reader, and replaces it only by compare-and-swap.

The document is sealed. It holds the ``position``, the ``log`` that it belongs to, and the lease: the ``token`` of the
reader that holds it, when it ends (``until``, ms), for how long it was taken (``lease``, ms), and the ``process`` of
that reader. An absent document means the beginning; a corrupt one is an error.

Offsets in a folder of a store: each document is a file with the next number, put if absent.

All but the newest numbers are deleted, so an old number can be put again. A put therefore replaces the document only if
its number is the newest afterwards.

Offsets in a SQLite file, for any number of processes on one machine.

Offsets in a LevelDB folder, for one process at a time.

The offset store at a place.
"""

from __future__ import annotations

import importlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Protocol, cast

from msgspec import Meta
from msgspec.structs import replace

from persistent.codec import documents
from persistent.codec.fields import Natural, Part, ShortText, Whole
from persistent.errors import CorruptCheckpoint, CorruptLog, InvalidPipeline, NewerFormat, StorageError
from persistent.storage.opening import open_storage
from persistent.storage.process import Process, this_process
from persistent.storage.protocol import Put, Storage
from persistent.storage.sqlite_file import connected

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class OffsetStore(Protocol):
    """``swap`` is atomic among all processes that use the store, and durable when it returns True."""

    def load(self, reader: str) -> tuple[int, bytes]:
        """The version of the document of a reader, and the document; (0, b"") if there is none."""

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        """Replace the document if it still has this version. True if it was replaced, and no other writer has replaced
        it since."""

    def close(self) -> None:
        """End the connection."""


class ReaderState(Part, frozen=True):
    """The contents of the document of a reader. ``position``: the text of the position of the next record, "" if there
    is none; ``number``: the number of the next record, None if unknown; ``entry``: the checksum, in hexadecimal digits,
    of the entry with the last record before it, "" if unknown. ``lease``, ``process``: None before the first lease."""

    log: ShortText = ""
    position: ShortText = ""
    token: Natural = 0
    until: Whole = 0
    lease: Natural | None = None
    number: Natural | None = None
    entry: Annotated[str, Meta(max_length=8)] = ""
    process: Process | None = None

    def taken(self, log: str, now: int, lease: int) -> ReaderState:
        """The state with the lease of a new reader."""
        return replace(self, log=log, token=self.token + 1, until=now + lease, lease=lease, process=this_process())

    def left(self, now: int) -> int:
        """For how long the lease is still held, in milliseconds. The lease of a process that certainly ended is over.

        A lease that has more than twice its length left was taken by a clock that differs from ours by more than the
        lease. It counts as over: the reader that took it is fenced before it stores anything.
        """
        left = max(0, self.until - now)
        is_over = self.lease is not None and left > 2 * self.lease
        is_over = is_over or (self.process is not None and self.process.lives is False)
        return 0 if is_over else left

    def encoded(self) -> bytes:
        return documents.write(self, "the position of a reader", documents.no_laws)


def load_state(store: OffsetStore, reader: str) -> tuple[int, ReaderState]:
    """The version and the state of a reader. CorruptLog, NewerFormat."""
    version, data = store.load(reader)
    if (version, data) == (0, b""):
        return 0, ReaderState()
    place = f"{store!r}, reader {reader!r}"
    checked_document(place, version, data)
    try:
        return version, documents.read(ReaderState, data, place, "a position", documents.no_laws)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        raise unreadable(place, str(error)) from error


def checked_document(place: str, version: Any, data: Any) -> tuple[int, bytes]:
    """A stored document. CorruptLog if it has no version or no bytes: only an absent one means the beginning."""
    if not isinstance(version, int) or version < 1 or not isinstance(data, bytes):
        raise unreadable(place, f"its version is {version!r}, its data {type(data).__name__}")
    return version, data


def unreadable(place: str, fault: str) -> CorruptLog:
    """The error for a document that exists and cannot be read."""
    return CorruptLog(
        f"{place}: the position of the reader is unreadable ({fault}). Restore the store from a copy; or read under "
        "another id, from where initial= says"
    )


def checked_id(reader: str) -> str:
    """``reader``, if it can be an id in every store; otherwise InvalidPipeline."""
    if not isinstance(reader, str) or not _ID.fullmatch(reader):
        raise InvalidPipeline(
            f"reader id {reader!r}: give 1 to 100 letters, digits, '.', '_' and '-', the first not '.' or '-'"
        )
    return reader


_DIGITS = 20
_NUMBER = re.compile(rf"[0-9]{{{_DIGITS}}}")
_KEPT = 2


class StoredOffsets:
    """The folder at ``url``: of a local disk, S3, HDFS, or any store that can hold a checkpoint."""

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        self._storage = open_storage(url)

    def __repr__(self) -> str:
        return f"StoredOffsets({self._storage.url!r})"

    def load(self, reader: str) -> tuple[int, bytes]:
        while numbers := self._numbers(reader):
            try:
                return int(numbers[-1]), self._storage.read(f"{reader}/{numbers[-1]}").to_pybytes()
            except FileNotFoundError:
                # It was replaced, and deleted, in the meantime.
                continue
        return 0, b""

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        if self.load(reader)[0] != version:
            return False
        name = _name(reader, version + 1)
        answer = self._storage.put_if_absent(name, data)
        if answer is Put.UNKNOWN:
            # The put may have succeeded: no two documents are equal.
            answer = Put.WON if self.load(reader) == (version + 1, data) else self._storage.put_if_absent(name, data)
        if answer is not Put.WON and self.load(reader) != (version + 1, data):
            return False
        numbers = self._numbers(reader)
        if not numbers or int(numbers[-1]) != version + 1:
            # Other readers have moved on. Our document, if it remains, is older than those that are kept.
            return False
        for number in numbers[:-_KEPT]:
            self._storage.delete(f"{reader}/{number}")
        return True

    def close(self) -> None:
        """Nothing to do: a storage has no connection of its own."""

    def _numbers(self, reader: str) -> list[str]:
        """The names of the documents, ascending. CorruptLog if the folder has other files only: it is not absent."""
        names = self._storage.list(reader)
        numbers = [name for name in names if _NUMBER.fullmatch(name)]
        if names and not numbers:
            raise unreadable(f"{self!r}, reader {reader!r}", f"its folder has {names[0]!r}, and no document")
        return numbers


def _name(reader: str, version: int) -> str:
    return f"{reader}/{version:0{_DIGITS}d}"


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


_VERSION_BYTES = 8


class LevelDbOffsets:
    """The folder at ``path`` (``pip install 'persistent-monoids[leveldb]'``). Every write is synced."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._database: Any = None

    def __repr__(self) -> str:
        return f"LevelDbOffsets({self.path!r})"

    def load(self, reader: str) -> tuple[int, bytes]:
        with self._lock:
            return self._found(reader)

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        with self._lock:
            if self._found(reader)[0] != version:
                return False
            self._do(lambda database: database.put(_key(reader), _version(version + 1) + data, sync=True))
        return True

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _found(self, reader: str) -> tuple[int, bytes]:
        data: bytes | None = self._do(lambda database: database.get(_key(reader), verify_checksums=True))
        if data is None:
            return 0, b""
        version = int.from_bytes(data[:_VERSION_BYTES], "big") if len(data) >= _VERSION_BYTES else None
        return checked_document(f"{self!r}, reader {reader!r}", version, data[_VERSION_BYTES:])

    def _do(self, act: Any) -> Any:
        try:
            plyvel = importlib.import_module("plyvel")
        except ImportError as error:
            raise InvalidPipeline("LevelDB needs its library: pip install 'persistent-monoids[leveldb]'") from error
        try:
            if self._database is None:
                # Without the checks a damaged write is skipped, and the position goes back silently.
                self._database = plyvel.DB(self.path, create_if_missing=True, paranoid_checks=True)
            return act(self._database)
        except plyvel.CorruptionError as error:
            raise unreadable(repr(self), str(error)) from error
        except (plyvel.Error, OSError) as error:
            raise StorageError(
                f"cannot use {self!r}: {error}. LevelDB is for one process at a time: end the other one, or use "
                "SqliteOffsets"
            ) from error


def _key(reader: str) -> bytes:
    return f"persistent/{reader}".encode()


def _version(number: int) -> bytes:
    return number.to_bytes(_VERSION_BYTES, "big")


def open_offsets(place: str | os.PathLike[str] | OffsetStore) -> OffsetStore:
    """A path is a SQLite file; a URL is a folder of that store; a store is returned as it is.

    >>> open_offsets("offsets.db"), open_offsets("memory://doctest-offsets")
    (SqliteOffsets('offsets.db'), StoredOffsets('memory://doctest-offsets'))
    """
    if not isinstance(place, str | os.PathLike):
        return place
    text = os.fspath(place)
    return cast("OffsetStore", StoredOffsets(text) if "://" in text else SqliteOffsets(text))
