"""Offsets in a LevelDB folder, for one process at a time."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from persistent.errors import InvalidPipeline, StorageError
from persistent.offsets.protocol import checked_document, unreadable

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
