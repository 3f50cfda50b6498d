"""Offsets in a folder of a store: each document is a file with the next number, put if absent.

All but the newest numbers are deleted, so an old number can be put again. A put therefore replaces the document only if
its number is the newest afterwards.
"""

from __future__ import annotations

import os
import re

from persistent.offsets.protocol import unreadable
from persistent.storage import Put, Storage, open_storage

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
