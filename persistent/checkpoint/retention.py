"""Retention determines which checkpoints to keep: the newest few, and one for each of the last hours and days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from persistent.errors import InvalidPipeline

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """Which checkpoints to keep: the newest ``last``, and the newest of each of the last ``hourly`` hours and ``daily``
    days (UTC, by the time of day of their commit; only hours and days with a checkpoint count).

    >>> Retention(last=3, daily=30)
    Retention(last=3, hourly=0, daily=30)
    """

    last: int = 10
    hourly: int = 0
    daily: int = 0

    def __post_init__(self) -> None:
        for name, least in (("last", 1), ("hourly", 0), ("daily", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidPipeline(f"Retention({name}={value!r}): give a whole number, at least {least}")

    def oldest(self, checkpoints: Mapping[int, int], before: int) -> int:
        """The id from which all are kept, never lower than ``before``. ``checkpoints``: id to time of commit (ms)."""
        newest = sorted(checkpoints)[-self.last :]
        return max(before, newest[0] if newest else 0)

    def thinned(self, checkpoints: Mapping[int, int], oldest: int) -> tuple[int, ...]:
        """The ids below ``oldest`` that are kept for their hour or day."""
        kept: set[int] = set()
        for count, span_ms in ((self.hourly, _HOUR_MS), (self.daily, 24 * _HOUR_MS)):
            newest = {checkpoints[id] // span_ms: id for id in sorted(checkpoints)}
            kept |= {newest[span] for span in sorted(newest)[len(newest) - min(count, len(newest)) :]}
        return tuple(sorted(id for id in kept if id < oldest))
