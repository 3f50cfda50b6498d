"""Garbage is a file that no kept manifest names and that no work under way may still name.

A file is deleted iff it is not live, and its epoch is lower than ours, or it is ours and its id is at or below
the committed one. Age plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from persistent.errors import InvalidPipeline

_HOUR_MS = 3_600_000
_ATTEMPT = re.compile(r"e(\d+)-c(\d+)-[0-9a-f]{32}")


def attempt_name(epoch: int, id: int, nonce: str) -> str:
    """The unique name of one attempt at the work of checkpoint ``id``.

    >>> attempt_name(3, 41, "0" * 32)
    'e3-c41-00000000000000000000000000000000'
    """
    return f"e{epoch}-c{id}-{nonce}"


def garbage(names: Iterable[str], live: Collection[str], epoch: int, id: int) -> list[str]:
    """Which of these attempts' files to delete, for a driver of this epoch that has committed ``id``."""
    return [name for name in names if name not in live and is_abandoned(name, epoch, id)]


def is_abandoned(name: str, epoch: int, id: int) -> bool:
    """Whether nobody can still be working for this file."""
    match = _ATTEMPT.match(name.rpartition("/")[2])
    if not match:
        return False
    of_epoch, of_id = int(match[1]), int(match[2])
    return of_epoch < epoch or (of_epoch == epoch and of_id <= id)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept: the newest ``last``, and the newest of each of the last ``hourly`` hours and
    ``daily`` days (UTC, by the time of day of their commit; only those that hold a checkpoint count).

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
        """The id from which all are kept, of checkpoints (id to time of commit, ms); never lower than ``before``."""
        newest = sorted(checkpoints)[-self.last :]
        return max(before, newest[0] if newest else 0)

    def thinned(self, checkpoints: Mapping[int, int], oldest: int) -> tuple[int, ...]:
        """Those below ``oldest`` that are kept for their hour or day."""
        kept: set[int] = set()
        for count, span_ms in ((self.hourly, _HOUR_MS), (self.daily, 24 * _HOUR_MS)):
            newest = {checkpoints[id] // span_ms: id for id in sorted(checkpoints)}
            kept |= {newest[span] for span in sorted(newest)[len(newest) - min(count, len(newest)) :]}
        return tuple(sorted(id for id in kept if id < oldest))
