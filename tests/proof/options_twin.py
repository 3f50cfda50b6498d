"""A twin of a job whose options change: in plain Python, step by step, each step with options of its own.

Sums of "n" by "page" in windows of 10 ms; a row with a negative "n" is dead unless it is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WINDOW_MS = 10


@dataclass(frozen=True)
class Given:
    """The options of a step that its results depend on."""

    step_rows: int
    max_future_ms: int
    lag_ms: int
    ordered: bool
    end_of_input: bool


@dataclass(frozen=True)
class Expected:
    """What there must be at the end: sums by page and window, of the open ones and of those published; the numbers of
    the rows put aside."""

    state: Mapping[tuple[Any, int], int]
    outputs: Mapping[tuple[Any, int], int]
    late: tuple[int, ...]
    dead: tuple[int, ...]


def expected(rows: Sequence[Mapping[str, Any]], wall_ms: int, before: Given, steps: int, after: Given) -> Expected:
    """The first ``steps`` steps with the options before, the others with those after."""
    work = _Work(rows, wall_ms)
    while work.step(before if work.steps < steps else after):
        work.steps += 1
    is_open = {place: n for place, n in work.sums.items() if place[1] + WINDOW_MS > work.closed}
    return Expected(is_open, work.outputs, tuple(work.late), tuple(work.dead))


class _Work:
    def __init__(self, rows: Sequence[Mapping[str, Any]], wall_ms: int) -> None:
        self.rows, self.wall_ms = rows, wall_ms
        self.steps = self.read = self.watermark = self.closed = 0
        self.largest: int | None = None
        self.ended = False
        self.sums: dict[tuple[Any, int], int] = {}
        self.outputs: dict[tuple[Any, int], int] = {}
        self.late: list[int] = []
        self.dead: list[int] = []

    def step(self, given: Given) -> bool:
        """One step; False if there is nothing to do."""
        rows = self.rows[self.read : self.read + given.step_rows]
        ends, close_at = False, self.watermark
        open_ends = [start + WINDOW_MS for _, start in self.sums if start + WINDOW_MS > self.closed]
        if not rows:
            ends = given.end_of_input and not self.ended
            close_at = max([close_at, *open_ends]) if ends else close_at
            moves = self.largest is not None and self.largest - given.lag_ms > self.watermark
            if not (ends or moves or any(end <= close_at for end in open_ends)):
                return False
        for (page, start), n in self.sums.items():
            if self.closed < start + WINDOW_MS <= close_at:
                self.outputs[page, start] = n
        limit = max(self.wall_ms, self.watermark) + given.max_future_ms
        for number, row in enumerate(rows, self.read):
            self.take(number, row, limit)
        self.read += len(rows)
        self.watermark = max(self.watermark, close_at, self.bound(given))
        self.closed = max(self.closed, close_at)
        self.ended = ends or (self.ended and not rows)
        return True

    def take(self, number: int, row: Mapping[str, Any], limit: int) -> None:
        time = row["ts"]
        start = time // WINDOW_MS * WINDOW_MS
        if not 0 <= time <= limit:
            self.dead.append(number)
        elif start + WINDOW_MS <= self.watermark:
            self.late.append(number)
        elif row["n"] < 0:
            self.dead.append(number)
        else:
            self.sums[row["page"], start] = self.sums.get((row["page"], start), 0) + row["n"]
            self.largest = time if self.largest is None else max(self.largest, time)

    def bound(self, given: Given) -> int:
        """Where the clock may go: no farther than what is listed and not read, unless the order is promised."""
        if self.largest is None:
            return 0
        unread = [max(row["ts"], -1) for row in self.rows[self.read :]]
        reached = self.largest - given.lag_ms
        return min([reached, *unread]) if unread and not given.ordered else reached
