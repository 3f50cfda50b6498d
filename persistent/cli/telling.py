"""Telling is how a run speaks on the standard error: in lines for people, or in log lines of JSON."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click

from persistent.cli.log_lines import RUN, json_lines
from persistent.clock import monotonic_s
from persistent.driver.report import Idle, RunReport, StepReport
from persistent.pipeline import Pipeline
from persistent.progress import Lines, Progress, RunFigures, progress
from persistent.storage.short_names import lasting_name

logger = logging.getLogger(RUN)


class Telling:
    """``as_json``: in log lines of JSON, which have the short name of the pipeline and its newest checkpoint."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._common: dict[str, Any] = {}

    def lines(self) -> AbstractContextManager[None]:
        """Within, all that a run tells, with what others log and the error that ends it."""
        return json_lines(self._common) if self._as_json else nullcontext()

    def of(self, pipeline: Pipeline) -> None:
        """The lines are about that pipeline from now on."""
        self._common["pipeline"] = lasting_name(pipeline.storage.url)

    def say(self, text: str) -> None:
        """One line."""
        if self._as_json:
            logger.info("%s", text)
        else:
            click.echo(text, err=True)

    @contextmanager
    def progress(self, *, follow: bool) -> Iterator[Progress]:
        """Shows the progress of a run; yields the callback for step reports."""
        if self._as_json:
            yield _Logged(self._common, follow=follow)
        else:
            with progress(sys.stderr, follow=follow) as shown:
                yield shown

    def ended(self, report: RunReport) -> None:
        """The run has ended; for people the report says so, on the standard output."""
        self._common |= {"checkpoint": report.checkpoint, "clock_ms": report.clock_ms}
        if self._as_json:
            names = ("engine", "steps", "rows", "late", "dead", "duplicates", "outputs", "seconds", "stopped")
            logger.info("%s", report, extra={"fields": {name: getattr(report, name) for name in names}})


class _Logged:
    """Progress as log lines."""

    def __init__(self, common: dict[str, Any], *, follow: bool) -> None:
        self._common = common
        self._figures = RunFigures(monotonic_s(), follow=follow)
        self._lines = Lines(self._figures, self._log)

    def __call__(self, step: StepReport, /) -> None:
        self._common |= {"checkpoint": step.id, "clock_ms": step.clock_ms}
        self._lines(step)

    def idle(self, idle: Idle, /) -> None:
        self._lines.idle(idle)

    def _log(self, parts: Sequence[str]) -> None:
        names = ("rows", "steps", "late", "dead", "checkpoint_bytes")
        logger.info("%s", "  ".join(parts), extra={"fields": {name: getattr(self._figures, name) for name in names}})
