"""The command line runs pipelines, and looks into their checkpoints.

Exit codes: 0 done; 1 an error, told in one line (or, from ``verify``, faults); 2 a wrong command line; 130 stopped by a
signal before the input was drained, everything so far committed.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click
import pyarrow as pa
import pyarrow.compute as pc

import persistent
from persistent.checkpoint.log import Entry, Log, manifest_name
from persistent.codec import decode_document
from persistent.errors import InvalidPipeline, PersistentError
from persistent.figures import bytes_text, span_text, utc_text
from persistent.load import load_pipeline, names_pipeline
from persistent.pipeline import Pipeline, read_aside
from persistent.progress import progress, report_text
from persistent.report import RunReport
from persistent.storage import Storage, open_storage
from persistent.tables import ROWS_SHOWN, json_text, print_json, print_rows, print_table
from persistent.task import key_names
from persistent.verify import FAULT, Verification, verify

_STOPPED = 130

Command = TypeVar("Command", bound=Callable[..., Any])


class _Commands(click.Group):
    """Tells an error of ours in one line; with -v where it was raised."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PersistentError as error:
            if ctx.params.get("verbose"):
                traceback.print_exception(error)
            raise click.ClickException(" ".join(str(error).splitlines())) from error
        except KeyboardInterrupt:
            ctx.exit(_STOPPED)


class _ToStderr(logging.Handler):
    """Writes to what is the standard error at the time, so that a progress line is not torn."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Tell what is done; -vv: every step. Errors come with their place.")
@click.version_option(persistent.__version__, prog_name="persistent")
def main(verbose: int) -> None:
    """Exactly-once stateful processing: run a pipeline, or look into its checkpoint.

    TARGET is the URL of a checkpoint (a path, s3://..., hdfs://...), or FILE.py:NAME or package.module:NAME of its
    pipeline: a Pipeline, or a function without arguments that returns one.

    \b
    persistent run visits.py:pipeline                   process what is there
    persistent run visits.py:pipeline --end-of-input    ... and close every window
    persistent run visits.py:pipeline --follow          ... and what comes, until Ctrl-C
    persistent state visits.py:pipeline --key /home     the state of one key
    persistent history visits-checkpoint                its checkpoints
    persistent verify visits-checkpoint                 read and check every byte of it

    Exit codes: 0 done; 1 an error, told in one line; 2 a wrong command line; 130 stopped by a signal before the input
    was drained, everything so far committed.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("persistent")
    logger.handlers = [handler]
    logger.setLevel(level)


def _json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="JSON, one object a line.")(command)


def _limit_option(command: Command) -> Command:
    text = f"Show at most so many rows [default: {ROWS_SHOWN}; with --json all]."
    return click.option("--limit", type=click.IntRange(0), help=text)(command)


