"""Progress is a line of figures about a run at work.

On a terminal it is one line that changes; elsewhere a new line, at most one a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.status import Status

from persistent.clock import monotonic_s
from persistent.figures import bytes_text, span_text, utc_text
from persistent.report import RunReport, StepReport

_RATE_SECONDS = 10.0
_LINE_SECONDS = 1.0


class Tally:
    """The figures of a run so far; rows a second over the last ten seconds."""

    def __init__(self, now_s: float) -> None:
        self.rows = 0
        self.steps = 0
        self.late = 0
        self.dead = 0
        self.checkpoint_bytes = 0
        self._recent: deque[tuple[float, int]] = deque([(now_s, 0)])

    def add(self, step: StepReport, now_s: float) -> str:
        """Count a step; the line to show.

        >>> step = StepReport(1, 2_000_000, 1.0, 0, 0, 0, 1_700_000_000_000, 1_500, 4096, 0, 512, 0.01)
        >>> Tally(now_s=10.0).add(step, now_s=12.0)
        '2,000,000 rows  1,000,000 rows/s  clock 2023-11-14 22:13:20Z  lag 1.5 s  1 steps  4.0 kB checkpoint'
        """
        self.rows += step.rows
        self.steps += 1
        self.late += step.late
        self.dead += step.dead
        self.checkpoint_bytes += step.checkpoint_bytes
        self._recent.append((now_s, self.rows))
        while now_s - self._recent[0][0] > _RATE_SECONDS and len(self._recent) > 2:
            self._recent.popleft()
        began_s, before = self._recent[0]
        rate = (self.rows - before) / max(now_s - began_s, 1e-3)
        return (
            f"{self.rows:,} rows  {rate:,.0f} rows/s  clock {utc_text(step.watermark)}  lag {span_text(step.lag_ms)}  "
            f"{self.steps:,} steps  {bytes_text(self.checkpoint_bytes)} checkpoint{self._set_aside()}"
        )

    def _set_aside(self) -> str:
        """What is missing from the result, where something is: how much of all."""
        counts = {"late": self.late, "dead letters": self.dead}
        return "".join(
            f"  {count:,} {name} ({max(100 * count // self.rows, 1)} % of all)"
            for name, count in counts.items()
            if count
        )


class OnStep(Protocol):
    """Is told of each step."""

    def __call__(self, step: StepReport, /) -> None: ...


@contextmanager
def progress(stream: TextIO) -> Iterator[OnStep]:
    """Show the progress of a run on ``stream``; yields what is to be called with each step's report."""
    if stream.isatty():
        with Status("starting", console=Console(file=stream), spinner="line") as status:
            yield _Shown(status)
    else:
        yield _Printed(stream)


class _Shown:
    def __init__(self, status: Status) -> None:
        self._status = status
        self._tally = Tally(monotonic_s())

    def __call__(self, step: StepReport, /) -> None:
        self._status.update(self._tally.add(step, monotonic_s()))


class _Printed:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tally = Tally(monotonic_s())
        self._printed_s = -_LINE_SECONDS

    def __call__(self, step: StepReport, /) -> None:
        now_s = monotonic_s()
        line = self._tally.add(step, now_s)
        if now_s - self._printed_s >= _LINE_SECONDS:
            self._printed_s = now_s
            print(line, file=self._stream, flush=True)


@contextmanager
def one_line(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Show a line in place of the last; nothing where ``stream`` is no terminal."""
    if not stream.isatty():
        yield lambda text: None
        return
    with Status("", console=Console(file=stream, markup=False), spinner="line") as status:
        yield status.update


@contextmanager
def working(stream: TextIO, what: str, amount: Callable[[int], str]) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far a long work is; yields what is to be told how much is done, and of how much."""
    began_s = monotonic_s()
    with one_line(stream) as show:
        show(what)

        def on_progress(done: int, total: int) -> None:
            rate = int(done / max(monotonic_s() - began_s, 1e-3))
            share = f" {100 * done // total} %" if total else ""
            show(f"{what}: {amount(done)} of {amount(total)}{share}, {amount(rate)}/s")

        yield on_progress


def report_text(report: RunReport) -> str:
    """What a run has done, as the command line says it."""
    text = (
        f"{report.rows:,} rows in {report.steps:,} steps, {report.seconds:.1f} s "
        f"({report.rows_per_second:,.0f} rows/s, {report.engine}); "
        f"{report.outputs:,} rows published, {report.late:,} late, {report.dead:,} dead letters; "
        f"checkpoint {report.checkpoint}, clock {utc_text(report.watermark)}"
    )
    if report.stopped:
        text += "; stopped by a signal, everything committed"
    elif report.open_windows:
        text += f"; open windows: {report.open_windows:,} (if the input is complete, run again with --end-of-input)"
    return report.remarked(text)
