"""``persistent state``, ``late``, ``dead-letters`` and ``export``: the rows of a checkpoint."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from persistent.checkpoint.set_aside import read_aside
from persistent.connect.formats.json_rows import encode_json_lines
from persistent.errors import InvalidPipeline
from persistent.reading import Place, check_key, check_window, export, place, state_table
from persistent.reading.place import checked_node, node_of
from persistent.text.figures import bytes_text, clock_text, count_text, utc_text
from persistent.tools.cli.exits import worded
from persistent.tools.cli.options import (
    TIME,
    json_option,
    limit_option,
    pipeline_argument,
    pipeline_of,
    storage_of,
    target_argument,
)
from persistent.tools.cli.tables import json_text, print_rows, working
from persistent.worker.job import Node

_ASIDE = {"late": "late records", "dead": "dead letters"}
_FORMATS = {"json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet", "arrow": "arrow"}
"""Each format by its names. A name is also the ending of such a file."""


@click.command()
@pipeline_argument
@click.option("--key", "keys", multiple=True, metavar="VALUE", help="Only this key; repeat for several columns.")
@click.option("--key-json", metavar="JSON", help="Only this key: a value, or a list of several; null is a key too.")
@click.option("--name", metavar="STATE", help="Of a task with several states, which one.")
@click.option("--at", type=int, metavar="ID", help="The state of this checkpoint [default: the newest].")
@click.option("--as-of", type=TIME, metavar="CLOCK", help="The state as of this clock, from earlier records only.")
@click.option("--window", type=TIME, metavar="START", help="Only the window that starts then.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", *_FORMATS]),
    help="[default: by the name of --output, otherwise table]",
)
@click.option("--output", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE", help="Write to this file.")
@limit_option
@json_option
def state(
    pipeline: str,
    keys: tuple[str, ...],
    key_json: str | None,
    name: str | None,
    at: int | None,
    as_of: int | None,
    window: int | None,
    form: str | None,
    output: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """The folded state, or that of one key.

    A state with windows shows every open window that holds records. The task's own monoid reads the state, so this
    command takes the pipeline, not the URL of its checkpoint. Times are ISO 8601 in UTC, or milliseconds since 1970.
    For a state larger than memory use persistent export.

    \b
    persistent state visits.py:pipeline
    persistent state visits.py:pipeline --key /home --json
    persistent state sales.py:pipeline --key de --key 2024 --at 41
    persistent state sales.py:pipeline --key-json '[null, 2024]'
    persistent state visits.py:pipeline --name hourly
    persistent state visits.py:pipeline --window 2024-05-01T10:00Z --output visits.parquet
    """
    if at is not None and as_of is not None:
        raise click.UsageError("--at names a checkpoint, --as-of a clock: choose one")
    form = _form(form, output, as_json)
    key = _key(keys, key_json)
    loaded = pipeline_of(pipeline)
    here = place(loaded.storage, at)
    with _usage_errors():
        node_of(loaded, name)
        if key is not None:
            check_key(loaded, here, key, name)
        if window is not None:
            check_window(loaded, here, window, name)
    table = _sorted(state_table(loaded, name=name, at=at, as_of=as_of, key=key, window=window))
    if form == "table":
        print_rows(
            table, limit, as_json=False, none=_no_rows(checked_node(loaded, here, name), here, key, as_of, window)
        )
    elif form == "json" and output in (None, "-"):
        print_rows(table, limit, as_json=True)
    else:
        _write(_encoded(table if limit is None else table.slice(0, limit), form), output)


def _key(keys: tuple[str, ...], key_json: str | None) -> tuple[Any, ...] | None:
    """The values of the key, or None."""
    if key_json is None:
        return keys or None
    if keys:
        raise click.UsageError("--key and --key-json: choose one")
    try:
        decoded = json.loads(key_json)
    except ValueError as error:
        raise click.UsageError(f"--key-json {key_json}: {error}. Put text in quotes, as in '\"de\"'") from error
    return tuple(decoded) if isinstance(decoded, list) else (decoded,)


def _no_rows(node: Node, here: Place, key: Sequence[Any] | None, as_of: int | None, window: int | None) -> str:
    """Why there are no rows."""
    key_text = json.dumps(list(key) if len(key) > 1 else key[0], ensure_ascii=False) if key else ""
    of_key = f" of the key {key_text}" if key else ""
    when = f"checkpoint {here.manifest.id}" if as_of is None else clock_text(as_of)
    panes, ttl = node.state.window, node.state.time_to_live
    if ttl is not None:
        return (
            f"no rows: at {when} no record{of_key} was counted, or none for as long as a key lives "
            f"({ttl}, by the clock, {clock_text(here.manifest.nodes[node.id].clock.watermark)})"
        )
    if panes is None:
        return f"no rows: up to {when} no record{of_key} was counted"
    closed = here.manifest.nodes[node.id].clock.closed
    closed = closed if as_of is None else min(as_of, closed)
    gone = f"in {', '.join(map(repr, node.sinks.values()))}" if node.sinks else "discarded"
    if window is not None and panes.ends(window) <= closed:
        return f"no rows: the window was closed by {when}, and its result is {gone}"
    if window is not None:
        return f"no rows: up to {when} no record{of_key} was counted in the window, which is not closed"
    return (
        f"no rows: at {when} no open window holds a record{of_key}: none was ever counted, or its windows are closed "
        f"(those that end by {clock_text(closed)}), and their results are {gone}"
    )


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Re-raise errors in a key or window as usage errors."""
    try:
        yield
    except InvalidPipeline as error:
        raise click.UsageError(worded(str(error))) from error


