"""``persistent why``: prints what an error means, from the page that lies in the package."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

import click

from persistent.tools.cli.options import json_option
from persistent.tools.cli.tables import print_json

_HERE = re.compile(r"\[([^\]]+)\]\(#[^)]*\)")
_SECTION = re.compile(r"^### (\w+)\n\n(.*?)(?=^#|^Next: |\Z)", re.M | re.S)


@click.command()
@click.argument("error", metavar="[ERROR]", required=False)
@json_option
def why(error: str | None, as_json: bool) -> None:
    """Explain an error: what it means for the data, and what to do.

    ERROR is its name, with which a message ends, or a line of a log that has it. Without it, or with an exit code, the
    exit codes are listed, and when a supervisor should start a run again. It needs no network, and no checkpoint.

    \b
    persistent why CorruptCheckpoint
    persistent why 4
    """
    if error is None or error.isdecimal():
        if as_json:
            print_json([{"error": name, "text": text} for name, text in sections().items()])
        else:
            _print(page().partition("\n## ")[0] + f"\n\nErrors: {', '.join(sections())}.")
        return
    name = _named(error)
    if as_json:
        print_json([{"error": name, "text": sections()[name]}])
    else:
        _print(f"# {name}\n\n{sections()[name]}")


def _named(error: str) -> str:
    """The error that ``error`` names. The name alone may be in any case of letters; in a line it is as written, and a
    name behind ``persistent why`` comes first."""
    names = {name.lower(): name for name in sections()}
    if (line := _error_of_line(error)) in sections():
        return line
    words = re.findall(r"\w+", error.rpartition("persistent why ")[2])
    candidates = [names[error.lower()]] if error.lower() in names else [word for word in words if word in sections()]
    if not candidates:
        near = get_close_matches(error.lower(), names, 1)
        meant = f" Did you mean {names[near[0]]}?" if near else ""
        raise click.UsageError(f"no error is named {error!r}.{meant} 'persistent why' lists them")
    return candidates[0]


def _error_of_line(text: str) -> str:
    """The error that a log line of JSON names; empty for another text."""
    try:
        fields = json.loads(text)
    except ValueError:
        return ""
    return str(fields.get("error", "")) if isinstance(fields, dict) else ""


@cache
def page() -> str:
    """docs/errors.md, which is a file of this package too."""
    return files("persistent.tools.cli").joinpath("errors.md").read_text(encoding="utf-8")


@cache
def sections() -> Mapping[str, str]:
    """The section of each error."""
    return dict(_SECTION.findall(page()))


def _print(text: str) -> None:
    """Print Markdown as a terminal shows it. Behind a link to another page of the docs stands its name in brackets."""
    from rich.console import Console
    from rich.markdown import Markdown

    Console(highlight=False).print(Markdown(_HERE.sub(r"\1", text), hyperlinks=False))