# -- run -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("pipeline", metavar="FILE_OR_MODULE:NAME")
@click.option("--engine", type=click.Choice(["spark", "embedded"]), help="[default: spark where Java is found]")
@click.option("--follow", is_flag=True, help="Go on as input comes, until SIGINT (Ctrl-C) or SIGTERM.")
@click.option("--end-of-input", is_flag=True, help="The input is complete: close and publish every window.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def run(pipeline: str, engine: str | None, follow: bool, end_of_input: bool, as_json: bool) -> None:
    """Process what is there, exactly once.

    It goes on from where the last run ended. Progress goes to the standard error: on a terminal a line that changes,
    else a line at most each second. The report goes to the standard output. Spark is a local one, on all processors;
    to run on a cluster, call pipeline.run(spark) in your own script.

    SIGINT and SIGTERM end the run at a step's edge with everything committed and published: exit code 0 with --follow,
    130 without. A second SIGINT ends it at once; the next run does the step again.

    \b
    persistent run visits.py:pipeline
    persistent run jobs.visits:pipeline --engine embedded --follow
    """
    if follow and end_of_input:
        raise click.UsageError("--follow waits for more input, --end-of-input says there is none: choose one")
    loaded = load_pipeline(pipeline)
    with _session(engine) as session, progress(sys.stderr) as on_step:
        chosen = "embedded" if session is None else None
        report = loaded.run(session, engine=chosen, follow=follow, end_of_input=end_of_input, on_step=on_step)
    click.echo(json_text(_report_json(report)) if as_json else report_text(report))
    if report.stopped and not follow:
        raise click.exceptions.Exit(_STOPPED)


@contextmanager
def _session(engine: str | None) -> Any:
    """A local SparkSession; None for the embedded engine."""
    if engine == "embedded":
        yield None
        return
    from persistent.spark import java_found, local_session

    if engine is None and not java_found():
        click.echo("no Java found (in JAVA_HOME or on the path): running on the embedded engine", err=True)
        yield None
        return
    session = local_session()
    try:
        yield session
    finally:
        session.stop()


def _report_json(report: RunReport) -> dict[str, Any]:
    return {**asdict(report), "rows_per_second": report.rows_per_second}


# -- looking at manifests --------------------------------------------------------------------------------------------


@main.command()
@click.argument("target")
@_json_option
def history(target: str, as_json: bool) -> None:
    """The checkpoints that are kept, oldest first.

    A fence stands where a run began: it repeats the checkpoint before it under a new epoch.
    """
    storage = _storage(target)
    log = Log(storage)
    newest = _newest(log)
    ids = [id for id in log.ids() if newest.manifest.oldest <= id < newest.manifest.id]
    lines = [_summary(entry) for entry in (*map(log.read, ids), newest)]
    if as_json:
        print_json(lines)
        return
    print_table(
        ["id", "kind", "epoch", "clock", "read", "late", "dead", "runs", "state rows", "state size"],
        [
            [
                str(line["id"]),
                line["kind"] + (", end of input" if line["end_of_input"] else ""),
                str(line["epoch"]),
                utc_text(line["watermark"]),
                *(f"{line[name]:,}" for name in ("read", "late", "dead", "runs", "state_rows")),
                bytes_text(line["state_bytes"]),
            ]
            for line in lines
        ],
        right=("id", "epoch", "read", "late", "dead", "runs", "state rows", "state size"),
    )


def _summary(entry: Entry) -> dict[str, Any]:
    manifest = entry.manifest
    runs = [run for operator in manifest.operators.values() for run in operator.runs]
    accounts = manifest.ledger.values()
    return {
        "id": manifest.id,
        "kind": manifest.kind,
        "base": manifest.base,
        "epoch": manifest.epoch,
        "watermark": manifest.clock.watermark,
        "closed": manifest.clock.closed,
        "end_of_input": manifest.clock.end_of_input,
        **{
            name: sum(getattr(account, name) for account in accounts)
            for name in ("read", "processed", "late", "dead", "duplicate")
        },
        "runs": len(runs),
        "state_rows": sum(run.rows_left for run in runs),
        "state_bytes": sum(run.bytes for run in runs),
        "manifest_bytes": entry.bytes,
    }


@main.command()
@click.argument("target")
@click.argument("id", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="The manifest as it is stored.")
def show(target: str, id: int | None, as_json: bool) -> None:
    """One checkpoint: clock, positions, files.

    The newest, or that of ID.

    \b
    persistent show visits-checkpoint
    persistent show visits-checkpoint 41 --json
    """
    storage = _storage(target)
    log = Log(storage)
    entry = _newest(log) if id is None else _kept(log, id)
    if as_json:
        data = storage.read(manifest_name(entry.manifest.id)).to_pybytes()
        click.echo(json_text(decode_document(data, manifest_name(entry.manifest.id))))
        return
    manifest, clock, source = entry.manifest, entry.manifest.clock, entry.manifest.source
    summary = _summary(entry)
    figures = [
        (manifest.kind, f"{manifest.id}, of epoch {manifest.epoch}, {bytes_text(entry.bytes)}"),
        ("job", manifest.job),
        ("state of", f"checkpoint {manifest.base}; {manifest.oldest} is the oldest kept"),
        ("clock", f"{utc_text(clock.watermark)}, windows closed up to {utc_text(clock.closed)}"),
        ("end of input", "declared" if clock.end_of_input else "not declared"),
        ("source", source.kind),
        *(
            (f"  {name}", f"next: {position[0]}, offset {position[1]}")
            for name, position in sorted(source.positions.items())
        ),
        ("account", ", ".join(f"{name} {summary[name]:,}" for name in ("read", "processed", "late", "dead"))),
    ]
    for name, operator in manifest.operators.items():
        key = ", ".join(f"{key}: {kind}" for key, kind in zip(operator.key_names, operator.key_types))
        figures += [
            (f"state {name}", f"{summary['state_rows']:,} rows, {bytes_text(summary['state_bytes'])}"),
            ("  key", key or ", ".join(operator.key_names) or "none"),
            ("  monoid", _monoid_text(operator.fingerprint["monoid"])),
            ("  window", _window_text(operator.fingerprint["window"])),
        ]
    width = max(len(name) for name, _ in figures)
    for name, text in figures:
        click.echo(f"{name:<{width}}  {text}")
    click.echo()
    print_table(
        ["run", "rows", "size", "key groups", "deltas"],
        [
            [run.name, f"{run.rows:,}", bytes_text(run.bytes), f"{run.low}-{run.high - 1}", f"{run.first}-{run.last}"]
            for operator in manifest.operators.values()
            for run in operator.runs
        ],
        right=("rows", "size"),
    )


def _monoid_text(fingerprint: Any) -> str:
    """A monoid's fingerprint about as its user wrote it."""
    parameters = fingerprint["parameters"]
    if "fields" in parameters:
        inside = ", ".join(f"{name}={_monoid_text(monoid)}" for name, monoid in parameters["fields"])
    elif "monoid" in parameters:
        inside = _monoid_text(parameters["monoid"])
    else:
        inside = ", ".join(str(value) for value in parameters.values())
    return f"{fingerprint['name']}({inside})"


def _window_text(window: Mapping[str, int] | None) -> str:
    if window is None:
        return "none"
    return f"{span_text(window['size_ms'])} every {span_text(window['every_ms'])}"


def _storage(target: str) -> Storage:
    return load_pipeline(target).storage if names_pipeline(target) else open_storage(target)


def _newest(log: Log) -> Entry:
    entry = log.newest()
    if entry is None:
        raise InvalidPipeline(f"{log.storage.url}: there is no checkpoint here; 'persistent run' makes one")
    return entry


def _kept(log: Log, id: int) -> Entry:
    newest = _newest(log).manifest
    if not newest.oldest <= id <= newest.id:
        raise InvalidPipeline(f"{log.storage.url} keeps the ids {newest.oldest} to {newest.id}, not {id}")
    return log.read(id)


# -- looking at rows -------------------------------------------------------------------------------------------------


@main.command()
@click.argument("pipeline", metavar="FILE_OR_MODULE:NAME")
@click.option("--key", "keys", multiple=True, metavar="VALUE", help="Only this key; repeated for several columns.")
@click.option("--at", type=int, metavar="ID", help="The state of that checkpoint [default: the newest].")
@_limit_option
@_json_option
def state(pipeline: str, keys: tuple[str, ...], at: int | None, limit: int | None, as_json: bool) -> None:
    """The folded state, or that of one key.

    Of a state with windows: every window that holds something and is not closed yet. The state is read by the task's
    own monoid: so this command takes the pipeline, not the URL of its checkpoint.

    \b
    persistent state visits.py:pipeline
    persistent state visits.py:pipeline --key /home --json
    persistent state sales.py:pipeline --key de --key 2024 --at 41
    """
    if not names_pipeline(pipeline):
        raise click.UsageError(
            f"{pipeline}: a state is read by the task's own monoid: give its pipeline as FILE.py:NAME "
            "(the pipeline names its checkpoint)"
        )
    loaded = load_pipeline(pipeline)
    _newest(Log(loaded.storage))
    table = loaded.state(at=at)
    if keys:
        table = _of_key(table, loaded, keys)
    print_rows(_sorted(table), limit, as_json)


def _of_key(table: pa.Table, pipeline: Pipeline, values: Sequence[str]) -> pa.Table:
    names = key_names(pipeline.task)
    if len(values) != len(names):
        told = f"the key is ({', '.join(names)}): give --key {len(names)} times" if names else "the task has no key"
        raise click.UsageError(f"--key given {len(values)} times, but {told}")
    for name, text in zip(names, values):
        type_ = table.schema.field(name).type
        try:
            value = pa.scalar(text).cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise click.UsageError(f"--key {text}: column {name} holds {type_}: {error}") from error
        table = table.filter(pc.equal(table[name], value))
    return table


def _sorted(table: pa.Table) -> pa.Table:
    """By window, then by key, as far as they can be ordered."""
    names = [name for name in ("window_start", *table.column_names) if name in table.column_names]
    ordered = [name for name in dict.fromkeys(names) if not pa.types.is_nested(table.schema.field(name).type)]
    return table.sort_by([(name, "ascending") for name in ordered]) if ordered and table.num_rows else table


@main.command()
@click.argument("target")
@_limit_option
@_json_option
def late(target: str, limit: int | None, as_json: bool) -> None:
    """The records that came too late.

    All windows of their time had ended by the clock of the step before theirs. Those of the reason "partly-late" still
    count in the windows of their time that were open.
    """
    _print_aside(target, "late", limit, as_json)


@main.command("dead-letters")
@click.argument("target")
@_limit_option
@_json_option
def dead_letters(target: str, limit: int | None, as_json: bool) -> None:
    """The records that could not be processed.

    Each with its file, its offset there (a row number in Parquet, else a byte of the text) and the reason.
    """
    _print_aside(target, "dead", limit, as_json)


def _print_aside(target: str, folder: str, limit: int | None, as_json: bool) -> None:
    storage = _storage(target)
    _newest(Log(storage))
    print_rows(read_aside(storage, folder), limit, as_json)


# -- verify ----------------------------------------------------------------------------------------------------------


@main.command("verify")
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="What was looked at and found, as JSON.")
def verify_command(target: str, as_json: bool) -> None:
    """Read and check every byte of a checkpoint.

    Everything that the kept checkpoints name is read and held against the laws; nothing is changed. Exit code 1 if
    anything committed is lost or wrong; the newest checkpoint that no fault touches is then named.

    Files that no checkpoint names are warnings: a run that was cut off leaves them, and the next one deletes them.
    """
    found = verify(_storage(target))
    if as_json:
        click.echo(json_text({**asdict(found), "ok": found.ok}))
    else:
        _print_verification(found)
    if not found.ok:
        faults = sum(finding.severity == FAULT for finding in found.findings)
        good = found.newest_good
        raise click.ClickException(
            f"{found.url}: {faults:,} {'fault' if faults == 1 else 'faults'}; "
            + (f"checkpoint {good} is the newest that verifies" if good is not None else "no checkpoint verifies")
        )


def _print_verification(found: Verification) -> None:
    print_table(
        ["looked at", "number", "rows", "size", "faults"],
        [
            [name, f"{part.checked:,}", f"{part.rows:,}", bytes_text(part.bytes), f"{found.faults_of(name):,}"]
            for name, part in found.parts.items()
        ],
        right=("number", "rows", "size", "faults"),
    )
    for finding in found.findings:
        click.echo(f"{finding.severity}: {finding.place}: {finding.text}")
    if found.ok:
        click.echo(f"{found.url}: checkpoint {found.newest_good} verifies")
