"""``persistent run``: runs a pipeline on Spark or embedded."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import click

from persistent.checkpoint.log import Log
from persistent.cli.exits import STOPPED
from persistent.cli.load import load_pipeline
from persistent.cli.options import pipeline_argument, take_over_option
from persistent.cli.tables import json_text
from persistent.driver.report import RunReport
from persistent.operations.fencing import check_none_runs
from persistent.progress import progress


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
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def run(
    pipeline: str,
    engine: str | None,
    master: str | None,
    follow: bool,
    end_of_input: bool,
    take_over: bool,
    as_json: bool,
) -> None:
    """Process the available input, exactly once.

    Continues where the last run ended. Progress goes to the standard error: a changing line on a terminal, otherwise a
    line at most every second. The report goes to the standard output. The first line says where the pipeline runs.

    SIGINT and SIGTERM end the run after the current step, with everything committed and published: exit code 0 with
    --follow, 130 without. A second SIGINT ends it at once; the next run repeats the step.

    If a driver of the checkpoint certainly runs, as a live process of this machine, the command is refused (exit code
    5) unless --take-over is given. A driver that died, or may run on another machine, is fenced without asking.

    \b
    persistent run visits.py:pipeline
    persistent run jobs.visits:pipeline --engine embedded --follow
    """
    if follow and end_of_input:
        raise click.UsageError("--follow waits for more input, --end-of-input says that none follows: choose one")
    if master is not None and engine == "embedded":
        raise click.UsageError("--master names a Spark, --engine embedded uses none: choose one")
    loaded = load_pipeline(pipeline)
    if not take_over:
        check_none_runs(Log(loaded.storage))
    with _session(engine, master) as session, progress(sys.stderr, follow=follow) as shown:
        chosen = "embedded" if session is None else None
        report = loaded.run(
            session, engine=chosen, follow=follow, end_of_input=end_of_input, on_step=shown, on_idle=shown.idle
        )
    click.echo(json_text(_report_json(report)) if as_json else str(report))
    if report.stopped and not follow:
        raise click.exceptions.Exit(STOPPED)


@contextmanager
def _session(engine: str | None, master: str | None) -> Any:
    """A SparkSession; None for the embedded engine."""
    if engine == "embedded":
        yield None
        return
    from persistent.engines.spark_session import java_found, session_at

    if engine is None and master is None and "SPARK_REMOTE" not in os.environ and not java_found():
        click.echo("no Java found (in JAVA_HOME or on the path): running on the embedded engine", err=True)
        yield None
        return
    session, place = session_at(master)
    click.echo(f"running on {place}", err=True)
    try:
        yield session
    finally:
        session.stop()


def _report_json(report: RunReport) -> dict[str, Any]:
    whole = asdict(replace(report, series=()))
    del whole["series"]
    return {**whole, "rows_per_second": report.rows_per_second}
