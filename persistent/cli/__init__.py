"""The command line: runs pipelines, reads their checkpoints, and operates on them."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import click

import persistent
from persistent.cli.commands import CommandsOnDemand, print_completion
from persistent.cli.exits import STOPPED, CommandFailed, exit_code, worded
from persistent.errors import PersistentError, explanation


class _Commands(CommandsOnDemand):
    """Prints a PersistentError in one line; with -v also its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PersistentError as error:
            if ctx.params.get("verbose"):
                traceback.print_exception(error)
            raise CommandFailed(f"{worded(str(error))} ({explanation(error)})", exit_code(error)) from error
        except KeyboardInterrupt:
            ctx.exit(STOPPED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Log the actions; -vv: every step. Errors include a traceback.")
@click.version_option(persistent.__version__, prog_name="persistent")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=print_completion,
    help="Print the completion of this command for a shell, to be sourced there.",
)
def main(verbose: int) -> None:
    """Exactly-once stateful processing: run a pipeline, inspect its checkpoint, operate on it.

    TARGET is the URL of a checkpoint or savepoint (a path, s3://..., hdfs://...), or FILE.py:NAME or
    package.module:NAME of its pipeline: a Pipeline, or a function without arguments that returns one.

    \b
    persistent init visits                              a project: a task, its test, how to run both
    persistent run visits.py:pipeline                   process the available input
    persistent run visits.py:pipeline --end-of-input    ... and close every window
    persistent run visits.py:pipeline --follow          ... and new input, until Ctrl-C
    persistent explain visits.py:pipeline               what a run will do, and what it guarantees
    persistent state visits.py:pipeline --key /home     the state of one key
    persistent serve visits.py:pipeline                 a page that shows the job
    persistent history visits-checkpoint                its checkpoints
    persistent clock visits-checkpoint                  where its clock stands, and what holds it back
    persistent verify visits-checkpoint                 read and check every byte of it
    persistent savepoint visits-checkpoint monday       a copy to keep, or to start from
    persistent laws visits.py:pipeline                  test the laws of its state's monoid
    persistent why CorruptCheckpoint                    what an error means, and what to do
    """
    # Also loads the storage, which the list of the commands does without.
    from persistent.cli.log_lines import ToStderr

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = ToStderr()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("persistent")
    logger.handlers = [handler]
    logger.setLevel(level)
