"""What the comparisons of windows share: Parquet files, this package over them, and Spark Structured Streaming.

Both sides read the same files in the same steps, keep a durable checkpoint on the local disk and write Parquet. The
peer shares the Spark session and has its default state store. It publishes a window once its watermark, five seconds
(the disorder) behind the largest timestamp, has passed the end, and never the last ones: so the windows that end at or
before that watermark are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import engines, measure, workloads
from persistent import FileSink, FileSource, PersistentTask, Pipeline

MINUTE_MS = 60_000
Canonical = Callable[[pa.Table], pa.Table]
"""Turns what a side has written into the rows to compare."""


@dataclass(frozen=True)
class Input:
    """The files, and what every side has to know of them. Windows are compared up to ``last_end`` (ms)."""

    folder: Path
    rows: int
    file_rows: int
    step_files: int
    last_end: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


def described(folder: Path, step_files: int) -> Input:
    """The input, after one look at its timestamps and footers."""
    files = sorted(folder.glob("*.parquet"))
    rows = [pq.read_metadata(file).num_rows for file in files]
    largest = max(pc.max(pq.read_table(file, columns=["ts"])["ts"]).cast(pa.int64()).as_py() for file in files)
    watermark = largest // 1000 - workloads.DISORDER_MS
    return Input(folder, sum(rows), rows[0], step_files, watermark // MINUTE_MS * MINUTE_MS)


def ours(
    source: Input, task: PersistentTask, canonical: Canonical, session: Any = None, threads: int = 2
) -> measure.Side:
    """This package, on Spark with a session, else embedded."""

    def run(place: Path) -> None:
        pipeline = Pipeline(
            source=FileSource(f"{source.folder}/*.parquet", timestamp="ts"),
            task=task,
            sink=FileSink(str(place / "results")),
            checkpoint=str(place / "checkpoint"),
            step_rows=source.step_files * source.file_rows,
        )
        engines.drain(pipeline, session, threads=threads)

    name = "ours embedded" if session is None else "ours on Spark"
    return measure.Side(name, run, lambda place: canonical(written(place / "results")))


def streamed(peer: Any, source: Input, place: Path, aggregate: Callable[[Any], Any]) -> None:
    """Run Spark Structured Streaming over the files, in a session of its own. ``aggregate``: from the rows, with their
    watermark, to the results."""
    schema = peer.read.parquet(str(source.files[0])).schema
    reader = peer.readStream.schema(schema).option("maxFilesPerTrigger", source.step_files)
    rows = reader.parquet(str(source.folder)).withWatermark("ts", f"{workloads.DISORDER_MS} milliseconds")
    query = (
        aggregate(rows)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "results"))
    )
    query.awaitTermination()


def peer_session(session: Any, shuffle_partitions: int) -> Any:
    """A session of its own over the same JVM."""
    peer = session.newSession()
    peer.conf.set("spark.sql.adaptive.enabled", "true")
    peer.conf.set("spark.sql.shuffle.partitions", shuffle_partitions)
    return peer


def written(place: Path) -> pa.Table:
    """The rows of a Parquet file, or of all in a folder."""
    files = [place] if place.is_file() else sorted(place.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def up_to(table: pa.Table, last_start: int, columns: dict[str, Any]) -> pa.Table:
    """``key``, ``start`` (int64 ms) and these columns of the windows that start by ``last_start``, sorted."""
    start = pc.cast(pc.cast(table["window_start"], pa.timestamp("ms"), safe=False), pa.int64())
    kept = pa.table({"key": table["key"], "start": start, **columns}).filter(pc.less_equal(start, last_start))
    return kept.sort_by([("start", "ascending"), ("key", "ascending")]).combine_chunks()
