"""A faulty storage fails at one operation of a process: the process dies, or the storage refuses or loses its
answer."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage import MemoryStorage, Put, Storage

DEATHS = ("before", "after", "half")
"""How a process dies at an operation: before it, after it, or in the middle."""

_CHANGES = ("put_if_absent", "write", "rename", "delete")


class Killed(BaseException):
    """The process is dead. Not an Exception: no error handler can continue after it."""


@dataclass
class Operations:
    """The operations of one process, over all its storages, counted from 0.

    The fault ``how`` happens at operation ``at``. One of DEATHS: every operation from then on raises ``Killed``.
    "full-once", "full": from ``at`` on, the first write or every write raises StorageError for ENOSPC. "error": one
    StorageError. "lost", "lost-undone": the operation, or the first change after it, is done or not, and its answer is
    lost. ``at=None``: only count. ``log``: verb, URL and name of each operation.

    >>> operations = Operations(at=1)
    >>> storage = FaultyStorage(MemoryStorage("doctest-faults"), operations)
    >>> storage.list("m")
    []
    >>> storage.write("m/1", b"one")
    Traceback (most recent call last):
    ...
    persistent.testing.faults.Killed: before write m/1
    """

    at: int | None = None
    how: str = "before"
    dead: bool = False
    log: list[tuple[str, str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _happened: bool = False

    @property
    def count(self) -> int:
        """The operations begun so far."""
        return len(self.log)

    def begin(self, verb: str, url: str, name: str) -> bool:
        """Log an operation; True iff the process dies at it, or its answer is lost."""
        with self._lock:
            if self.dead:
                raise Killed(f"dead since operation {self.at}")
            number = len(self.log)
            self.log.append((verb, url, name))
            if self.at is None or number < self.at:
                return False
            if self.how in DEATHS:
                self.dead = True
                return True
            if self._happened and self.how != "full":
                return False
            return self._refuse(verb, f"{url}/{name}")

    def _refuse(self, verb: str, place: str) -> bool:
        if self.how.startswith("lost"):
            self._happened = verb in _CHANGES
            return self._happened
        if self.how == "error":
            self._happened = True
            cause = OSError(errno.EIO, "Input/output error")
            raise StorageError(f"cannot {verb} {place}: Input/output error") from cause
        if verb in ("put_if_absent", "write", "rename"):
            self._happened = True
            cause = OSError(errno.ENOSPC, "No space left on device")
            raise StorageError(f"cannot {verb} {place}: No space left on device") from cause
        return False


class FaultyStorage:
    """``inner`` with the fault of ``operations``, which all storages of one process share."""

    def __init__(self, inner: Storage, operations: Operations) -> None:
        self.inner = inner
        self.operations = operations
        self.url = inner.url
        self.shared = False
        self.local = inner.local

    def __repr__(self) -> str:
        return f"FaultyStorage({self.inner!r})"

    def put_if_absent(self, name: str, data: bytes) -> Put:
        if not self.operations.begin("put_if_absent", self.url, name):
            return self.inner.put_if_absent(name, data)
        if self._how("half"):
            self.torn_put(name, data)
        if self._how("after") or self._how("lost"):
            self.inner.put_if_absent(name, data)
        if self.operations.dead:
            raise Killed(f"{self.operations.how} put_if_absent {name}")
        return Put.UNKNOWN

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        strikes = self.operations.begin("write", self.url, name)
        if not strikes or self._how("after") or self._how("lost"):
            self.inner.write(name, data)
        elif self._how("half"):
            self.inner.write(name, bytes(data)[: len(data) // 2])
        if strikes:
            self._strike("write", name)

    def read(self, name: str) -> pa.Buffer:
        if self.operations.begin("read", self.url, name):
            self._strike("read", name)
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        if self.operations.begin("list", self.url, folder):
            self._strike("list", folder)
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        strikes = self.operations.begin("rename", self.url, source)
        if not strikes or self._how("after") or self._how("lost"):
            self.inner.rename(source, target)
        elif self._how("half"):
            self.torn_rename(source, target)
        if strikes:
            self._strike("rename", source)

    def delete(self, name: str) -> None:
        strikes = self.operations.begin("delete", self.url, name)
        if not strikes or self._how("after") or self._how("lost"):
            self.inner.delete(name)
        if strikes:
            self._strike("delete", name)

    def torn_put(self, name: str, data: bytes) -> None:
        """The remains of an interrupted put: none that any operation shows."""

    def torn_rename(self, source: str, target: str) -> None:
        """The remains of a rename interrupted between its two effects; none if the rename would have failed."""
        if isinstance(self.inner, MemoryStorage) and source in self.inner._files:
            self.inner._files.setdefault(target, self.inner._files[source])

    def _how(self, how: str) -> bool:
        return self.operations.how == how

    def _strike(self, verb: str, name: str) -> None:
        if self.operations.dead:
            raise Killed(f"{self.operations.how} {verb} {name}")
        cause = TimeoutError("no answer")
        raise StorageError(f"cannot {verb} {self.url}/{name}: no answer in time") from cause
