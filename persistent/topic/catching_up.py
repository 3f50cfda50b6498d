"""How long a receiver needs to catch up: the backlog divided by the difference of two rates.

With ``behind`` messages missing, ``live`` published and ``rate`` handed out per second, it takes behind / (rate - live)
seconds. If the live rate is not below the recovery rate, it never catches up.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

_SAMPLES = 6
_SAMPLE_MS = 1_000


@dataclass(frozen=True)
class CatchUp:
    """``behind``: messages known but not handed out. ``live``, ``rate``: messages published and handed out per second.
    ``seconds``: until it has caught up; 0 if it has, None while unknown, ``inf`` if it never will."""

    behind: int
    live: float = 0.0
    rate: float = 0.0
    seconds: float | None = None

    @property
    def never(self) -> bool:
        """Whether it falls behind for ever at the present rates."""
        return self.seconds == math.inf


def seconds_to_catch_up(behind: int, live: float, rate: float) -> float:
    """Seconds until no message is missing.

    >>> seconds_to_catch_up(9_000, live=100, rate=1_000), seconds_to_catch_up(1, live=50, rate=50)
    (10.0, inf)
    """
    if behind <= 0:
        return 0.0
    return behind / (rate - live) if rate > live else math.inf


class Meter:
    """Samples, over some seconds, of the end of a session and of how far it was handed out."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SAMPLES)

    def sample(self, now: int, stop: int, next_: int) -> None:
        """Record both numbers, at most once a second. ``now``: ms, never back."""
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now, stop, next_))

    def estimate(self, behind: int) -> CatchUp:
        """Estimate the time to catch up from the samples."""
        if len(self._samples) < 2:
            return CatchUp(behind, seconds=None if behind else 0.0)
        (began, stop0, next0), (ended, stop1, next1) = self._samples[0], self._samples[-1]
        seconds = (ended - began) / 1_000
        live, rate = (stop1 - stop0) / seconds, (next1 - next0) / seconds
        return CatchUp(behind, live, rate, seconds_to_catch_up(behind, live, rate))
