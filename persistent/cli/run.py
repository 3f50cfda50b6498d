"""``persistent run``: runs a pipeline on Spark or embedded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

import click

from persistent.checkpoint.log import Log
from persistent.cli.exits import STOPPED
from persistent.cli.load import load_pipeline
from persistent.cli.options import pipeline_argument, take_over_option
from persistent.cli.tables import json_text
from persistent.cli.telling import Telling
from persistent.driver.report import RunReport
from persistent.metrics import Metrics, PrometheusMetrics
from persistent.metrics.otel import over_otlp
from persistent.operations.fencing import check_none_runs


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
    line at most every second. The report goes to the standard output. The first line says where the pipeline runs.

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
    told = Telling(as_json=log_format == "json")
    with told.lines(), ExitStack() as stack:
        loaded = load_pipeline(pipeline)
        told.of(loaded)
        if not take_over:
            check_none_runs(Log(loaded.storage))
        session = stack.enter_context(_session(engine, master, told.say))
        given: dict[str, Any] = {"metrics": stack.enter_context(_metrics(metrics, otel, told.say)), "follow": follow}
        shown = stack.enter_context(told.progress(follow=follow))
        given |= {"end_of_input": end_of_input, "on_step": shown, "on_idle": shown.idle}
        report = loaded.run(session, engine="embedded" if session is None else None, **given)
        told.ended(report)
    click.echo(json_text(_report_json(report)) if as_json else str(report))
    if report.stopped and not follow:
        raise click.exceptions.Exit(STOPPED)


@contextmanager
def _metrics(address: str | None, otel: bool, say: Callable[[str], None]) -> Iterator[list[Metrics]]:
    """Where the figures of the run are shown."""
    found: list[Metrics] = []
    with ExitStack() as stack:
        if address is not None:
            found.append(PrometheusMetrics(address, on_open=lambda url: say(f"the metrics of this run are at {url}")))
        if otel:
            found.append(stack.enter_context(over_otlp()))
        yield found


@contextmanager
def _session(engine: str | None, master: str | None, say: Callable[[str], None]) -> Any:
    """A SparkSession; None for the embedded engine."""
    if engine == "embedded":
        yield None
        return
    from persistent.engines.spark_session import java_found, session_at

    if engine is None and master is None and "SPARK_REMOTE" not in os.environ and not java_found():
        say("no Java found (in JAVA_HOME or on the path): running on the embedded engine")
        yield None
        return
    session, place = session_at(master)
    say(f"running on {place}")
    try:
        yield session
    finally:
        session.stop()


def _report_json(report: RunReport) -> dict[str, Any]:
    whole = asdict(replace(report, series=()))
    del whole["series"]
    return {**whole, "rows_per_second": report.rows_per_second}
