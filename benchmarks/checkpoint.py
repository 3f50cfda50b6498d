"""W3, checkpoint: what a step of 100,000 keys costs on a large state, against the same step on a small one.

A count and a sum per key, over 5 million keys and over 100,000; then 200 steps, each of 100,000 distinct
keys, with compaction on. Each state has a process of its own, on the embedded engine, and the two take turns
step by step (A, B, A, B, ...): one waits at the edge of its step while the other works, so a slow moment of
the machine falls on both.

The time of a checkpoint is that of its whole step, from the release of its process to the call of
``on_step``: reading and summing 100,000 rows, writing, committing, and whatever compaction falls into it.
Bytes written are those of the ``write`` system calls of the process, whatever they were for. In the end each
process is started once more, on one more delta: the time from ``run`` to its first committed step is the
restore. Both states are then compared with a plain sum over all files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq

from benchmarks import engines, measure, workloads
from monoids import Count, Sum, record
from persistent import NonWindowState, PersistentTask, Pipeline
from persistent.driver.report import StepReport
from persistent.sources import FileSource

# The estimate: 100,000 rows at 60 ns, a delta of 100,000 keys at 32 bytes hashed and flushed in 5 ms, plan
# and manifest 5 ms. A state that is compacted in levels of ten times the size is rewritten about once a
# level, and there are two.
STEP_SECONDS = 0.016
AMPLIFICATION = 3.0


class Totals(PersistentTask):
    """Count and sum per key, for ever."""

    key = "key"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(count=Count(), total=Sum(float)))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"count": 1, "total": message.value["value"]})

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"count": 1, "total": batch["value"]})


def pipeline(place: Path, step_rows: int) -> Pipeline:
    """Totals of the files in ``place / 'input'``, with the checkpoint beside them and no sink."""
    source = FileSource(f"{place / 'input'}/*.parquet", timestamp="ts")
    return Pipeline(source=source, task=Totals(), checkpoint=str(place / "checkpoint"), step_rows=step_rows)


@dataclass(frozen=True)
class Step:
    """One step as its process saw it: seconds of its turn, bytes written in it, and of these all but compaction."""

    seconds: float
    written: int
    delta: int


class Process:
    """A process that runs the pipeline of ``place`` one step at a time, each when told."""

    def __init__(self, place: Path, step_rows: int, module: str) -> None:
        command = [
            sys.executable,
            "-m",
            module,
            "--child",
            str(place),
            "--step-rows",
            str(step_rows),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self) -> Step | None:
        """Let it work for one step; None if there is nothing more to do and it has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return Step(**json.loads(line))
        if self._process.wait():
            raise RuntimeError(f"the process ended with code {self._process.returncode}; its error is above")
        return None

    def stop(self) -> None:
        """End it wherever it is."""
        self._process.kill()
        self._process.wait()


def child(running: Pipeline) -> None:
    """What the process does: wait for a line, work until a step is committed, print it, and so on."""
    sys.stdin.readline()
    turn = [time.perf_counter(), _written()]

    def on_step(step: StepReport) -> None:
        seconds, written = time.perf_counter() - turn[0], _written() - turn[1]
        delta = step.checkpoint_bytes - step.compaction_bytes
        print(json.dumps({"seconds": seconds, "written": written, "delta": delta}), flush=True)
        sys.stdin.readline()
        turn[:] = [time.perf_counter(), _written()]

    engines.drain(running, end_of_input=False, on_step=on_step)


def build(place: Path, files: Path, made: Callable[[Path, int], Pipeline] = pipeline) -> None:
    """The state before the deltas: every ``0-state-*`` file, in steps of a million rows."""
    link(sorted(files.glob("0-state-*")), place / "input")
    engines.drain(made(place, 1_000_000), end_of_input=False)


def interleaved(
    places: dict[str, Path], step_rows: int, steps: int, module: str = "benchmarks.checkpoint"
) -> dict[str, list[Step]]:
    """All steps of both, taking turns. Of each the first, which starts its run, is left out."""
    taken: dict[str, list[Step]] = {name: [] for name in places}
    with processes(places, step_rows, module) as running:
        for number in range(steps):
            for name, process in running.items():
                step = process.step()
                if step is None:
                    raise RuntimeError(f"{name}: the run ended after {number} steps instead of {steps}")
                taken[name].append(step)
            if number % 20 == 19:
                newest = ", ".join(f"{name} {rows[-1].seconds * 1000:.0f} ms" for name, rows in taken.items())
                click.echo(f"step {number + 1} of {steps}: {newest}")
        for process in running.values():
            process.step()
    return {name: rows[1:] for name, rows in taken.items()}


