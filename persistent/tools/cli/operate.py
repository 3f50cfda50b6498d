"""The commands that change a checkpoint: ``persistent savepoint``, ``rollback``, ``restart``, ``pin``, ``gc``,
``compact``, ``correct`` and ``merge``."""

from __future__ import annotations

import sys

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from persistent import operations
from persistent.checkpoint.successor import Entry
from persistent.text.figures import bytes_text, clock_text, utc_text
from persistent.tools.cli.load import names_pipeline
from persistent.tools.cli.options import (
    TIME,
    json_option,
    outputs_option,
    pipeline_argument,
    pipeline_of,
    storage_of,
    take_over_option,
    target_argument,
)
from persistent.tools.cli.tables import json_text, print_json, working


@click.command("savepoint")
@target_argument
@click.argument("name")
@click.option("--at", type=int, metavar="ID", help="Copy this checkpoint [default: the newest].")
@json_option
def savepoint_command(target: str, name: str, at: int | None, as_json: bool) -> None:
    """Copy a checkpoint, self-contained, to s/NAME.

    Keep the copy, move it, or start a job from it. The job can be running, and does not change.

    \b
    persistent savepoint visits-checkpoint monday
    persistent verify visits-checkpoint/s/monday
    """
    storage = storage_of(target)
    with working(sys.stderr, f"copying to {name}", bytes_text) as on_progress:
        url = operations.savepoint(storage, name, at=at, on_progress=on_progress)
    click.echo(json_text({"url": url}) if as_json else url)


@click.command("rollback")
@target_argument
@click.argument("id", type=int, required=False)
@click.option("--clock", type=TIME, help="Go back to the newest checkpoint whose clock is not after this.")
@outputs_option
@take_over_option
@json_option
def rollback_command(
    target: str, id: int | None, clock: int | None, outputs: str, take_over: bool, as_json: bool
) -> None:
    """Go back to an earlier checkpoint.

    State, clock and positions return to those of checkpoint ID, and the next run reads the source from there. The next
    run also retracts later outputs (--outputs=retract, if the sink can), or publishes them a second time
    (--outputs=again).

    \b
    persistent rollback visits-checkpoint 41 --outputs=retract
    persistent rollback visits-checkpoint --clock 2024-05-01T10:00Z --outputs=again
    """
    if (id is None) == (clock is None):
        raise click.UsageError("give the checkpoint to go back to: either its ID, or --clock")
    entry = operations.rollback(storage_of(target), id, clock=clock, outputs=outputs, take_over=take_over)
    report_entry(entry, f"went back to checkpoint {entry.manifest.target}{of_outputs(entry)}", as_json)


@click.command("restart")
@pipeline_argument
@click.argument("clock", type=TIME)
@outputs_option
@take_over_option
@json_option
def restart_command(pipeline: str, clock: int, outputs: str, take_over: bool, as_json: bool) -> None:
    """Keep the state as of a clock, and read the rest again.

    For a source that has lost its positions because its files were rewritten or moved. The next run reads the source
    from its beginning, and counts records before CLOCK as duplicates.

    \b
    persistent restart visits.py:pipeline 2024-05-01T10:00Z --outputs=retract
    """
    entry = operations.restart(pipeline_of(pipeline), clock, outputs=outputs, take_over=take_over)
    report_entry(entry, f"the state is as of {utc_text(clock)}{of_outputs(entry)}", as_json)


@click.command("pin")
@target_argument
@click.argument("id", type=int)
@click.option("--remove", is_flag=True, help="Unpin it.")
@take_over_option
@json_option
def pin_command(target: str, id: int, remove: bool, take_over: bool, as_json: bool) -> None:
    """Pin a checkpoint, so that it is kept however many follow.

    \b
    persistent pin visits-checkpoint 41
    persistent pin visits-checkpoint 41 --remove
    """
    entry = operations.pin(storage_of(target), id, remove=remove, take_over=take_over)
    pins = ", ".join(map(str, entry.manifest.pins)) or "none"
    report_entry(entry, f"pinned: {pins}", as_json)


