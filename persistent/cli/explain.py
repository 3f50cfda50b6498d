"""``persistent explain``: what a pipeline will do, in words."""

from __future__ import annotations

import click

from persistent.cli.load import load_pipeline
from persistent.cli.options import pipeline_argument
from persistent.cli.tables import json_text


@click.command()
@pipeline_argument
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Of an engine that runs N items at once [default: processors].",
)
@click.option("--json", "as_json", is_flag=True, help="The facts as JSON, with the sentences.")
def explain(pipeline: str, workers: int | None, as_json: bool) -> None:
    """What a step of the pipeline will do, and why its guarantee holds.

    Says what is read, what is kept, when windows close, what is late, what is published where, the jobs of a step, the
    guarantee with the reason of each part, and the memory of a worker with what is assumed. Starts nothing, and reads
    nothing but the newest manifest of the checkpoint.

    \b
    persistent explain visits.py:pipeline
    persistent explain visits.py:pipeline --workers 16 --json
    """
    found = load_pipeline(pipeline).explain(parallelism=workers)
    click.echo(json_text(found.to_json()) if as_json else str(found))
