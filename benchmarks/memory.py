"""Memory: the resident bytes of every process of a run, late in it against early in it.

A run of small steps (10,000 rows of W1 each, windows opening and closing all the way) in a process of its
own; the processes are that one and all its descendants: on Spark the JVM, and PySpark's daemon and workers.
Of each the largest value of the ten steps up to step 100 and up to step 500 is taken. A process that lives at
both moments must not have grown by more than a tenth, nor must the sum over all processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import click

from benchmarks import engines, measure, workloads
from benchmarks.clicks import Clicks
from persistent import Pipeline
from persistent.sinks import FileSink
from persistent.sources import FileSource

AROUND = 10
"""How many steps up to the named one are looked at."""


def resident(root: int) -> dict[str, int]:
    """Resident bytes of process ``root`` and each of its descendants, by "name pid"."""
    page, found = os.sysconf("SC_PAGE_SIZE"), {}
    for pid, name in family(root).items():
        try:
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since it was listed
        found |= {f"{name} {pid}": size} if size else {}
    return found


def family(root: int) -> dict[int, str]:
    """Process ``root`` and its descendants, with their names."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, after = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since the folder was listed
        parents[int(folder.name)], names[int(folder.name)] = int(after.split()[1]), name
    found = {root}
    for pid in parents:
        line = [pid]
        while line[-1] in parents and line[-1] not in found:
            line.append(parents[line[-1]])
        if line[-1] in found:
            found.update(line)
    return {pid: names[pid] for pid in found if pid in names}


def child(engine: str, source: Path, place: Path, step_rows: int, first: int, last: int) -> None:
    """Run to step ``last`` and print the largest values up to ``first`` and up to ``last``, as JSON."""
    session = engines.spark_session() if engine == "spark" else None
    pipeline = Pipeline(
        source=FileSource(f"{source}/*.parquet", timestamp="ts"),
        task=Clicks(),
        sink=FileSink(str(place / "results")),
        checkpoint=str(place / "checkpoint"),
        step_rows=step_rows,
    )
    peaks: dict[int, dict[str, int]] = {first: defaultdict(int), last: defaultdict(int)}
    steps = 0

    def on_step(_: Any) -> None:
        nonlocal steps
        steps += 1
        for moment, peak in peaks.items():
            if moment - AROUND < steps <= moment:
                for name, size in resident(os.getpid()).items():
                    peak[name] = max(peak[name], size)
        if steps == first:
            click.echo(f"{engine}: step {steps}", err=True)

    engines.drain(pipeline, session, on_step=on_step)
    if steps < last:
        raise click.ClickException(f"{engine}: the run ended after {steps} steps, before step {last}")
    print(json.dumps([peaks[first], peaks[last]]))


def figures(engine: str, early: dict[str, int], late: dict[str, int], first: int, last: int) -> list[measure.Figure]:
    """Growth of each process that lives at both moments, and of all together; shares, 0.1 is a tenth."""
    rows = []
    for name in early:
        if name in late:
            grown = late[name] / early[name] - 1
            label = f"{engine}: {name}, step {last} over {first} ({early[name] >> 20} to {late[name] >> 20} MB)"
            rows.append(measure.Figure(label, grown, "", 0.03, 0.1, at_least=False))
    all_early, all_late = sum(early.values()), sum(late.values())
    label = f"{engine}: all processes ({all_early >> 20} to {all_late >> 20} MB)"
    return [*rows, measure.Figure(label, all_late / all_early - 1, "", 0.03, 0.1, at_least=False)]


@click.command(help="Resident memory of every process at step 500 against step 100.")
@click.option("--first", default=100, show_default=True, help="The early step.")
@click.option("--last", default=500, show_default=True, help="The late step.")
@click.option("--step-rows", default=10_000, show_default=True)
@click.option("--engines", "chosen", default="embedded,spark", show_default=True)
@click.option("--child", "engine", hidden=True)
@click.option("--source", type=click.Path(path_type=Path), hidden=True)
@click.option("--place", type=click.Path(path_type=Path), hidden=True)
@measure.common
def main(
    first: int,
    last: int,
    step_rows: int,
    chosen: str,
    engine: str | None,
    source: Path | None,
    place: Path | None,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    if engine is not None and source is not None and place is not None:
        return child(engine, source, place, step_rows, first, last)
    files = workloads.clicks(cache, (last + 1) * step_rows, step_rows, seed=seed)
    rows = []
    for name in chosen.split(","):
        with measure.empty_folder(work or cache) as folder:
            options = {"--child": name, "--source": files, "--place": folder, "--step-rows": step_rows}
            options |= {"--first": first, "--last": last}
            words = [str(word) for option in options.items() for word in option]
            command = [sys.executable, "-m", "benchmarks.memory", *words]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        early, late = json.loads(printed.splitlines()[-1])
        rows += figures(name, early, late, first, last)
    return measure.publish("memory", {"first": first, "last": last, "step_rows": step_rows}, rows)


if __name__ == "__main__":
    main()
