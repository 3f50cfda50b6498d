"""Offsets in a folder of a store: each document is a file with the next number, put if absent.

All but the newest numbers are deleted, so one that is old can be put again. Who has put a number has replaced the
document only if it is the newest then.
"""

from __future__ import annotations

import os

from persistent.storage import Put, Storage, open_storage

_DIGITS = 20
_KEPT = 2


class StoredOffsets:
    """The folder at ``url``: of a local disk, S3, HDFS, or any store that a checkpoint can lie on."""

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        self._storage = open_storage(url)

    def __repr__(self) -> str:
        return f"StoredOffsets({self._storage.url!r})"

    def load(self, reader: str) -> tuple[int, bytes]:
        while names := self._storage.list(reader):
            try:
                return int(names[-1]), self._storage.read(f"{reader}/{names[-1]}").to_pybytes()
            except FileNotFoundError:
                # It was replaced, and deleted, since.
                continue
        return 0, b""

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        if self.load(reader)[0] != version:
            return False
        name = _name(reader, version + 1)
        answer = self._storage.put_if_absent(name, data)
        if answer is Put.UNKNOWN:
            # It may have come to pass: no two documents are the same.
            answer = Put.WON if self.load(reader) == (version + 1, data) else self._storage.put_if_absent(name, data)
        if answer is not Put.WON and self.load(reader) != (version + 1, data):
            return False
        names = self._storage.list(reader)
        if int(names[-1]) != version + 1:
            # Others have gone on meanwhile. Ours, if it is left, is older than what is kept.
            return False
        for number in names[:-_KEPT]:
            self._storage.delete(f"{reader}/{number}")
        return True

    def close(self) -> None:
        """Nothing to do: a storage has no connection of its own."""


def _name(reader: str, version: int) -> str:
    return f"{reader}/{version:0{_DIGITS}d}"
