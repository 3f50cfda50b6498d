"""A faulty storage dies, refuses, or loses its answer at the k-th operation of a process."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage import MemoryStorage, Put, Storage

DEATHS = ("before", "after", "half")
"""How a process dies at an operation: nothing done; done, but it never learns; cut off in the middle."""

REFUSALS = ("full", "full-once", "error", "lost", "lost-undone")
"""What else a storage does: refuse writes from then on, or once; refuse one operation; not answer, done or not."""

_CHANGES = ("put_if_absent", "write", "rename", "delete")


class Killed(BaseException):
    """The process is dead. Not an Exception: nothing that goes on after errors may go on after this."""


@dataclass
class Operations:
    """The operations of one process, over all its storages, counted from 0.

    At operation ``at`` happens ``how``. One of DEATHS: from then on every operation raises ``Killed``. "full-once" or
    "full": StorageError for ENOSPC at operations that write, the first from ``at`` on or all. "error": StorageError,
    once. "lost", "lost-undone": the operation, or the first change after it, is done or is not, and gets no answer.
    ``at=None``: only count. ``log`` holds a line for each operation: verb, URL and name.

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
        """Note an operation; True iff it is the one at which the process dies, or whose answer is lost."""
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
    """``inner``, with a fault at the operation that ``operations`` says; storages of one process share it."""

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
        """What a put leaves that is cut off in the middle: nothing that any verb shows."""

    def torn_rename(self, source: str, target: str) -> None:
        """What a rename leaves that is cut off between its two effects; nothing, where it would have failed."""
        if isinstance(self.inner, MemoryStorage) and source in self.inner._files:
            self.inner._files.setdefault(target, self.inner._files[source])

    def _how(self, how: str) -> bool:
        return self.operations.how == how

    def _strike(self, verb: str, name: str) -> None:
        if self.operations.dead:
            raise Killed(f"{self.operations.how} {verb} {name}")
        cause = TimeoutError("no answer")
        raise StorageError(f"cannot {verb} {self.url}/{name}: no answer in time") from cause
