"""``persistent clock``: where the clock of a checkpoint stands, and its repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from monoids.encoding import to_json
from persistent import operations
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.pipeline import Pipeline
from persistent.reading import ClockReading, PartitionReading, clock_reading, find_record, furthest
from persistent.storage.protocol import Storage
from persistent.text.figures import clock_text, span_text, utc_text
from persistent.time.clock import wall_ms
from persistent.tools.cli.exits import NOT_FOUND, CommandFailed
from persistent.tools.cli.load import load_pipeline, names_pipeline
from persistent.tools.cli.operate import of_outputs, report_entry
from persistent.tools.cli.options import Time, json_option, storage_of, take_over_option, target_argument
from persistent.tools.cli.tables import json_text, print_table

_NONE = "none"


class _Limit(Time):
    """A time, or none."""

    name = "time|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == _NONE else super().convert(value, param, ctx)


@click.command("clock")
@target_argument
@click.option("--set-back", is_flag=True, help="Repair a clock that one record far ahead has moved: needs --not-after.")
@click.option(
    "--not-after",
    type=_Limit(),
    help="With --set-back: the last time that is good; later timestamps are dead letters from then on. Alone, none: "
    "lift that limit.",
)
@click.option(
    "--outputs",
    type=click.Choice(["retract", "again"]),
    help="With --set-back: the next run retracts later outputs, or keeps them and publishes them again. Without this, "
    "only say what would be undone.",
)
@click.option(
    "--find", is_flag=True, help="Find the record with the largest timestamp: reads its span of the source again."
)
@take_over_option
@json_option
def clock_command(
    target: str, set_back: bool, not_after: Any, outputs: str | None, find: bool, take_over: bool, as_json: bool
) -> None:
    """Where the clock stands, and what holds it back.

    Shows the clock, the windows that are closed, the largest timestamp of each partition, those that are idle, and the
    one that the clock waits for.

    One record with a time far ahead closes all windows, and every later record is late. --set-back returns to the
    newest kept checkpoint that has counted nothing after --not-after, as persistent rollback does; the record becomes a
    dead letter when it is read again. All timestamps after the limit do, so lift it when the record is read.

    --find, for which TARGET is the pipeline, names that record: its file, its offset, and what it holds.

    \b
    persistent clock visits-checkpoint
    persistent clock visits.py:pipeline --find
    persistent clock visits-checkpoint --set-back --not-after 2024-05-01T10:00Z
    persistent clock visits-checkpoint --set-back --not-after 2024-05-01T10:00Z --outputs=retract
    persistent clock visits-checkpoint --not-after none
    """
    if find:
        if set_back or outputs is not None or not_after is not None:
            raise click.UsageError("--find only reads: give it alone, and --set-back in a command of its own")
        if not names_pipeline(target):
            raise click.UsageError(f"{target}: --find reads the source: give the pipeline as FILE.py:NAME")
        _find(load_pipeline(target), as_json)
        return
    storage = storage_of(target)
    if set_back:
        if not_after in (None, _NONE):
            raise click.UsageError("--set-back needs the last time that is good: --not-after 2024-05-01T10:00Z")
        _set_back(storage, not_after, outputs, take_over, as_json)
    elif outputs is not None or not_after not in (None, _NONE):
        raise click.UsageError("--outputs and a time in --not-after need --set-back; --not-after none lifts a limit")
    elif not_after == _NONE:
        entry = operations.lift_limit(storage, take_over=take_over)
        report_entry(entry, "later timestamps count again, up to max_future ahead", as_json)
    else:
        _show(storage, as_json)


def _set_back(storage: Storage, not_after: int, outputs: str | None, take_over: bool, as_json: bool) -> None:
    undone = operations.undone(storage, not_after)
    if outputs is None:
        click.echo(json_text(asdict(undone)) if as_json else f"This would go {undone}.")
        raise click.UsageError(
            "nothing was changed: to do it, add --outputs=retract (the next run takes back what was published since) "
            "or --outputs=again (it publishes it a second time)"
        )
    entry = operations.set_back(storage, not_after=not_after, outputs=outputs, take_over=take_over)
    limit = (
        f"Timestamps after {utc_text(not_after)} are dead letters from now on: lift this with 'persistent clock "
        f"{storage.url} --not-after none' once the record is read again"
    )
    report_entry(entry, f"went {undone}{of_outputs(entry)}. {limit}", as_json)


def _find(pipeline: Pipeline, as_json: bool) -> None:
    """The record with the largest timestamp, by name."""
    url = pipeline.storage.url
    span = furthest(pipeline.storage, newest_of(Log(pipeline.storage)).manifest)
    if span is None:
        raise CommandFailed(f"{url}: no record has been counted yet, so none has moved the clock", NOT_FOUND)
    record = find_record(pipeline, span)
    if record is None:
        raise CommandFailed(
            f"{url}: the record of {utc_text(span.timestamp)} lies {span}, and the source no longer holds it there",
            NOT_FOUND,
        )
    if as_json:
        click.echo(json_text({**asdict(record), "timestamp": span.timestamp, "checkpoint": span.by.id}))
        return
    click.echo(f"{utc_text(span.timestamp)}, the largest timestamp: {record}, counted by checkpoint {span.by.id:,}")
    click.echo(to_json(record.value))


def _show(storage: Storage, as_json: bool) -> None:
    clock = clock_reading(storage)
    if as_json:
        holder = None if clock.held_by is None else clock.held_by.name
        partitions = [{**asdict(partition), "idle": partition.is_idle} for partition in clock.partitions]
        whole = {name: value for name, value in asdict(clock).items() if value or name != "states"}
        click.echo(json_text({**whole, "partitions": partitions, "held_by": holder}))
        return
    lines = list(_lines(clock, storage))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(f"{name:<{width}}  {text}")
    if clock.partitions:
        click.echo()
        rows = [[one.name, _time(one.largest), "no, it is idle" if one.is_idle else "yes"] for one in clock.partitions]
        print_table(["partition", "largest timestamp", "waited for"], rows)


def _lines(clock: ClockReading, storage: Storage | None = None) -> Iterator[tuple[str, str]]:
    yield "clock", f"{clock_text(clock.watermark)}, of checkpoint {clock.checkpoint}"
    if clock.closed is not None:
        yield "closed", f"windows that end up to {utc_text(clock.closed)}" if clock.closed else "no window yet"
    for name, (watermark, closed) in clock.states.items():
        windows = f", windows closed up to {clock_text(closed)}" if closed else ""
        yield f"  {name}", f"{clock_text(watermark)}{windows}"
    if ahead := clock.ahead_ms(wall_ms()):
        yield "ahead", _ahead(clock, ahead)
        span = None if storage is None else furthest(storage, newest_of(Log(storage)).manifest)
        if span is not None:
            yield "its record", f"{span}: --find names it, with the pipeline as TARGET"
    if clock.ended:
        yield "end of input", "declared: every window was closed"
    if clock.quiet_ms:
        yield "quiet", f"moved on by {span_text(clock.quiet_ms)} since the last record"
    yield "held back by", _why(clock, clock.held_by)
    if clock.not_after is not None:
        limit = utc_text(clock.not_after)
        yield "not after", f"{limit}: later timestamps are dead letters; --not-after none lifts this"


def _ahead(clock: ClockReading, ahead_ms: int) -> str:
    """How far the clock is ahead of the time of day, which record has moved it, and what to do."""
    of = ""
    if clock.furthest is not None and clock.furthest.largest is not None:
        of = f"{clock.furthest.name} has a record of {utc_text(clock.furthest.largest)}; "
    return (
        f"{span_text(ahead_ms)} ahead of the time of day, so records of today are late; {of}if its time is wrong, "
        "--set-back --not-after TIME goes back to before it"
    )


def _why(clock: ClockReading, holder: PartitionReading | None) -> str:
    """Which partition holds the clock back, and by what."""
    if holder is None:
        return "nothing: every partition is idle, or there is none yet"
    if holder.lists:
        return f"{holder.name}: listed files that are not read yet may hold earlier timestamps"
    if holder.largest is None:
        return f"{holder.name}: no record of it has been counted yet"
    lag = f", less {span_text(holder.lag_ms)} of disorder" if holder.lag_ms else ""
    ahead = "; the clock is past it, and never goes back" if (holder.reached or 0) < clock.watermark else ""
    return f"{holder.name}: its largest timestamp is {utc_text(holder.largest)}{lag}{ahead}"


def _time(largest: int | None) -> str:
    return "none yet" if largest is None else utc_text(largest)
