"""A budget is how long, and in how much memory, a monoid is tried where nobody said on how many examples.

It is looked at before each call of the monoid's own methods, of which a copy of it tells. Its parts are the time of
one law each: a twelfth of what is left, so that a slow monoid is tried on every law a little and not on the first
alone. Time that the thread waited for a processor, while others had them all, does not count.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monoids.monoid import Group, Monoid

SECONDS = 5.0
BYTES = 400 * 2**20
"""Of memory, beyond what was held before a law: with what is found at the next look, less than 500 MB."""

_DRAWING = 0.3
_SHRINKING = 0.2
_SHARES = 12
_LOOKED_AT = ("combine", "lift", "present", "inverse", "fold", "encode", "decode")
_LOOK_S = 0.01
_STATM = Path("/proc/self/statm")
_SCHEDULED = Path("/proc/thread-self/schedstat")


class Spent(BaseException):
    """The part is used up: ``why`` says of what. No fault of the monoid, whose own ``except`` must not catch it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Effort:
    """``limited``: 5 seconds and 500 MB; else there is no limit."""

    def __init__(self, limited: bool) -> None:
        self.limited = limited
        self._spent = 0.0
        self._waited = 0.0
        self._deadline = math.inf
        self._next_look = math.inf
        self._held = 0

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within it, a third of the time may be spent."""
        with self._part(SECONDS * _DRAWING):
            yield

    @contextmanager
    def law(self) -> Iterator[None]:
        """Within it, a share of what is left, but for what is kept for shrinking."""
        with self._part((SECONDS * (1 - _SHRINKING) - self._spent) / _SHARES):
            yield

    @contextmanager
    def shrinking(self) -> Iterator[None]:
        """Within it, half of what was kept for it and of what else is left."""
        with self._part(max(SECONDS - self._spent, SECONDS * _SHRINKING) / 2):
            yield

    def look(self) -> None:
        """Raise Spent if the part is used up."""
        if not self.limited:
            return
        now = time.perf_counter() - self._waited
        if now > self._deadline:
            now = self._elapsed()
            if now > self._deadline:
                raise Spent(f"time ({SECONDS:g} s)")
        if now > self._next_look:
            self._next_look = now + _LOOK_S
            if _memory() - self._held > BYTES:
                raise Spent("memory (500 MB)")

    @contextmanager
    def _part(self, seconds: float) -> Iterator[None]:
        if not self.limited:
            yield
            return
        began = self._elapsed()
        outer = self._deadline, self._next_look, self._held
        self._deadline, self._next_look, self._held = min(began + seconds, outer[0]), began, _memory()
        try:
            yield
        finally:
            self._deadline, self._next_look, self._held = outer
            if outer[0] == math.inf:
                self._spent += self._elapsed() - began

    def _elapsed(self) -> float:
        """Seconds, but for those spent waiting for a processor."""
        self._waited = _waiting()
        return time.perf_counter() - self._waited


def watched(monoid: Monoid[Any], budget: Effort) -> Monoid[Any]:
    """A copy of the monoid that looks at the budget before each call of what it writes itself (``combine``, ``lift``,
    ``present``, ...); itself, if it cannot be copied so."""
    kind = type(monoid)
    if not budget.limited or kind.__module__.split(".")[0] == "monoids":
        return monoid

    def looking(name: str) -> Callable[..., Any]:
        def method(self: Any, *given: Any) -> Any:
            budget.look()
            return getattr(super(told, self), name)(*given)

        return method

    own = [name for name in _LOOKED_AT if getattr(kind, name, None) is not getattr(Group, name)]
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    try:
        told: type[Any] = type(kind.__name__, (kind,), {**names, **{name: looking(name) for name in own}})
        copied = copy.copy(monoid)
        copied.__class__ = told
    except Exception:
        return monoid
    return copied


def _waiting() -> float:
    """How many seconds this thread could have worked and had no processor; 0 where the system does not say."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _memory() -> int:
    """What this process holds in memory, in bytes; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
