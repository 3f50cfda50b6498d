"""W1, clicks: count and sum per key and minute, against Spark Structured Streaming doing the same.

Both read the same Parquet files in the same steps (``--step-files`` files), keep a durable checkpoint on the
local disk and write Parquet. Ours is measured on Spark and embedded; the peer shares the Spark session, has
its default state store, and the number of shuffle partitions that serves it best here, one a core (200, its
default, makes it several times slower).

Append mode publishes a window once the watermark has passed its end, and the peer's watermark stays five
seconds (the disorder) behind the largest timestamp. So the peer never publishes the last window or two, where
ours, told that the input is complete, closes all. The comparison takes the windows that end at or before the
peer's last watermark: of those both sides must have every one and no other row, counts equal and sums within
1e-9. What is left out is work that only ours does.

The other peers: ``rocksdb`` is the same query on the RocksDB state store with its changelog; ``polars`` and
``duckdb`` are a floor, one batch over all files with nothing durable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import engines, measure, windowed, workloads
from benchmarks.windowed import MINUTE_MS, Input, described
from monoids import Count, Sum, record
from persistent import PersistentTask, WindowState, tumbling

PEERS = ("rocksdb", "polars", "duckdb")

# The estimate, from the parts of a step measured one by one. A row costs 81 thread-nanoseconds: read 25, pack
# 6, sort 5, bounds 4, reduce 6, encode 1, hash 3, write 2, flush 6, close 23. A step costs a flush and a
# commit, and on Spark a job of two tasks.
ROW_NS = 81
STEP_SECONDS = {"embedded": 0.005, "spark": 0.040}
PEER_ROW_NS = 1_100


class Clicks(PersistentTask):
    """Clicks and their value per key and minute."""

    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(record(count=Count(), total=Sum(float)), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"count": 1, "total": message.value["value"]})

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"count": 1, "total": batch["value"]})


def ours(source: Input, session: Any = None, threads: int = 2) -> measure.Side:
    """This package, on Spark with a session, else embedded."""
    return windowed.ours(source, Clicks(), lambda table: canonical(table, source.last_end), session, threads)


def structured_streaming(source: Input, session: Any, shuffle_partitions: int, rocksdb: bool = False) -> measure.Side:
    """Spark's own streaming aggregation, in a session of its own over the same JVM."""
    peer = windowed.peer_session(session, shuffle_partitions)
    if rocksdb:
        stores = "org.apache.spark.sql.execution.streaming.state"
        peer.conf.set("spark.sql.streaming.stateStore.providerClass", f"{stores}.RocksDBStateStoreProvider")
        peer.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")

    def aggregate(rows: Any) -> Any:
        from pyspark.sql import functions as f

        minutes = rows.groupBy(f.window("ts", "1 minute"), "key")
        sums = minutes.agg(f.count("*").alias("count"), f.sum("value").alias("total"))
        return sums.select("key", f.col("window.start").alias("window_start"), "count", "total")

    def run(place: Path) -> None:
        windowed.streamed(peer, source, place, aggregate)

    name = "Spark streaming, RocksDB" if rocksdb else "Spark streaming"
    return measure.Side(name, run, lambda place: canonical(windowed.written(place / "results"), source.last_end))


def polars_batch(source: Input) -> measure.Side:
    """Polars over all files at once: nothing durable, nothing to continue from."""

    def run(place: Path) -> None:
        import polars as pl

        minute = pl.col("ts").dt.truncate("1m").alias("window_start")
        grouped = pl.scan_parquet(f"{source.folder}/*.parquet").group_by(minute, "key")
        result = grouped.agg(pl.len().alias("count"), pl.col("value").sum().alias("total")).collect()
        result.write_parquet(place / "results.parquet")

    return measure.Side(
        "Polars batch", run, lambda place: canonical(windowed.written(place / "results.parquet"), source.last_end)
    )


def duckdb_batch(source: Input, threads: int) -> measure.Side:
    """DuckDB over all files at once: nothing durable, nothing to continue from."""

    def run(place: Path) -> None:
        import duckdb

        connection = duckdb.connect()
        connection.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'")
        query = f"""
            SELECT date_trunc('minute', ts) AS window_start, key, count(*) AS count, sum(value) AS total
            FROM read_parquet('{source.folder}/*.parquet') GROUP BY ALL
        """
        connection.execute(f"COPY ({query}) TO '{place / 'results.parquet'}'")
        connection.close()

    return measure.Side(
        "DuckDB batch", run, lambda place: canonical(windowed.written(place / "results.parquet"), source.last_end)
    )


