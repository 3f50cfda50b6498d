"""The shared options and arguments of commands, and the meaning of a target.

An exit code says how a command ended. Codes never change their meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from persistent.errors import (
    CorruptCheckpoint,
    CorruptLog,
    Fenced,
    NoCheckpoint,
    PersistentError,
    SinkMismatch,
    StagedMissing,
    StillRunning,
    Stopped,
    StorageError,
    UnknownCheckpoint,
)
from persistent.pipeline import Pipeline
from persistent.storage import Storage
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


_NAME = re.compile(r"(^|say which, )name='([^']*)'")
_OPTION = re.compile(
    r"(?<!\()(?<!Python )\b(?:outputs=\"(?P<outputs>\w+)\"(?: \(--outputs=\w+\))?"
    r"|(?P<flag>end_of_input|follow|take_over)=True"
    r"|(?P<given>add|remove)=(?!\w))"
)


@dataclass(frozen=True)
class Exit:
    """A code, its meaning, and its errors."""

    code: int
    text: str
    errors: tuple[type[PersistentError], ...] = ()


DONE, FAILED, USAGE, NOT_FOUND, CORRUPT, RUNNING, REFUSED, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130

EXITS = (
    Exit(DONE, "done"),
    Exit(NOT_FOUND, "there is no checkpoint, or it does not keep that id or clock", (NoCheckpoint, UnknownCheckpoint)),
    Exit(
        CORRUPT,
        "the checkpoint or log is corrupt, or verify found faults",
        (CorruptCheckpoint, CorruptLog, StagedMissing),
    ),
    Exit(RUNNING, "the job is running, or another driver took over", (StillRunning, Fenced)),
    Exit(REFUSED, "the store refused: no permission, not reachable, not supported", (StorageError,)),
    Exit(STOPPED, "stopped by a signal before the end, everything so far committed", (Stopped,)),
    Exit(FAILED, "another error, in one line", (PersistentError, SinkMismatch)),
    Exit(USAGE, "a wrong command line"),
)
"""The code of an error is that of the exit that lists its class, or else its nearest base class."""


def worded(text: str) -> str:
    """A message about an argument of a method, in the words of the command line.

    >>> worded("Two has the states short, total: say which, name='short'")
    'Two has the states short, total: say which, --name short'
    >>> worded("omit add= and remove=, or run with follow=True")
    'omit --add and --remove, or run with --follow'
    """
    return _OPTION.sub(_in_words, _NAME.sub(r"\1--name \2", text))


def _in_words(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups["outputs"]:
        return f"--outputs={groups['outputs']}"
    return f"--{(groups['flag'] or groups['given']).replace('_', '-')}"


def exit_code(error: PersistentError) -> int:
    """The code of an error.

    >>> exit_code(NoCheckpoint("...")), exit_code(StillRunning("...")), exit_code(PersistentError("..."))
    (3, 5, 1)
    """
    return next(exit_.code for kind in type(error).__mro__ for exit_ in EXITS if kind in exit_.errors)


class CommandFailed(click.ClickException):
    """An error in one line, with its exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(" ".join(text.splitlines()))
        self.exit_code = code  # type: ignore[misc]
