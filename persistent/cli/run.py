"""``persistent run``: runs a pipeline on Spark or embedded.

``Telling`` writes what a run reports on the standard error: lines for people, or log lines of JSON.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any

import click
from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.running import check_none_runs
from persistent.cli.exits import STOPPED
from persistent.cli.load import load_pipeline
from persistent.cli.log_lines import RUN, json_lines
from persistent.cli.options import pipeline_argument, take_over_option
from persistent.cli.tables import json_text
from persistent.clock import monotonic_s
from persistent.driver.report import Idle, RunReport, StepReport
from persistent.metrics import Metrics, PrometheusMetrics
from persistent.metrics.otel import over_otlp
from persistent.pipeline import Pipeline
from persistent.progress import Lines, Progress, RunFigures, progress
from persistent.storage.failures import without_secrets
from persistent.storage.short_names import lasting_name


@click.command()
@pipeline_argument
@click.option("--engine", type=click.Choice(["spark", "embedded"]), help="[default: spark if Java is found]")
@click.option(
    "--master",
    metavar="URL",
    help="Run on this Spark: local[2], spark://host:7077, yarn, sc://host:15002 ... [default: spark.master of Spark's "
    "configuration, otherwise a local Spark on all processors]",
)
@click.option("--follow", is_flag=True, help="Wait for more input, until SIGINT (Ctrl-C) or SIGTERM.")
@click.option("--end-of-input", is_flag=True, help="The input is complete: close and publish every window.")
@take_over_option
@click.option("--metrics", metavar="HOST:PORT", help="Show the run's figures to Prometheus there; a PORT alone: here.")
@click.option("--otel", is_flag=True, help="Send the run's figures by OTLP, to where OTEL_EXPORTER_OTLP_ENDPOINT says.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Progress, log and errors as lines for people, or one JSON object a line.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def run(
    pipeline: str,
    engine: str | None,
    master: str | None,
    follow: bool,
    end_of_input: bool,
    take_over: bool,
    metrics: str | None,
    otel: bool,
    log_format: str,
    as_json: bool,
) -> None:
    """Process the available input, exactly once.

    Continues where the last run ended. Progress goes to the standard error: a changing line on a terminal, otherwise a
    line at most every second. So do warnings, as they arise. The report goes to the standard output. The first line
    names the checkpoint by its absolute place: a relative one begins at the current folder.

    SIGINT and SIGTERM end the run after the current step, with everything committed and published: exit code 0 with
    --follow, 130 without. A second SIGINT ends it at once; the next run repeats the step.

    If a driver of the checkpoint certainly runs, as a live process of this machine, the command is refused (exit code
    5) unless --take-over is given. A driver that died, or may run on another machine, is fenced without asking.

    --metrics serves the clock, its lag, records by fate, steps, state and more, at http://HOST:PORT/metrics, to whoever
    reaches that address, while the run lasts; docs/metrics.md has the table.

    \b
    persistent run visits.py:pipeline
    persistent run jobs.visits:pipeline --engine embedded --follow
    """
    if follow and end_of_input:
        raise click.UsageError("--follow waits for more input, --end-of-input says that none follows: choose one")
    if master is not None and engine == "embedded":
        raise click.UsageError("--master names a Spark, --engine embedded uses none: choose one")
    voice = Telling(as_json=log_format == "json")
    with voice.lines(), ExitStack() as stack:
        loaded = load_pipeline(pipeline)
        voice.of(loaded, pipeline)
        passing = tuple(_passing(loaded))
        for text in passing:
            voice.warn(text)
        newest = Log(loaded.storage).newest() if not take_over else None
        if newest is not None:
            check_none_runs(loaded.storage, newest.manifest.epoch)
        session = stack.enter_context(_session(engine, master, voice.say))
        options: dict[str, Any] = {"metrics": stack.enter_context(_metrics(metrics, otel, voice.say)), "follow": follow}
        callback = stack.enter_context(voice.progress(follow=follow))
        options |= {"end_of_input": end_of_input, "on_step": callback, "on_idle": callback.idle}
        report = loaded.run(session, engine="embedded" if session is None else None, **options)
        report = replace(report, notes=(*report.notes, *passing), logged=(*report.logged, *passing))
        ended = voice.ended(report)
    click.echo(json_text(_report_json(report)) if as_json else ended)
    if report.stopped and not follow:
        raise click.exceptions.Exit(STOPPED)


def _passing(pipeline: Pipeline) -> Iterator[str]:
    """Which sinks, and whether the checkpoint, are lost when this process ends, as they are kept in its memory."""
    sinks = [repr(sink) for sink in pipeline.all_sinks.values() if not getattr(sink, "shared", True)]
    if sinks:
        rows = f"the rows of {', '.join(sinks)} are gone when this command ends, as they are kept in its memory"
        yield f'{rows}: to keep them, give FileSink("results", format="jsonl") or another sink, and a new checkpoint'
    if not pipeline.storage.shared:
        yield (
            f"the checkpoint {pipeline.storage.url} is gone when this command ends, as it is kept in its memory, and "
            'the next run begins anew: to keep it, give the path of a folder, checkpoint="results-checkpoint"'
        )


@contextmanager
def _metrics(address: str | None, otel: bool, say: Callable[[str], None]) -> Iterator[list[Metrics]]:
    """Where the figures of the run are shown."""
    metrics: list[Metrics] = []
    with ExitStack() as stack:
        if address is not None:
            metrics.append(PrometheusMetrics(address, on_open=lambda url: say(f"the metrics of this run are at {url}")))
        if otel:
            metrics.append(stack.enter_context(over_otlp()))
        yield metrics


@contextmanager
def _session(engine: str | None, master: str | None, say: Callable[[str], None]) -> Any:
    """A SparkSession; None for the embedded engine."""
    if engine == "embedded":
        yield None
        return
    from persistent.engines.spark_session import missing, session_at

    if engine is None and master is None and "SPARK_REMOTE" not in os.environ and (lacks := missing()):
        say(f"{lacks}: running on the embedded engine")
        yield None
        return
    session, place = session_at(master)
    say(f"running on {place}")
    try:
        yield session
    finally:
        session.stop()


def _report_json(report: RunReport) -> dict[str, Any]:
    whole = asdict(replace(report, series=(), logged=(), ledger={}))
    del whole["series"], whole["logged"]
    ledger = {name: structs.asdict(account) for name, account in report.ledger.items()}
    return {**whole, "ledger": ledger, "rows_per_second": report.rows_per_second}


logger = logging.getLogger(RUN)


class Telling:
    """Writes the lines of a run to the standard error. ``as_json``: as log lines of JSON, which have the name of the
    pipeline and its newest checkpoint."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._common: dict[str, Any] = {}

    def lines(self) -> AbstractContextManager[None]:
        """Within, with ``as_json``, every line is JSON: those of the run, what other packages log, and the error that
        ends the run."""
        return json_lines(self._common) if self._as_json else nullcontext()

    def of(self, pipeline: Pipeline, target: str) -> None:
        """The lines are about that pipeline from now on; the first names its checkpoint by its absolute place."""
        self._common["pipeline"] = pipeline.name or lasting_name(pipeline.storage.url)
        name = f"{pipeline.name} ({target})" if pipeline.name else target
        self.say(f"pipeline {name}, checkpoint {without_secrets(pipeline.storage.url)}")

    def say(self, text: str) -> None:
        """One line."""
        if self._as_json:
            logger.info("%s", text)
        else:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """One line that warns of a likely mistake."""
        if self._as_json:
            logger.warning("%s", text)
        else:
            click.echo(f"WARNING: {text}", err=True)

    @contextmanager
    def progress(self, *, follow: bool) -> Iterator[Progress]:
        """Shows the progress of a run; yields the callback for step reports."""
        if self._as_json:
            yield _Logged(self._common, follow=follow)
        else:
            with progress(sys.stderr, follow=follow) as callback:
                yield callback

    def ended(self, report: RunReport) -> str:
        """The report of the run that has ended, for people, without the notes that were logged before it."""
        text = str(replace(report, notes=tuple(note for note in report.notes if note not in report.logged)))
        self._common |= {"checkpoint": report.checkpoint, "clock_ms": report.clock_ms}
        if self._as_json:
            names = ("engine", "steps", "rows", "late", "dead", "duplicates", "outputs", "seconds", "stopped")
            logger.info("%s", text, extra={"fields": {name: getattr(report, name) for name in names}})
        return text


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
        names = ("rows", "steps", "late", "dead", "duplicates", "checkpoint_bytes")
        logger.info("%s", "  ".join(parts), extra={"fields": {name: getattr(self._figures, name) for name in names}})
