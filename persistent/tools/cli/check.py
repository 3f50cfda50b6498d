"""``persistent verify`` and ``doctor``: check that a checkpoint is whole, or that a store is fit for one.

``persistent laws``: tests the laws of a user's monoid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from persistent.errors import CorruptCheckpoint, InvalidPipeline, NoCheckpoint, UnknownCheckpoint
from persistent.pipeline import Pipeline
from persistent.reading import Place, place
from persistent.storage.protocol import Storage
from persistent.storage.subfolder import savepoint_folder
from persistent.text.figures import bytes_text, shell_word
from persistent.tools.cli.exits import CORRUPT, NOT_FOUND, REFUSED, CommandFailed
from persistent.tools.cli.load import load_monoid, names_pipeline
from persistent.tools.cli.options import json_option, pipeline_of, storage_of, target_argument
from persistent.tools.cli.tables import json_text, one_line, print_json, print_table, working
from persistent.verify import FAULT, Verification, verify, verify_sinks, verify_source

if TYPE_CHECKING:
    from monoids.laws import Law, Trial


@click.command("verify")
@target_argument
@click.option("--source", is_flag=True, help="Also read the source again, and compare the account with it.")
@click.option(
    "--savepoint", "savepoints", multiple=True, metavar="NAME", help="Also verify this savepoint; repeatable."
)
@json_option
def verify_command(target: str, source: bool, savepoints: tuple[str, ...], as_json: bool) -> None:
    """Read and check every byte of a checkpoint.

    Reads every file that the kept checkpoints name and checks it against the laws; changes nothing. Exit code 4 if
    anything committed is lost or wrong; the error then names the newest checkpoint without a fault.

    If TARGET is the pipeline, its sinks are looked at too: every file that a folder lists, every entry of a log, the
    mark of a table or topic. Files that were published may be removed, which is a note.

    Files that no checkpoint names are warnings: an interrupted run leaves them, and the next run deletes them. With
    --source, TARGET is the pipeline: its source is read from the first record to the checkpoint's positions. Files that
    were read may no longer exist; then only the rest can be compared, which is a warning.

    \b
    persistent verify visits-checkpoint
    persistent verify visits.py:pipeline
    persistent verify visits.py:pipeline --source
    """
    pipeline = pipeline_of(target) if source or names_pipeline(target) else None
    storage = pipeline.storage if pipeline is not None else storage_of(target)
    _check_there(storage)
    folders = {name: _savepoint(storage, name) for name in savepoints}
    with working(sys.stderr, f"verifying {storage.url}", bytes_text) as on_progress:
        verification = verify(storage, on_progress=on_progress)
    for name, folder in folders.items():
        with working(sys.stderr, f"verifying {folder.url}", bytes_text) as on_progress:
            verification.add(verify(folder, on_progress=on_progress), f"s/{name}")
    _look_at_sinks(storage, pipeline, verification)
    if source and pipeline is not None and verification.newest_good is not None:
        with working(sys.stderr, "reading the source", "{:,} records".format) as on_progress:
            entry = _still_kept(storage, verification.newest_good).entry
            verification.add(verify_source(pipeline, entry, on_progress=on_progress))
    if as_json:
        click.echo(json_text({**asdict(verification), "ok": verification.ok}))
    else:
        _print_verification(verification)
    if not verification.ok:
        raise CommandFailed(_verdict(verification), CORRUPT)


def _look_at_sinks(storage: Storage, pipeline: Pipeline | None, verification: Verification) -> None:
    """Add what the sinks of the pipeline hold; without a pipeline, a note that the sinks were not looked at."""
    if pipeline is not None and verification.newest is not None:
        with working(sys.stderr, "looking at the sinks", "{:,}".format) as on_progress:
            verification.add(verify_sinks(pipeline, on_progress=on_progress))
        return
    with suppress(CorruptCheckpoint, NoCheckpoint):
        if place(storage).manifest.sinks:
            verification.note("sinks", "sinks", "not looked at: only the pipeline knows them; give it as FILE.py:NAME")


def _still_kept(storage: Storage, id: int) -> Place:
    """That checkpoint, or the newest if the job has collected it meanwhile."""
    try:
        return place(storage, id)
    except UnknownCheckpoint:
        return place(storage)


def _savepoint(storage: Storage, name: str) -> Storage:
    """The folder of a savepoint. CommandFailed if none exists: nothing is corrupt then."""
    folder = savepoint_folder(storage, name)
    try:
        exists = bool(folder.list("") or folder.list("m"))
    except ValueError:
        # No savepoint can have that name.
        exists = False
    if not exists:
        raise CommandFailed(
            f"{storage.url}: no savepoint is named {name!r}. Create one with 'persistent savepoint "
            f"{shell_word(storage.url)} NAME'",
            NOT_FOUND,
        )
    return folder


def _check_there(storage: Storage) -> None:
    """CommandFailed if no checkpoint exists: nothing is corrupt then."""
    if not storage.list("") and not storage.list("m"):
        raise CommandFailed(f"{storage.url}: there is no checkpoint here, so no checkpoint verifies", NOT_FOUND)


def _verdict(verification: Verification) -> str:
    faults = [finding for finding in verification.findings if finding.severity == FAULT]
    counted = "1 fault" if len(faults) == 1 else f"{len(faults):,} faults, the first"
    return f"{verification.url}: {counted}: {faults[0].place}: {faults[0].text}; {verification.verdict}"


def _print_verification(verification: Verification) -> None:
    print_table(
        ["checked", "number", "rows", "size", "faults"],
        [
            [name, f"{part.checked:,}", f"{part.rows:,}", bytes_text(part.bytes), f"{verification.faults_of(name):,}"]
            for name, part in verification.parts.items()
        ],
        right=("number", "rows", "size", "faults"),
    )
    for finding in verification.findings:
        click.echo(f"{finding.severity}: {finding.place}: {finding.text}")
    if verification.ok:
        click.echo(f"{verification.url}: checkpoint {verification.newest_good} verifies")


@click.command()
@click.argument("url")
@json_option
def doctor(url: str, as_json: bool) -> None:
    """Test whether checkpoints can be committed to a store.

    Tests races for one name, overwrites, and reading and listing just-written files, then deletes its files. Exit
    code 6 if the store is not fit. A store known only to fsspec can be used after this command has found it fit.

    \b
    persistent doctor s3://bucket/visits-checkpoint
    """
    from persistent.storage.doctor import probe

    with working(sys.stderr, f"probing {url}", str):
        diagnosis = probe(url)
    if as_json:
        print_json([asdict(test) for test in diagnosis.probes])
    else:
        rows = [[test.name, "passed" if test.passed else "FAILED", test.text] for test in diagnosis.probes]
        print_table(["probe", "", "result"], rows)
    if not diagnosis.is_safe:
        failed = ", ".join(test.name for test in diagnosis.probes if not test.passed)
        raise CommandFailed(f"{diagnosis.url} is not fit for checkpoints: {failed}. Choose another store", REFUSED)
    if not as_json:
        click.echo(f"{diagnosis.url} is fit for checkpoints")


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
            [[row["law"], _laws_verdict(row), str(row["examples"]), row["formula"]] for row in rows],
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


def _laws_verdict(row: Mapping[str, Any]) -> str:
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
