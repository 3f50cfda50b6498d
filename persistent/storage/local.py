"""A folder of a local disk as a storage: files are synced before their names, names before the answer.

An appended file grows only at its end, on a local disk.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from persistent.storage.failures import disk_failures
from persistent.storage.protocol import TEMPORARY, Put, checked_name


class LocalStorage:
    """A folder of a local disk with hard links, created with its first file.

    ``private``: readable only by its owner; otherwise as the process's umask says.

    A process killed inside ``put_if_absent`` leaves a temporary file ``.tmp-<uuid>`` that no verb shows: at most one,
    of a manifest's size, for each crash. Delete them by hand while nothing runs.
    """

    shared = True
    local = True

    def __init__(self, path: str | os.PathLike[str], *, private: bool = True, disk: Disk | None = None) -> None:
        self.url = os.path.abspath(os.path.expanduser(path))
        self._root = os.path.join(self.url, "")
        self._mode = 0o700 if private else 0o777
        self._disk: Disk = OsDisk() if disk is None else disk
        self._settled: set[str] = set()
        self._listed: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return f"LocalStorage({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LocalStorage, private=self._mode == 0o700), (self.url,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        path = self._path(name)
        folder = os.path.dirname(path)
        temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}"
        with disk_failures("create", path):
            self._settle(folder)
            try:
                self._create(temporary, data)
                try:
                    self._disk.link(temporary, path)
                    answer = Put.WON
                except FileExistsError:
                    answer = Put.LOST
            finally:
                if self._disk.exists(temporary):
                    self._disk.unlink(temporary)
            # Also if lost: the caller now relies on the winner's file.
            self._sync_folder(folder)
        return answer

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._path(name)
        folder = os.path.dirname(path)
        with disk_failures("write", path, FileExistsError):
            self._settle(folder)
            self._create(path, data)
            self._sync_folder(folder)

    def read(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with disk_failures("read", path, FileNotFoundError):
            return self._disk.read(path)

    def list(self, folder: str) -> list[str]:
        path = self._path(folder) if folder else self.url
        with disk_failures("list", path, FileNotFoundError):
            try:
                entries = self._disk.file_names(path)
            except FileNotFoundError:
                return []
            names = sorted([name for name in entries if not name.startswith(TEMPORARY)])
            # A visible name may be unsynced, if its driver died after linking it, and the caller will rely on it.
            if names != self._listed.get(path) and self._disk.access(path, os.W_OK):
                self._sync_folder(path)
                self._listed[path] = names
        return names

    def rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        with disk_failures("rename", f"{old} to {new}", FileNotFoundError, FileExistsError):
            self._settle(os.path.dirname(new))
            try:
                self._disk.link(old, new)
            except FileExistsError:
                if not self._disk.is_same(old, new):
                    raise
            # In this order the file always has a name that survives a loss of power.
            self._sync_folder(os.path.dirname(new))
            self._disk.unlink(old)
            self._sync_folder(os.path.dirname(old))

    def delete(self, name: str) -> None:
        path = self._path(name)
        with disk_failures("delete", path, FileNotFoundError):
            try:
                self._disk.unlink(path)
            except FileNotFoundError:
                return

    def append(self, name: str) -> AppendedFile:
        """A new file to append to, empty; its name is durable on return. FileExistsError."""
        path = self._path(name)
        with disk_failures("create", path, FileExistsError):
            self._settle(os.path.dirname(path))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            file = AppendedFile(self._disk, self._disk.open(path, flags, self._mode & 0o666), path)
            self._sync_folder(os.path.dirname(path))
        return file

    def _path(self, name: str) -> str:
        return self._root + checked_name(name)

    def _settle(self, folder: str) -> None:
        """Ensure that ``folder`` and its missing parents exist and are durable.

        An existing folder may have been created a moment ago by a process that has not synced it. So the first use
        syncs every folder from the root down.
        """
        if folder in self._settled and self._disk.is_folder(folder):
            return
        missing = []
        place = folder
        while not self._disk.is_folder(place):
            missing.append(place)
            place = os.path.dirname(place)
        for place in reversed(missing):
            try:
                self._disk.mkdir(place, self._mode)
            except FileExistsError as error:
                # Another process may be creating the same folder.
                if not self._disk.is_folder(place):
                    raise NotADirectoryError(errno.ENOTDIR, f"{place} is a file") from error
        place, above = folder, os.path.dirname(folder)
        while place != above and (place in missing or len(place) >= len(self.url)):
            if place in self._settled and place not in missing:
                break
            if place in missing or self._disk.access(above, os.R_OK):
                self._sync_folder(above)
            self._settled.add(place)
            place, above = above, os.path.dirname(above)

    def _create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create, write and sync a file. A failed sync is not retried: the kernel has dropped the pages."""
        disk = self._disk
        descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode & 0o666)
        try:
            view = memoryview(data)
            while view.nbytes:
                view = view[disk.write(descriptor, view) :]
            disk.fsync(descriptor)
        finally:
            disk.close(descriptor)

    def _sync_folder(self, path: str) -> None:
        descriptor = self._disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)