def canonical(table: pa.Table, last_end: int) -> pa.Table:
    """``key``, ``start`` (int64 ms), ``count``, ``total`` of the windows that end by ``last_end``, sorted."""
    columns = {"count": pc.cast(table["count"], pa.int64()), "total": table["total"]}
    return windowed.up_to(table, last_end - MINUTE_MS, columns)


def compare(name: str, expected: pa.Table, rows: pa.Table) -> None:
    """Raise ``RowsDiffer`` unless both hold the same rows, the sums of floats within 1e-9 of each other."""
    if rows.num_rows == 0:
        raise measure.RowsDiffer(f"{name}: no window was published; give more rows, a minute is 60,000 of them")
    if rows.num_rows != expected.num_rows:
        raise measure.RowsDiffer(f"{name}: {rows.num_rows:,} rows instead of {expected.num_rows:,}")
    for column in ("start", "count"):
        if not rows[column].equals(expected[column]):
            raise measure.RowsDiffer(f"{name}: column {column!r} differs")
    if pc.all(pc.equal(rows["key"], expected["key"])).as_py() is not True:
        raise measure.RowsDiffer(f"{name}: column 'key' differs")
    mine, other = rows["total"].to_numpy(), expected["total"].to_numpy()
    if not np.allclose(mine, other, rtol=1e-9, atol=0):
        raise measure.RowsDiffer(f"{name}: sums differ by up to {np.abs(mine - other).max()}")


def estimates(source: Input, cores: int) -> dict[str, float]:
    """Rows a second that the parts add up to."""
    steps = -(-source.rows // (source.step_files * source.file_rows))
    work = source.rows * ROW_NS * 1e-9 / cores
    ours_at = {engine: source.rows / (work + steps * seconds) for engine, seconds in STEP_SECONDS.items()}
    return {
        "ours on Spark": ours_at["spark"],
        "ours embedded": ours_at["embedded"],
        "Spark streaming": 1e9 / PEER_ROW_NS,
    }


def _chosen(_: object, __: object, value: str) -> tuple[str, ...]:
    names = tuple(name for name in value.split(",") if name)
    unknown = set(names) - set(PEERS)
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(PEERS)}")
    return names


@click.command(help="W1: rows a second on Spark and embedded, against Spark Structured Streaming.")
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--file-rows", default=1_000_000, show_default=True, help="Rows a file.")
@click.option("--step-files", default=2, show_default=True, help="Files a step, for both sides.")
@click.option("--keys", type=click.Choice(["int", "string"]), default="int", show_default=True)
@click.option("--peers", default="", callback=_chosen, help=f"More peers, with commas: {','.join(PEERS)}.")
@click.option("--runs", default=5, show_default=True, help="Measured runs of each side, after one warm-up.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores and the embedded engine's threads.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Without: embedded and batch peers only.")
@measure.common
def main(
    rows: int,
    file_rows: int,
    step_files: int,
    keys: str,
    peers: tuple[str, ...],
    runs: int,
    cores: int,
    spark: bool,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    source = described(workloads.clicks(cache, rows, file_rows, keys == "string", seed), step_files)
    sides = [ours(source, threads=cores)]
    if spark:
        session = engines.spark_session(cores)
        sides += [ours(source, session), structured_streaming(source, session, shuffle_partitions=cores)]
    optional: dict[str, Callable[[], measure.Side]] = {
        "rocksdb": lambda: structured_streaming(source, session, shuffle_partitions=cores, rocksdb=True),
        "polars": lambda: polars_batch(source),
        "duckdb": lambda: duckdb_batch(source, cores),
    }
    sides += [optional[peer]() for peer in peers if spark or peer != "rocksdb"]
    seconds = measure.alternate(sides, runs, work or cache, compare)
    rates = {name: source.rows / measure.median(taken) for name, taken in seconds.items()}
    expected = estimates(source, cores)
    figures = [measure.Figure(name, rate, "rows/s", expected.get(name)) for name, rate in rates.items()]
    for name, target in (("ours on Spark", 8.0), ("ours embedded", 12.0)):
        if spark:
            ratio = expected[name] / expected["Spark streaming"]
            value = rates[name] / rates["Spark streaming"]
            figures.append(measure.Figure(f"{name} / Spark streaming", value, "times", ratio, target))
    parameters = {
        "rows": rows,
        "file_rows": file_rows,
        "step_files": step_files,
        "keys": keys,
        "runs": runs,
        "cores": cores,
    }
    measure.publish("clicks (W1)", parameters, figures, seconds=seconds)


if __name__ == "__main__":
    main()
