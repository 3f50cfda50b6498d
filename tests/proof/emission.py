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

from monoids import Count, Max, Monoid, Sum, record
from persistent import NonWindowState, WindowState, assigned, calendar, session, sliding, tumbling
from tests.proof.borders import Gap, Life, Shifts, shift_of

Place = tuple[Any, Any]
"""A key, and where its window starts; of sessions, and of the lives of keys, the start and the end."""
Sums = tuple[int, ...]
Span = tuple[int, int, int]
"""Of windows: their size, how often one starts, and the offset of all."""

DAYS, SHIFTS = "days", "shifts"
"""Calendar days of a zone that sets its clocks forward in their midst; and the windows of an
assigner, of which one starts before 1970."""
TAKEN_BACK = "taken back"
"""Ends a published row that takes back another."""

_ZONE = "Europe/Berlin"
_BEGIN_MS, _TICK_MS = 1_711_670_400_000, 8_640_000
"""2024-03-29, two days before the clocks are set forward; a tenth of a day."""
_NEVER = 1 << 62


@dataclass(frozen=True)
class Emission:
    """``window``: None without windows; a ``Life`` without, if keys expire. ``allowed``: how long a window takes late
    records, in ticks; ``late``, ``emit`` and ``changes``: the options of the state. ``early``: the ticks between two
    early results. ``names``: the columns of a result."""

    window: Span | Gap | Life | str | None = None
    allowed: int = 0
    late: str | None = None
    emit: str = "close"
    changes: str = "update"
    names: tuple[str, ...] = ("visits", "total")
    early: int | None = None

    # -- the job -------------------------------------------------------------------------------------------------

    def state(self, **options: Any) -> Any:
        """The state of a task that counts."""
        monoid = record(**dict(zip(self.names, self.monoids)))
        emit = {} if self.emit == "close" else {"emit": self.emit, "changes": self.changes}
        if self.window is None:
            return NonWindowState(monoid, **emit, **options)
        early: dict[str, Any] = {"early": self.early_ms} if self.early is not None else {}
        if isinstance(self.window, Life):
            early |= {"changes": self.changes} if early else {}
            return NonWindowState(monoid, ttl=self.window.ttl, **emit, **early, **options)
        late = {"allowed_lateness": self.allowed_ms, **({"late": self.late} if self.late else {}), **early}
        has_late = self.allowed or self.early is not None
        return WindowState(monoid, self._window(), **emit, **(late if has_late else {}), **options)

    @property
    def monoids(self) -> tuple[Monoid[Any], ...]:
        """The monoids of the columns of a result."""
        return Count(), Sum(), Max()

    def values(self, n: int) -> dict[str, Any]:
        """What a number adds to the state."""
        return dict(zip(self.names, (1, n, n)))

    @property
    def tick_ms(self) -> int:
        """How long a tick is: ten make a day, where days are counted."""
        return _TICK_MS if self.window == DAYS else 1

    @property
    def allowed_ms(self) -> int:
        return self.allowed * self.tick_ms

    @property
    def early_ms(self) -> int:
        return (self.early or 0) * self.tick_ms

    def at(self, tick: int) -> int:
        """The time of a tick; what is before 1970 stays there."""
        return _BEGIN_MS + tick * _TICK_MS if self.window == DAYS and tick >= 0 else tick

    def _window(self) -> Any:
        if self.window == DAYS:
            return calendar("day", tz=_ZONE)
        if self.window == SHIFTS:
            return assigned(Shifts())
        if isinstance(self.window, Gap):
            return session(self.window.gap, cut=self.window.cut)
        assert isinstance(self.window, tuple)
        size, every, offset = self.window
        return tumbling(size, offset=offset) if size == every else sliding(size, every=every, offset=offset)

    # -- windows -------------------------------------------------------------------------------------------------

    @property
    def has_windows(self) -> bool:
        """Whether the clock closes any."""
        return self.window is not None and not self.has_lives

    @property
    def has_sessions(self) -> bool:
        """Whether what closes is a session, which each message of its key may change."""
        return isinstance(self.window, Gap)

    @property
    def joins_again(self) -> bool:
        """Whether a record can change sessions that were published because they had closed."""
        return self.has_sessions and self.late == "retract" and not self.of_changes

    @property
    def grows(self) -> bool:
        """Whether a record can change sessions that are published."""
        return self.joins_again or (self.has_sessions and self.of_changes)

    @property
    def has_lives(self) -> bool:
        """Whether keys expire."""
        return isinstance(self.window, Life)

    @property
    def joins(self) -> bool:
        """Whether what is held are stretches of time, of which two of a key become one where they meet."""
        return self.has_sessions or self.has_lives

    def starts(self, ms: int) -> Iterator[Any]:
        """The starts of the windows that hold a time; one None without windows; of sessions that of one message."""
        if isinstance(self.window, Life):
            yield self.window.of(ms)
        elif not self.has_windows:
            yield None
        elif self.window == DAYS:
            yield _midnight(_day(ms))
        elif self.window == SHIFTS:
            yield shift_of(ms)[0]
        elif isinstance(self.window, Gap):
            yield self.window.of(ms)
        else:
            assert isinstance(self.window, tuple)
            size, every, offset = self.window
            start = (ms - offset) // every * every + offset
            while start + size > ms:
                yield start
                start -= every

    def taking(self, ms: int, judged: int) -> list[Any]:
        """The windows that take a time, by the clock of the step before, less the lateness. Nothing before that joins a
        session: it could join one that is final."""
        if self.has_sessions and ms < judged:
            return []
        return [start for start in self.starts(ms) if self.end(start) > judged]

    def end(self, start: Any) -> int:
        """Where the window that starts there ends, or the life."""
        if start is None:
            return _NEVER
        if self.joins:
            return int(start[1])
        if self.window == SHIFTS:
            return shift_of(start)[1]
        if self.window == DAYS:
            return _midnight(_day(start) + timedelta(days=1))
        assert isinstance(self.window, tuple)
        return start + self.window[0]

    def left(self, start: Any) -> int:
        """From which clock on nothing can count there any more, so that it may leave the disk. A life can be made
        longer for as long as it has lasted after its last message."""
        return self.end(start) + (self.window.ttl if isinstance(self.window, Life) else 0)

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

    # -- early results -------------------------------------------------------------------------------------------

    @property
    def of_changes(self) -> bool:
        """Whether steps publish what has changed, each of them or now and then."""
        return self.emit == "change" or self.early is not None

    def early_clock(self, passed: int | None, watermark: int) -> tuple[int, bool]:
        """Where the clock of early results stands in a step over this watermark, and whether it has passed a multiple
        since the step before, where it stood at ``passed``."""
        return watermark, passed is not None and watermark // self.early_ms != passed // self.early_ms

    def must_publish(
        self, fresh: Iterable[Place], own: Iterable[Place], final: int, judged: int, close_at: int
    ) -> bool:
        """Whether a step publishes though its clock has passed no multiple: a window has closed of which something is
        not published, from before (``fresh``; final are windows up to ``final``) or from this step (``own``). Sessions
        are as they are after the step, all of which something is not published in ``fresh``."""
        old, new = (self.end(start) for _, start in fresh), (self.end(start) for _, start in own)
        return any(final < end <= close_at for end in old) or any(judged < end <= close_at for end in new)

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
        published because it closes, or ends. ``closed``: up to where windows had closed before. Where changes are
        published early, ``before`` is what was published last, and ``changed`` what has changed since; and so it is
        where keys expire, of which those that live are in ``after``."""
        if self.has_lives:
            gone = ((*place, *old, TAKEN_BACK) for place, old in before.items() if place not in after)
            return [*gone, *self._again(before, after, (place for place in changed if place in after))]
        if self.of_changes and self.has_sessions:
            return list(self._regrouped(before, after))
        if self.of_changes:
            return list(self._again(before, after, changed))
        new = [(*place, *after[place]) for place in due]
        if not self.allowed or self.emit == "final":
            return new
        if self.has_sessions:
            return new + list(self._joined_again(before, after, closed))
        return new + list(self._again(before, after, (place for place in changed if self.end(place[1]) <= closed)))

    def _again(
        self, before: Mapping[Place, Sums], after: Mapping[Place, Sums], places: Iterable[Place]
    ) -> Iterator[tuple[Any, ...]]:
        for place in places:
            old, new = before.get(place), after[place]
            if self.changes == "retract" and old == new:
                continue
            if (self.late == "retract" or self.changes == "retract") and old is not None:
                yield (*place, *old, TAKEN_BACK)
            yield (*place, *new)

    def _joined_again(
        self, before: Mapping[Place, Sums], after: Mapping[Place, Sums], closed: int
    ) -> Iterator[tuple[Any, ...]]:
        """Of sessions the difference of what was closed and of what still is: their borders are not what they were."""
        was, now = ({place: one for place, one in held.items() if place[1][1] <= closed} for held in (before, after))
        yield from ((*place, *sums, TAKEN_BACK) for place, sums in was.items() if now.get(place) != sums)
        yield from ((*place, *sums) for place, sums in now.items() if was.get(place) != sums)

    def _regrouped(self, before: Mapping[Place, Sums], after: Mapping[Place, Sums]) -> Iterator[tuple[Any, ...]]:
        """Of sessions the difference of what was published and of what there is. What is a part of nothing is final."""
        for (page, (start, end)), sums in before.items():
            met = [one for one in after if one[0] == page and one[1][0] < end and start < one[1][1]]
            if met and after.get((page, (start, end))) != sums:
                yield (page, (start, end), *sums, TAKEN_BACK)
        yield from ((*place, *sums) for place, sums in after.items() if before.get(place) != sums)

    def unpublished(self, published: Mapping[Place, Sums], held: Mapping[Place, Sums]) -> dict[Place, None]:
        """The sessions of which something is not published: each record that counts changes the sums."""
        return {place: None for place, sums in held.items() if published.get(place) != sums}

    def table(self, batches: Iterable[Iterable[tuple[Any, ...]]]) -> dict[Place, Sums]:
        """What a reader holds after the rows that each checkpoint has published: the largest revision, with those taken
        back gone."""
        found: dict[Place, Sums] = {}
        for rows in batches:
            for page, start, *sums in sorted(rows, key=lambda row: row[-1] != TAKEN_BACK):
                place = page, start
                if sums[-1] == TAKEN_BACK:
                    assert found.pop(place) == tuple(sums[:-1]), f"{place}: {sums} was not there"
                    continue
                assert "retract" not in (self.late, self.changes) or place not in found, f"{place} stands twice"
                found[place] = tuple(sums)
        return found

    # -- keys that expire ----------------------------------------------------------------------------------------

    def living(self, lives: Mapping[Place, Sums], clock: int) -> dict[Place, Sums]:
        """The last life of each key, without those that have ended at a clock."""
        last = dict(sorted(lives, key=lambda place: place[1]))
        return {(page, None): lives[page, borders] for page, borders in last.items() if borders[1] > clock}

    def shown(self, held: Mapping[Place, Sums], closed: int, watermark: int) -> dict[Place, Sums]:
        """What the state shows of what it holds, by the clocks of its checkpoint."""
        if self.has_lives:
            return self.living(held, watermark)
        return {place: sums for place, sums in held.items() if self.end(place[1]) > closed}

    # -- the plain computation -----------------------------------------------------------------------------------

    def added(self, sums: Sums | None, n: int) -> Sums:
        """The sums with one more number."""
        visits, total, *top = sums or (0, 0, *[n][: len(self.names) - 2])
        return visits + 1, total + n, *(max(one, n) for one in top)

    def count(self, held: dict[Place, Sums], place: Place, n: int) -> Place:
        """Let a number count in a place; where it is then: a session, or a life, takes in those that it meets."""
        if not self.joins:
            held[place] = self.added(held.get(place), n)
            return place
        page, (start, end) = place
        met = [one for one in held if one[0] == page and one[1][0] < end and start < one[1][1]]
        sums = self.added(None, n)
        for one in met:
            sums = self.joined(sums, held.pop(one))
        borders = [(start, end), *(one[1] for one in met)]
        joined = page, (min(start for start, _ in borders), max(end for _, end in borders))
        held[joined] = sums
        return joined

    def joined(self, one: Sums, other: Sums) -> Sums:
        """The sums of both."""
        return one[0] + other[0], one[1] + other[1], *map(max, one[2:], other[2:])

    def table_of(self, counted: Iterable[tuple[Place, int]], closed: int) -> dict[Place, Sums]:
        """What the table must come to, once all is published that has counted, by a clock that is closed so far."""
        summed = self.summed(counted)
        return self.living(summed, closed) if self.has_lives else summed

    def summed(self, counted: Iterable[tuple[Place, int]]) -> dict[Place, Sums]:
        """What has counted, by place."""
        found: dict[Place, Sums] = {}
        if self.joins:
            # In the order of time, whatever the steps were: each begins a session, or goes on with the last.
            counted = sorted(counted, key=lambda one: (repr(one[0][0]), one[0][1]))
            last: Place = (None, (-1, -1))
            for (page, (start, end)), n in counted:
                goes_on = last in found and last[0] == page and start < last[1][1]
                sums = self.added(found.pop(last) if goes_on else None, n)
                last = page, (last[1][0] if goes_on else start, end)
                found[last] = sums
            return found
        for place, n in counted:
            found[place] = self.added(found.get(place), n)
        return found

    def row(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """A published row."""
        values = tuple(row[name] for name in self.names)
        return (*self.place(row), *values, *([TAKEN_BACK] if row.get("retracted") else []))

    def place(self, row: Mapping[str, Any]) -> Place:
        """The place of a row."""
        start = start_of(row)
        return row["page"], ((start, start_of(row, "window_end")) if self.has_sessions else start)


def drawn_emission(drawn: random.Random, window: Span | None) -> Emission:
    """How a job over these windows publishes: in most cases when they close, without lateness."""
    allowed = drawn.choice((5, 15, 40))
    changes = drawn.choice(("update", "retract"))
    three = ("visits", "total", "top")
    chance = drawn.random()
    if chance < 0.35 or (window is None and chance < 0.6):
        return Emission(window, names=three)
    if chance < 0.45:
        gap = Gap(*drawn.choice(((4, 10), (8, 30), (15, 200), (40, 200))))
        if chance < 0.38:
            return Emission(gap, names=three)
        # Where sessions end soon, and take what comes much later, many that are published change.
        gap, allowed = Gap(*drawn.choice(((4, 10), (4, 30), (8, 30), (8, 200)))), drawn.choice((15, 40, 80))
        if chance < 0.4:
            return Emission(gap, drawn.choice((0, allowed)), None, "change", "retract", three)
        if chance < 0.42:
            early = drawn.choice((1, 7, 30))
            return Emission(gap, drawn.choice((0, allowed)), "retract", names=three, early=early)
        return Emission(gap, allowed, *((None, "final") if chance < 0.43 else ("retract",)), names=three)
    if chance < 0.6:
        around = SHIFTS if drawn.random() < 0.3 else window
        allowed, late = drawn.choice((0, allowed)), drawn.choice((None, "retract", "accumulate"))
        return Emission(around, allowed, late, names=three, early=drawn.choice((1, 7, 30)))
    if window is None and drawn.random() < 0.6:
        life, early = Life(drawn.choice((3, 10, 30))), drawn.choice((None, None, 1, 7, 30))
        if early is not None:
            return Emission(life, changes=changes, names=three, early=early)
        emit, changes = drawn.choice((("close", "update"), ("change", "update"), ("change", "retract")))
        return Emission(life, emit=emit, changes=changes, names=three)
    if window is None:
        return Emission(None, 0, None, "change", changes, three)
    around = drawn.choice((DAYS, SHIFTS, window, window))
    if chance < 0.65:
        return Emission(around, names=three)
    if chance < 0.7:
        return Emission(around, allowed, None, "final", names=three)
    if chance < 0.8:
        return Emission(around, drawn.choice((0, allowed)), None, "change", changes, three)
    return Emission(around, allowed, drawn.choice(("accumulate", "retract")), names=three)


def start_of(row: Mapping[str, Any], column: str = "window_start") -> int | None:
    """Where the window of a row starts, ms since the epoch; or another of its times."""
    start = row.get(column)
    if isinstance(start, str):
        start = datetime.fromisoformat(start)
    return None if start is None else round(start.timestamp() * 1000)


def _day(ms: int) -> datetime:
    return datetime.combine(datetime.fromtimestamp(ms / 1000, ZoneInfo(_ZONE)).date(), time())


def _midnight(day: datetime) -> int:
    return round(day.replace(tzinfo=ZoneInfo(_ZONE)).timestamp() * 1000)