@click.command()
@target_argument
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@take_over_option
@json_option
def gc(target: str, dry_run: bool, take_over: bool, as_json: bool) -> None:
    """Delete files that no kept checkpoint names.

    A run does this after each step; use it for the leftovers of the last run. If TARGET is the pipeline, staged files
    of its sink that will never be published are deleted too.

    \b
    persistent gc visits.py:pipeline
    persistent gc visits-checkpoint --dry-run
    """
    pipeline = pipeline_of(target) if names_pipeline(target) else None
    place, sinks = (pipeline.storage, pipeline.all_sinks) if pipeline else (storage_of(target), None)
    names = operations.collect_garbage(place, sink=sinks, dry_run=dry_run, take_over=take_over)
    if as_json:
        print_json([{"name": name, "deleted": not dry_run} for name in names])
        return
    for name in names:
        click.echo(name)
    click.echo(f"{len(names):,} files {'would be deleted' if dry_run else 'deleted'}")
    if pipeline is None:
        click.echo("Staged files of the sink were not checked: to check them give the pipeline, FILE.py:NAME.")


@click.command("compact")
@pipeline_argument
@take_over_option
@json_option
def compact_command(pipeline: str, take_over: bool, as_json: bool) -> None:
    """Fold all runs of a state into as few as possible.

    Each step folds only a bounded part; this folds everything at once, with the task's own monoid.

    \b
    persistent compact visits.py:pipeline
    """
    loaded = pipeline_of(pipeline)
    with working(sys.stderr, "folding", bytes_text) as on_progress:
        entry = operations.compact(loaded, take_over=take_over, on_progress=on_progress)
    runs = len(entry.manifest.state_runs())
    report_entry(entry, f"runs left: {runs:,}", as_json)


@click.command("correct")
@pipeline_argument
@click.argument("name")
@click.option("--add", metavar="FILE", help="Put the records of this file into the state.")
@click.option("--remove", metavar="FILE", help="Take the records of this file out of the state.")
@take_over_option
@json_option
def correct_command(
    pipeline: str, name: str, add: str | None, remove: str | None, take_over: bool, as_json: bool
) -> None:
    """Add the records of a file to the state, or take them out; of several states, each. A NAME is applied once.

    The files are read as the pipeline's source reads its own. The same NAME with the same records again changes
    nothing.

    \b
    persistent correct bank.py:pipeline ticket-42 --remove wrong.jsonl --add right.jsonl
    """
    made = pipeline_of(pipeline).correct(name=name, add=add, remove=remove, take_over=take_over, engine="embedded")
    if as_json:
        click.echo(json_text({"name": name, **to_builtins(made)}))
        return
    click.echo(f"correction {name}, checkpoint {made.checkpoint}: {made}")


@click.command("merge")
@click.argument("first")
@click.argument("second")
@click.argument("into")
@json_option
def merge_command(first: str, second: str, into: str, as_json: bool) -> None:
    """Merge two jobs over different sources into one.

    FIRST and SECOND are targets, INTO is the URL of the new checkpoint. Accounts prove that no record counts twice:
    jobs that read the same partition are refused. Neither job changes.

    \b
    persistent merge visits-eu visits-us visits
    """
    entry = operations.merge(storage_of(first), storage_of(second), storage_of(into))
    report_entry(entry, f"the sum of {first} and {second}", as_json)


def of_outputs(entry: Entry) -> str:
    """A sentence on the outputs of the abandoned checkpoints: whether the next run takes them back; empty without a
    sink."""
    manifest = entry.manifest
    if not manifest.sinks:
        return ""
    if manifest.retract is None:
        return ". What was published since stays, and the next run publishes it a second time"
    return ". What was published since is still there: the next run takes it back before it publishes anything"


def report_entry(entry: Entry, text: str, as_json: bool) -> None:
    """Print the newest manifest."""
    manifest = entry.manifest
    if not as_json:
        click.echo(f"{manifest.kind} {manifest.id}, clock {clock_text(manifest.clock.watermark)}: {text}")
        return
    fields = asdict(manifest)
    named = {name: fields[name] for name in ("id", "kind", "epoch", "base", "target")}
    click.echo(json_text({**named, "clock_ms": manifest.clock.watermark, "pins": list(manifest.pins)}))
