"""A folder inside a storage, used as a storage of its own. So a savepoint is a checkpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa

from persistent.names import savepoint_name
from persistent.storage.memory import MemoryStorage
from persistent.storage.opening import open_storage
from persistent.storage.protocol import Put, Storage


@dataclass(frozen=True)
class Subfolder:
    """The part of ``outer`` below ``folder``.

    >>> Subfolder(MemoryStorage("doctest-subfolder"), "s/monday").url
    'memory://doctest-subfolder/s/monday'
    """

    outer: Storage
    folder: str

    @property
    def url(self) -> str:
        return f"{self.outer.url}/{self.folder}"

    @property
    def shared(self) -> bool:
        return self.outer.shared

    @property
    def local(self) -> bool:
        return self.outer.local

    def put_if_absent(self, name: str, data: bytes) -> Put:
        return self.outer.put_if_absent(self._name(name), data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self.outer.write(self._name(name), data)

    def read(self, name: str) -> pa.Buffer:
        return self.outer.read(self._name(name))

    def list(self, folder: str) -> list[str]:
        return self.outer.list(self._name(folder) if folder else self.folder)

    def rename(self, source: str, target: str) -> None:
        self.outer.rename(self._name(source), self._name(target))

    def delete(self, name: str) -> None:
        self.outer.delete(self._name(name))

    def _name(self, name: str) -> str:
        return f"{self.folder}/{name}"


def savepoint_folder(storage: Storage, name: str) -> Storage:
    """The storage of the savepoint of that name, which need not exist."""
    return Subfolder(storage, savepoint_name(name))


def open_checkpoint(url: str | os.PathLike[str] | Storage, *, option: str = "url") -> Storage:
    """The storage behind the URL of a checkpoint or savepoint. A savepoint in memory shares the memory of its job."""
    storage = open_storage(url, option=option)
    if isinstance(storage, MemoryStorage):
        job, between, name = storage.name.rpartition("/s/")
        if between and "/" not in name:
            return savepoint_folder(MemoryStorage(job), name)
    return storage
