"""A manual clock replaces the time in ``persistent``, and stands still until the test moves it."""

from __future__ import annotations

from typing import Any

from persistent.time import clock
from persistent.time.clock import Duration, duration_ms

START_MS = 1_900_000_000_000
"""The first time of a manual clock: 17 March 2030."""


class ManualClock:
    """Replaces, within ``with``, the time of day and the measuring clock of ``persistent`` in the whole process.

    Code that reads the time from Python itself still sees the true time.

    >>> from persistent.time.clock import wall_ms
    >>> with ManualClock(1_000) as manual:
    ...     manual.advance("1 min")
    ...     wall_ms()
    61000
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self._passed_ms = 0
        self._before: list[Any] = []

    def __repr__(self) -> str:
        return f"ManualClock({self.now_ms})"

    def advance(self, duration: Duration) -> None:
        """Let time pass: milliseconds, a ``timedelta``, or text such as "1 min"."""
        passed = duration_ms(duration)
        self.now_ms += passed
        self._passed_ms += passed

    def set(self, now_ms: int) -> None:
        """Set the time of day, forward or back, as an operator does; measured durations do not change."""
        self.now_ms = now_ms

    def __enter__(self) -> ManualClock:
        self._before.append(vars(clock)["time"])
        setattr(clock, "time", _TimeModule(self, self._before[-1]))  # noqa: B010
        return self

    def __exit__(self, *raised: object) -> None:
        setattr(clock, "time", self._before.pop())  # noqa: B010

    # Called by ``persistent.time.clock``.

    def _read(self, name: str) -> int | float:
        ms = self.now_ms if name.startswith("time") else self._passed_ms
        return ms * 1_000_000 if name.endswith("_ns") else ms / 1_000


class _TimeModule:
    """The module ``time`` with the readings of the manual clock."""

    def __init__(self, manual: ManualClock, module: Any) -> None:
        self._manual = manual
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in READINGS:
            return lambda: self._manual._read(name)
        return getattr(self._module, name)


READINGS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
"""The functions of ``time`` that read a clock."""
