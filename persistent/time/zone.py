"""A zone is the rules of a time zone as a table: from which second on local time is how far ahead of UTC.

The driver reads the table from ``zoneinfo`` when a window is made. From then on it is a value: it is recorded with the
state, and workers get it with their job. So a machine's own zone data never decides what a checkpoint means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta
from msgspec.structs import replace

from persistent.codec.fields import Part, ShortText, Whole

_DAY_S = 86_400
"""A day is shorter than the time between two changes of any zone since 1966."""
Offsets = Annotated[
    tuple[tuple[Whole, Annotated[int, Meta(ge=-_DAY_S, le=_DAY_S)]], ...], Meta(min_length=1, max_length=10_000)
]
"""Pairs of a second since 1970 and the seconds from then on that local time is ahead of UTC, ascending."""

FIRST_S = -97_459_200
"""1966-11-30. The first offset of a table holds since ever."""
END_S = 4_265_827_200
"""2105-03-07. From here on the last offset of a table holds; no window that counts anything ends so late."""


class Zone(Part, frozen=True):
    """``offsets``: neighbours differ. The first holds before its second, too."""

    name: ShortText
    offsets: Offsets

    def __post_init__(self) -> None:
        if any(a[0] >= b[0] or a[1] == b[1] for a, b in pairwise(self.offsets)):
            raise ValueError(f"offsets of {self.name:.60} are not the rules of a zone in the order of time")

    @staticmethod
    def read(name: Any) -> Zone:
        """The zone of that name, by the zone data of this machine. ValueError, TypeError.

        >>> Zone.read("Asia/Kolkata").offsets
        ((-97459200, 19800),)
        """
        if not isinstance(name, str):
            raise TypeError(f'tz: {name!r} is not a time zone: give its name, such as tz="Europe/Berlin"')
        try:
            offsets = _offsets(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"tz: {name!r} is not a time zone of this machine: give a name such as 'Europe/Berlin' or 'UTC'. If "
                "the name is right, its zone data are missing: pip install tzdata"
            ) from error
        return Zone(name, offsets)

    def followed_by(self, other: Zone, since_s: int) -> Zone:
        """These rules before the second ``since_s``, above their first, and the rules of ``other`` from then on.

        >>> Zone("A", ((0, 0), (100, 60))).followed_by(Zone("A", ((0, 30), (200, 90))), 50).offsets
        ((0, 0), (50, 30), (200, 90))
        """
        kept = self.offsets[: bisect_left(self.offsets, (since_s,))]
        later = other.offsets[bisect_right(other.offsets, since_s, key=_second) :]
        joined = [*kept, (since_s, other.offset_at(since_s)), *later]
        changes = [pair for before, pair in pairwise(joined) if pair[1] != before[1]]
        return replace(self, offsets=(joined[0], *changes))

    def offset_at(self, second: int) -> int:
        """How many seconds local time is ahead of UTC."""
        return self.offsets[max(bisect_right(self.offsets, second, key=_second) - 1, 0)][1]

    def differs_from(self, other: Zone) -> int | None:
        """The first second with another rule; None if there is none."""
        return min((second for second, _ in {*self.offsets} ^ {*other.offsets}), default=None)


def _second(pair: tuple[int, int]) -> int:
    return pair[0]


@lru_cache
def _offsets(name: str) -> Offsets:
    if name == "UTC":
        # Needs no zone data.
        return ((FIRST_S, 0),)
    zone = ZoneInfo(name)

    def offset(second: int) -> int:
        ahead = datetime.fromtimestamp(second, zone).utcoffset()
        assert ahead is not None
        return round(ahead.total_seconds())

    offsets = [(FIRST_S, offset(FIRST_S))]
    for second in range(FIRST_S + _DAY_S, END_S + 1, _DAY_S):
        if offset(second) != offsets[-1][1]:
            offsets += _changes(offset, second - _DAY_S, second)
    return tuple(offsets)


def _changes(offset: Any, low: int, high: int) -> Sequence[tuple[int, int]]:
    """The change between two seconds whose offsets differ."""
    before = offset(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == before else (low, middle)
    return [(high, offset(high))]
