"""W2, views: the Yahoo streaming benchmark from file to file, in messages per CPU second.

JSON lines; views are kept, the ad of each is looked up (1,000 ads of 100 campaigns), and views are counted
per campaign and ten seconds. Ours is measured twice on the embedded engine, with ``process_message`` per
record and with ``process_batch``, both with a durable checkpoint; the peer is a loop of ``json.loads`` over
the lines with nothing durable.

The figure is CPU, not wall time: every side is a fresh process, and counted is all it used, user and system,
in all threads, from its start to its end, imports included. What a process needs to start and import
everything is printed beside it.

Bytewax (with recovery, a snapshot each second) joins with ``--peers bytewax`` where it is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib import util
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import engines, measure, workloads
from monoids import Count
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.sinks import FileSink
from persistent.sources import FileSource

WINDOW_MS = 10_000

# The estimate, in CPU nanoseconds a line: Arrow's JSON reader takes 1,500; a message of seven fields, of
# which a third is kept, 474 with its grouping; as columns 100. json.loads takes 3,300 and the rest of the
# loop 700.
LINE_NS = {"process_message": 1_974, "process_batch": 1_600, "plain Python": 4_000}


class ViewsByMessage(PersistentTask):
    """Views per campaign and ten seconds, message by message. ``campaigns``: ad to campaign."""

    key = {"campaign": None}
    name = "Views"

    def __init__(self, campaigns: dict[str, str]) -> None:
        self.campaigns = campaigns

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("10 s"))

    def process_message(self, state: Any, message: Any) -> None:
        event = message.value
        if event["event_type"] == "view":
            state.update(message.timestamp, 1, key=self.campaigns[event["ad_id"]])


class ViewsByBatch(ViewsByMessage):
    """The same, column by column."""

    def process_batch(self, state: Any, batch: Any) -> None:
        views = batch.filter(pc.equal(batch["event_type"], "view"))
        places = pc.index_in(views["ad_id"], pa.array(list(self.campaigns)))
        owners = pa.array(list(self.campaigns.values())).take(places)
        state.update_batch(views.timestamps, 1, keys=owners)


def ours(task: ViewsByMessage, source: Path, place: Path) -> None:
    """Run ``task`` on one thread of the embedded engine, from ``source`` to Parquet files in ``place / 'results'``."""
    pipeline = Pipeline(
        source=FileSource(f"{source}/*.jsonl", timestamp="event_time", timestamp_unit="ms"),
        task=task,
        sink=FileSink(str(place / "results")),
        checkpoint=str(place / "checkpoint"),
    )
    engines.drain(pipeline, threads=1)


def plain_python(campaigns: dict[str, str], source: Path, place: Path) -> None:
    """The same with a dictionary, and nothing durable: JSON lines in ``place / 'results.jsonl'``."""
    counts: Counter[tuple[str, int]] = Counter()
    with (source / "views.jsonl").open("rb") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event_type"] == "view":
                counts[campaigns[event["ad_id"]], event["event_time"] // WINDOW_MS] += 1
    _write(((campaign, window * WINDOW_MS, count) for (campaign, window), count in counts.items()), place)


def bytewax_flow(campaigns: dict[str, str], source: Path, place: Path) -> None:
    """The same with Bytewax, its state snapshot each second: JSON lines in ``place / 'results.jsonl'``."""
    from datetime import UTC, datetime, timedelta

    from bytewax import operators as op
    from bytewax.connectors.files import FileSink as LinesSink
    from bytewax.connectors.files import FileSource as LinesSource
    from bytewax.dataflow import Dataflow
    from bytewax.nodes import windowing
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import cluster_main

    def view(line: str) -> tuple[str, int] | None:
        event = json.loads(line)
        return (campaigns[event["ad_id"]], event["event_time"]) if event["event_type"] == "view" else None

    clock = windowing.EventClock(lambda at: datetime.fromtimestamp(at / 1000, UTC), timedelta(seconds=5))
    window = windowing.TumblingWindower(timedelta(milliseconds=WINDOW_MS), datetime(1970, 1, 1, tzinfo=UTC))
    flow = Dataflow("views")
    views = op.filter_map("view", op.input("lines", flow, LinesSource(source / "views.jsonl")), view)
    counted = windowing.fold_window(
        "count", views, clock, window, lambda: 0, lambda count, _: count + 1, lambda left, right: left + right
    )
    lines = op.map("line", counted.down, lambda row: (row[0], json.dumps([row[0], row[1][0] * WINDOW_MS, row[1][1]])))
    op.output("results", lines, LinesSink(place / "results.jsonl"))
    recovery = place / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(recovery))


def run_side(name: str, source: Path, place: Path, seed: int) -> None:
    """What the fresh process of one side does."""
    campaigns = workloads.campaigns(seed)
    if name == "process_message":
        ours(ViewsByMessage(campaigns), source, place)
    elif name == "process_batch":
        ours(ViewsByBatch(campaigns), source, place)
    elif name == "plain Python":
        plain_python(campaigns, source, place)
    elif name == "Bytewax":
        bytewax_flow(campaigns, source, place)


def canonical(place: Path) -> pa.Table:
    """``campaign``, ``start`` (int64 ms), ``count``, sorted."""
    lines = place / "results.jsonl"
    if lines.exists():
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        columns = {name: [row[column] for row in rows] for column, name in enumerate(("campaign", "start", "count"))}
        table = pa.table(columns)
    else:
        windows = pa.concat_tables([pq.read_table(file) for file in sorted((place / "results").glob("*.parquet"))])
        start = pc.cast(pc.cast(windows["window_start"], pa.timestamp("ms")), pa.int64())
        table = pa.table({"campaign": windows["campaign"], "start": start, "count": windows["value"]})
    return table.sort_by([("start", "ascending"), ("campaign", "ascending")]).combine_chunks()


def compare(name: str, expected: pa.Table, rows: pa.Table) -> None:
    """Raise ``RowsDiffer`` unless the rows are equal."""
    if rows.num_rows == 0 or rows.to_pydict() != expected.to_pydict():
        raise measure.RowsDiffer(f"{name}: {rows.num_rows:,} rows, not the same as the {expected.num_rows:,} expected")


def side(name: str, source: Path, seed: int) -> measure.Side:
    """A side as a fresh process."""

    def run(place: Path) -> None:
        options = {"--side": name, "--source": source, "--place": place, "--seed": seed}
        words = [str(word) for option in options.items() for word in option]
        subprocess.run([sys.executable, "-m", "benchmarks.views", *words], check=True)

    return measure.Side(name, run, canonical)


def _write(rows: Any, place: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (place / "results.jsonl").write_text(text)


@click.command(help="W2: messages per CPU second, per message and per batch, against a loop of plain Python.")
@click.option("--lines", default=2_000_000, show_default=True)
@click.option("--peers", default="", help="More peers: bytewax, where it is installed.")
@click.option("--runs", default=5, show_default=True, help="Measured runs of each side, after one warm-up.")
@click.option("--side", "one", default=None, hidden=True, help="Be the process of this side.")
@click.option("--source", type=click.Path(path_type=Path), hidden=True)
@click.option("--place", type=click.Path(path_type=Path), hidden=True)
@measure.common
def main(
    lines: int,
    peers: str,
    runs: int,
    one: str | None,
    source: Path | None,
    place: Path | None,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    if one is not None and source is not None and place is not None:
        return run_side(one, source, place, seed)
    events = workloads.views(cache, lines, seed)
    names = ["plain Python", "process_message", "process_batch"]
    if "bytewax" in peers.split(","):
        if util.find_spec("bytewax"):
            names.append("Bytewax")
        else:
            click.echo("Bytewax is not installed here ('pip install bytewax'): left out")
    sides = [side(name, events, seed) for name in names]
    start_up = measure.median(
        [measure.child_cpu_seconds(lambda: side("start", events, seed).run(events)) for _ in range(3)]
    )
    seconds = measure.alternate(sides, runs, work or cache, compare, clock=measure.child_cpu_seconds)
    figures = []
    for name, taken in seconds.items():
        target = 300_000.0 if name == "process_message" else None
        estimate = 1e9 / LINE_NS[name] if name in LINE_NS else None
        figures.append(measure.Figure(name, lines / measure.median(taken), "messages/CPU s", estimate, target))
    figures.append(measure.Figure("CPU to start and import", start_up, "s"))
    parameters = {"lines": lines, "runs": runs, "bytes": _bytes(events)}
    return measure.publish("views (W2)", parameters, figures, seconds=seconds)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


if __name__ == "__main__":
    main()
