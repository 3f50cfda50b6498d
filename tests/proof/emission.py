"""An emission is what a job of the proof publishes and when: its windows, its lateness, and their plain reference.

The reference knows collections and nothing of this package, whose options only ``state`` names. A place is a key and
the start of its window; sums are count, total, and in some jobs the largest number.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from monoids import Count, Max, Sum, record
from persistent import NonWindowState, WindowState, calendar, everything, sliding, tumbling

Place = tuple[Any, int | None]
Sums = tuple[int, ...]
Span = tuple[int, int, int]
"""Of windows: their size, how often one starts, and the offset of all."""

DAYS, EVERYTHING = "days", "everything"
"""Calendar days of a zone that sets its clocks forward in their midst; and one window over all time."""
TAKEN_BACK = "taken back"
"""Ends a published row that takes back another."""

_ZONE = "Europe/Berlin"
_BEGIN_MS, _TICK_MS = 1_711_670_400_000, 8_640_000
"""2024-03-29, two days before the clocks are set forward; a tenth of a day."""
_NEVER = 1 << 62


@dataclass(frozen=True)
class Emission:
    """``window``: None without windows. ``allowed``: how long a window takes late records, in ticks; ``late``, ``emit``
    and ``changes``: the options of the state. ``names``: the columns of a result."""

    window: Span | str | None = None
    allowed: int = 0
    late: str | None = None
    emit: str = "close"
    changes: str = "update"
    names: tuple[str, ...] = ("visits", "total")

    # -- the job -------------------------------------------------------------------------------------------------

    def state(self, **options: Any) -> Any:
        """The state of a task that counts."""
        monoid = record(**dict(zip(self.names, (Count(), Sum(), Max()))))
        emit = {} if self.emit == "close" else {"emit": self.emit, "changes": self.changes}
        if self.window is None:
            return NonWindowState(monoid, **emit, **options)
        if self.window == EVERYTHING:
            return WindowState(monoid, everything(), **options)
        late = {"allowed_lateness": self.allowed_ms, **({"late": self.late} if self.late else {})}
        return WindowState(monoid, self._window(), **emit, **(late if self.allowed else {}), **options)

    def values(self, n: int) -> dict[str, int]:
        """What a number adds to the state."""
        return dict(zip(self.names, (1, n, n)))

    @property
    def tick_ms(self) -> int:
        """How long a tick is: ten make a day, where days are counted."""
        return _TICK_MS if self.window == DAYS else 1

    @property
    def allowed_ms(self) -> int:
        return self.allowed * self.tick_ms

    def at(self, tick: int) -> int:
        """The time of a tick; what is before 1970 stays there."""
        return _BEGIN_MS + tick * _TICK_MS if self.window == DAYS and tick >= 0 else tick

    def _window(self) -> Any:
        if self.window == DAYS:
            return calendar("day", tz=_ZONE)
        assert isinstance(self.window, tuple)
        size, every, offset = self.window
        return tumbling(size, offset=offset) if size == every else sliding(size, every=every, offset=offset)

    # -- windows -------------------------------------------------------------------------------------------------

    @property
    def has_windows(self) -> bool:
        """Whether the clock closes any."""
        return self.window not in (None, EVERYTHING)

    def starts(self, ms: int) -> Iterator[int | None]:
        """The starts of the windows that hold a time; one None without windows."""
        if not self.has_windows:
            yield None
        elif self.window == DAYS:
            yield _midnight(_day(ms))
        else:
            assert isinstance(self.window, tuple)
            size, every, offset = self.window
            start = (ms - offset) // every * every + offset
            while start + size > ms:
                yield start
                start -= every

    def end(self, start: int | None) -> int:
        """Where the window that starts there ends."""
        if start is None:
            return _NEVER
        if self.window == DAYS:
            return _midnight(_day(start) + timedelta(days=1))
        assert isinstance(self.window, tuple)
        return start + self.window[0]

    # -- the clock -----------------------------------------------------------------------------------------------

    def close_at(self, closed: int, watermark: int) -> int:
        """Up to where a step closes, after a clock that had closed up to ``closed``."""
        return max(closed, watermark - self.allowed_ms) if self.emit == "final" else watermark

    def judged(self, final: int, watermark: int) -> int:
        """Up to where windows take nothing of a step, by the clock before it. ``final``: up to where none did
        before."""
        return max(final, watermark - self.allowed_ms)

    def final(self, judged: int, close_at: int) -> int:
        """Up to where windows are final after that step."""
        return max(judged, close_at if self.emit == "final" else close_at - self.allowed_ms)

    # -- what is published ---------------------------------------------------------------------------------------

    def outputs(
        self,
        before: Mapping[Place, Sums],
        after: Mapping[Place, Sums],
        changed: Iterable[Place],
        due: Iterable[Place],
        closed: int,
    ) -> list[tuple[Any, ...]]:
        """What a step publishes. ``before`` and ``after`` its rows, which have ``changed`` those; ``due``: what is
        published because it closes, or ends. ``closed``: up to where windows had closed before."""
        if self.emit == "change":
            return list(self._again(before, after, changed))
        new = [(*place, *after[place]) for place in due]
        if not self.allowed or self.emit == "final":
            return new
        return new + list(self._again(before, after, (place for place in changed if self.end(place[1]) <= closed)))

    def _again(
        self, before: Mapping[Place, Sums], after: Mapping[Place, Sums], places: Iterable[Place]
    ) -> Iterator[tuple[Any, ...]]:
        for place in places:
            old, new = before.get(place), after[place]
            if self.late == "delta":
                new = tuple(one - other for one, other in zip(new, old or (0, 0)))
            if (self.late == "retract" or self.changes == "retract") and old is not None:
                yield (*place, *old, TAKEN_BACK)
            yield (*place, *new)

    def table(self, batches: Iterable[Iterable[tuple[Any, ...]]]) -> dict[Place, Sums]:
        """What a reader holds after the rows that each checkpoint has published: the largest revision, with those taken
        back gone; of deltas the sum."""
        found: dict[Place, Sums] = {}
        for rows in batches:
            for page, start, *sums in sorted(rows, key=lambda row: row[-1] != TAKEN_BACK):
                place = page, start
                if sums[-1] == TAKEN_BACK:
                    assert found.pop(place) == tuple(sums[:-1]), f"{place}: {sums} was not there"
                    continue
                assert "retract" not in (self.late, self.changes) or place not in found, f"{place} stands twice"
                before = found.get(place) if self.late == "delta" else None
                found[place] = tuple(map(sum, zip(sums, before))) if before else tuple(sums)
        return found

    # -- the plain computation -----------------------------------------------------------------------------------

    def added(self, sums: Sums | None, n: int) -> Sums:
        """The sums with one more number."""
        visits, total, *top = sums or (0, 0, *[n][: len(self.names) - 2])
        return visits + 1, total + n, *(max(one, n) for one in top)

    def summed(self, counted: Iterable[tuple[Place, int]]) -> dict[Place, Sums]:
        """What the table must come to, once all is published that has counted."""
        found: dict[Place, Sums] = {}
        for place, n in counted:
            found[place] = self.added(found.get(place), n)
        return found

    def row(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """A published row."""
        values = tuple(row[name] for name in self.names)
        return (row["page"], start_of(row), *values, *([TAKEN_BACK] if row.get("retracted") else []))


def drawn_emission(drawn: random.Random, window: Span | None) -> Emission:
    """How a job over these windows publishes: in most cases when they close, without lateness."""
    allowed = drawn.choice((5, 15, 40))
    changes = drawn.choice(("update", "retract"))
    three = ("visits", "total", "top")
    chance = drawn.random()
    if chance < 0.6:
        return Emission(window, names=three)
    if window is None:
        return Emission(EVERYTHING, names=three) if chance < 0.7 else Emission(None, 0, None, "change", changes, three)
    around = DAYS if drawn.random() < 0.25 else window
    if chance < 0.65:
        return Emission(around, names=three)
    if chance < 0.7:
        return Emission(around, allowed, None, "final", names=three)
    if chance < 0.8:
        return Emission(around, drawn.choice((0, allowed)), None, "change", changes, three)
    late = drawn.choice(("accumulate", "retract", "delta"))
    # Two maxima do not add up.
    return Emission(around, allowed, late, names=three[:2] if late == "delta" else three)


def start_of(row: Mapping[str, Any]) -> int | None:
    """Where the window of a row starts, ms since the epoch."""
    start = row.get("window_start")
    if isinstance(start, str):
        start = datetime.fromisoformat(start)
    return None if start is None else round(start.timestamp() * 1000)


def _day(ms: int) -> datetime:
    return datetime.combine(datetime.fromtimestamp(ms / 1000, ZoneInfo(_ZONE)).date(), time())


def _midnight(day: datetime) -> int:
    return round(day.replace(tzinfo=ZoneInfo(_ZONE)).timestamp() * 1000)
