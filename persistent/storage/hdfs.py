"""A folder of HDFS, through hdfs-native: a file appears by a rename that never overwrites, so it is never torn."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from persistent.storage.clients import client_of
from persistent.storage.protocol import TEMPORARY

FAILOVER = {"dfs.client.failover.max.attempts": "3", "dfs.client.failover.sleep.max.millis": "1000"}
"""Settings that make a client give up within seconds."""


class HdfsRequests:
    """The calls of hdfs-native. The Hadoop configuration files name the NameNodes, their addresses and credentials."""

    renames = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = f"hdfs://{parts.netloc}"
        self._root = parts.path.rstrip("/")

    def create(self, name: str, data: bytes | pa.Buffer) -> None:
        """Unsupported: HDFS acknowledges a create before the data is safe. Write a temporary file, then rename it."""
        raise NotImplementedError

    def write(self, name: str, data: bytes | pa.Buffer, again: Callable[[Callable[[], Any]], Any]) -> None:
        """Create, add a block for each 128 MB, complete. A failed write removes its file, if it can."""
        try:
            again(lambda: self._write_once(name, data))
        except BaseException:
            with suppress(Exception):
                self.delete(name)
            raise

    def read(self, name: str) -> pa.Buffer:
        """One call for the locations of the blocks. FileNotFoundError."""
        return pa.py_buffer(self._client().read(self._path(name)).read())

    def list(self, folder: str) -> list[str]:
        """One call for each thousand names."""
        path = self._path(folder) if folder else self._root or "/"
        try:
            paths = [status.path for status in self._client().list_status(path) if not status.isdir]
        except FileNotFoundError:
            return []
        names = [path.rpartition("/")[2] for path in paths]
        return [name for name in names if not name.startswith(TEMPORARY)]

    def rename(self, source: str, target: str) -> None:
        """One call; two more if the folder does not exist yet. FileNotFoundError, FileExistsError."""
        old, new = self._path(source), self._path(target)
        try:
            self._client().rename(old, new, False)
        except FileNotFoundError:
            self._client().mkdirs(new.rpartition("/")[0], 0o755, True)
            self._client().rename(old, new, False)

    def delete(self, name: str) -> None:
        """One call, whether the file exists or not."""
        with suppress(FileNotFoundError):
            self._client().delete(self._path(name), False)

    def _write_once(self, name: str, data: bytes | pa.Buffer) -> None:
        options = _package().WriteOptions(overwrite=True, create_parent=True)
        file = self._client().create(self._path(name), options)
        # Not "with": leaving it through an error would complete a torn file.
        if memoryview(data).nbytes:
            file.write(memoryview(data).cast("B"))
        file.close()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _client(self) -> Any:
        return _connected(os.getpid(), self._url)


def _package() -> Any:
    client_of("hdfs")
    return sys.modules["hdfs_native"]


@lru_cache(maxsize=4)
def _connected(process: int, url: str) -> Any:
    """The client of one process. It gives up within seconds (``FAILOVER``): ``Retrying`` decides how long to wait."""
    return _package().Client(url, FAILOVER)
