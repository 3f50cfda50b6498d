"""A folder of a local disk as a storage: files are synced before their names, names before the answer."""

from __future__ import annotations

import errno
import os
import uuid
from functools import partial
from typing import Any

import pyarrow as pa

from persistent.storage.failures import failures_told
from persistent.storage.files import Files, OsFiles
from persistent.storage.protocol import TEMPORARY, Put, checked_name


class LocalStorage:
    """A folder of a local disk that has hard links, made with its first file.

    ``private``: readable by its owner only; else as the process's umask has it.

    A process killed inside ``put_if_absent`` leaves a temporary file ``.tmp-<uuid>`` that no verb ever
    shows: at most one of a manifest's size for each crash. They may be deleted by hand while nothing runs.
    """

    shared = True
    local = True

    def __init__(self, path: str | os.PathLike[str], *, private: bool = True, files: Files | None = None) -> None:
        self.url = os.path.abspath(os.path.expanduser(path))
        self._mode = 0o700 if private else 0o777
        self._files: Files = OsFiles() if files is None else files
        self._settled: set[str] = set()
        self._listed: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return f"LocalStorage({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LocalStorage, private=self._mode == 0o700), (self.url,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        path = self._path(name)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}")
        with failures_told("create", path):
            self._settle(folder)
            try:
                self._create(temporary, data)
                try:
                    self._files.link(temporary, path)
                    answer = Put.WON
                except FileExistsError:
                    answer = Put.LOST
            finally:
                if self._files.exists(temporary):
                    self._files.unlink(temporary)
            # Also when lost: what the winner has made visible is relied upon from here on.
            self._sync_folder(folder)
        return answer

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._path(name)
        with failures_told("write", path, FileExistsError):
            self._settle(os.path.dirname(path))
            self._create(path, data)
            self._sync_folder(os.path.dirname(path))

    def read(self, name: str) -> pa.Buffer:
        path = self._path(name)
        with failures_told("read", path, FileNotFoundError):
            return self._files.read(path)

    def list(self, folder: str) -> list[str]:
        path = self._path(folder) if folder else self.url
        with failures_told("list", path, FileNotFoundError):
            try:
                names = self._files.file_names(path)
            except FileNotFoundError:
                return []
            found = sorted(name for name in names if not name.startswith(TEMPORARY))
            # A name that a driver linked and died before it was synced is seen; whoever acts on it relies on it.
            if found != self._listed.get(path) and self._files.access(path, os.W_OK):
                self._sync_folder(path)
                self._listed[path] = found
        return found

    def rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        with failures_told("rename", f"{old} to {new}", FileNotFoundError, FileExistsError):
            self._settle(os.path.dirname(new))
            try:
                self._files.link(old, new)
            except FileExistsError:
                if not self._files.is_same(old, new):
                    raise
            # In this order the file never hangs on a name that a loss of power could take away.
            self._sync_folder(os.path.dirname(new))
            self._files.unlink(old)
            self._sync_folder(os.path.dirname(old))

    def delete(self, name: str) -> None:
        path = self._path(name)
        with failures_told("delete", path, FileNotFoundError):
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                return

    def _path(self, name: str) -> str:
        return os.path.join(self.url, checked_name(name))

    def _settle(self, folder: str) -> None:
        """See to it that ``folder`` exists and is durable, up to what existed before.

        A folder that is there may have been made a moment ago by a process that has not synced it: so the
        first use syncs every folder from the root down.
        """
        if folder in self._settled and self._files.is_folder(folder):
            return
        missing = []
        place = folder
        while not self._files.is_folder(place):
            missing.append(place)
            place = os.path.dirname(place)
        for place in reversed(missing):
            try:
                self._files.mkdir(place, self._mode)
            except FileExistsError as error:
                # Another process may be making the same folder.
                if not self._files.is_folder(place):
                    raise NotADirectoryError(errno.ENOTDIR, f"{place} is a file") from error
        place, above = folder, os.path.dirname(folder)
        while place != above and (place in missing or len(place) >= len(self.url)):
            if place in self._settled and place not in missing:
                break
            if place in missing or self._files.access(above, os.R_OK):
                self._sync_folder(above)
            self._settled.add(place)
            place, above = above, os.path.dirname(above)

    def _create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create, write and sync a file. A failed sync is not tried again: the kernel has dropped the pages."""
        files = self._files
        descriptor = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode & 0o666)
        try:
            view = memoryview(data)
            while view.nbytes:
                view = view[files.write(descriptor, view) :]
            files.fsync(descriptor)
        finally:
            files.close(descriptor)

    def _sync_folder(self, path: str) -> None:
        descriptor = self._files.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._files.fsync(descriptor)
        finally:
            self._files.close(descriptor)
