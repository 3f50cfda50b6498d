"""A storage is a folder of named bytes that survive: the only module that knows fsspec and ``os``.

What is there when a verb returns stays there through a loss of power: files are synced before their names,
names before the answer. No verb overwrites a file; only ``write`` on S3 and HDFS relies on its name being
new. HDFS answers when the data is in the memory of its DataNodes.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from persistent.errors import StorageError, UnsupportedStore


class Put(Enum):
    """The answer of put-if-absent. UNKNOWN: the store did not say; read back to learn."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


class Storage(Protocol):
    """Names are relative to ``url``, separated by '/', of our alphabet. Pickles hold no connection or secret.

    ``shared`` tells whether other processes of this machine see it; ``local`` whether only this machine does.
    A name outside the alphabet ``[A-Za-z0-9._=@+-]``, with ``..``, absolute, or whose last part begins with
    ``.tmp-`` raises ValueError. What the store refuses raises ``StorageError``: operation, place, cause,
    remedy.
    """

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool: ...

    @property
    def local(self) -> bool: ...

    def put_if_absent(self, name: str, data: bytes) -> Put:
        """Create ``name`` iff it does not exist: atomic, and durable if the answer is WON."""

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file of a name never used before; durable (file and folder) on return. FileExistsError."""

    def read(self, name: str) -> pa.Buffer:
        """All bytes (memory-mapped where possible). FileNotFoundError if there is none."""

    def list(self, folder: str) -> list[str]:
        """The sorted names of the files directly in ``folder`` ("" is the root); [] if it is not there."""

    def rename(self, source: str, target: str) -> None:
        """Move without overwriting, durable on return. FileNotFoundError / FileExistsError.

        Repeatable: where an earlier call was cut off after the target appeared, this one finishes it.
        """

    def delete(self, name: str) -> None:
        """Delete; a file already gone is fine. A loss of power may bring the file back."""


def open_storage(url: str | os.PathLike[str] | Storage, *, private: bool = True) -> Storage:
    """The storage behind a URL: a local path, ``file://``, ``memory://name``, ``s3://`` or ``hdfs://``.

    ``private``: local files are for their owner only. A storage is returned as it is. Other schemes
    raise ``UnsupportedStore``.

    >>> open_storage("memory://doctest").url
    'memory://doctest'
    """
    if not isinstance(url, str | os.PathLike):
        return url
    text = os.fspath(url)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalStorage(text, private=private)
    if scheme == "file":
        return LocalStorage(urlsplit(text).path, private=private)
    if scheme == "memory":
        return MemoryStorage(rest)
    return FsspecStorage(text)


class LocalStorage:
    """A folder of a local disk that has hard links, made with its first file.

    ``private``: readable by its owner only; else as the process's umask has it.

    A process killed inside ``put_if_absent`` leaves a temporary file ``.tmp-<uuid>`` that no verb ever
    shows: at most one of a manifest's size for each crash. They may be deleted by hand while nothing runs.
    """

    shared = True
    local = True

    def __init__(self, path: str | os.PathLike[str], *, private: bool = True) -> None:
        self.url = os.path.abspath(os.path.expanduser(path))
        self._mode = 0o700 if private else 0o777
        self._settled: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStorage({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LocalStorage, private=self._mode == 0o700), (self.url,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        path = self._path(name)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f"{_TEMPORARY}{uuid.uuid4().hex}")
        with _failures_told("create", path):
            self._settle(folder)
            try:
                _create(temporary, data, self._mode)
                try:
                    os.link(temporary, path)
                    answer = Put.WON
                except FileExistsError:
                    answer = Put.LOST
            finally:
                if os.path.lexists(temporary):
                    os.unlink(temporary)
            # Also when lost: what the winner has made visible is relied upon from here on.
            _sync_folder(folder)
        return answer

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._path(name)
        with _failures_told("write", path, FileExistsError):
            self._settle(os.path.dirname(path))
            _create(path, data, self._mode)
            _sync_folder(os.path.dirname(path))

    def read(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with _failures_told("read", path, FileNotFoundError):
            if os.stat(path).st_size == 0:
                return pa.py_buffer(b"")
            with pa.memory_map(path) as file:
                return file.read_buffer()

    def list(self, folder: str) -> list[str]:
        path = self._path(folder) if folder else self.url
        with _failures_told("list", path, FileNotFoundError):
            try:
                with os.scandir(path) as entries:
                    names = [entry.name for entry in entries if entry.is_file()]
            except FileNotFoundError:
                return []
        return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        with _failures_told("rename", f"{old} to {new}", FileNotFoundError, FileExistsError):
            self._settle(os.path.dirname(new))
            try:
                os.link(old, new)
            except FileExistsError:
                if not os.path.samefile(old, new):
                    raise
            # In this order the file never hangs on a name that a loss of power could take away.
            _sync_folder(os.path.dirname(new))
            os.unlink(old)
            _sync_folder(os.path.dirname(old))

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _failures_told("delete", path, FileNotFoundError):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return

    def _path(self, name: str) -> str:
        return os.path.join(self.url, _checked(name))

    def _settle(self, folder: str) -> None:
        """See to it that ``folder`` exists and is durable, up to what existed before.

        A folder that is there may have been made a moment ago by a process that has not synced it: so the
        first use syncs every folder from the root down.
        """
        if folder in self._settled and os.path.isdir(folder):
            return
        missing = []
        place = folder
        while not os.path.isdir(place):
            missing.append(place)
            place = os.path.dirname(place)
        for place in reversed(missing):
            try:
                # Another process may be making the same folder.
                os.makedirs(place, mode=self._mode, exist_ok=True)
            except FileExistsError as error:
                raise NotADirectoryError(errno.ENOTDIR, f"{place} is a file") from error
        place, above = folder, os.path.dirname(folder)
        while place != above and (place in missing or len(place) >= len(self.url)):
            if place in self._settled and place not in missing:
                break
            if place in missing or os.access(above, os.R_OK):
                _sync_folder(above)
            self._settled.add(place)
            place, above = above, os.path.dirname(above)


class MemoryStorage:
    """A storage in the memory of this process: the instances of one name share its files."""

    shared = False
    local = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = f"memory://{name}"
        self._files = _memory(name)

    def __repr__(self) -> str:
        return f"MemoryStorage({self.name!r})"

    def __reduce__(self) -> tuple[type[MemoryStorage], tuple[str]]:
        return MemoryStorage, (self.name,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        _checked(name)
        with _MEMORY_LOCK:
            if name in self._files:
                return Put.LOST
            self._files[name] = pa.py_buffer(bytes(data))
            return Put.WON

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        if self.put_if_absent(name, bytes(data)) is Put.LOST:
            raise FileExistsError(errno.EEXIST, "written before", f"{self.url}/{name}")

    def read(self, name: str) -> pa.Buffer:
        _checked(name)
        with _MEMORY_LOCK:
            return self._found(name)

    def list(self, folder: str) -> list[str]:
        prefix = f"{_checked(folder)}/" if folder else ""
        with _MEMORY_LOCK:
            inside = [name[len(prefix) :] for name in self._files if name.startswith(prefix)]
        return sorted(name for name in inside if "/" not in name)

    def rename(self, source: str, target: str) -> None:
        _checked(source), _checked(target)
        with _MEMORY_LOCK:
            data = self._found(source)
            if self._files.get(target, data) is not data:
                raise FileExistsError(errno.EEXIST, "exists", f"{self.url}/{target}")
            self._files[target] = data
            del self._files[source]

    def delete(self, name: str) -> None:
        _checked(name)
        with _MEMORY_LOCK:
            self._files.pop(name, None)

    def clear(self) -> None:
        """Forget every file."""
        with _MEMORY_LOCK:
            self._files.clear()

    def _found(self, name: str) -> pa.Buffer:
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{self.url}/{name}")
        return self._files[name]


_MEMORY_LOCK = threading.Lock()
_MEMORIES: dict[str, dict[str, pa.Buffer]] = {}


def _memory(name: str) -> dict[str, pa.Buffer]:
    with _MEMORY_LOCK:
        return _MEMORIES.setdefault(name, {})


class FsspecStorage:
    """A folder of a store that creates atomically, reached through fsspec: S3, or HDFS with ``hdfs-native``.

    Credentials and endpoints come from the environment or the configuration files of the store (for S3 the
    AWS ones, or ``FSSPEC_S3_ENDPOINT_URL``), never from the URL: so neither a pickle nor an error can carry
    them. The connection belongs to one process and is made there.
    """

    shared = True
    local = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.password is not None:
            raise UnsupportedStore(
                f"{parts.scheme}://{parts.hostname}{parts.path}: a password in a URL ends up in logs. "
                "Put it into the environment or the configuration file of the store."
            )
        if parts.scheme not in _CONNECTIONS:
            raise UnsupportedStore(
                f"{url}: nothing creates files of {parts.scheme}:// atomically, so no checkpoint can "
                "be committed to it. Use a local path, s3://bucket/folder, or hdfs://namenode/folder."
            )
        self.url = url.rstrip("/")
        self._renames = parts.scheme == "hdfs"
        self._connect = _CONNECTIONS[parts.scheme]
        self._root = parts.path.rstrip("/") if self._renames else f"{parts.netloc}{parts.path}".rstrip("/")
        self._opened: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        return f"FsspecStorage({self.url!r})"

    def __reduce__(self) -> tuple[type[FsspecStorage], tuple[str]]:
        return FsspecStorage, (self.url,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        path = self._path(name)
        with _failures_told("create", f"{self.url}/{name}"):
            files = self._files()
            try:
                self._create(files, path, data)
            except FileExistsError:
                return Put.LOST
            except (PermissionError, FileNotFoundError):
                raise
            except Exception:
                # Sent, but unanswered: the caller reads back, and there a store that is down says so.
                return Put.UNKNOWN
            return Put.WON

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._path(name)
        with _failures_told("write", f"{self.url}/{name}", FileExistsError):
            # Not "create": a client that repeats a request whose answer was lost would collide with itself.
            self._files().pipe_file(path, bytes(data))

    def read(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with _failures_told("read", f"{self.url}/{name}", FileNotFoundError):
            return pa.py_buffer(self._files().cat_file(path))

    def list(self, folder: str) -> list[str]:
        path = self._path(folder) if folder else self._root
        with _failures_told("list", f"{self.url}/{folder}"):
            try:
                entries = self._files().ls(path, detail=True)
            except FileNotFoundError:
                return []
        inside = f"{path.strip('/')}/"
        paths = [entry["name"].strip("/") for entry in entries if entry["type"] == "file"]
        names = [found[len(inside) :] for found in paths if found.startswith(inside)]
        return sorted(name for name in names if "/" not in name and not name.startswith(_TEMPORARY))

    def rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        place = f"{self.url}/{source} to {target}"
        with _failures_told("rename", place, FileNotFoundError, FileExistsError):
            files = self._files()
            if self._renames:
                files.makedirs(new.rpartition("/")[0], exist_ok=True)
                files.mv(old, new)
                return
            data = files.cat_file(old)
            try:
                self._create(files, new, data)
            except FileExistsError:
                if files.cat_file(new) != data:
                    raise
            files.rm_file(old)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _failures_told("delete", f"{self.url}/{name}"):
            try:
                self._files().rm_file(path)
            except FileNotFoundError:
                return

    def _create(self, files: Any, path: str, data: bytes) -> None:
        if not self._renames:
            files.pipe_file(path, data, mode="create")
            return
        temporary = f"{path.rpartition('/')[0]}/{_TEMPORARY}{uuid.uuid4().hex}"
        files.pipe_file(temporary, data)
        try:
            files.mv(temporary, path)
        except FileExistsError:
            files.rm_file(temporary)
            raise

    def _path(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"

    def _files(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._connect(self.url))
        return self._opened[1]


def _connect_s3(url: str) -> Any:
    import fsspec

    try:
        return fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise UnsupportedStore(f"{url} needs the package s3fs: pip install s3fs") from error


def _connect_hdfs(url: str) -> Any:
    # By name: without hdfs-native, fsspec's "hdfs://" is pyarrow's, whose move deletes the target first.
    try:
        implementation = importlib.import_module("hdfs_native.fsspec")
    except ImportError as error:
        raise UnsupportedStore(f"{url} needs the package hdfs-native: pip install hdfs-native") from error
    parts = urlsplit(url)
    return implementation.HdfsFileSystem(host=parts.hostname, port=parts.port, skip_instance_cache=True)


_CONNECTIONS: dict[str, Callable[[str], Any]] = {"s3": _connect_s3, "s3a": _connect_s3, "hdfs": _connect_hdfs}
_TEMPORARY = ".tmp-"
_PART = re.compile(r"[A-Za-z0-9._=@+-]+")

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space and run again; the last checkpoint is good.",
    errno.EDQUOT: "The quota is used up: free some space and run again; the last checkpoint is good.",
    errno.EACCES: "Let this user read and write there, or choose another place.",
    errno.EPERM: "Let this user write there, on a file system with hard links, or choose another place.",
    errno.EOPNOTSUPP: "This file system has no hard links: choose a place on one that has them.",
    errno.EROFS: "The file system is read-only: choose another place.",
    errno.ENOTDIR: "A file stands where a folder is needed: choose another place.",
    errno.EIO: "The device fails: what it last took may be lost; check it before running again.",
}


def _checked(name: str) -> str:
    parts = name.split("/")
    if all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        if not parts[-1].startswith(_TEMPORARY):
            return name
        raise ValueError(f"name {name!r}: {_TEMPORARY!r} is kept for files being made; choose another name")
    raise ValueError(
        f"name {name!r}: parts of A-Z a-z 0-9 . _ = @ + - separated by '/', none of them '.', '..' or empty"
    )


@contextmanager
def _failures_told(operation: str, place: str, *answers: type[OSError]) -> Iterator[None]:
    """Turn what a store raises into a StorageError; ``answers`` are answers, not failures."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (*answers, StorageError)):
            raise
        code = error.errno if isinstance(error, OSError) else None
        remedy = _REMEDIES.get(code or 0, "Look at the cause, then run again: the last checkpoint is good.")
        cause = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        raise StorageError(f"cannot {operation} {place}: {cause}. {remedy}") from error


def _create(path: str, data: bytes | pa.Buffer, mode: int) -> None:
    """Create, write and sync a file. A failed sync is not tried again: the kernel has dropped the pages."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o666)
    try:
        view = memoryview(data)
        while view.nbytes:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
