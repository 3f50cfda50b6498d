"""A clock states a bound in event time: no earlier timestamp is expected.

Times are integers, milliseconds since the Unix epoch, UTC. Laws:

- a clock never goes back;
- ``closed <= watermark``: a window closes only in a step after the one that moved the watermark past its end.

This is the only module that reads the time of day, and that waits.

A request to stop reaches the code that waits for a server. A run that is asked to stop ends between two steps. While
a server is away, the end of the step would be minutes away: so code that waits for a server asks here, and raises
``Stopped`` instead of waiting on. The request belongs to the run in whose context the code waits; without a run, no
request ends the waiting.
"""

from __future__ import annotations

import numbers
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final

from persistent.errors import InvalidPipeline, Stopped
from persistent.text.figures import DURATION_UNITS

Duration = int | str | timedelta
"""Milliseconds, a ``timedelta``, or text such as ``"1 min"``."""
Instant = int | str | datetime
"""Milliseconds since the epoch, a ``datetime``, or text in ISO 8601."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS_MS = {name: ms for ms, names in DURATION_UNITS for name in names}
_DURATION = re.compile(r"([0-9]{1,30})\s*([a-z]+)")
_DURATION_MAX_MS = 2**61
"""Its sum with any time fits 64 bits."""
_MILLISECONDS = re.compile(r"-?[0-9]{1,30}")
_DATE_DIGITS = 8


def duration_ms(value: Duration, name: str = "duration") -> int:
    """A duration in milliseconds, zero or more, at most 2**61.

    >>> duration_ms("1 min"), duration_ms(timedelta(seconds=2)), duration_ms(7), duration_ms("2 days")
    (60000, 2000, 7, 172800000)
    >>> duration_ms("1 hour") == duration_ms("1 h") == duration_ms("1h") == 60 * duration_ms("1 minute")
    True
    """
    original = value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match or match[2] not in _UNITS_MS:
            units = "; ".join(", ".join(names) for _, names in DURATION_UNITS)
            raise ValueError(
                f"{name}: {value!r} is not a duration: give a whole number and a unit, for example '500 ms', '1 min', "
                f"'2 days'. The units: {units}"
            )
        value = int(match[1]) * _UNITS_MS[match[2]]
    if isinstance(value, timedelta):
        if value % timedelta(milliseconds=1):
            raise ValueError(f"{name}: {value} is not a whole number of milliseconds")
        value = value // timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {value!r} is neither milliseconds, a timedelta, nor text such as '1 min'")
    if value < 0:
        raise ValueError(f"{name}: {value} is negative")
    if value > _DURATION_MAX_MS:
        raise ValueError(
            f"{name}: {original!r} is too long: a duration is at most {_DURATION_MAX_MS} ms, 73 million years"
        )
    return value


def option_ms(value: Duration, name: str) -> int:
    """The option ``name``, a duration, in milliseconds. InvalidPipeline."""
    try:
        return duration_ms(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error


def bare(**durations: Duration | None) -> dict[str, int]:
    """The durations without a unit that may have been meant as seconds, because they are not whole seconds: 60, 300 and
    86400 milliseconds, but not 60_000.

    >>> bare(history=60, max_future=60_000, size="60 ms")
    {'history': 60}
    """
    return {name: value for name, value in durations.items() if isinstance(value, int) and value % 1_000}


def instant_ms(value: Any, name: str = "clock") -> int:
    """A point in time in milliseconds since the epoch; in UTC if it names no zone. ValueError, TypeError.

    >>> instant_ms("2013-12-20T00:00Z"), instant_ms(datetime(2013, 12, 20)), instant_ms(1_387_497_600_000)
    (1387497600000, 1387497600000, 1387497600000)
    """
    if isinstance(value, str):
        value = _read(value.strip(), name)
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH
        if since % timedelta(milliseconds=1):
            raise ValueError(f"{name}: {value} is not a whole number of milliseconds")
        value = since // timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: {value!r} is neither milliseconds since 1970, a datetime, nor text in ISO 8601")
    return int(value)


def _read(text: str, name: str) -> int | datetime:
    """A point in time from text: milliseconds, or ISO 8601."""
    if not _MILLISECONDS.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{name}: {text!r} is not a time: give 2024-05-01T10:00:00Z, or milliseconds since 1970"
            ) from None
    number = int(text)
    if _is_date(text):
        date, instant = datetime.fromisoformat(text).date(), _EPOCH + timedelta(milliseconds=number)
        raise ValueError(
            f"{name}: {text!r} can be a date or milliseconds since 1970: give {date}, or {instant.isoformat()}"
        )
    return number


def _is_date(digits: str) -> bool:
    """Whether digits are a date such as 20240501."""
    with suppress(ValueError):
        return len(digits) == _DATE_DIGITS and bool(datetime.fromisoformat(digits))
    return False


def wall_ms() -> int:
    """The time of day, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds that only ever go forward, for measuring."""
    return time.perf_counter()


def sleep_s(seconds: float) -> None:
    """Pause."""
    time.sleep(seconds)


def later_of(largest: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """The largest timestamp of each partition: before, and seen since."""
    return {**largest, **{name: max(timestamp, largest.get(name, timestamp)) for name, timestamp in seen.items()}}


def bound_of(largest: Mapping[str, int], cap: Mapping[str, int | None], lag_ms: int) -> int | None:
    """The event time that the partitions in ``cap`` have reached; None if the clock waits for none of them. A partition
    without a record counts as 0. ``cap``: bounds of listed, unread data; ``lag_ms``: allowed disorder.

    >>> bound_of({"a": 9, "b": 7}, {"a": None, "b": 5}, 1), bound_of({"a": 9}, {}, 1)
    (5, None)
    """
    bounds = []
    for partition, bound in cap.items():
        reached = largest[partition] - lag_ms if partition in largest else 0
        bounds.append(reached if bound is None or partition not in largest else min(reached, bound))
    return min(bounds, default=None)


@dataclass(frozen=True)
class Clock:
    """The event time of a checkpoint.

    ``watermark``: no earlier timestamp is expected. ``closed``: every window with ``end <= closed`` has been staged.
    ``largest``: the largest processed timestamp of each partition. ``end_of_input``: the input was declared complete,
    and no record has arrived since.
    """

    watermark: int = 0
    closed: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    end_of_input: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "watermark": self.watermark,
            "closed": self.closed,
            "largest": dict(self.largest),
            "end_of_input": self.end_of_input,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Clock:
        return Clock(data["watermark"], data["closed"], dict(data["largest"]), data["end_of_input"])


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
