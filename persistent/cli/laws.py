"""``persistent laws``: tests the laws of a user's monoid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from persistent.cli.load import load_monoid
from persistent.cli.options import json_option
from persistent.cli.tables import one_line, print_json, print_table
from persistent.errors import InvalidPipeline

if TYPE_CHECKING:
    from monoids.laws import Law, Trial


@click.command()
@click.argument("monoid", metavar="FILE_OR_MODULE:NAME")
@click.option(
    "--examples", type=click.IntRange(1), help="Test each law on this many [default: 200, or as many as 5 s allow]."
)
@json_option
def laws(monoid: str, examples: int | None, as_json: bool) -> None:
    """Test the laws of a monoid.

    NAME is a monoid, a monoid class without required arguments, a pair of a monoid and a strategy for its inputs, or a
    task or pipeline, whose state's monoid is tested. Each law has at least ten examples, the same ones every time. Exit
    code 1 if a law is broken, shown with its smallest counterexample, or was not tried.

    \b
    persistent laws longest.py:Longest
    persistent laws jobs.visits:pipeline --examples 5000
    """
    from monoids.laws.check import Trial

    loaded, inputs = load_monoid(monoid)
    try:
        trial = Trial(loaded, inputs, examples=examples)
        with one_line(sys.stderr) as show:
            rows = [_tried(trial, law, show) for law in trial.laws]
    except TypeError as error:
        pair = f". For this command define a pair in the file: tried = ({loaded!r}, strategies.text())"
        raise InvalidPipeline(f"{monoid}: {error}{pair if inputs is None else ''}") from error
    broken = [row for row in rows if row["violation"]]
    holding = [row for row in rows if row["holds"]]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ["law", "", "examples", "formula"],
            [[row["law"], _verdict(row), str(row["examples"]), row["formula"]] for row in rows],
        )
        click.echo("".join(f"\n{row['violation']}\n" for row in broken))
        click.echo("".join(f"{sentence}\n" for sentence in dict.fromkeys(row["untried"] for row in rows) if sentence))
        least = min((row["examples"] for row in holding), default=0)
        each = f"{trial.examples:,} examples each" if least == trial.examples else f"at least {least:,} examples each"
        missing = len(rows) - len(holding) - len(broken)
        untried = f"; {missing} not tried" if missing else ""
        click.echo(f"{loaded!r}: {len(holding)} of {len(rows)} laws hold, on {each}{untried}")
    if len(holding) < len(rows):
        raise click.exceptions.Exit(1)


def _verdict(row: Mapping[str, Any]) -> str:
    return "BROKEN" if row["violation"] else "holds" if row["holds"] else "not tried"


def _tried(trial: Trial, law: Law, show: Callable[[str], None]) -> dict[str, Any]:
    show(law.name)
    violation = trial.violation(law)
    untried = "" if violation else trial.untried(law)
    return {
        "law": law.name,
        "formula": law.formula,
        "examples": 0 if untried else trial.tried.get(law.name, trial.examples),
        "holds": violation is None and not untried,
        "untried": untried,
        "violation": None if violation is None else str(violation),
    }
