"""A report describes in figures what a step or a run has done.

A series is how a run went, in a limited number of points: with more steps, each point is the sum of several.

Joining is associative: a point says the same, in whatever order its steps were joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from monoids.html import Fact, facts_html
from persistent.checkpoint.parts import Account
from persistent.connect.source import Reached
from persistent.errors import InvalidPipeline
from persistent.storage.failures import without_secrets
from persistent.text.figures import bytes_text, clock_text, count_text
from persistent.text.plots import plotted
from persistent.worker.job import LateWindows
from persistent.worker.judge_records import missed_text

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


@dataclass(frozen=True)
class StepReport:
    """One committed step. ``rows``: records read; ``outputs``: rows published; ``checkpoint_bytes``: written for it
    (runs and manifest); ``compaction_bytes``: of these, by folding runs early; ``lag_ms``: time of day minus clock,
    however old the data is; ``discarded``: windows that closed without a sink; ``reached``: how far the source has been
    read, if known."""

    id: int
    rows: int
    seconds: float
    late: int
    dead: int
    outputs: int
    clock_ms: int
    lag_ms: int
    checkpoint_bytes: int
    compaction_bytes: int
    manifest_bytes: int
    commit_seconds: float
    """From the end of the work to the commit of the checkpoint."""
    discarded: int = 0
    set_aside: int = 0
    """Results that could not be summed up or presented, and are dead letters."""
    reached: Reached | None = None
    duplicates: int = 0
    silence_ms: Mapping[str, int] = field(default_factory=dict)
    """With deduplication, the longest time in this step for which an origin was silent, by source."""
    corrected: int = 0
    """Results of closed windows that late records have changed, and that are published again."""
    behind_ms: Mapping[str, int] = field(default_factory=dict)
    """With deduplication, how far behind the clock the oldest record was that a copy repeats, by source."""
    late_windows: Mapping[str, LateWindows] = field(default_factory=dict)
    """By state, the records that it has refused, by the start of the window that they missed (ms since 1970); None: of
    all others. Another state of the task may have taken them."""
    expired: int = 0
    """With a time to live, the lives of keys that have ended."""
    expired_in: Mapping[str, int] = field(default_factory=dict)
    """By state, the lives that have ended."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RunReport:
    """What a run has done: sums over its steps, and where it ended.

    ``checkpoint``: the newest id; ``recovered``: whether the run continued from an earlier one's checkpoint;
    ``open_windows``: non-empty windows that the clock has not passed. ``stopped``: by ``Driver.stop`` or a signal,
    after a step, perhaps before the end of the input. ``discarded``: windows that closed without a sink. ``notes``:
    cautions, a sentence each. ``unfolded``: runs whose fold raised, and that stay unchanged. ``set_aside``: results
    that could not be summed up or presented, and are dead letters. ``reached``: how far the source has been read, if
    known. ``unpublished``: why nothing was published, and when something would be. ``corrected``: results of closed
    windows that late records have changed, and that were published again; of sessions, those taken back.
    ``late_windows``: late records by task, and by the start of the last window that held them (ms since 1970): of the
    thousand windows that most have missed; None: of all others. With several states, the records that each has refused,
    by its name, "task/state": those that another state has taken are partly late, and not in ``late``. ``expired``:
    with a time to live, the lives of keys that have ended; ``expired_in``: with several states, those of each, by its
    name. ``series``: how the run went, step by step; of more than a thousand steps, a point for several. ``logged``:
    the ``notes`` that the log had as they arose. ``name``: that of the pipeline, if it has one.
    """

    engine: str
    steps: int
    rows: int
    seconds: float
    recovery_seconds: float
    late: int
    dead: int
    duplicates: int
    outputs: int
    checkpoint: int
    clock_ms: int
    checkpoint_bytes: int
    open_windows: int
    recovered: bool
    ledger: dict[str, Account]
    stopped: bool = False
    discarded: int = 0
    notes: tuple[str, ...] = ()
    unfolded: int = 0
    set_aside: int = 0
    reached: Reached | None = None
    unpublished: str = ""
    corrected: int = 0
    late_windows: Mapping[str, LateWindows] = field(default_factory=dict)
    expired: int = 0
    expired_in: Mapping[str, int] = field(default_factory=dict)
    series: tuple[SeriesPoint, ...] = field(default=(), repr=False, compare=False)
    logged: tuple[str, ...] = field(default=(), repr=False, compare=False)
    name: str = ""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    def plot(self) -> Any:
        """How the run went, as an Altair chart: rows a second, the lag of the clock, records set aside, the size of the
        state. InvalidPipeline if it had no step, or Altair is missing."""
        if not self.series:
            raise InvalidPipeline(
                "this run had no step, so there is nothing to plot: pipeline.plot() shows earlier checkpoints"
            )
        points = [
            {
                **point.__dict__,
                "at": point.at_seconds,
                "when": f"{point.at_seconds:,.1f} s",
                "rows_per_second": point.rows_per_second,
            }
            for point in self.series
        ]
        title = f"{count_text(self.rows, 'row')} in {count_text(self.steps, 'step')}, {self.engine}"
        return plotted(points, title, of_day=False)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        ended = f"stopped by a signal{_part_text(self.reached)}, everything committed" if self.stopped else "done"
        notes = [f"nothing published: {self.unpublished}"] if self.unpublished else []
        title = f"{count_text(self.rows, 'row')} in {count_text(self.steps, 'step')}: {ended}"
        return facts_html(title, self._facts(), [without_secrets(note) for note in (*notes, *self.notes)])

    def _facts(self) -> Iterator[Fact]:
        yield "time", f"{self.seconds:.1f} s, {self.rows_per_second:,.0f} rows/s, {self.engine}"
        if self.reached is not None and self.reached.total:
            yield "read", reached_text(self.reached)
        yield "checkpoint", f"{self.checkpoint}, clock {clock_text(self.clock_ms)}"
        yield "published", count_text(self.outputs, "row")
        counts = {
            "late": self.late,
            "dead letters": self.dead,
            "duplicates": self.duplicates,
            "results not shown": self.set_aside,
            "open windows": self.open_windows,
            "windows discarded": self.discarded,
            "results corrected": self.corrected,
            "keys expired": self.expired,
            "runs unfolded": self.unfolded,
        }
        yield from ((name, f"{count:,}") for name, count in counts.items() if count)
        yield from ((f"late in {task}", missed_text(missed)) for task, missed in self.late_windows.items())

    def __str__(self) -> str:
        duplicates = f", {count_text(self.duplicates, 'duplicate')}" if self.duplicates else ""
        text = (
            f"{self.name and f'{self.name}: '}{count_text(self.rows, 'row')} in {count_text(self.steps, 'step')}, "
            f"{self.seconds:.1f} s ({self.rows_per_second:,.0f} rows/s, "
            f"{self.engine}); {count_text(self.outputs, 'row')} published, {self.late:,} late, "
            f"{count_text(self.dead, 'dead letter')}{duplicates}; "
            f"checkpoint {self.checkpoint}, clock {clock_text(self.clock_ms)}"
        )
        if self.open_windows:
            text += f"; open windows: {self.open_windows:,}"
            if self.outputs and not self.stopped:
                text += " (if the input is complete, run with --end-of-input)"
        if self.stopped:
            text += f"; stopped by a signal{_part_text(self.reached)}, everything committed"
        if self.discarded:
            text += f"; {count_text(self.discarded, 'window')} closed and discarded (discard_closed=True)"
        if self.corrected:
            text += f"; {count_text(self.corrected, 'result')} of closed windows corrected by late records"
        text += "".join(f"; late in {task}: {missed_text(missed)}" for task, missed in self.late_windows.items())
        if self.expired:
            each = ", ".join(f"{count:,} in {state}" for state, count in self.expired_in.items())
            text += f"; {count_text(self.expired, 'key')} expired{f' ({each})' if each else ''}"
        if self.set_aside:
            results = count_text(self.set_aside, "result")
            text += f"; {results} could not be shown: see the dead letters, with the reason"
        if self.unfolded:
            text += f"; runs that stay unfolded, as their fold raises (see the log): {self.unfolded:,}"
        lines = [f"nothing published: {self.unpublished}"] if self.unpublished else []
        notes = (note if note.startswith("WARNING") else f"note: {note}" for note in self.notes)
        return "\n".join([text, *lines, *notes])


@dataclass(frozen=True)
class Idle:
    """A run that follows its source and has nothing to do. ``first_end``: the end of the first open window."""

    reached: Reached | None
    clock_ms: int
    open_windows: int
    first_end: int | None


def reached_text(reached: Reached) -> str:
    """How far a source has been read.

    >>> reached_text(Reached(3 << 20, 12 << 20, "bytes", 1, 4)), reached_text(Reached(50, 50, "rows"))
    ('25 % of 12.0 MB', '100 % of 50 rows')
    """
    total = bytes_text(reached.total) if reached.unit == "bytes" else f"{reached.total:,} {reached.unit}"
    return f"{100 * reached.done // max(reached.total, 1)} % of {total}"


def _part_text(reached: Reached | None) -> str:
    return "" if reached is None or reached.is_all else f" at {reached_text(reached)}"
