"""Many steps: what is left of 10,000 steps over 100,000 small files.

Ten files of ten lines a step, counted per key and ten seconds, on the embedded engine. Files in the
checkpoint folder (published late rows and dead letters aside) and the bytes of the newest manifest are
counted a hundred times on the way and at the end, and the largest are reported. The published counts must add
up to the lines.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import engines, measure, workloads
from monoids import Count
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.sinks import FileSink
from persistent.sources import FileSource

# The estimate: a step flushes three files and their folders, one millisecond each, and plans, maps and
# commits in 4 ms.
STEP_SECONDS = 0.010
PUBLISHED = ("late", "dead")


class Counts(PersistentTask):
    """Lines per key and ten seconds."""

    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("10 s"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


def files_of(checkpoint: Path) -> dict[str, int]:
    """The number of files by top folder ("" for the checkpoint itself), published ones left out."""
    counts: dict[str, int] = {}
    for path in checkpoint.rglob("*"):
        parts = path.relative_to(checkpoint).parts
        top = parts[0] if len(parts) > 1 else ""
        if top not in PUBLISHED and path.is_file():
            counts[top] = counts.get(top, 0) + 1
    return counts


def newest_manifest(checkpoint: Path) -> Path:
    """The manifest with the highest id."""
    return max((checkpoint / "m").glob("*.json"))


def published(results: Path) -> int:
    """The sum of all published counts."""
    return sum(pc.sum(pq.read_table(file)["value"]).as_py() for file in results.glob("*.parquet"))


@click.command(help="Files and manifest bytes after 10,000 steps over 100,000 files.")
@click.option("--files", default=100_000, show_default=True)
@click.option("--file-rows", default=10, show_default=True, help="Lines a file.")
@click.option("--step-files", default=10, show_default=True, help="Files a step.")
@measure.common
def main(files: int, file_rows: int, step_files: int, cache: Path, work: Path | None, seed: int) -> None:
    source = workloads.crumbs(cache, files, file_rows, seed)
    steps = -(-files // step_files)
    with measure.empty_folder(work or cache) as folder:
        checkpoint, results = folder / "checkpoint", folder / "results"
        pipeline = Pipeline(
            source=FileSource(f"{source}/*.jsonl", timestamp="ts", timestamp_unit="ms"),
            task=Counts(),
            sink=FileSink(str(results)),
            checkpoint=str(checkpoint),
            step_rows=step_files * file_rows,
        )
        seen: list[tuple[int, int]] = []
        done = 0

        def look(_: Any = None) -> None:
            nonlocal done
            done += 1
            if done % max(steps // 100, 1) == 0:
                seen.append((sum(files_of(checkpoint).values()), newest_manifest(checkpoint).stat().st_size))
            if done % max(steps // 10, 1) == 0:
                click.echo(f"step {done:,} of {steps:,}: {seen[-1][0]} files, manifest of {seen[-1][1]:,} bytes")

        start = time.perf_counter()
        engines.drain(pipeline, on_step=look)
        seconds = time.perf_counter() - start
        by_folder = files_of(checkpoint)
        seen.append((sum(by_folder.values()), newest_manifest(checkpoint).stat().st_size))
        counted = published(results)
    if counted != files * file_rows:
        raise measure.RowsDiffer(f"the published counts add up to {counted:,}, not to {files * file_rows:,}")
    figures = [
        measure.Figure("files at the end", seen[-1][0], "", 100, 200, at_least=False),
        measure.Figure("files, largest number seen", max(count for count, _ in seen), "", 150, 200, at_least=False),
        measure.Figure("manifest at the end", seen[-1][1], "bytes", 10_000, 65_536, at_least=False),
        measure.Figure(
            "manifest, largest seen", max(size for _, size in seen), "bytes", 20_000, 65_536, at_least=False
        ),
        measure.Figure("a step", seconds / done * 1000, "ms", STEP_SECONDS * 1000),
    ]
    parameters = {"files": files, "file_rows": file_rows, "step_files": step_files, "steps": done}
    measure.publish("many steps", parameters, figures, by_folder=by_folder)


if __name__ == "__main__":
    main()
