"""The output of a cell shows the progress of the run in it: one display that is replaced, a few times a second at most.

It never ends a run: if the front end refuses a display, the run goes on without.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

from monoids.html import text_html
from persistent.clock import monotonic_s
from persistent.driver.report import Idle, StepReport
from persistent.errors import InvalidPipeline
from persistent.progress import Progress, RunFigures, progress
from persistent.sources.protocol import Reached

logger = logging.getLogger("persistent.notebook")

_UPDATE_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 1.0
_BAR = "height:4px;width:20em;background:rgba(128,128,128,0.3);margin:0.3em 0"
_DONE = "height:4px;background:#1f9bcf"


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Told:
    """Whom a run tells of its steps: the user's callbacks, and a display of its progress.

    ``progress``: True shows it, in the cell or on the standard error; None in a notebook only; False never.
    """

    def __init__(
        self,
        shown: bool | None,
        follow: bool,
        on_step: Callable[[StepReport], None] | None,
        on_idle: Callable[[Idle], None] | None,
    ) -> None:
        if shown not in (True, False, None):
            raise InvalidPipeline(f"progress={shown!r}: give True, False, or None for notebooks only")
        self._on_step, self._on_idle = on_step, on_idle
        self._display = _display(shown, follow)
        self._progress: Progress | None = None
        self._open = ExitStack()

    def __enter__(self) -> Told:
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


def _display(shown: bool | None, follow: bool) -> AbstractContextManager[Progress | None]:
    if shown is not False and is_notebook():
        return _Cell(RunFigures(monotonic_s(), follow=follow))
    return progress(sys.stderr, follow=follow) if shown else nullcontext()


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
        if self._figures.idle_s(now_s) >= _IDLE_SECONDS:
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
        shown = {"text/plain": "  ".join(parts), "text/html": _html(reached, parts)}
        try:
            if self._handle is None:
                self._handle = _displayed(shown)
            else:
                self._handle.update(shown, raw=True)
        except Exception as error:
            self._is_refused = True
            logger.warning("the progress is not shown any more: %s: %s", type(error).__name__, error)


def _displayed(shown: dict[str, str]) -> Any:
    from IPython import display

    show: Any = display.display
    return show(shown, raw=True, display_id=True)


def _html(reached: Reached | None, parts: Sequence[str]) -> str:
    bar = ""
    if reached is not None and reached.total:
        percent = 100 * min(reached.done, reached.total) // reached.total
        bar = f'<div style="{_BAR}"><div style="{_DONE};width:{percent}%"></div></div>'
    text = " &nbsp; ".join(map(text_html, parts))
    return f'<div style="font-variant-numeric:tabular-nums">{bar}{text}</div>'