def restored(places: dict[str, Path], step_rows: int) -> dict[str, float]:
    """Seconds from ``run`` on an existing checkpoint to the first step it commits."""
    seconds = {}
    with processes(places, step_rows) as running:
        for name, process in running.items():
            step = process.step()
            assert step is not None
            seconds[name] = step.seconds
            process.step()
    return seconds


@contextmanager
def processes(
    places: dict[str, Path], step_rows: int, module: str = "benchmarks.checkpoint"
) -> Iterator[dict[str, Process]]:
    """One waiting process a place; none is left afterwards."""
    running = {name: Process(place, step_rows, module) for name, place in places.items()}
    try:
        yield running
    finally:
        for process in running.values():
            process.stop()


def check(place: Path, step_rows: int) -> int:
    """Raise ``RowsDiffer`` unless the state is the plain sum of the files; its number of keys."""
    tables = [pq.read_table(file, columns=["key", "value"]) for file in sorted((place / "input").iterdir())]
    keys = np.concatenate([table["key"].to_numpy() for table in tables])
    values = np.concatenate([table["value"].to_numpy() for table in tables])
    counts, totals = np.bincount(keys), np.bincount(keys, values)
    state = pipeline(place, step_rows).state()
    mine = state.sort_by("key")
    same = (
        np.array_equal(mine["key"].to_numpy(), np.flatnonzero(counts))
        and np.array_equal(mine["count"].to_numpy(), counts[counts > 0])
        and np.allclose(mine["total"].to_numpy(), totals[counts > 0], rtol=1e-9, atol=0)
    )
    if not same:
        raise measure.RowsDiffer(f"the state of {place} is not the sum of its input")
    return int(mine.num_rows)


def figures(small: list[Step], large: list[Step], restore: dict[str, float]) -> list[measure.Figure]:
    """What is printed: the large state against the small one."""
    rows: list[measure.Figure] = []
    for name, steps in (("small", small), ("large", large)):
        seconds = [step.seconds for step in steps]
        written, delta = sum(step.written for step in steps), sum(step.delta for step in steps)
        rows += [
            measure.Figure(f"{name}: step, median", measure.median(seconds) * 1000, "ms", STEP_SECONDS * 1000),
            measure.Figure(f"{name}: step, p99", measure.quantile(seconds, 0.99) * 1000, "ms"),
            measure.Figure(f"{name}: written a step", written / len(steps) / 1e6, "MB"),
            measure.Figure(f"{name}: written / delta", written / delta, "times", AMPLIFICATION),
            measure.Figure(f"{name}: restore to first step", restore[name] * 1000, "ms"),
        ]
    median_ratio = measure.median([s.seconds for s in large]) / measure.median([s.seconds for s in small])
    p99_ratio = measure.quantile([s.seconds for s in large], 0.99) / measure.quantile([s.seconds for s in small], 0.99)
    return [
        *rows,
        measure.Figure("large / small: median", median_ratio, "times", 1.0, 1.2, at_least=False),
        measure.Figure("large / small: p99", p99_ratio, "times", 1.5, 3.0, at_least=False),
    ]


def link(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        try:
            os.link(file, folder / file.name)
        except OSError:
            shutil.copy2(file, folder / file.name)


def _written() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["wchar"])


@click.command(help="W3: time and bytes of a checkpoint on a large state against a small one.")
@click.option("--state-keys", default=5_000_000, show_default=True)
@click.option("--delta-keys", default=100_000, show_default=True, help="Keys of the small state, too.")
@click.option("--steps", default=200, show_default=True)
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
) -> None:
    if child_place is not None and step_rows is not None:
        return child(pipeline(child_place, step_rows))
    sizes = {"small": delta_keys, "large": state_keys}
    # One more for the step that starts the run, and one for the restore.
    files = {name: workloads.deltas(cache, keys, delta_keys, steps + 2, seed) for name, keys in sizes.items()}
    with measure.empty_folder(work or cache) as folder:
        places = {name: folder / name for name in sizes}
        for name, place in places.items():
            build(place, files[name])
            click.echo(f"{name} state: {sizes[name]:,} keys")
        deltas = {name: sorted(files[name].glob("1-delta-*")) for name in sizes}
        for name, place in places.items():
            link(deltas[name][:-1], place / "input")
        os.sync()
        taken = interleaved(places, delta_keys, steps + 1)
        for name, place in places.items():
            link(deltas[name][-1:], place / "input")
        restore = restored(places, delta_keys)
        keys = {name: check(place, delta_keys) for name, place in places.items()}
    click.echo(f"both states equal the plain sums of their files: {keys['small']:,} and {keys['large']:,} keys")
    parameters = {"state_keys": state_keys, "delta_keys": delta_keys, "steps": steps}
    return measure.publish("checkpoint (W3)", parameters, figures(taken["small"], taken["large"], restore))


if __name__ == "__main__":
    main()
