"""A budget bounds the time and memory of testing a monoid if the user gives no number of examples. The first ten
examples of a law have all the time that they need.

A copy of the monoid checks the budget before each call of the monoid's own methods. Each law gets a part of the time:
a twelfth of the time left, so a slow monoid is tested on every law a little and not only on the first. Time that the
thread waits for a processor while others use all of them does not count.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from monoids.monoid import Group, Monoid

SECONDS = 5.0
BYTES = 400 * 2**20
"""Memory allocated since the law began. With the allocations until the next check, less than 500 MB."""

_DRAWING = 0.3
_SHRINKING = 0.2
_SHARES = 12
_GUARDED: tuple[Any, ...] = (
    *(Monoid.combine, Monoid.lift, Monoid.present, Monoid.fold, Monoid.encode, Monoid.decode),
    Group.inverse,
)
_CHECK_S = 0.01
_STATM = Path("/proc/self/statm")
_SCHEDULED = Path("/proc/thread-self/schedstat")


class BudgetSpent(BaseException):
    """The part is used up; the text names the resource. Not an Exception, so that a monoid's ``except`` cannot catch
    it."""


class TrialBudget:
    """``limited``: 5 seconds and 500 MB; otherwise there is no limit."""

    def __init__(self, limited: bool) -> None:
        self.limited = limited
        self.lacks = "inputs"
        """What a law lacks that is tested on fewer examples."""
        self._spent = 0.0
        self._waited = 0.0
        self._deadline = math.inf
        self._next_check = math.inf
        self._held = 0

    @contextmanager
    def drawing(self) -> Iterator[Callable[[], None]]:
        """While the context is open, a third of the time can be spent, from the first call of the given check on: to
        draw its first text, Hypothesis makes tables, which takes seconds."""
        with ExitStack() as part:

            def check() -> None:
                if self.limited and self._deadline == math.inf:
                    part.enter_context(self._part(SECONDS * _DRAWING))
                self.check()

            yield check

    @contextmanager
    def least(self) -> Iterator[None]:
        """While the context is open, any time can be spent: a law that was tested on next to nothing does not hold."""
        with self._part(math.inf):
            yield

    @contextmanager
    def law(self) -> Iterator[None]:
        """While the context is open, a share of the time left, not counting the reserve for shrinking."""
        with self._part((SECONDS * (1 - _SHRINKING) - self._spent) / _SHARES):
            yield

    @contextmanager
    def shrinking(self) -> Iterator[None]:
        """While the context is open, half of the reserve for shrinking and of any other time left."""
        with self._part(max(SECONDS - self._spent, SECONDS * _SHRINKING) / 2):
            yield

    def check(self) -> None:
        """Raise BudgetSpent if the part is used up."""
        if not self.limited:
            return
        now = time.perf_counter() - self._waited
        if now > self._deadline:
            now = self._elapsed()
            if now > self._deadline:
                raise self._spending(f"time ({SECONDS:g} s)")
        if now > self._next_check:
            self._next_check = now + _CHECK_S
            if _memory() - self._held > BYTES:
                raise self._spending("memory (500 MB)")

    def _spending(self, why: str) -> BudgetSpent:
        self.lacks = why
        return BudgetSpent(why)

    @contextmanager
    def _part(self, seconds: float) -> Iterator[None]:
        if not self.limited:
            yield
            return
        began = self._elapsed()
        outer = self._deadline, self._next_check, self._held
        self._deadline, self._next_check, self._held = min(began + seconds, outer[0]), began, _memory()
        try:
            yield
        finally:
            self._deadline, self._next_check, self._held = outer
            if outer[0] == math.inf:
                self._spent += self._elapsed() - began

    def _elapsed(self) -> float:
        """Seconds, without those spent waiting for a processor."""
        self._waited = _waiting()
        return time.perf_counter() - self._waited


def budgeted(monoid: Monoid[Any], budget: TrialBudget) -> Monoid[Any]:
    """A copy of the monoid that checks the budget before each call of a method its class defines (``combine``,
    ``lift``, ``present``, ...); the monoid itself if it cannot be copied that way."""
    kind = type(monoid)
    if not budget.limited or kind.__module__.split(".")[0] == "monoids":
        return monoid

    def guarded(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            budget.check()
            return getattr(super(checked, self), name)(*arguments)

        return method

    names = {default.__name__: default for default in _GUARDED}
    overridden = [name for name, default in names.items() if getattr(kind, name, default) is not default]
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    try:
        checked: type[Any] = type(kind.__name__, (kind,), {**names, **{name: guarded(name) for name in overridden}})
        copied = copy.copy(monoid)
        copied.__class__ = checked
    except Exception:
        return monoid
    return copied


def _waiting() -> float:
    """Seconds that this thread was ready to run but had no processor; 0 where the system does not report it."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _memory() -> int:
    """The memory of this process in bytes; 0 where the system does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
