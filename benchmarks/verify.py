"""``verify`` of a checkpoint of 1 GB, beside plain SHA-256 of the same files.

Every row is a key and window of its own, as large as rows of counts and sums are (40 bytes). Both sides read the same
files, warm; they take turns. Plain SHA-256 is one thread that hashes and does nothing else; ``verify`` also decodes
every batch, hashes every key again, and holds order, panes and key groups against the manifests, on all processors.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

from benchmarks import engines, measure
from monoids import Count, Sum, record
from persistent import MemorySource, PersistentTask, Pipeline, Retention, WindowState, tumbling
from persistent.storage import LocalStorage
from persistent.verify import Verification, verify

ROW_BYTES = 40
"""Of a row on disk: key hash, key, pane, count, sum."""
MINUTE_MS = 60_000


class Totals(PersistentTask):
    """A count and a sum per key and minute."""

    key = "key"

    def persistent_state(self) -> Any:
        return WindowState(record(count=Count(), total=Sum()), tumbling("1 min"))

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"count": 1, "total": batch["value"]})


def build(place: Path, megabytes: int, step_rows: int, seed: int) -> None:
    """A checkpoint whose newest state has about so many megabytes; no other is kept."""
    rows = megabytes * 1_000_000 // ROW_BYTES
    random = np.random.default_rng(seed)
    table = pa.table(
        {
            "ts": np.arange(rows, dtype=np.int64) * 60 * MINUTE_MS // rows,
            "key": random.permutation(rows),
            "value": random.integers(0, 1_000_000, rows),
        }
    )
    source = MemorySource(table, timestamp="ts", timestamp_unit="ms", max_out_of_orderness="1 h")
    pipeline = Pipeline(
        source=source,
        task=Totals(),
        checkpoint=str(place),
        step_rows=step_rows,
        retention=Retention(last=1),
        discard_closed=True,
    )
    engines.drain(pipeline, end_of_input=False)


def plain(files: list[Path]) -> None:
    """SHA-256 of the files, one after the other."""
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def checked(place: Path) -> Verification:
    """What ``verify`` finds there: nothing."""
    found = verify(LocalStorage(place))
    if found.findings:
        raise measure.RowsDiffer(f"the checkpoint does not verify: {found.findings[0]}")
    return found


@click.command(help="verify of a checkpoint of 1 GB, in megabytes a second.")
@click.option("--megabytes", default=1_000, show_default=True, help="Of the state.")
@click.option("--step-rows", default=2_000_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(megabytes: int, step_rows: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    with measure.empty_folder(work or cache) as folder:
        place = folder / "checkpoint"
        build(place, megabytes, step_rows, seed)
        found = checked(place)
        files = [path for path in sorted((place / "d" / "Totals").iterdir()) if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        seconds: dict[str, list[float]] = {"plain": [], "verify": []}
        for turn in range(runs + 1):
            for name, work_on in (("plain", lambda: plain(files)), ("verify", lambda: checked(place))):
                taken = measure.wall_seconds(work_on)
                click.echo(f"{f'run {turn} of {runs}' if turn else 'warm-up'}: {name} {size / taken / 1e6:,.0f} MB/s")
                if turn:
                    seconds[name].append(taken)
    rate = {name: size / measure.median(taken) / 1e6 for name, taken in seconds.items()}
    figures = [
        measure.Figure("verify", rate["verify"], "MB/s", 800, 500),
        measure.Figure("plain SHA-256, one thread", rate["plain"], "MB/s", 1_000),
        measure.Figure("verify / plain", rate["verify"] / rate["plain"], "times", 0.8),
        measure.Figure("state", size / 1e6, "MB"),
    ]
    rows = found.parts["state runs"].rows
    parameters = {"megabytes": megabytes, "step_rows": step_rows, "runs": runs, "rows": rows, "files": len(files)}
    measure.publish("verify", parameters, figures)


if __name__ == "__main__":
    main()
