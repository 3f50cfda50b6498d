"""Late: what ``allowed_lateness`` costs when nothing is late, in rows a second against the same job without it.

A Parquet file of visits in time order over two hours, counted and summed by key and minute, in steps of four million
rows, the most that a driver takes by itself. With lateness, windows stay in the state for an hour, and what a step
publishes waits for what it maps: some milliseconds in each step that closes windows, whatever its rows. The sides take
turns, and the ratio is the median of the pairs. Both publish the same rows, ``revision`` aside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import engines, measure
from monoids import Count, Sum, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling

SPAN_MS = 7_200_000


class Visits(PersistentTask):
    """Visits and their milliseconds per key and minute."""

    key = "key"

    def __init__(self, allowed_lateness: str | int) -> None:
        self.allowed_lateness = allowed_lateness

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), millis=Sum())
        return WindowState(monoid, tumbling("1 min"), allowed_lateness=self.allowed_lateness)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "millis": batch["millis"]})


def build(path: Path, rows: int, keys: int, seed: int) -> None:
    """Write the visits."""
    draws = np.random.default_rng(seed)
    columns = {
        "ts": pa.array(1_600_000_000_000 + np.arange(rows) * SPAN_MS // rows),
        "key": draws.integers(0, keys, rows),
        "millis": draws.integers(1, 10_000, rows),
    }
    pq.write_table(pa.table(columns), path, row_group_size=1_000_000)


def published(path: Path, folder: Path, allowed: str | int, session: Any, step_rows: int) -> tuple[pa.Table, float]:
    """Run the job; the rows that it published, and the seconds it took."""
    job = Pipeline(
        source=FileSource(str(path), timestamp="ts", timestamp_unit="ms", ordered=True),
        task=Visits(allowed),
        sink=FileSink(str(folder / "results")),
        checkpoint=str(folder / "checkpoint"),
        step_rows=step_rows,
    )
    seconds = measure.wall_seconds(lambda: engines.drain(job, session))
    found = pa.concat_tables([pq.read_table(file) for file in (folder / "results").glob("*.parquet")])
    names = ["key", "window_start", "visits", "millis"]
    return found.select(names).sort_by([("window_start", "ascending"), ("key", "ascending")]), seconds


@click.command(help="Rows a second with and without allowed_lateness, when nothing is late.")
@click.option("--rows", default=40_000_000, show_default=True)
@click.option("--keys", default=1_000, show_default=True)
@click.option("--step-rows", default=4_000_000, show_default=True)
@click.option("--runs", default=11, show_default=True)
@click.option("--on", type=click.Choice(["embedded", "spark"]), default="embedded", show_default=True)
@measure.common
def main(rows: int, keys: int, step_rows: int, runs: int, on: str, cache: Path, work: Path | None, seed: int) -> None:
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    session = engines.spark_session() if on == "spark" else None
    with measure.empty_folder(work or cache) as folder:
        path = folder / "visits.parquet"
        build(path, rows, keys, seed)
        for turn in range(runs + 1):
            tables = {}
            for side, allowed in (("without", 0), ("with", "1 h")):
                with measure.empty_folder(folder) as place:
                    tables[side], taken = published(path, place, allowed, session, step_rows)
                click.echo(f"{f'run {turn} of {runs}' if turn else 'warm-up'}: {side} {rows / taken:,.0f} rows/s")
                if turn:
                    seconds[side].append(taken)
            if not tables["with"].equals(tables["without"]) or pc.sum(tables["with"]["visits"]).as_py() != rows:
                raise measure.RowsDiffer("the two sides published other rows")
    ratios = [taken / plain for plain, taken in zip(seconds["without"], seconds["with"], strict=True)]
    rate = {side: rows / measure.median(taken) for side, taken in seconds.items()}
    figures = [
        measure.Figure("without lateness", rate["without"], "rows/s", 8_000_000),
        measure.Figure("with an hour", rate["with"], "rows/s", 8_000_000),
        measure.Figure("seconds, with / without", measure.median(ratios), "times", 1.02, 1.05, at_least=False),
    ]
    measure.publish("late", {"rows": rows, "keys": keys, "step_rows": step_rows, "runs": runs, "on": on}, figures)


if __name__ == "__main__":
    main()
