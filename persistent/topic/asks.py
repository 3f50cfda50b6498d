"""The pending requests of a receiver: at most ``window`` messages at a time.

A request is repeated after a delay that doubles. After a timeout the message is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persistent.topic.messages import ASK_MAX
from persistent.topic.options import JoinOptions


@dataclass
class _Asked:
    since: int
    due: int
    wait: int


class Asks:
    """The pending requests by message number, in order. Times are milliseconds of a clock that never goes back."""

    def __init__(self, options: JoinOptions) -> None:
        self._window = options.window
        self._retry = options.ms("retry")
        self._retry_max = max(options.ms("retry_max"), self._retry)
        self._timeout = options.ms("timeout")
        self._asked: dict[int, _Asked] = {}
        self.repeated = 0

    def __contains__(self, number: int) -> bool:
        return number in self._asked

    @property
    def has_room(self) -> bool:
        return len(self._asked) < self._window

    def add(self, number: int, now: int) -> None:
        self._asked[number] = _Asked(now, now + self._retry, self._retry)

    def drop(self, number: int) -> None:
        self._asked.pop(number, None)

    def drop_below(self, number: int) -> None:
        for one in [one for one in self._asked if one < number]:
            del self._asked[one]

    def due(self, now: int) -> list[int]:
        """The requests to repeat now. The delay of each doubles."""
        found = [number for number, asked in self._asked.items() if asked.due <= now]
        for number in found:
            asked = self._asked[number]
            asked.wait = min(2 * asked.wait, self._retry_max)
            asked.due = now + asked.wait
        self.repeated += len(found)
        return found

    def over(self, now: int) -> list[int]:
        """The requests that have timed out. They are removed."""
        found = [number for number, asked in self._asked.items() if now - asked.since >= self._timeout]
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
