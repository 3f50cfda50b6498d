"""Completion makes a shell complete commands and options: click's own, printed for the shell to source."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_NAME = "persistent"
_VARIABLE = "_PERSISTENT_COMPLETE"
"""By which the sourced function asks us."""


def print_completion(ctx: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Print what ``shell`` sources, and end."""
    if shell is None or ctx.resilient_parsing:
        return
    made = get_completion_class(shell)
    assert made is not None, f"{shell} is one of click's"
    click.echo(made(ctx.command, {}, _NAME, _VARIABLE).source())
    ctx.exit()