def _form(form: str | None, output: str | None, as_json: bool) -> str:
    if form is None:
        ending = "" if output is None else output.rpartition(".")[2].lower()
        form = "json" if as_json else _FORMATS.get(ending, "table")
    form = _FORMATS.get(form, form)
    if as_json and form != "json":
        raise click.UsageError(f"--json and --format {form}: choose one")
    if form == "table" and output not in (None, "-"):
        raise click.UsageError(
            f"--output {output}: a table cannot be written to a file; give --format json, parquet or arrow"
        )
    if form in ("parquet", "arrow") and output in (None, "-") and sys.stdout.isatty():
        raise click.UsageError(f"--format {form} cannot be shown on a terminal: give a file with --output")
    return form


def _encoded(table: pa.Table, form: str) -> bytes:
    if form == "json":
        return bytes(encode_json_lines(table).to_pybytes())
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _write(data: bytes, output: str | None) -> None:
    """Write all of the data, or nothing."""
    if output in (None, "-"):
        click.echo(data, nl=False)
        return
    try:
        with click.open_file(str(output), "wb", atomic=True) as file:
            file.write(data)
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from error


def _sorted(table: pa.Table) -> pa.Table:
    """Sort by window, then by key, if their types can be sorted."""
    names = [name for name in ("window_start", *table.column_names) if name in table.column_names]
    ordered = [name for name in dict.fromkeys(names) if not pa.types.is_nested(table.schema.field(name).type)]
    return table.sort_by([(name, "ascending") for name in ordered]) if ordered and table.num_rows else table


@click.command()
@target_argument
@limit_option
@json_option
def late(target: str, limit: int | None, as_json: bool) -> None:
    """The late records.

    All windows of their time were final by the clock of the previous step. Records with the reason "partly-late" count
    in those windows of their time that were not, or in those states of the task that take them.

    \b
    persistent late visits-checkpoint --json
    """
    _print_aside(target, "late", limit, as_json)


@click.command("dead-letters")
@target_argument
@limit_option
@json_option
def dead_letters(target: str, limit: int | None, as_json: bool) -> None:
    """The records that could not be processed.

    Each with its file, its offset there (a row number in Parquet, otherwise a byte of the text) and the reason.

    \b
    persistent dead-letters visits-checkpoint --limit 10
    """
    _print_aside(target, "dead", limit, as_json)


def _print_aside(target: str, folder: str, limit: int | None, as_json: bool) -> None:
    storage = storage_of(target)
    place(storage)
    print_rows(read_aside(storage, folder), limit, as_json, none=f"no {_ASIDE[folder]}", glance=_at_a_glance)


def _at_a_glance(table: pa.Table) -> pa.Table:
    """Place, time, reason and record; --json shows the rest."""
    several = len(pc.unique(table.column("partition"))) > 1
    columns = {name: table.column(name) for name in ("partition", "file", "offset") if several or name != "partition"}
    times = table.column("timestamp").to_pylist()
    columns["time"] = pa.array(["" if time is None else utc_text(time) for time in times], pa.string())
    columns["reason"] = table.column("reason")
    values = encode_json_lines(table.select(["value"])).to_pybytes().decode().splitlines()
    texts = [text.removeprefix('{"value":').removesuffix("}") for text in values]
    data = table.column("data").to_pylist()
    columns["record"] = pa.array(
        [text if raw is None else raw.decode("utf-8", "backslashreplace") for text, raw in zip(texts, data)]
    )
    return pa.table(columns)


@click.command("export")
@pipeline_argument
@click.argument("folder")
@click.option("--name", metavar="STATE", help="Of a task with several states, which one.")
@click.option("--at", type=int, metavar="ID", help="The state of this checkpoint [default: the newest].")
@json_option
def export_command(pipeline: str, folder: str, name: str | None, at: int | None, as_json: bool) -> None:
    """The folded state as Parquet files, however large.

    FOLDER is an empty path or URL. The footer of each file names the job, the checkpoint and its clock; _export.json is
    written last and lists the files.

    \b
    persistent export visits.py:pipeline visits-of-may
    duckdb -c "select * from 'visits-of-may/*.parquet'"
    """
    loaded = pipeline_of(pipeline)
    with working(sys.stderr, "exporting", "{:,} rows".format) as on_progress:
        done = export(loaded, folder, at, name=name, on_progress=on_progress)
    if as_json:
        click.echo(json_text({**asdict(done), "rows": done.rows, "bytes": done.bytes}))
        return
    written = f"{count_text(done.rows, 'row')} in {count_text(len(done.files), 'file')}, {bytes_text(done.bytes)}"
    click.echo(f"checkpoint {done.checkpoint}: {written}, in {done.url}")
