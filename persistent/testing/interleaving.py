"""Interleaving alternates the storage operations of two drivers of one checkpoint, in an order that a seed decides.

Each seed is one order of operations, and every order has a seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from persistent.testing.pauses import Before
from persistent.testing.seeded import draw

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
