"""A twin is a job in plain Python: what must have come out after each of its steps.

It knows collections and nothing of this package. Steps of ``step_rows`` rows have borders that do not depend on what
crashes, so every checkpoint that any run commits must equal one of the twin's steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Place = tuple[Any, int | None]
"""A key, and the start of its window; None of a state without windows."""

Step = tuple[int, int, bool]
"""What tells the steps apart: rows read, windows closed up to, and whether the input was said to be complete."""


@dataclass(frozen=True)
class Expected:
    """What must be there once a step is done. ``state``: count and sum by key and window, of the windows not closed.
    ``outputs``: all that is published; ``staged``: how many of them this step adds. ``late`` and ``dead``: the numbers
    of the rows put aside. ``before``: the step before."""

    step: Step
    state: Mapping[Place, tuple[int, int]]
    outputs: Counter[tuple[Any, ...]]
    late: tuple[int, ...]
    dead: tuple[int, ...]
    staged: int
    watermark: int
    before: Step | None


@dataclass(frozen=True)
class Twin:
    """Count and sum of "n" by "page", in windows of ``window_ms``, or (None) for ever. A row before 1970 is dead, and
    one with a negative "n" unless it is late. ``rows``: in the order in which they are read."""

    rows: Sequence[Mapping[str, Any]]
    step_rows: int
    window_ms: int | None
    end_of_input: bool = True

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
        self._read = self._watermark = self._closed = 0
        self._ended = False
        self._panes: dict[Place, tuple[int, int]] = {}
        self._changed: dict[Place, None] = {}
        self._outputs: Counter[tuple[Any, ...]] = Counter()
        self._late: tuple[int, ...] = ()
        self._dead: tuple[int, ...] = ()
        self.expected = self._expect(0, None)

    def advance(self) -> bool:
        """One step; False if there is nothing to do."""
        twin = self._twin
        rows = twin.rows[self._read : self._read + twin.step_rows]
        close_at, ends = self._watermark, False
        if not rows:
            ends = twin.end_of_input and not self._ended
            if ends:
                close_at = max([close_at, *(self._end(place) for place in self._open())])
            if not (ends or any(self._end(place) <= close_at for place in self._open())):
                return False
        closing = self._closing(close_at, ends)
        watermark = self._watermark
        for number, row in enumerate(rows, self._read):
            watermark = max(watermark, self._take(number, row))
        self._outputs = self._outputs + closing
        self._read += len(rows)
        self._watermark = max(watermark, close_at)
        self._closed = max(self._closed, close_at)
        self._ended = ends or (self._ended and not rows)
        self.expected = self._expect(closing.total(), self.expected.step)
        return True

    def _take(self, number: int, row: Mapping[str, Any]) -> int:
        """Let a row count; its time, if it is processed."""
        window_ms, time = self._twin.window_ms, row["ts"]
        if time < 0:
            self._dead += (number,)
        elif window_ms is not None and time // window_ms * window_ms + window_ms <= self._watermark:
            self._late += (number,)
        elif row["n"] < 0:
            self._dead += (number,)
        else:
            place = row["page"], None if window_ms is None else time // window_ms * window_ms
            count, total = self._panes.get(place, (0, 0))
            self._panes[place] = count + 1, total + row["n"]
            self._changed[place] = None
            return int(time)
        return 0

    def _open(self) -> list[Place]:
        return [place for place in self._panes if place[1] is not None and self._end(place) > self._closed]

    def _end(self, place: Place) -> int:
        assert place[1] is not None and self._twin.window_ms is not None
        return place[1] + self._twin.window_ms

    def _closing(self, close_at: int, ends: bool) -> Counter[tuple[Any, ...]]:
        """What a step publishes: of what was there before its own rows."""
        if self._twin.window_ms is not None:
            return Counter((*place, *self._panes[place]) for place in self._open() if self._end(place) <= close_at)
        if not ends:
            return Counter()
        changed, self._changed = self._changed, {}
        return Counter((*place, *self._panes[place]) for place in changed)

    def _expect(self, staged: int, before: Step | None) -> Expected:
        places = self._panes if self._twin.window_ms is None else self._open()
        state = {place: self._panes[place] for place in places}
        step = self._read, self._closed, self._ended
        return Expected(step, state, Counter(self._outputs), self._late, self._dead, staged, self._watermark, before)
