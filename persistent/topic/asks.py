"""The pending requests of a receiver: at most ``window`` messages at a time.

A sender answers the oldest first, and over an ordered connection. So as long as answers come, a request waits in line:
it is repeated after a delay in which none came, which doubles. It is lost after a timeout in which nothing came but
reports of the sender that it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persistent.topic.messages import ASK_MAX, BEAT_MS
from persistent.topic.options import JoinOptions


@dataclass
class _Asked:
    at: int
    """When it was requested last."""
    wait: int
    since: int
    """When it was requested first, on the clock of the timeout."""


class Asks:
    """The pending requests by message number, in order. Times are milliseconds of a clock that never goes back.

    The clock of the timeout advances only while the sender is heard: a word from it vouches for the beat before it. So
    a sender that was stopped, or could not be reached, or a receiver that was, has not been waited for.
    """

    def __init__(self, options: JoinOptions) -> None:
        self._window = options.window
        self._retry = options.ms("retry")
        self._retry_max = max(options.ms("retry_max"), self._retry)
        self._timeout = options.ms("timeout")
        self._vouched_most = max(1, min(BEAT_MS, self._timeout // 2))
        self._asked: dict[int, _Asked] = {}
        self._heard_at = 0
        self._answered_at = 0
        self._vouched = self._moved = 0
        self.repeated = 0

    def __contains__(self, number: int) -> bool:
        return number in self._asked

    @property
    def has_room(self) -> bool:
        return len(self._asked) < self._window

    def add(self, number: int, now: int) -> None:
        self._heard_at = max(self._heard_at, now)
        self._asked[number] = _Asked(now, self._retry, self._vouched)

    def drop(self, number: int) -> None:
        self._asked.pop(number, None)

    def drop_below(self, number: int) -> None:
        for one in [one for one in self._asked if one < number]:
            del self._asked[one]

    def heard(self, now: int, *, moves: bool = False, answers: bool = False) -> None:
        """The sender was heard. ``moves``: by a message, or a part of one; ``answers``: it may be a requested one."""
        self._vouched += min(max(now - self._heard_at, 0), self._vouched_most)
        self._heard_at = max(self._heard_at, now)
        if moves:
            self._moved = self._vouched
        if answers:
            self._answered_at = now

    def due(self, now: int) -> list[int]:
        """The requests to repeat now. The delay of each doubles."""
        found = [
            number for number, asked in self._asked.items() if now - max(asked.at, self._answered_at) >= asked.wait
        ]
        for number in found:
            asked = self._asked[number]
            asked.at, asked.wait = now, min(2 * asked.wait, self._retry_max)
        self.repeated += len(found)
        return found

    def over(self) -> list[int]:
        """The requests that have timed out. They are removed."""
        found = [
            number
            for number, asked in self._asked.items()
            if self._vouched - max(asked.since, self._moved) >= self._timeout
        ]
        for number in found:
            del self._asked[number]
        return found


def ranges(numbers: Iterable[int], most: int = ASK_MAX) -> Iterator[tuple[int, int]]:
    """Numbers as ranges of at most ``most`` numbers.

    >>> list(ranges([5, 3, 4, 9])), list(ranges(range(5), 2))
    ([(3, 6), (9, 10)], [(0, 2), (2, 4), (4, 5)])
    """
    first = stop = -1
    for number in sorted(numbers):
        if number == stop and stop - first < most:
            stop += 1
            continue
        if stop > first:
            yield first, stop
        first, stop = number, number + 1
    if stop > first:
        yield first, stop
