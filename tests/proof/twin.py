"""A twin is a job in plain Python: what must have come out after each of its steps.

It knows collections, and of this package nothing but the options of a state. Steps of ``step_rows`` rows have borders
that do not depend on what crashes, so every checkpoint that any run commits must equal one of the twin's steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.proof.emission import Emission, Place, Sums

Step = tuple[int, int, bool]
"""What tells the steps apart: rows read, windows closed up to, and whether the input was said to be complete."""


@dataclass(frozen=True)
class Expected:
    """What must be there once a step is done. ``state``: count and sum by key and window, of the windows not final.
    ``batches``: what each step up to this one has published; ``table``: what a reader must hold, once all is published.
    ``outputs``: all that is published; ``staged``: how many of them this step adds. ``late`` and ``dead``: the numbers
    of the rows put aside. ``before``: the step before."""

    step: Step
    state: Mapping[Place, Sums]
    batches: tuple[tuple[tuple[Any, ...], ...], ...]
    table: Mapping[Place, Sums]
    outputs: Counter[tuple[Any, ...]]
    late: tuple[int, ...]
    dead: tuple[int, ...]
    staged: int
    watermark: int
    before: Step | None


@dataclass(frozen=True)
class Twin:
    """Count and sum of "n" by "page", as ``emission`` says. A row before 1970 is dead, and one with a negative "n"
    unless it is late. ``rows``: in the order in which they are read. ``lag_ms``: how far the clock stays behind."""

    rows: Sequence[Mapping[str, Any]]
    step_rows: int
    emission: Emission
    end_of_input: bool = True
    lag_ms: int = 0

    def steps(self) -> dict[Step, Expected]:
        """Every step of the job, in order, the empty checkpoint first."""
        work = _Work(self)
        found = {work.expected.step: work.expected}
        while work.advance():
            found[work.expected.step] = work.expected
        return found


class _Work:
    """A twin at work."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self._emission = twin.emission
        self._read = self._watermark = self._closed = self._final = 0
        self._ended = False
        self._panes: dict[Place, Sums] = {}
        self._changed: dict[Place, None] = {}
        self._published: dict[Place, Sums] = {}
        self._passed: int | None = None
        self._counted: list[tuple[Place, int]] = []
        self._batches: tuple[tuple[tuple[Any, ...], ...], ...] = ()
        self._late: tuple[int, ...] = ()
        self._dead: tuple[int, ...] = ()
        self.expected = self._expect(None)

    def advance(self) -> bool:
        """One step; False if there is nothing to do."""
        twin, emission = self._twin, self._emission
        rows = twin.rows[self._read : self._read + twin.step_rows]
        close_at, ends = emission.close_at(self._closed, self._watermark), False
        if not rows:
            ends = twin.end_of_input and not self._ended
            if ends:
                close_at = max([close_at, *(emission.end(start) for _, start in self._open())])
            is_due = any(emission.end(start) <= close_at for _, start in self._open()) or self._expires(close_at)
            if not (ends or is_due or (emission.early and self._changed and self._early_clock()[1])):
                return False
        judged = emission.judged(self._final, self._watermark)
        before, own = dict(self._panes), list[Place]()
        watermark = max(
            [self._watermark, close_at, *(self._take(*row, judged, own) for row in enumerate(rows, self._read))]
        )
        if emission.has_lives:
            outputs = self._lives_outputs(own, close_at, ends)
        elif emission.early is None:
            outputs = emission.outputs(before, self._panes, dict.fromkeys(own), self._due(close_at, ends), self._closed)
            self._changed = {} if ends else {**self._changed, **dict.fromkeys(own)}
        else:
            outputs = self._early_outputs(own, judged, close_at, ends)
        self._batches += (tuple(outputs),)
        self._read += len(rows)
        self._watermark = watermark
        self._closed = max(self._closed, close_at)
        self._final = emission.final(judged, close_at)
        self._panes = {place: sums for place, sums in self._panes.items() if emission.left(place[1]) > self._final}
        self._ended = ends or (self._ended and not rows)
        self.expected = self._expect(self.expected.step)
        return True

    def _take(self, number: int, row: Mapping[str, Any], judged: int, own: list[Place]) -> int:
        """Let a row count, in ``own`` places; its time, if it is processed."""
        emission, time = self._emission, row["ts"]
        starts = [] if time < 0 else emission.taking(time, judged)
        if time < 0:
            self._dead += (number,)
        elif not starts:
            self._late += (number,)
        elif row["n"] < 0:
            self._dead += (number,)
        else:
            for place in ((row["page"], start) for start in starts):
                own.append(emission.count(self._panes, place, row["n"]))
                self._counted.append((place, row["n"]))
            return int(time) - self._twin.lag_ms
        return 0

    def _early_clock(self) -> tuple[int, bool]:
        return self._emission.early_clock(self._passed, self._watermark)

    def _early_outputs(self, own: list[Place], judged: int, close_at: int, ends: bool) -> list[tuple[Any, ...]]:
        """What a step publishes early, or because something closes; it is remembered, for what comes after."""
        emission, old = self._emission, self._published
        self._passed, publishes = self._early_clock()
        if emission.has_sessions:
            self._changed, own = emission.unpublished(old, self._panes), []
        publishes |= ends or emission.must_publish(self._changed, own, self._final, judged, close_at)
        self._changed |= dict.fromkeys(own)
        if not publishes:
            return []
        changed, self._changed = self._changed, {}
        kept = self._panes if emission.has_sessions else old
        self._published = {**kept, **{place: self._panes[place] for place in changed}}
        return emission.outputs(old, self._panes, changed, (), self._closed)

    def _expires(self, close_at: int) -> bool:
        """Whether a life ends that had not."""
        lives = self._panes if self._emission.has_lives else {}
        return any(self._closed < self._emission.end(borders) <= close_at for _, borders in lives)

    def _lives_outputs(self, own: list[Place], close_at: int, ends: bool) -> list[tuple[Any, ...]]:
        """What a step publishes of the keys that have changed, or expired."""
        self._changed |= dict.fromkeys((page, None) for page, _ in own)
        publishes = self._emission.of_changes
        if self._emission.early is not None:
            self._passed, publishes = self._early_clock()
        if not (ends or publishes):
            return []
        old, changed, self._changed = self._published, self._changed, {}
        self._published = self._emission.living(self._panes, close_at)
        return self._emission.outputs(old, self._published, changed, (), self._closed)

    def _open(self) -> list[Place]:
        if not self._emission.has_windows:
            return []
        return [place for place in self._panes if self._emission.end(place[1]) > self._closed]

    def _due(self, close_at: int, ends: bool) -> list[Place]:
        """What is published because its window closes, or the input ends."""
        if self._emission.has_windows:
            return [place for place in self._open() if self._emission.end(place[1]) <= close_at]
        return list(self._changed) if ends else []

    def _expect(self, before: Step | None) -> Expected:
        step = self._read, self._closed, self._ended
        return Expected(
            step,
            dict(self._panes),
            self._batches,
            self._emission.table_of(self._counted, self._closed),
            Counter(row for batch in self._batches for row in batch),
            self._late,
            self._dead,
            len(self._batches[-1]) if self._batches else 0,
            self._watermark,
            before,
        )
