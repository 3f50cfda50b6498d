"""Interleaving alternates the storage operations of two drivers of one checkpoint, in an order that a seed decides: a
storage asks before each operation, and a draw says who goes on.

Each seed is one order of operations, and every order has a seed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from persistent.storage import Put, Storage

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