_JOINED_BYTES_MAX = 1 << 20


@runtime_checkable
class Appendable(Protocol):
    """A storage whose files can grow at their end."""

    def append(self, name: str) -> AppendedFile: ...


class AppendedFile:
    """A file that this process appends to. Each method can raise StorageError. After a failed ``append`` or ``sync``
    the fate of the bytes since the last sync is unknown, and the file must be left alone: a second sync would report
    success."""

    def __init__(self, disk: Disk, descriptor: int, path: str) -> None:
        self._disk = disk
        self._descriptor: int | None = descriptor
        self._path = path

    def append(self, parts: Sequence[bytes | memoryview | pa.Buffer]) -> None:
        """Write at the end: visible at once, durable after ``sync``."""
        with disk_failures("append to", self._path):
            # Few system calls: small parts are joined.
            small = sum(memoryview(part).nbytes for part in parts) <= _JOINED_BYTES_MAX
            for part in [b"".join(parts)] if small else parts:
                view = memoryview(part)
                while view.nbytes:
                    view = view[self._disk.write(self._open(), view) :]

    def sync(self) -> None:
        with disk_failures("sync", self._path):
            self._disk.fsync(self._open())

    def close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with disk_failures("close", self._path):
                self._disk.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor


class Disk(Protocol):
    """Calls on absolute paths. Each behaves, and raises, like the ``os`` call behind it in ``OsDisk``."""

    def open(self, path: str, flags: int, mode: int = ...) -> int: ...

    def write(self, descriptor: int, data: memoryview) -> int: ...

    def fsync(self, descriptor: int) -> None: ...

    def close(self, descriptor: int) -> None: ...

    def link(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str, mode: int) -> None: ...

    def read(self, path: str) -> pa.Buffer:
        """All bytes of a file."""

    def file_names(self, path: str) -> list[str]:
        """The names of the files directly in a folder, in any order."""

    def is_folder(self, path: str) -> bool:
        """False also if nothing exists there; OSError if that cannot be determined."""

    def access(self, path: str, mode: int) -> bool: ...

    def is_same(self, one: str, other: str) -> bool: ...

    def exists(self, path: str) -> bool: ...


class OsDisk:
    """The calls of this machine's ``os``."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        return os.open(path, flags, mode)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def read(self, path: str) -> pa.Buffer:
        if os.stat(path).st_size == 0:
            return pa.py_buffer(b"")
        with pa.memory_map(path) as file:
            return file.read_buffer()

    def file_names(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_file()]

    def is_folder(self, path: str) -> bool:
        # Not os.path.isdir, which reports a failing disk as a missing folder.
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def access(self, path: str, mode: int) -> bool:
        return os.access(path, mode)

    def is_same(self, one: str, other: str) -> bool:
        return os.path.samefile(one, other)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)
