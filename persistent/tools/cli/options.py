"""The shared options and arguments of commands, and the meaning of a target."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from persistent.pipeline import Pipeline
from persistent.storage.protocol import Storage
from persistent.storage.subfolder import open_checkpoint
from persistent.time.clock import instant_ms
from persistent.tools.cli.load import load_pipeline, names_pipeline
from persistent.tools.cli.tables import ROWS_SHOWN

Command = TypeVar("Command", bound=Callable[..., Any])


class Time(click.ParamType):  # type: ignore[type-arg]
    """A time: milliseconds since the epoch, or ISO 8601, in UTC unless it names a zone.

    >>> Time().convert("2024-05-01T10:00", None, None) == Time().convert("1714557600000", None, None)
    True
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return instant_ms(value, "time")
        except ValueError as error:
            self.fail(str(error).removeprefix("time: "), param, ctx)


TIME = Time()

target_argument = click.argument("target")
pipeline_argument = click.argument("pipeline", metavar="FILE_OR_MODULE:NAME")
json_option = click.option("--json", "as_json", is_flag=True, help="JSON, one object a line.")
limit_option = click.option(
    "--limit", type=click.IntRange(0), help=f"Show at most this many rows [default: {ROWS_SHOWN}; with --json all]."
)
outputs_option = click.option(
    "--outputs",
    type=click.Choice(["retract", "again"]),
    required=True,
    help="The next run retracts later outputs, or keeps them and publishes them again.",
)
take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="Fence a driver that seems to run, so that it commits nothing more.",
)


def storage_of(target: str) -> Storage:
    """The checkpoint of a target: a URL, or a pipeline."""
    _check_no_file(target)
    return load_pipeline(target).storage if names_pipeline(target) else open_checkpoint(target)


def _check_no_file(target: str) -> None:
    if target.endswith(".py") and os.path.isfile(target):
        raise click.UsageError(f"{target} is a file: name the pipeline in it, as in {target}:pipeline")


def pipeline_of(target: str) -> Pipeline:
    """The pipeline of a target; UsageError for a URL."""
    _check_no_file(target)
    if not names_pipeline(target):
        raise click.UsageError(
            f"{target}: this command needs the task's own monoid: give the pipeline as FILE.py:NAME "
            "(the pipeline names its checkpoint)"
        )
    return load_pipeline(target)
