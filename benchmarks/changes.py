"""W8, changes: what a step costs that publishes 100,000 changed keys of a state of 5 million keys, and of 10 million.

A count and a sum per key with ``emit="change"``; then steps of 100,000 distinct keys each, drawn from all, which is the
worst case: they lie in every batch of every run. Each state has a process of its own, on the embedded engine, and the
two take turns step by step. The time is that of the whole step: reading and summing the rows, finding the keys in the
state, writing, committing, publishing to a ``FileSink``, and whatever compaction falls into it. In the end the newest
row of each key in the sink is compared with a plain sum over all files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks import checkpoint, measure, workloads
from monoids import Count, Sum, record
from persistent import NonWindowState, Pipeline
from persistent.sinks import FileSink
from persistent.sources import FileSource

# The estimate: the step of W3, 16 ms; 5 million rows of 40 bytes read and hashed at 1.2 GB/s on each of two cores,
# 83 ms; 100,000 binary searches at 1 us, 50 ms on each; 100,000 rows written as Parquet, 30 ms.
SECONDS = 0.18


class Totals(checkpoint.Totals):
    """Count and sum per key, published as they change."""

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(count=Count(), total=Sum(float)), emit="change")


def pipeline(place: Path, step_rows: int) -> Pipeline:
    """Totals of the files in ``place / 'input'``, with the checkpoint and what it publishes beside them."""
    return Pipeline(
        source=FileSource(f"{place / 'input'}/*.parquet", timestamp="ts"),
        task=Totals(),
        sink=FileSink(str(place / "sink")),
        checkpoint=str(place / "checkpoint"),
        step_rows=step_rows,
    )


def check(place: Path) -> int:
    """Raise ``RowsDiffer`` unless the newest row of each key is the plain sum of the files; the number of keys."""
    tables = [pq.read_table(file, columns=["key", "value"]) for file in sorted((place / "input").iterdir())]
    keys = np.concatenate([table["key"].to_numpy() for table in tables])
    values = np.concatenate([table["value"].to_numpy() for table in tables])
    counts, totals = np.bincount(keys), np.bincount(keys, values)
    rows = ds.dataset(sorted(map(str, (place / "sink").glob("*.parquet")))).to_table()
    newest = rows.take(np.lexsort((rows["revision"].to_numpy(), rows["key"].to_numpy())))
    found = newest["key"].to_numpy()
    newest = newest.filter(np.append(found[1:] != found[:-1], True))
    same = (
        np.array_equal(newest["key"].to_numpy(), np.flatnonzero(counts))
        and np.array_equal(newest["count"].to_numpy(), counts[counts > 0])
        and np.allclose(newest["total"].to_numpy(), totals[counts > 0], rtol=1e-9, atol=0)
    )
    if not same:
        raise measure.RowsDiffer(f"what {place / 'sink'} shows is not the sum of the input")
    return int(newest.num_rows)


def figures(taken: dict[str, list[checkpoint.Step]]) -> list[measure.Figure]:
    """The median step of each, and of both."""
    seconds = {name: measure.median([step.seconds for step in steps]) for name, steps in taken.items()}
    return [
        measure.Figure("step, median", seconds["one"], "s", SECONDS, 2.0, at_least=False),
        measure.Figure("of twice as many keys", seconds["two"], "s", SECONDS * 1.5),
        measure.Figure("ratio", seconds["two"] / seconds["one"], "times", 1.5, 1.3, at_least=False),
    ]


@click.command(help="W8: a step that publishes what it has changed, over a state and over twice as large a one.")
@click.option("--state-keys", default=5_000_000, show_default=True, help="Of the first state; the other has twice.")
@click.option("--delta-keys", default=100_000, show_default=True)
@click.option("--steps", default=30, show_default=True)
@click.option("--child", "child_place", type=click.Path(path_type=Path), hidden=True)
@click.option("--step-rows", type=int, hidden=True)
@measure.common
def main(
    state_keys: int,
    delta_keys: int,
    steps: int,
    child_place: Path | None,
    step_rows: int | None,
    cache: Path,
    work: Path | None,
    seed: int,
) -> Any:
    if child_place is not None and step_rows is not None:
        return checkpoint.child(pipeline(child_place, step_rows))
    sizes = {"one": state_keys, "two": 2 * state_keys}
    # One more for the step that starts the run.
    files = {name: workloads.deltas(cache, keys, delta_keys, steps + 1, seed) for name, keys in sizes.items()}
    with measure.empty_folder(work or cache) as folder:
        places = {name: folder / name for name in sizes}
        for name, place in places.items():
            checkpoint.build(place, files[name], pipeline)
            checkpoint.link(sorted(files[name].glob("1-delta-*")), place / "input")
            click.echo(f"state {name}: {sizes[name]:,} keys")
        os.sync()
        taken = checkpoint.interleaved(places, delta_keys, steps + 1, "benchmarks.changes")
        keys = {name: check(place) for name, place in places.items()}
    click.echo(f"both sinks show the plain sums of their files: {keys['one']:,} and {keys['two']:,} keys")
    parameters = {"state_keys": state_keys, "delta_keys": delta_keys, "steps": steps}
    return measure.publish("changes (W8)", parameters, figures(taken))


if __name__ == "__main__":
    main()
