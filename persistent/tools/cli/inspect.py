"""``persistent history``, ``show`` and ``diff``: the manifests of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SourcePart, total
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import format_of, proven
from persistent.codec.fields import CODECS
from persistent.names import manifest_name
from persistent.pipeline import Pipeline
from persistent.reading import Diff, Place, diff, kept_places, place
from persistent.text.figures import bytes_text, clock_text, count_text, utc_text
from persistent.text.fingerprints import part_text, shown_text, window_text
from persistent.tools.cli.load import load_pipeline, names_pipeline
from persistent.tools.cli.options import json_option, pipeline_argument, storage_of, target_argument
from persistent.tools.cli.tables import ROWS_SHOWN, json_text, print_json, print_rows, print_summaries, print_table


@click.command()
@target_argument
@json_option
def history(target: str, as_json: bool) -> None:
    """The kept checkpoints, oldest first.

    A fence marks the start of a run: it repeats the previous checkpoint under a new epoch.

    \b
    persistent history visits-checkpoint
    """
    places = kept_places(storage_of(target))
    lines = [_summary(checkpoint.entry, places[-1].manifest) for checkpoint in places]
    if as_json:
        print_json(lines)
        return
    print_summaries(
        ["id", "kind", "epoch", "clock", "read", "late", "dead", "runs", "state rows", "state size"],
        [
            [
                str(line["id"]),
                _kind_text(line),
                str(line["epoch"]),
                clock_text(line["clock_ms"]),
                *(f"{line[name]:,}" for name in ("read", "late", "dead", "runs", "state_rows")),
                bytes_text(line["state_bytes"]),
            ]
            for line in lines
        ],
        right=("id", "epoch", "read", "late", "dead", "runs", "state rows", "state size"),
        whole=("clock",),
        spare=("runs", "epoch", "state rows"),
    )


def _kind_text(line: Mapping[str, Any]) -> str:
    target = f" to {line['target']}" if line["kind"] == "rollback" else ""
    notes = [name.replace("_", " ") for name in ("end_of_input", "pinned", "kept_by_policy") if line[name]]
    return ", ".join([line["kind"] + target, *notes])


def _summary(entry: Entry, newest: Manifest) -> dict[str, Any]:
    """One checkpoint, and why ``newest`` keeps it."""
    manifest = entry.manifest
    runs = manifest.state_runs()
    return {
        "id": manifest.id,
        "kind": manifest.kind,
        "base": manifest.base,
        "epoch": manifest.epoch,
        "clock_ms": manifest.clock.watermark,
        "closed_ms": manifest.clock.closed,
        "end_of_input": manifest.clock.end_of_input,
        "committed_ms": manifest.committed_ms,
        "target": manifest.target,
        "pinned": manifest.id in newest.pins,
        "kept_by_policy": manifest.id < newest.oldest and manifest.id not in newest.pins,
        **total(manifest.accounts.values()).fates,
        "runs": len(runs),
        "state_rows": sum(run.rows_left for run in runs),
        "state_bytes": sum(run.bytes for run in runs),
        "manifest_bytes": entry.bytes,
    }


@click.command()
@target_argument
@click.argument("id", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="The manifest as it is stored.")
def show(target: str, id: int | None, as_json: bool) -> None:
    """One checkpoint: clock, positions, files.

    The newest, or checkpoint ID.

    \b
    persistent show visits-checkpoint
    persistent show visits-checkpoint 41 --json
    """
    here = place(storage_of(target), id)
    if as_json:
        name = manifest_name(here.manifest.id)
        click.echo(json_text(json.loads(proven(here.storage.read(name), name))))
        return
    figures = [*_figures(here.entry), *_state_figures(here.manifest)]
    width = max(len(name) for name, _ in figures)
    for name, text in figures:
        click.echo(f"{name:<{width}}  {text}")
    click.echo()
    print_table(
        ["run", "rows", "size", "key groups", "deltas"],
        [
            [run.name, f"{run.rows:,}", bytes_text(run.bytes), f"{run.low}-{run.high - 1}", f"{run.first}-{run.last}"]
            for run in here.manifest.state_runs()
        ],
        right=("rows", "size"),
    )


def _figures(entry: Entry) -> Iterator[tuple[str, str]]:
    manifest, clock = entry.manifest, entry.manifest.clock
    summary = _summary(entry, manifest)
    size = bytes_text(entry.bytes)
    yield manifest.kind, f"{manifest.id}, of epoch {manifest.epoch}, format {format_of(manifest)}, {size}"
    if manifest.target is not None:
        yield "went back to", f"checkpoint {manifest.target}"
    yield "job", manifest.job
    yield "state of", f"checkpoint {manifest.base}; {manifest.oldest} is the oldest kept"
    by_policy = [id for id in sorted(manifest.bases) if id < manifest.oldest and id not in manifest.pins]
    for name, ids in (("pinned", manifest.pins), ("kept by policy", by_policy), ("burnt", manifest.burnt)):
        if ids:
            yield name, ", ".join(map(str, ids))
    if manifest.committed_ms:
        yield "planned at", utc_text(manifest.committed_ms)
    for id, node in manifest.nodes.items():
        yield "clock" if len(manifest.nodes) == 1 else f"clock {id}", _clock_text(node)
    yield "end of input", "declared" if clock.end_of_input else "not declared"
    if manifest.not_after is not None:
        yield "not after", f"{utc_text(manifest.not_after)}: later timestamps are dead letters"
    for called, source in sorted(manifest.sources.items()):
        yield "source", source.kind if len(manifest.sources) == 1 else f"{called}, a {source.kind}"
        for name, position in sorted(source.positions.items()):
            yield f"  {name}", f"next: {CODECS[source.codec].text(position)}"
        yield from _seen_figures(source)
    if len(manifest.sinks) > 1:
        states = {name: (part.node or "").partition("/")[2] for name, part in sorted(manifest.sinks.items())}
        yield "sinks", ", ".join(f"{name} ({state})" if state else name for name, state in states.items())
    for called, correction in manifest.corrections.items():
        yield "correction", f"{called}, by {correction.checkpoint}: {correction}"
    names = ("read", "processed", "late", "dead", *(name for name in ("duplicate", "skipped") if summary[name]))
    yield "account", ", ".join(f"{name} {summary[name]:,}" for name in names)


def _clock_text(node: NodePart) -> str:
    """The clock of a node."""
    clock = node.clock
    final = "" if node.final == clock.closed else f", final up to {clock_text(node.final)}"
    return f"{clock_text(clock.watermark)}, windows closed up to {clock_text(clock.closed)}{final}"


def _seen_figures(source: SourcePart) -> Iterator[tuple[str, str]]:
    if source.seen is not None:
        rows, size = sum(run.rows_left for run in source.seen.runs), sum(run.bytes for run in source.seen.runs)
        since = f", not older than {clock_text(source.seen.expired)}"
        yield "  seen", f"{rows:,} rows of origins and panes, {bytes_text(size)}{since}"


def _state_figures(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name, node in manifest.nodes.items():
        key = ", ".join(f"{key}: {kind}" for key, kind in zip(node.key_names, node.key_types))
        rows, size = sum(run.rows_left for run in node.runs), sum(run.bytes for run in node.runs)
        yield f"state {name}", f"{count_text(rows, 'row')}, {bytes_text(size)}"
        yield "  key", key or ", ".join(node.key_names) or "none"
        yield "  monoid", shown_text(node.fingerprint["monoid"])
        yield "  window", window_text(node.fingerprint["window"])
        if node.has_time_to_live:
            yield "  time to live", part_text("ttl_ms", node.fingerprint["ttl_ms"])


@click.command("diff")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET ID [ID] | TARGET TARGET")
@click.option(
    "--limit", type=click.IntRange(0), default=ROWS_SHOWN, show_default=True, help="Show at most this many keys."
)
@click.option("--name", metavar="STATE", help="Of a task with several states, which one.")
@json_option
def diff_command(targets: tuple[str, ...], limit: int, name: str | None, as_json: bool) -> None:
    """What changed from one checkpoint to another.

    Compares two IDs of one TARGET (the second is the newest by default), or the newest checkpoints of two TARGETs:
    clock, positions, account, and runs added, removed or compacted. If a TARGET is a pipeline, also compares the values
    by key and window.

    \b
    persistent diff visits-checkpoint 41 42
    persistent diff visits.py:pipeline 41
    persistent diff visits-checkpoint backup/visits-checkpoint
    """
    before, after, pipeline = _sides(targets)
    difference = diff(before, after, pipeline=pipeline, limit=limit, name=name)
    before, after = difference.before, difference.after
    if as_json:
        _print_diff_json(difference)
        return
    if difference.is_empty:
        click.echo(f"no difference between {before} and {after}")
        return
    rows = [
        [change.part, change.name, _value_text(change.part, change.before), _value_text(change.part, change.after)]
        for change in difference.changes
    ]
    print_table(["part", "name", str(before), str(after)], rows)
    if difference.rows is not None:
        click.echo(f"\n{difference.differing:,} values differ, {difference.equal:,} are equal")
        if difference.rows.num_rows:
            print_rows(difference.rows, limit, as_json=False)


def _sides(targets: tuple[str, ...]) -> tuple[Place, Place, Pipeline | None]:
    """The two places, and the pipeline to read their states with."""
    if len(targets) not in (2, 3) or not all(_is_id(target) for target in targets[2:]):
        raise click.UsageError("diff takes TARGET ID, TARGET ID ID, or TARGET TARGET")
    pipelines = [load_pipeline(target) if names_pipeline(target) else None for target in targets if not _is_id(target)]
    pipeline = next((loaded for loaded in pipelines if loaded is not None), None)
    first = pipelines[0].storage if pipelines[0] is not None else storage_of(targets[0])
    if _is_id(targets[1]):
        after = int(targets[2]) if len(targets) == 3 else None
        return place(first, int(targets[1])), place(first, after), pipeline
    if len(targets) == 3:
        raise click.UsageError("diff takes TARGET ID, TARGET ID ID, or TARGET TARGET")
    second = pipelines[1].storage if pipelines[1] is not None else storage_of(targets[1])
    return place(first), place(second), pipeline


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _print_diff_json(difference: Diff) -> None:
    print_json([asdict(change) for change in difference.changes])
    if difference.rows is not None:
        click.echo(json_text({"part": "values", "differing": difference.differing, "equal": difference.equal}))
        print_rows(difference.rows, None, as_json=True)


def _value_text(part: str, value: Any) -> str:
    if value is None:
        return ""
    if part == "clock" and not isinstance(value, bool):
        return clock_text(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json_text(value)


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
    explanation = load_pipeline(pipeline).explain(parallelism=workers)
    click.echo(json_text(explanation.to_json()) if as_json else str(explanation))
