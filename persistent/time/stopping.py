"""A request to stop reaches the code that waits for a server.

A run that is asked to stop ends between two steps. While a server is away, the end of the step would be minutes away:
so code that waits for a server asks here, and raises ``Stopped`` instead of waiting on. The request belongs to the run
in whose context the code waits; without a run, no request ends the waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Final

from persistent.errors import Stopped
from persistent.time.clock import monotonic_s, sleep_s

_LOOK_SECONDS: Final = 0.1


class StopRequest:
    """Whether a run is asked to stop. A signal handler makes the request: it interrupts a thread that may hold any
    lock, so it takes no lock, and the code that waits looks again and again."""

    def __init__(self, sleep: Callable[[float], None] = sleep_s, clock: Callable[[], float] = monotonic_s) -> None:
        self._sleep, self._clock = sleep, clock
        self._made_s: float | None = None
        self._pauses = 0
        self._counting = Lock()

    def make(self) -> None:
        """Ask to stop. The first request counts."""
        if self._made_s is None:
            self._made_s = self._clock()

    @property
    def is_made(self) -> bool:
        return self._made_s is not None

    def is_older(self, seconds: float) -> bool:
        """Whether the request was made at least ``seconds`` ago."""
        return self._made_s is not None and self._clock() - self._made_s >= seconds

    @property
    def pauses(self) -> int:
        """The number of pauses between two tries, by all code that waits for a server."""
        return self._pauses

    def count_pause(self) -> None:
        """Count a pause. It takes a lock, because many threads can wait at once; no signal handler calls it."""
        with self._counting:
            self._pauses += 1

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or once the request is made. The time is the sum of the sleeps, because a manual
        clock stands still."""
        left = seconds
        while not self.is_made and left > 0:
            self._sleep(min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS


@dataclass(frozen=True)
class _Heard:
    request: StopRequest
    grace_seconds: float


_heard: ContextVar[_Heard | None] = ContextVar("stop request", default=None)


@contextmanager
def heard(request: StopRequest, grace_seconds: float) -> Iterator[None]:
    """While the context is open, waiting ends ``grace_seconds`` after the request is made: a short disturbance of a
    server must not keep a step from its end."""
    token = _heard.set(_Heard(request, grace_seconds))
    try:
        yield
    finally:
        _heard.reset(token)


def is_over() -> bool:
    """Whether waiting has to end."""
    scope = _heard.get()
    return scope is not None and scope.request.is_older(scope.grace_seconds)


def require_waiting(why: str) -> None:
    """Raise Stopped if waiting has to end. ``why``: what is waited for, or what failed."""
    if is_over():
        raise Stopped(
            f"stopped while a server was away: {why}. What was not finished is done by the next run: the last "
            "checkpoint is good"
        )


def pause(seconds: float, why: str, sleep: Callable[[float], None] = sleep_s) -> None:
    """Pause between two tries. Stopped as soon as waiting has to end."""
    scope = _heard.get()
    if scope is None:
        sleep(seconds)
        return
    scope.request.count_pause()
    left = seconds
    while left > 0:
        require_waiting(why)
        sleep(min(left, _LOOK_SECONDS))
        left -= _LOOK_SECONDS
    require_waiting(why)
