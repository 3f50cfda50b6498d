"""``persistent run``: runs a pipeline on Spark or embedded.

``Telling`` writes what a run reports on the standard error: lines for people, or log lines of JSON.

A log line is one JSON object, for whatever collects the logs of a machine: time, level, logger, message, fields.

With ``json_lines``, everything that a run writes to the standard error is such a line: its progress, the log of this
package and of other packages, and the error that ends the run, with its traceback.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import click
from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.running import check_none_runs
from persistent.driver.report import Idle, RunReport, StepReport
from persistent.errors import PersistentError
from persistent.metrics.exporters import Metrics, PrometheusMetrics, over_otlp
from persistent.pipeline import Pipeline
from persistent.progress import Lines, Progress, RunFigures, progress
from persistent.storage.failures import without_secrets
from persistent.storage.places import lasting_name
from persistent.time.clock import monotonic_s
from persistent.tools.cli.exits import FAILED, STOPPED, exit_code
from persistent.tools.cli.load import load_pipeline
from persistent.tools.cli.options import pipeline_argument, take_over_option
from persistent.tools.cli.tables import json_text

RUN = "persistent.run"
"""The logger of the lines of a run: its progress, notes and errors."""


class JsonFormat(logging.Formatter):
    """Formats a record. ``common``: fields of every line, which change as the run goes on."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        """One object, in ASCII, whatever the message holds. A record that cannot be formatted keeps its template, and
        says why in ``unformatted``."""
        try:
            return self._line(record, record.getMessage(), getattr(record, "fields", {}))
        except Exception as error:
            return self._line(record, _template(record), {"unformatted": type(error).__name__})

    def _line(self, record: logging.LogRecord, message: str, extra: Any) -> str:
        body: dict[str, Any] = {
            "time": time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(message),
        }
        fields = {**self._common, **(extra if isinstance(extra, Mapping) else {"fields": extra})}
        body |= {str(name): value for name, value in fields.items() if name not in body}
        if record.exc_info:
            body["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(body, default=str, allow_nan=False)


def _template(record: logging.LogRecord) -> str:
    """The message without its values; its type, if it has no text."""
    try:
        return str(record.msg)
    except Exception:
        return type(record.msg).__name__


class ToStderr(logging.Handler):
    """Writes to the current standard error, so that log lines do not break a progress line.

    It never raises: a log that nobody can read, or write, does not change what a job counts.
    """

    def emit(self, record: logging.LogRecord) -> None:
        # As in logging.Handler.handleError, but its text is no JSON, and there may be no one left to read it.
        with suppress(Exception):
            click.echo(self.format(record), err=True)


def time_text(seconds: float) -> str:
    """A time as RFC 3339 has it, in UTC.

    >>> time_text(1_700_000_000.5)
    '2023-11-14T22:13:20.500000Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@contextmanager
def json_lines(common: Mapping[str, Any]) -> Iterator[None]:
    """Within, every log line is a JSON object with the ``common`` fields. An error becomes such a line, and then the
    exit code of the command."""
    written = ToStderr()
    written.setFormatter(JsonFormat(common))
    root, ours, run = logging.getLogger(), logging.getLogger("persistent"), logging.getLogger(RUN)
    before = root.handlers, ours.handlers, run.level
    root.handlers, ours.handlers = [written], []
    run.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    except click.ClickException as error:
        run.error(error.format_message())
        raise click.exceptions.Exit(error.exit_code) from error
    except PersistentError as error:
        run.error("%s", error, exc_info=error, extra={"fields": {"error": type(error).__name__}})
        raise click.exceptions.Exit(exit_code(error)) from error
    except (click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        run.critical("%s", error, exc_info=error, extra={"fields": {"error": type(error).__name__}})
        raise click.exceptions.Exit(FAILED) from error
    finally:
        logging.captureWarnings(False)
        root.handlers, ours.handlers = before[0], before[1]
        run.setLevel(before[2])


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
    sinks = [repr(sink) for sink in pipeline.all_sinks.values() if not sink.shared]
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
