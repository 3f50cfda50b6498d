"""A series is how a run went, in a limited number of points: with more steps, each point is the sum of several.

Joining is associative: a point says the same, in whatever order its steps were joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

POINTS_MAX: Final = 1_000


@dataclass(frozen=True)
class SeriesPoint:
    """One step of a run, or several that follow each other. ``at_seconds``: its end, since the run began;
    ``step_seconds``, ``rows``, ``late``, ``dead``, ``outputs``: sums over its steps; ``lag_ms``: the largest of them;
    ``clock_ms``, ``state_rows``, ``state_bytes``: after the last one."""

    at_seconds: float
    steps: int
    step_seconds: float
    rows: int
    late: int
    dead: int
    outputs: int
    lag_ms: int
    clock_ms: int
    state_rows: int
    state_bytes: int

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.step_seconds if self.step_seconds else 0.0

    def __add__(self, later: SeriesPoint) -> SeriesPoint:
        """Both, in one point."""
        return SeriesPoint(
            at_seconds=later.at_seconds,
            steps=self.steps + later.steps,
            step_seconds=self.step_seconds + later.step_seconds,
            rows=self.rows + later.rows,
            late=self.late + later.late,
            dead=self.dead + later.dead,
            outputs=self.outputs + later.outputs,
            lag_ms=max(self.lag_ms, later.lag_ms),
            clock_ms=later.clock_ms,
            state_rows=later.state_rows,
            state_bytes=later.state_bytes,
        )


class Series:
    """The points of a run. Its memory does not grow with the number of steps.

    >>> series = Series(most=2)
    >>> for second in range(5):
    ...     series.add(SeriesPoint(second, 1, 1.0, 10, 0, 0, 0, 0, 0, 0, 0))
    >>> [(point.steps, point.rows) for point in series.points()]
    [(4, 40), (1, 10)]
    """

    def __init__(self, most: int = POINTS_MAX) -> None:
        self._most = most
        self._steps_each = 1
        self._points: list[SeriesPoint] = []

    def add(self, step: SeriesPoint) -> None:
        """Add a completed step."""
        if self._points and self._points[-1].steps < self._steps_each:
            self._points[-1] += step
        else:
            self._points.append(step)
        if len(self._points) > self._most:
            self._steps_each *= 2
            pairs = [first + second for first, second in zip(self._points[::2], self._points[1::2])]
            self._points = [*pairs, *self._points[2 * len(pairs) :]]

    def points(self) -> tuple[SeriesPoint, ...]:
        """The points, oldest first."""
        return tuple(self._points)
