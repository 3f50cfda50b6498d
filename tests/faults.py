"""A storage that dies, or runs out of space, at the k-th operation."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from dataclasses import dataclass, field

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage import LocalStorage, MemoryStorage, Put, Storage

DEATHS = ("before", "after", "half")
"""How a process dies at an operation: nothing done; done, but it never learns; cut off in the middle."""


class Killed(BaseException):
    """The process is dead. Not an Exception: nothing that goes on after errors may go on after this."""


@dataclass
class Operations:
    """The operations of one process, over all its storages, counted from 0.

    At operation ``at`` happens ``how``: one of DEATHS (from then on every operation raises ``Killed``),
    "full-once" or "full" (StorageError for ENOSPC at operations that write; once, or from then on).
    ``at=None``: only count. ``log`` holds a line for each operation: verb, URL and name.
    """

    at: int | None = None
    how: str = "before"
    dead: bool = False
    log: list[tuple[str, str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _full: bool = False

    @property
    def count(self) -> int:
        """The operations begun so far."""
        return len(self.log)

    def begin(self, verb: str, url: str, name: str) -> bool:
        """Note an operation; True iff it is the one at which the process dies."""
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
            if verb in ("put_if_absent", "write", "rename") and not self._full:
                # "full-once" refuses the first write from ``at`` on, and only that one.
                self._full = self.how == "full-once"
                cause = OSError(errno.ENOSPC, "No space left on device")
                raise StorageError(f"cannot {verb} {url}/{name}: No space left on device") from cause
            return False


class FaultyStorage:
    """``inner``, with a fault at the operation that ``operations`` says; storages of one process share it."""

    def __init__(self, inner: Storage, operations: Operations) -> None:
        self.inner = inner
        self.operations = operations
        self.url = inner.url
        self.shared = False
        self.local = inner.local

    def put_if_absent(self, name: str, data: bytes) -> Put:
        dies = self.operations.begin("put_if_absent", self.url, name)
        if not dies:
            return self.inner.put_if_absent(name, data)
        if self._how("half") and isinstance(self.inner, LocalStorage):
            folder = os.path.dirname(os.path.join(self.url, name))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f".tmp-{uuid.uuid4().hex}"), "wb") as file:
                file.write(data[: len(data) // 2])
        if self._how("after"):
            self.inner.put_if_absent(name, data)
        raise Killed(f"{self.operations.how} put_if_absent {name}")

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        dies = self.operations.begin("write", self.url, name)
        if not dies or self._how("after"):
            self.inner.write(name, data)
        elif self._how("half"):
            self.inner.write(name, bytes(data)[: len(data) // 2])
        if dies:
            raise Killed(f"{self.operations.how} write {name}")

    def read(self, name: str) -> pa.Buffer:
        if self.operations.begin("read", self.url, name):
            raise Killed(f"{self.operations.how} read {name}")
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        if self.operations.begin("list", self.url, folder):
            raise Killed(f"{self.operations.how} list {folder}")
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        dies = self.operations.begin("rename", self.url, source)
        if not dies or self._how("after"):
            self.inner.rename(source, target)
        elif self._how("half"):
            self._both_names(source, target)
        if dies:
            raise Killed(f"{self.operations.how} rename {source}")

    def delete(self, name: str) -> None:
        dies = self.operations.begin("delete", self.url, name)
        if not dies or self._how("after"):
            self.inner.delete(name)
        if dies:
            raise Killed(f"{self.operations.how} delete {name}")

    def _how(self, how: str) -> bool:
        return self.operations.how == how

    def _both_names(self, source: str, target: str) -> None:
        """What a rename leaves that is cut off between its two effects; nothing, where it would have failed."""
        if isinstance(self.inner, LocalStorage):
            old, new = os.path.join(self.url, source), os.path.join(self.url, target)
            if os.path.exists(old) and not os.path.exists(new):
                os.makedirs(os.path.dirname(new), exist_ok=True)
                os.link(old, new)
        elif isinstance(self.inner, MemoryStorage) and source in self.inner._files:
            self.inner._files.setdefault(target, self.inner._files[source])
