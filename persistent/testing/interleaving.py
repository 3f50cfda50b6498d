"""Drivers take turns at their storage operations: one works, the other waits, and a seed says who is next.

So two drivers of one checkpoint meet in every way that their operations can follow each other, each from its seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from persistent.testing.pauses import Before
from persistent.testing.seeded import draw

T = TypeVar("T")


class Interleaving:
    """The turns of drivers 0 and 1; driver 0 begins."""

    def __init__(self, *seed: object) -> None:
        self._seed = seed
        self._whose = 0
        self._operations = 0
        self._ended: set[int] = set()
        self._changed = threading.Condition()

    def before(self, me: int) -> Before:
        """What driver ``me`` asks before each operation."""

        def before(verb: str, name: str) -> None:
            with self._changed:
                self._operations += 1
                if draw(4, *self._seed, self._operations) == 0:
                    self._whose = 1 - me
                    self._changed.notify_all()
            self.wait(me)

        return before

    def wait(self, me: int) -> None:
        """Wait until it is the turn of ``me``, or the other has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._whose == me or 1 - me in self._ended)

    def end(self, me: int) -> None:
        """Driver ``me`` has no more operations."""
        with self._changed:
            self._ended.add(me)
            self._changed.notify_all()


def run_both(first: Callable[[], T], second: Callable[[], T], turns: Interleaving) -> tuple[T, T]:
    """Run both, the first in this thread. What one raises is raised when both have ended."""
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
