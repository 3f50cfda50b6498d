"""Copies: what it costs to recognise them, in rows a second with and without ``dedupe=``.

A Parquet file of messages of many senders, a tenth of which come twice, counted by page on the embedded engine, in
steps of a million. Both sides read the same rows; without deduplication the copies count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from monoids import Count
from persistent import Dedupe, FileSource, NonWindowState, PersistentTask, Pipeline

BY_NUMBER = Dedupe(origin="sender", sequence="number", within="15 min")


class Visits(PersistentTask):
    """Messages by page."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


def build(path: Path, rows: int, senders: int, seed: int) -> int:
    """Write the messages; returns how many there are without the copies. Each sender numbers its own from 0."""
    draws = np.random.default_rng(seed)
    sent = rows * 9 // 10
    sender = draws.integers(0, senders, sent)
    order = np.argsort(sender, kind="stable")
    number = np.empty(sent, np.int64)
    number[order] = np.arange(sent) - np.searchsorted(sender[order], np.arange(senders))[sender[order]]
    # A copy comes some thousand messages after its original.
    again = draws.choice(sent, rows - sent, replace=False)
    place = np.argsort(np.concatenate((np.arange(sent), again + draws.integers(1, 5_000, len(again)))), kind="stable")
    rows_of = np.concatenate((np.arange(sent), again))[place]
    names = pa.array([f"sender-{one}" for one in range(senders)])
    pages = pa.array([f"/page/{one}" for one in range(100)])
    columns = {
        "ts": pa.array(1_600_000_000_000 + rows_of // 10),
        "sender": names.take(pa.array(sender[rows_of])),
        "number": number[rows_of],
        "page": pages.take(pa.array(sender[rows_of] % 100)),
    }
    pq.write_table(pa.table(columns), path, row_group_size=1_000_000)
    return sent


def counted(path: Path, folder: Path, dedupe: Dedupe | None) -> int:
    """Run the job; returns how many messages counted."""
    source = FileSource(str(path), timestamp="ts", timestamp_unit="ms", ordered=True, max_out_of_orderness="1 min")
    job = Pipeline(source=source, task=Visits(), checkpoint=str(folder), dedupe=dedupe, step_rows=1_000_000)
    job.run(engine="embedded")
    return sum(job.state()["value"].to_pylist())


def timed(path: Path, folder: Path, dedupe: Dedupe | None) -> tuple[int, float]:
    """What counted, and the seconds it took."""
    found: list[int] = []
    seconds = measure.wall_seconds(lambda: found.append(counted(path, folder, dedupe)))
    return found[0], seconds


@click.command(help="Rows a second with and without deduplication.")
@click.option("--rows", default=5_000_000, show_default=True)
@click.option("--senders", default=1_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(rows: int, senders: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    seconds: dict[str, list[float]] = {"plain": [], "dedupe": []}
    with measure.empty_folder(work or cache) as folder:
        path = folder / "messages.parquet"
        expected = {"plain": rows, "dedupe": build(path, rows, senders, seed)}
        for turn in range(runs + 1):
            for side, dedupe in (("plain", None), ("dedupe", BY_NUMBER)):
                with measure.empty_folder(folder) as place:
                    found, taken = timed(path, place / "checkpoint", dedupe)
                if found != expected[side]:
                    raise measure.RowsDiffer(f"{side}: {found:,} counted, {expected[side]:,} were sent")
                click.echo(f"{f'run {turn} of {runs}' if turn else 'warm-up'}: {side} {rows / taken:,.0f} rows/s")
                if turn:
                    seconds[side].append(taken)
    rate = {side: rows / measure.median(taken) for side, taken in seconds.items()}
    figures = [
        measure.Figure("with dedupe", rate["dedupe"], "rows/s", 1_000_000),
        measure.Figure("without", rate["plain"], "rows/s", 2_500_000),
        measure.Figure("with / without", rate["dedupe"] / rate["plain"], "times", 0.4),
    ]
    measure.publish("copies", {"rows": rows, "senders": senders, "runs": runs}, figures)


if __name__ == "__main__":
    main()
