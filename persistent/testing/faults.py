"""A faulty storage fails at one operation of a process: the process dies, or the storage refuses or loses its
answer.

Interleaving alternates the storage operations of two drivers of one checkpoint, in an order that a seed decides: a
storage asks before each operation, and a draw says who goes on.

Each seed is one order of operations, and every order has a seed.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage.memory import MemoryStorage
from persistent.storage.protocol import Put, Storage

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


Before = Callable[[str, str], None]
"""Called with the verb and the name, before the operation."""


class AskingStorage:
    """``inner``, which calls ``before`` before every operation, so that a test can delay it or run another driver
    first."""

    def __init__(self, inner: Storage, before: Before) -> None:
        self.inner = inner
        self.before = before
        self.url = inner.url
        self.shared = inner.shared
        self.local = inner.local

    def __repr__(self) -> str:
        return f"AskingStorage({self.inner!r})"

    def put_if_absent(self, name: str, data: bytes) -> Put:
        self.before("put_if_absent", name)
        return self.inner.put_if_absent(name, data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self.before("write", name)
        self.inner.write(name, data)

    def read(self, name: str) -> pa.Buffer:
        self.before("read", name)
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        self.before("list", folder)
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source)
        self.inner.rename(source, target)

    def delete(self, name: str) -> None:
        self.before("delete", name)
        self.inner.delete(name)


class Once:
    """Runs ``action`` before the first operation that ``matches``, in the thread that was about to perform it."""

    def __init__(self, matches: Callable[[str, str], bool], action: Callable[[], object]) -> None:
        self._matches = matches
        self._action = action
        self.happened = False

    def __call__(self, verb: str, name: str) -> None:
        if not self.happened and self._matches(verb, name):
            self.happened = True
            self._action()


T = TypeVar("T")


class Interleaving:
    """The driver whose turn it is, 0 or 1; driver 0 begins."""

    def __init__(self, *seed: object) -> None:
        self._seed = seed
        self._whose = 0
        self._operations = 0
        self._ended: set[int] = set()
        self._changed = threading.Condition()

    def before(self, me: int) -> Before:
        """The callback of driver ``me`` before each operation."""

        def before(verb: str, name: str) -> None:
            with self._changed:
                self._operations += 1
                if draw(4, *self._seed, self._operations) == 0:
                    self._whose = 1 - me
                    self._changed.notify_all()
            self.wait(me)

        return before

    def wait(self, me: int) -> None:
        """Wait for the turn of ``me``, or for the other's end."""
        with self._changed:
            self._changed.wait_for(lambda: self._whose == me or 1 - me in self._ended)

    def end(self, me: int) -> None:
        """Record that driver ``me`` has no more operations."""
        with self._changed:
            self._ended.add(me)
            self._changed.notify_all()


def run_both(first: Callable[[], T], second: Callable[[], T], turns: Interleaving) -> tuple[T, T]:
    """Run both, the first in this thread. An error is raised once both have ended."""
    answers: list[T] = []
    failures: list[BaseException] = []

    def beside() -> None:
        turns.wait(1)
        try:
            answers.append(second())
        except BaseException as error:
            failures.append(error)
        finally:
            turns.end(1)

    thread = threading.Thread(target=beside, name="second driver")
    thread.start()
    try:
        answer = first()
    finally:
        turns.end(0)
        thread.join()
    if failures:
        raise failures[0]
    return answer, answers[0]


def draw(limit: int, *seed: object) -> int:
    """A number from 0 to ``limit`` - 1, evenly distributed and fixed by its seed: equal on every machine and in every
    version of Python.

    >>> [draw(10, "seed", number) for number in range(5)]
    [2, 4, 5, 4, 4]
    """
    return int.from_bytes(hashlib.sha256(repr(seed).encode()).digest()[:8], "big") % limit


def choose(among: Sequence[T], *seed: object) -> T:
    """One of ``among``."""
    return among[draw(len(among), *seed)]
