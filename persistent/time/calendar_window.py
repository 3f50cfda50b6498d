"""Calendar windows lie side by side: hours, days, weeks, months, quarters or years, as the clocks of a time zone have
them.

A border is the first instant at which local time has reached the beginning of a period: the change itself where the
clocks skip it, the earlier of two where they show it twice. So a day has 23, 24 or 25 hours, and a day that a zone
skips has no window. A border of hours is where the clocks show a full hour, and where they are set back or over one: no
hour window is longer than an hour, or holds a wall-clock time twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.sorting import Mask
from persistent.text.figures import duration_text
from persistent.text.fingerprints import window_text
from persistent.time.clock import Duration
from persistent.time.window import offset_ms
from persistent.time.zone import END_S, FIRST_S, Zone

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MONDAY_DAY = -3
"""1969-12-29, in days since 1970."""
_YEARS: Final = ("1967", "2105")
"""The first and last year with borders."""
_LAST_MS = 4_102_444_800_000
"""2100-01-01: the window that holds it is the last that counts anything."""
_NEVER_MS = 1 << 62
_CHUNK_ROWS = 1 << 15
"""This many times stay in the cache from one look-up to the next."""

_STEPS_MS: Final = {"hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
SHORTEST_MS: Final = {
    "hour": _HOUR_MS,
    "day": _DAY_MS,
    "week": 7 * _DAY_MS,
    "month": 28 * _DAY_MS,
    "quarter": 90 * _DAY_MS,
    "year": 365 * _DAY_MS,
}
"""The shortest period of each unit, on the calendar: changes of the clocks aside."""


@dataclass(frozen=True)
class CalendarWindow:
    """The windows of a unit in a zone. Made by ``calendar``. ``offset_ms``: wall-clock time from the calendar border to
    the start of a window. A window's number is its place among all of them."""

    unit: str
    zone: Zone
    offset_ms: int = 0

    width: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or self.unit not in SHORTEST_MS:
            raise ValueError(
                f"calendar({self.unit!r}): the units are {', '.join(map(repr, SHORTEST_MS))}; for windows of a fixed "
                "length use tumbling(size)"
            )
        if not 0 <= self.offset_ms < SHORTEST_MS[self.unit]:
            raise ValueError(
                f"calendar({self.unit!r}): the offset is at least 0 and less than the shortest {self.unit}, "
                f"{duration_text(SHORTEST_MS[self.unit])}, not {duration_text(self.offset_ms)}"
            )

    def last_start(self, timestamps: Any) -> Any:
        """The start of the window that holds each time."""
        return self.start_of(self.last_number(timestamps))

    def last_end(self, timestamps: Any) -> Any:
        """The end of the window that holds each time."""
        return self.end_of(self.last_number(timestamps))

    def holds(self, timestamps: Integers) -> Mask:
        """Whether any window holds each time: always."""
        return np.ones(len(timestamps), bool)

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """For each time: whether its window had ended at the watermark; whether only some had, which is never so."""
        return np.asarray(timestamps < self.last_start(watermark)), np.zeros(len(timestamps), bool)

    def may_be_late(self, time: int, watermark: int) -> bool:
        """Whether the window of a time has ended at the watermark."""
        return bool(self.last_end(time) <= watermark)

    def is_untouched(self, clock: int, closed: int) -> bool:
        """Whether the window of ``clock`` ends after ``closed``."""
        return bool(self.last_number(closed) <= self.last_number(clock))

    def first_number(self, times: Any) -> Any:
        """The number of the window that holds each time."""
        return self.last_number(times)

    def last_number(self, times: Any) -> Any:
        """The number of the window that holds each time. ValueError for a time beyond the table of the zone."""
        if not isinstance(times, np.ndarray):
            return self._number(int(times))
        numbers = np.empty(times.shape, np.int64)
        for begin in range(0, len(times), _CHUNK_ROWS):
            self._look_up(times[begin : begin + _CHUNK_ROWS], numbers[begin : begin + _CHUNK_ROWS])
        return numbers

    def start_of(self, numbers: Any) -> Any:
        """The start of each window."""
        return _at(self._starts, numbers)

    def end_of(self, numbers: Any) -> Any:
        """The end of each window."""
        return _at(self._starts[1:], numbers)

    def ends(self, starts: Any) -> Any:
        """The end of the window that starts at each of these times."""
        return self.last_end(starts)

    @property
    def time_max(self) -> int:
        """The last time that a window counts: later ones are dead letters."""
        return self._until - 1

    @property
    def starts_early(self) -> bool:
        """Whether a window that holds times since 1970 starts before."""
        return bool(self.last_start(0) < 0)

    @cached_property
    def step(self) -> int:
        """The greatest common divisor of all borders."""
        return int(np.gcd.reduce(self._starts))

    def kept_by(self, zone: Zone, until: int, *, ends: bool = False) -> CalendarWindow:
        """The windows of a state that was kept by the rules of ``zone`` and holds nothing after ``until`` (ms). Windows
        that have begun by then keep their start; later windows follow the rules of this window's zone.

        A window that has begun can end later than by the rules of ``zone``, never earlier. With ``ends`` it keeps its
        end too, because rows with that end may have been published.
        """
        if zone == self.zone:
            return self
        end = replace(self, zone=zone).last_end(until)
        kept = replace(self, zone=zone.followed_by(self.zone, -(-end // 1_000)))
        if ends and kept.last_end(until) > end:
            # By the former rules the next window has begun at the end, so that these hold a second longer.
            kept = replace(self, zone=zone.followed_by(self.zone, end // 1_000 + 1))
        return kept

    def __str__(self) -> str:
        """Its source text.

        >>> str(calendar("month", tz="Europe/Berlin")), str(calendar("day", offset="6 h"))
        ('calendar("month", tz="Europe/Berlin")', 'calendar("day", offset="6 h")')
        """
        return window_text(self.fingerprint())

    def fingerprint(self) -> dict[str, Any]:
        """Names the zone without its rules: the rules can change, and the windows are still those of that zone."""
        moved = {"offset_ms": self.offset_ms} if self.offset_ms else {}
        return {"calendar": self.unit, "zone": self.zone.name, **moved}

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the borders, which follow from the rest."""
        return type(self), (self.unit, self.zone, self.offset_ms)

    @cached_property
    def _starts(self) -> Integers:
        """The start of each window, ascending; the last few are beyond all times that count."""
        changes = np.array(self.zone.offsets, np.int64) * 1_000
        seconds, ahead = changes[:, 0].copy(), changes[:, 1]
        seconds[0] = FIRST_S * 1_000
        if self.unit == "hour":
            return _hour_borders(seconds, ahead, self.offset_ms)
        return _borders(seconds, ahead, _period_starts(self.unit) + self.offset_ms)

    @cached_property
    def _until(self) -> int:
        return int(self._starts[np.searchsorted(self._starts, _LAST_MS, side="right")])

    @cached_property
    def _buckets(self) -> tuple[int, int, Integers, int]:
        """A grid with cells so short that few hold more than one border: where it begins, the bits of a cell's length,
        the number of the window at the beginning of each cell, and the largest number of borders in a cell."""
        starts = self._starts
        bits = (SHORTEST_MS[self.unit] * 3 // 4).bit_length() - 1
        low = int(starts[0])
        cells = low + (np.arange(((int(starts[-1]) - low) >> bits) + 2) << bits)
        firsts = np.searchsorted(starts, cells, side="right") - 1
        return low, bits, firsts, int(np.diff(firsts).max())

    def _look_up(self, times: Integers, numbers: Integers) -> None:
        """Fill in the numbers of the windows of these times. In the order of time, most pieces are in one window."""
        first, last = self._number(int(times.min())), self._number(int(times.max()))
        if first == last:
            numbers.fill(first)
            return
        low, bits, firsts, borders = self._buckets
        firsts.take((times - low) >> bits, out=numbers, mode="clip")
        for _ in range(borders):
            numbers += times >= self._starts[1:].take(numbers, mode="clip")

    def _number(self, time: int) -> int:
        """The number of the window that holds this time."""
        if not self._starts[0] <= time < self._starts[-2]:
            raise ValueError(f"{self}: the time {time} is beyond {' to '.join(_YEARS)}, the years of its borders")
        return int(np.searchsorted(self._starts, time, side="right")) - 1


def calendar(unit: str, *, tz: str = "UTC", offset: Duration = 0) -> CalendarWindow:
    """Windows of a unit of the calendar, "hour", "day", "week" (from Monday), "month", "quarter" or "year", in a time
    zone. ``offset``: how long after the calendar border they start, in wall-clock time: with "6 h" a day begins when
    the clocks show six, whether or not they were changed in the night; less than the shortest period.

    The driver takes the rules of the zone from its zone data, and the checkpoint keeps them.

    >>> berlin = calendar("day", tz="Europe/Berlin")
    >>> from persistent.time.clock import instant_ms
    >>> start = berlin.last_start(instant_ms("2024-03-31T12:00+02:00"))
    >>> (berlin.ends(start) - start) // 3_600_000
    23
    """
    return CalendarWindow(unit, Zone.read(tz), offset_ms(offset, _STEPS_MS.get(str(unit))))


def _at(borders: Integers, numbers: Any) -> Any:
    return borders.take(numbers) if isinstance(numbers, np.ndarray) else int(borders[numbers])


def _period_starts(unit: str) -> Integers:
    """The beginning of each period on the calendar, in ms of wall-clock time since 1970."""
    first, last = (np.datetime64(year, "D") for year in _YEARS)
    if unit in ("day", "week"):
        days = np.arange(first, last).astype(np.int64)
        return (days if unit == "day" else days[(days - _MONDAY_DAY) % 7 == 0]) * _DAY_MS
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    return np.arange(first.astype("M8[M]"), last.astype("M8[M]"), months).astype("M8[ms]").astype(np.int64)


def _borders(seconds: Integers, ahead: Integers, locals_: Integers) -> Integers:
    """The first instant at which local time has reached each of these times. Periods that are skipped have none."""
    ends = np.append(seconds[1:], _NEVER_MS) + ahead
    rules = np.searchsorted(np.maximum.accumulate(ends), locals_, side="right")
    return _distinct(np.maximum(seconds[rules], locals_ - ahead[rules]))


def _hour_borders(seconds: Integers, ahead: Integers, offset_ms: int) -> Integers:
    """Each instant at which the clocks show a full hour and the offset, are set back, or are set over such a time."""
    pieces = []
    for number, (begin, shift) in enumerate(zip(seconds.tolist(), ahead.tolist())):
        end = int(seconds[number + 1]) if number + 1 < len(seconds) else END_S * 1_000
        phase = shift - offset_ms
        if number:
            before = int(ahead[number - 1])
            is_over = (begin + phase) // _HOUR_MS != (begin - 1 + before - offset_ms) // _HOUR_MS
            pieces.append(np.full(int(shift < before or is_over), begin, np.int64))
        pieces.append(np.arange(-(-(begin + phase) // _HOUR_MS) * _HOUR_MS - phase, end, _HOUR_MS))
    return _distinct(np.concatenate(pieces))


def _distinct(borders: Integers) -> Integers:
    """Ascending numbers, each once."""
    return borders[segment_starts(borders[1:] != borders[:-1])]
