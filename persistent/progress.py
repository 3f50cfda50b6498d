"""Progress is a line of figures about a running pipeline: first the completed share and the time left.

On a terminal one line changes in place; elsewhere each line is new, at most once a second. In a notebook it is shown in
the cell; if the front end refuses it, the run goes on without. Metrics are shown as long as the run lasts.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol, TextIO

from monoids.html import text_html
from persistent.connect.source import Reached
from persistent.driver.report import Idle, StepReport, reached_text
from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board
from persistent.metrics.exporters import Metrics, PrometheusMetrics
from persistent.names import state_name
from persistent.text.figures import bytes_text, clock_text, count_text, span_text, utc_text
from persistent.time.clock import monotonic_s

logger = logging.getLogger("persistent.notebook")

_RATE_SECONDS = 10.0
_LINE_SECONDS = 1.0
_IDLE_SECONDS = 300.0
_UPDATE_SECONDS = 0.25
_BEHIND_MAX_MS = 86_400_000
_SPINNER = 2
_BAR = "height:4px;width:20em;background:rgba(128,128,128,0.3);margin:0.3em 0"
_DONE = "height:4px;background:#1f9bcf"


class RunFigures:
    """The figures of a run so far; rates are over the last ten seconds.

    The delay of the clock behind the time of day is shown only for a run that follows its source, has read all of it,
    and is less than a day behind: for older data it would be the age of the data, not a delay.
    """

    def __init__(self, now_s: float, *, follow: bool = False) -> None:
        self.rows = 0
        self.steps = 0
        self.late = 0
        self.dead = 0
        self.duplicates = 0
        self._refused: Counter[str] = Counter()
        self.checkpoint_bytes = 0
        self._follow = follow
        self._active_s = now_s
        self._recent: deque[tuple[float, int, int | None]] = deque([(now_s, 0, None)])

    def add(self, step: StepReport, now_s: float) -> list[str]:
        """Count a step; returns what to show, the most important first.

        >>> step = StepReport(1, 2_000_000, 1.0, 0, 0, 0, 1_700_000_000_000, 1_500, 4096, 0, 512, 0.01)
        >>> RunFigures(now_s=10.0).add(step, now_s=12.0)[:3]
        ['2,000,000 rows', '1,000,000 rows/s', 'clock 2023-11-14 22:13:20Z']
        """
        self._active_s = now_s
        self.rows += step.rows
        self.steps += 1
        self.late += step.late
        self.dead += step.dead
        self.duplicates += step.duplicates
        for name, missed in step.late_windows.items():
            self._refused[name] += sum(missed.values())
        self.checkpoint_bytes += step.checkpoint_bytes
        self._recent.append((now_s, self.rows, step.reached.done if step.reached else None))
        while now_s - self._recent[0][0] > _RATE_SECONDS and len(self._recent) > 2:
            self._recent.popleft()
        began_s, before, _ = self._recent[0]
        rate = (self.rows - before) / max(now_s - began_s, 1e-3)
        return [
            *([reached_text(step.reached)] if step.reached is not None and step.reached.total else []),
            count_text(self.rows, "row"),
            f"{rate:,.0f} rows/s",
            *self._left(step.reached, now_s),
            *self._set_aside(),
            f"clock {clock_text(step.clock_ms)}{self._behind(step)}",
            *_files_parts(step.reached),
            count_text(self.steps, "step"),
            f"{bytes_text(self.checkpoint_bytes)} checkpoint",
        ]

    def counts(self) -> dict[str, int]:
        """The sums so far, by name."""
        return {
            "rows": self.rows,
            "steps": self.steps,
            "late": self.late,
            "dead": self.dead,
            "duplicates": self.duplicates,
            "checkpoint_bytes": self.checkpoint_bytes,
        }

    def idle(self, idle: Idle, now_s: float) -> list[str]:
        """The figures while no input is available."""
        seconds = int(now_s - self._active_s)
        waits = "waiting for input"
        if idle.reached is not None and not idle.reached.total:
            waits = "no input yet"
        parts = [f"idle {seconds:,} s: {waits}", *_files_parts(idle.reached), f"clock {clock_text(idle.clock_ms)}"]
        if idle.open_windows and idle.first_end is not None:
            parts.append(f"open windows: {idle.open_windows:,}, the first until clock {utc_text(idle.first_end)}")
        return [*parts, count_text(self.rows, "row"), *self._set_aside()]

    def idle_s(self, now_s: float) -> float:
        """Seconds since the last step."""
        return now_s - self._active_s

    def _left(self, reached: Reached | None, now_s: float) -> list[str]:
        """The time left at the current rate."""
        known = [(at_s, done) for at_s, _, done in self._recent if done is not None]
        if reached is None or reached.is_all or len(known) < 2:
            return []
        began_s, before = known[0]
        done = reached.done - before
        if done <= 0:
            return []
        return [f"{span_text(int(1000 * (reached.total - reached.done) * (now_s - began_s) / done))} left"]

    def _behind(self, step: StepReport) -> str:
        caught_up = self._follow and step.reached is not None and step.reached.is_all
        return f", {span_text(step.lag_ms)} behind" if caught_up and 0 <= step.lag_ms < _BEHIND_MAX_MS else ""

    def _set_aside(self) -> list[str]:
        """Records missing from the result, if any, and their share."""
        counts = [
            (self.late, f"{self.late:,} late"),
            (self.dead, count_text(self.dead, "dead letter")),
            (self.duplicates, count_text(self.duplicates, "duplicate")),
        ]
        # Where one state takes what another refuses, the account alone would show nothing.
        if len(self._refused) > 1 and set(self._refused.values()) != {self.late}:
            counts += [(count, f"{count:,} late in {state_name(name)}") for name, count in self._refused.items()]
        return [f"{text} ({_share(count, self.rows)} of all)" for count, text in counts if count]


def _share(count: int, rows: int) -> str:
    """A share in whole percents; only all is 100 %.

    >>> _share(97, 100_000), _share(1_999, 100_000), _share(0, 0)
    ('under 1 %', '1 %', 'under 1 %')
    """
    percent = 100 * count // max(rows, 1)
    return f"{percent} %" if percent else "under 1 %"


def _files_parts(reached: Reached | None) -> list[str]:
    return [f"{reached.files_done:,} of {reached.files:,} files"] if reached is not None and reached.files else []


def fitting(parts: Sequence[str], room: int) -> str:
    """The parts that fit into a line.

    >>> fitting(["12 % of 3.0 GB", "1,000 rows", "4 s left"], 24)
    '12 % of 3.0 GB  4 s left'
    """
    line = ""
    for part in parts:
        longer = f"{line}  {part}" if line else part
        line = longer if len(longer) <= room or not line else line
    return line


class Progress(Protocol):
    """Called with each step, and repeatedly while a run is idle."""

    def __call__(self, step: StepReport, /) -> None: ...

    def idle(self, idle: Idle, /) -> None: ...


@contextmanager
def progress(stream: TextIO, *, follow: bool = False) -> Iterator[Progress]:
    """Show the progress of a run on ``stream``; yields the callback for step reports."""
    figures = RunFigures(monotonic_s(), follow=follow)
    if stream.isatty():
        from rich.console import Console
        from rich.status import Status

        console = Console(file=stream, markup=False, highlight=False, emoji=False)
        with Status("starting", console=console, spinner="line") as status:
            yield _Shown(figures, status, console)
    else:
        yield Lines(figures, lambda parts: print("  ".join(parts), file=stream, flush=True))


class _Shown:
    def __init__(self, figures: RunFigures, status: Any, console: Any) -> None:
        self._figures = figures
        self._status = status
        self._console = console

    def __call__(self, step: StepReport, /) -> None:
        self._show(self._figures.add(step, monotonic_s()))

    def idle(self, idle: Idle, /) -> None:
        now_s = monotonic_s()
        if self._figures.idle_s(now_s) >= _LINE_SECONDS:
            self._show(self._figures.idle(idle, now_s))

    def _show(self, parts: Sequence[str]) -> None:
        self._status.update(fitting(parts, self._console.width - _SPINNER))


class Lines:
    """Shows a line at most once a second, and an idle run once, and then every five minutes."""

    def __init__(self, figures: RunFigures, show: Callable[[Sequence[str]], None]) -> None:
        self._figures = figures
        self._show = show
        self._printed_s = -_LINE_SECONDS
        self._idle_s = _LINE_SECONDS

    def __call__(self, step: StepReport, /) -> None:
        now_s = monotonic_s()
        parts = self._figures.add(step, now_s)
        self._idle_s = _LINE_SECONDS
        if now_s - self._printed_s >= _LINE_SECONDS:
            self._printed_s = now_s
            self._show(parts)

    def idle(self, idle: Idle, /) -> None:
        now_s = monotonic_s()
        if self._figures.idle_s(now_s) >= self._idle_s:
            self._idle_s = self._figures.idle_s(now_s) + _IDLE_SECONDS
            self._show(self._figures.idle(idle, now_s))


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Listeners:
    """What a run tells of its steps: the user's callbacks, and a display of its progress.

    ``progress``: True shows it, in the cell or on the standard error; None in a notebook only; False never.
    """

    def __init__(
        self,
        visible: bool | None,
        follow: bool,
        on_step: Callable[[StepReport], None] | None,
        on_idle: Callable[[Idle], None] | None,
    ) -> None:
        if visible not in (True, False, None):
            raise InvalidPipeline(f"progress={visible!r}: give True, False, or None for notebooks only")
        self._on_step, self._on_idle = on_step, on_idle
        self._display = _display(visible, follow)
        self._progress: Progress | None = None
        self._open = ExitStack()

    def __enter__(self) -> Listeners:
        self._progress = self._open.enter_context(self._display)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def step(self, step: StepReport) -> None:
        """Tell of a step."""
        if self._progress is not None:
            self._progress(step)
        if self._on_step is not None:
            self._on_step(step)

    def idle(self, idle: Idle) -> None:
        """Tell that there is nothing to do."""
        if self._progress is not None:
            self._progress.idle(idle)
        if self._on_idle is not None:
            self._on_idle(idle)


def _display(visible: bool | None, follow: bool) -> AbstractContextManager[Progress | None]:
    if visible is not False and is_notebook():
        return _Cell(RunFigures(monotonic_s(), follow=follow))
    return progress(sys.stderr, follow=follow) if visible else nullcontext()


class _Cell:
    """A display in the output of the current cell."""

    def __init__(self, figures: RunFigures) -> None:
        self._figures = figures
        self._handle: Any = None
        self._shown_s = -_UPDATE_SECONDS
        self._last: tuple[Reached | None, Sequence[str]] = None, ("starting",)
        self._is_refused = False

    def __enter__(self) -> _Cell:
        self._show()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        ended = "ended" if kind is None else f"ended by {kind.__name__}"
        self._last = self._last[0], (*(self._last[1] if self._figures.steps else ()), ended)
        self._show()

    def __call__(self, step: StepReport, /) -> None:
        now_s = monotonic_s()
        self._last = step.reached, self._figures.add(step, now_s)
        self._show_at(now_s)

    def idle(self, idle: Idle, /) -> None:
        now_s = monotonic_s()
        if self._figures.idle_s(now_s) >= _LINE_SECONDS:
            self._last = None, self._figures.idle(idle, now_s)
            self._show_at(now_s)

    def _show_at(self, now_s: float) -> None:
        if now_s - self._shown_s >= _UPDATE_SECONDS:
            self._shown_s = now_s
            self._show()

    def _show(self) -> None:
        if self._is_refused:
            return
        reached, parts = self._last
        bundle = {"text/plain": "  ".join(parts), "text/html": _html(reached, parts)}
        try:
            if self._handle is None:
                self._handle = _displayed(bundle)
            else:
                self._handle.update(bundle, raw=True)
        except Exception as error:
            self._is_refused = True
            logger.warning("the progress is not shown any more: %s: %s", type(error).__name__, error)


def _displayed(bundle: dict[str, str]) -> Any:
    from IPython import display

    show: Any = display.display
    return show(bundle, raw=True, display_id=True)


def _html(reached: Reached | None, parts: Sequence[str]) -> str:
    bar = ""
    if reached is not None and reached.total:
        percent = 100 * min(reached.done, reached.total) // reached.total
        bar = f'<div style="{_BAR}"><div style="{_DONE};width:{percent}%"></div></div>'
    text = " &nbsp; ".join(map(text_html, parts))
    return f'<div style="font-variant-numeric:tabular-nums">{bar}{text}</div>'


AnyMetrics = str | Metrics | Sequence[str | Metrics] | None
"""What a run is given: the HOST:PORT of an endpoint for Prometheus, metrics, several, or none."""


@contextmanager
def shown(choice: AnyMetrics, url: str, engine: str, name: str | None = None) -> Iterator[tuple[Board, ...]]:
    """The boards of a run, shown as long as it lasts. InvalidPipeline if a board cannot be shown."""
    several: list[Any] = list(choice or ()) if choice is None or isinstance(choice, list | tuple) else [choice]
    with ExitStack() as stack:
        boards = []
        for metrics in map(_metrics_of, several):
            board = metrics.open(url, engine, name)
            stack.callback(metrics.close, board)
            boards.append(board)
        yield tuple(boards)


def _metrics_of(choice: str | Metrics) -> Metrics:
    if isinstance(choice, str):
        return PrometheusMetrics(choice)
    if not isinstance(choice, Metrics):
        raise InvalidPipeline(
            f"metrics={choice!r}: give HOST:PORT, PrometheusMetrics(...), OtelMetrics(...), several of them, or None"
        )
    return choice
