"""The operating system as a local storage calls it: a few calls, so that a simulated disk can replace it."""

from __future__ import annotations

import os
import stat
from typing import Protocol

import pyarrow as pa


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
