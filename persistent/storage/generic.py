"""A folder of any other store that fsspec knows. Only a probe can tell whether it creates files atomically."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from persistent.errors import UnsupportedStore
from persistent.storage.clients import unknown_scheme
from persistent.storage.failures import is_short_of_memory
from persistent.storage.protocol import TEMPORARY


class GenericRequests:
    """The calls of fsspec, which are as good as the implementation for the scheme."""

    renames = False

    def __init__(self, url: str) -> None:
        self._url = url

    def create(self, name: str, data: bytes | pa.Buffer) -> None:
        """As atomic as the implementation. FileExistsError."""
        self._written(name, data, mode="create")

    def write(self, name: str, data: bytes | pa.Buffer, again: Callable[[Callable[[], Any]], Any]) -> None:
        """In one piece."""
        again(lambda: self._written(name, data))

    def read(self, name: str) -> pa.Buffer:
        """All bytes. FileNotFoundError."""
        files, root = self._files()
        return pa.py_buffer(files.cat_file(f"{root}/{name}"))

    def list(self, folder: str) -> list[str]:
        """One call, for the names of the files directly in the folder."""
        files, root = self._files()
        path = f"{root}/{folder}" if folder else root
        try:
            entries = files.ls(path, detail=True)
        except FileNotFoundError:
            return []
        inside = f"{path.strip('/')}/"
        paths = [entry["name"].strip("/") for entry in entries if entry["type"] == "file"]
        names = [name[len(inside) :] for name in paths if name.startswith(inside)]
        return [name for name in names if "/" not in name and not name.startswith(TEMPORARY)]

    def rename(self, source: str, target: str) -> None:
        """Unsupported: fsspec has no rename that refuses to overwrite."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Delete the file, whether it exists or not."""
        files, root = self._files()
        try:
            files.rm_file(f"{root}/{name}")
        except FileNotFoundError:
            return

    def software(self) -> type:
        """The fsspec class that does the work."""
        return type(self._files()[0])

    def _written(self, name: str, data: bytes | pa.Buffer, **mode: str) -> None:
        files, root = self._files()
        path = f"{root}/{name}"
        try:
            files.pipe_file(path, bytes(data), **mode)
        except FileNotFoundError:
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.pipe_file(path, bytes(data), **mode)

    def _files(self) -> tuple[Any, str]:
        return _connected(os.getpid(), self._url)


@lru_cache(maxsize=16)
def _connected(process: int, url: str) -> tuple[Any, str]:
    import fsspec

    scheme = url.partition("://")[0]
    try:
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        if is_short_of_memory(error):
            raise
        raise UnsupportedStore(f"{scheme}:// needs another package: {error}") from error
    except ValueError as error:
        raise UnsupportedStore(unknown_scheme(url)) from error
    return files, root.rstrip("/")
