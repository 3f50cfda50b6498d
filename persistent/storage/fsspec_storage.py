"""A folder of a store behind a network: S3, HDFS, or any other that fsspec reaches.

A rename by copy, where a store has no rename, is three operations: read, create, delete. The caller may stall between
any two of them while others continue. So a renamed file alone does not prove that something is published.

A folder of any other store that fsspec knows. Only a probe can tell whether it creates files atomically.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from persistent.errors import StorageError, UnsupportedStore
from persistent.storage.clients import unknown_scheme
from persistent.storage.failures import FaultKind, Patience, Retrying, failure_of, is_short_of_memory
from persistent.storage.hdfs import HdfsRequests
from persistent.storage.places import Reach, reach_of
from persistent.storage.protocol import TEMPORARY, BulkDeletion, Put, Storage, checked_name, put_or_read
from persistent.storage.s3 import S3Requests


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


class Requests(Protocol):
    """The requests of one kind of store, each tried once, on names below a folder.

    With ``renames`` a file is created by renaming a temporary one; otherwise by ``create``. ``write`` makes each of its
    requests through ``again``. Errors are the client's, except FileNotFoundError and FileExistsError.
    """

    renames: bool

    def create(self, name: str, data: bytes | pa.Buffer) -> None: ...
    def write(self, name: str, data: bytes | pa.Buffer, again: Callable[[Callable[[], Any]], Any]) -> None: ...
    def read(self, name: str) -> pa.Buffer: ...
    def list(self, folder: str) -> list[str]: ...
    def rename(self, source: str, target: str) -> None: ...
    def delete(self, name: str) -> None: ...


class FsspecStorage:
    """A folder of a store that creates atomically.

    Credentials and endpoints come from the environment or the configuration files of the store, never from the URL, so
    neither a pickle nor an error can carry them. Each process makes a connection of its own. A request that the store
    does not answer, or cannot serve now, is retried as ``patience`` says.
    """

    shared = True

    def __init__(self, url: str, *, patience: Patience | None = None) -> None:
        self.url = _checked_url(url)
        self.patience = patience or Patience()
        self.local = reach_of(self.url) is Reach.MACHINE
        self.requests: Requests = _FILES.get(self.scheme, GenericRequests)(self.url)

    @property
    def scheme(self) -> str:
        """The part before ``://``."""
        return self.url.partition("://")[0]

    @property
    def is_known(self) -> bool:
        """Whether this kind of store creates atomically, without a probe."""
        return self.scheme in _FILES

    def __repr__(self) -> str:
        return f"FsspecStorage({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(FsspecStorage, patience=self.patience), (self.url,)

    def put_if_absent(self, name: str, data: bytes | pa.Buffer) -> Put:
        retrying = self._retrying("create", checked_name(name))
        if not self.requests.renames:
            return self._create(retrying, lambda: self.requests.create(name, data))
        temporary = f"{name.rpartition('/')[0]}/{TEMPORARY}{uuid.uuid4().hex}".lstrip("/")
        answer = None
        try:
            self.requests.write(temporary, data, retrying)
            answer = self._create(retrying, lambda: self.requests.rename(temporary, name))
        finally:
            if answer is not Put.WON:
                with suppress(Exception):
                    self.requests.delete(temporary)
        return answer

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        # Unconditional: a repeated request whose answer was lost would collide with itself.
        self.requests.write(checked_name(name), data, self._retrying("write", name))

    def read(self, name: str) -> pa.Buffer:
        checked_name(name)
        return self._retrying("read", name, FileNotFoundError)(lambda: self.requests.read(name))

    def list(self, folder: str) -> list[str]:
        if folder:
            checked_name(folder)
        return sorted(self._retrying("list", folder)(lambda: self.requests.list(folder)))

    def rename(self, source: str, target: str) -> None:
        checked_name(source), checked_name(target)
        if self.requests.renames:
            self._rename(source, target)
            return
        rename_by_copy(self, source, target, self.patience.tries_max)

    def delete(self, name: str) -> None:
        checked_name(name)
        self._retrying("delete", name)(lambda: self.requests.delete(name))

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete these files, on S3 a thousand at once."""
        requests = self.requests
        if not isinstance(requests, BulkDeletion) or len(names) < 2:
            for name in names:
                self.delete(name)
            return
        for name in names:
            checked_name(name)
        self._retrying("delete", f"{names[0]} and {len(names) - 1} more")(lambda: requests.delete_all(names))

    def _retrying(self, operation: str, name: str, *answers: type[Exception]) -> Retrying:
        return Retrying(operation, f"{self.url}/{name}", self.patience, answers)

    def _create(self, retrying: Retrying, create: Callable[[], None]) -> Put:
        tries = 0

        def created() -> Put:
            nonlocal tries
            tries += 1
            try:
                create()
            except FileExistsError:
                # After a retry it may be ours: a store can answer "busy" and perform the request anyway.
                return Put.LOST if tries == 1 else Put.UNKNOWN
            except Exception as error:
                if not self._is_unanswered(error):
                    raise
                # The caller reads back, which reports a store that is down.
                retrying.note(failure_of(error), "checking whether it exists")
                self.patience.pause()
                return Put.UNKNOWN
            return Put.WON

        return retrying(created)

    def _is_unanswered(self, error: Exception) -> bool:
        if isinstance(error, StorageError):
            return False
        # A missing temporary file was moved by an earlier request of the client.
        is_moved = self.requests.renames and isinstance(error, FileNotFoundError)
        return is_moved or failure_of(error).fault is FaultKind.UNANSWERED

    def _rename(self, source: str, target: str) -> None:
        retrying = self._retrying("rename", f"{source} to {target}", FileNotFoundError, FileExistsError)
        tries = 0

        def rename() -> None:
            nonlocal tries
            tries += 1
            try:
                self.requests.rename(source, target)
            except FileNotFoundError:
                # Missing because an earlier try moved it and its answer was lost.
                if tries == 1 or target.rpartition("/")[2] not in self.requests.list(target.rpartition("/")[0]):
                    raise

        retrying(rename)


_FILES: dict[str, Callable[[str], Requests]] = {"s3": S3Requests, "s3a": S3Requests, "hdfs": HdfsRequests}


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UnsupportedStore(
            f"{url.partition('://')[0]}://: the rest is not the address of a store: {error}"
        ) from error
    # Even empty ones: a folder of a store would have two names.
    if parts.password is not None or "?" in url or "#" in url:
        raise UnsupportedStore(
            f"{parts.scheme}://{parts.hostname}{parts.path}: a password or parameters in a URL end up in logs. "
            "Put them into the environment or the configuration file of the store."
        )
    return url.rstrip("/")


def rename_by_copy(storage: Storage, source: str, target: str, tries_max: int) -> None:
    """Move without overwriting. FileNotFoundError / FileExistsError, as ``Storage.rename``."""
    data = storage.read(source)
    content = put_or_read(storage, target, data, tries_max)
    # The same bytes are from an earlier try, or an earlier run.
    if content is not None and not content.equals(data):
        raise FileExistsError(errno.EEXIST, "exists", f"{storage.url}/{target}")
    storage.delete(source)
