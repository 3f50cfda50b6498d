"""W7, sliding: the largest value of a key in windows of an hour that start every minute, against Spark Structured
Streaming doing the same.

A largest value has no inverse, so nothing can be taken out of a window that moves on. Spark adds each row to each of
the sixty windows that hold it; this package adds it to the minute that it is in, and a window that closes is the sum of
sixty panes. Rows come in disorder by less than five seconds. Both sides read the same Parquet files in the same steps,
keep a durable checkpoint on the local disk and write Parquet; ours is measured on Spark and embedded, and the peer
shares the Spark session, with its default state store and a shuffle partition a core.

The peer never publishes the windows that are open at its end, where ours, told that the input is complete, closes all.
The comparison takes the windows that end at or before the peer's last watermark: of those both sides must have every
one, with equal values, and no other. Beside the seconds of the wall stand those of the processors, of all processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import engines, measure, windowed, workloads
from benchmarks.memory import family
from benchmarks.windowed import Input, described
from monoids import Max
from persistent import PersistentTask, WindowState, sliding

HOUR_MS = 3_600_000

# The estimate: the peer makes sixty rows of each, and sums up each at a fifth of what a row of W1 costs it. Of ours, a
# row costs what one of W1 does, and each window of a key that closes 15 ns a pane that enters or leaves, and a row of
# output.
PEER_ROW_NS = 60 * 220
ROW_NS, OUTPUT_NS = 60, 150


class Largest(PersistentTask):
    """The largest value of each key in the last hour, every minute."""

    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Max(), sliding("1 h", every="1 min"))

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["value"])


def ours(source: Input, session: Any = None, threads: int = 2) -> measure.Side:
    """This package, on Spark with a session, else embedded."""
    return windowed.ours(source, Largest(), lambda table: canonical(table, source.last_end), session, threads)


def structured_streaming(source: Input, session: Any, shuffle_partitions: int) -> measure.Side:
    """Spark's own hopping windows, in a session of its own over the same JVM."""
    peer = windowed.peer_session(session, shuffle_partitions)

    def aggregate(rows: Any) -> Any:
        from pyspark.sql import functions as f

        largest = rows.groupBy(f.window("ts", "1 hour", "1 minute"), "key").agg(f.max("value").alias("value"))
        return largest.select("key", f.col("window.start").alias("window_start"), "value")

    def run(place: Path) -> None:
        windowed.streamed(peer, source, place, aggregate)

    return measure.Side(
        "Spark streaming", run, lambda place: canonical(windowed.written(place / "results"), source.last_end)
    )


def canonical(table: pa.Table, last_end: int) -> pa.Table:
    """``key``, ``start`` (int64 ms) and the value of the windows that end by ``last_end``, sorted."""
    return windowed.up_to(table, last_end - HOUR_MS, {"value": pc.cast(table["value"], pa.int64())})


def compare(name: str, expected: pa.Table, rows: pa.Table) -> None:
    """Raise ``RowsDiffer`` unless both hold the same rows."""
    if rows.num_rows == 0:
        raise measure.RowsDiffer(f"{name}: no window was published; give more rows")
    if not rows.equals(expected.cast(rows.schema)):
        raise measure.RowsDiffer(f"{name}: {rows.num_rows:,} rows that differ from the {expected.num_rows:,} expected")


def cpu_seconds() -> float:
    """Processor seconds, user and system, of this process and all its descendants, ended ones too."""
    ticks = 0
    for pid in family(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def with_processors(side: measure.Side, kept: dict[str, list[float]]) -> measure.Side:
    """The side, which also keeps the processor seconds of each run."""

    def run(place: Path) -> None:
        before = cpu_seconds()
        side.run(place)
        kept.setdefault(side.name, []).append(cpu_seconds() - before)

    return measure.Side(side.name, run, side.rows)


@click.command(help="W7: rows a second of sliding windows on Spark and embedded, against Spark Structured Streaming.")
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--keys", default=10_000, show_default=True)
@click.option("--minutes", default=120, show_default=True, help="That the rows are spread over.")
@click.option("--file-rows", default=100_000, show_default=True, help="Rows a file.")
@click.option("--step-files", default=2, show_default=True, help="Files a step, for both sides.")
@click.option("--runs", default=5, show_default=True, help="Measured runs of each side, after one warm-up.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores and the embedded engine's threads.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Without: embedded only.")
@measure.common
def main(
    rows: int,
    keys: int,
    minutes: int,
    file_rows: int,
    step_files: int,
    runs: int,
    cores: int,
    spark: bool,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    folder = workloads.readings(cache, rows, keys, minutes, file_rows, seed)
    source = described(folder, step_files)
    sides = [ours(source, threads=cores)]
    if spark:
        session = engines.spark_session(cores)
        sides += [ours(source, session), structured_streaming(source, session, cores)]
    processors: dict[str, list[float]] = {}
    seconds = measure.alternate([with_processors(side, processors) for side in sides], runs, work or cache, compare)
    rates = {name: rows / measure.median(taken) for name, taken in seconds.items()}
    used = {name: measure.median(taken[1:]) for name, taken in processors.items()}
    cells = keys * (minutes + 60)
    estimates = {
        "ours embedded": rows / ((rows * ROW_NS + cells * OUTPUT_NS) * 1e-9 / cores),
        "ours on Spark": rows
        / ((rows * ROW_NS + cells * OUTPUT_NS) * 1e-9 / cores + 0.04 * rows / file_rows / step_files),
        "Spark streaming": cores * 1e9 / PEER_ROW_NS,
    }
    figures = [measure.Figure(name, rate, "rows/s", estimates[name]) for name, rate in rates.items()]
    figures += [measure.Figure(f"{name}, processors", taken, "s") for name, taken in used.items()]
    for name in ("ours on Spark", "ours embedded") if spark else ():
        value, estimate = rates[name] / rates["Spark streaming"], estimates[name] / estimates["Spark streaming"]
        figures.append(measure.Figure(f"{name} / Spark streaming", value, "times", estimate, 5.0))
        value = used["Spark streaming"] / used[name]
        figures.append(measure.Figure(f"{name} / Spark streaming, by processors", value, "times", estimate))
    parameters = {"rows": rows, "keys": keys, "minutes": minutes, "file_rows": file_rows, "step_files": step_files}
    measure.publish("sliding (W7)", {**parameters, "runs": runs, "cores": cores}, figures, seconds=seconds)


if __name__ == "__main__":
    main()
