"""A week: the memory of every process, day by day, of a job in which each day has a million keys of its own.

Visits of seven days of event time, a million keys a day, none of which comes again on another day; counted and summed
by key and hour. Windows take late records for six hours: one visit in fifty comes up to five hours late, and corrects
what was published, by a retraction; one in a thousand comes a day late, and is set aside. What is published at the end
must sum up to the visits that were not late.

Of each process the largest resident size of each day is taken, and the rows that the state holds at its end. A state
that forgot nothing would hold seven times as many on the last day as on the first. The rows of the last day but one
must be those of the second, the first in which windows of a whole day have opened and become final; the memory of the
last day may be a quarter above it, for what the allocator keeps. ``--days 20`` shows that it does not go on growing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import engines, measure
from benchmarks.memory import resident
from monoids import Count, Sum, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.storage import open_storage

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
START_MS = 1_700_006_400_000
LATE, TOO_LATE = 0.02, 0.001


class Visits(PersistentTask):
    """Visits and their milliseconds per key and hour."""

    key = "key"

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), millis=Sum())
        return WindowState(monoid, tumbling("1 h"), allowed_lateness="6 h", late="retract")

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "millis": batch["millis"]})


def build(folder: Path, day: int, rows: int, keys: int, seed: int) -> int:
    """Write the visits of a day, in the order in which they come; how many of them come too late."""
    draws = np.random.default_rng([seed, day])
    come = START_MS + day * DAY_MS + np.arange(rows) * DAY_MS // rows
    fate = draws.random(rows)
    behind = np.where(fate < LATE, draws.integers(0, 5 * HOUR_MS, rows), 0)
    too_late = (fate >= LATE) & (fate < LATE + TOO_LATE) & (day > 0)
    times = come - np.where(too_late, DAY_MS, behind)
    # Each key of the day comes, the rest as it is drawn.
    numbers = draws.permutation(
        np.concatenate([np.arange(min(keys, rows)), draws.integers(0, keys, max(rows - keys, 0))])
    )
    table = {"ts": times, "key": day * keys + numbers, "millis": draws.integers(1, 10_000, rows)}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), folder / f"day-{day:03}.parquet", row_group_size=100_000)
    return int(too_late.sum())


def child(engine: str, place: Path, count: int, rows: int, step_rows: int) -> None:
    """Run the week, and print the largest sizes and the rows of the state, day by day, as JSON."""
    session = engines.spark_session() if engine == "spark" else None
    storage = open_storage(str(place / "checkpoint"))
    pipeline = Pipeline(
        source=FileSource(f"{place}/visits/*.parquet", timestamp="ts", timestamp_unit="ms", ordered=True),
        task=Visits(),
        sink=FileSink(str(place / "results")),
        checkpoint=storage,
        step_rows=step_rows,
    )
    days: list[dict[str, Any]] = [{"sizes": {}, "rows": 0, "seconds": 0.0} for _ in range(count)]
    read = 0

    def on_step(step: Any) -> None:
        nonlocal read
        day = days[min(read // rows, count - 1)]
        read += step.rows
        for name, size in resident(os.getpid()).items():
            day["sizes"][name] = max(day["sizes"].get(name, 0), size)
        entry = Log(storage).newest()
        assert entry is not None
        day["rows"] = sum(run.rows for run in entry.manifest.state_runs())
        day["seconds"] += step.seconds

    report = engines.drain(pipeline, session, end_of_input=True, on_step=on_step)
    print(json.dumps({"pid": os.getpid(), "days": days, "late": report.late, "corrected": report.corrected}))


def check(place: Path, found: dict[str, Any], visits: int, too_late: int) -> None:
    """RowsDiffer unless each of all ``visits`` counts once, or is late."""
    counted = 0
    for file in sorted((place / "results").glob("*.parquet")):
        rows = pq.read_table(file, columns=["visits", "retracted"])
        counted += pc.sum(pc.if_else(rows["retracted"], pc.negate(rows["visits"]), rows["visits"])).as_py() or 0
    if (counted, found["late"]) != (visits - too_late, too_late):
        raise measure.RowsDiffer(f"{counted:,} visits and {found['late']:,} late ones, of {visits:,}")


def figures(engine: str, found: dict[str, Any]) -> list[measure.Figure]:
    """The sizes by day, of the driver and of all other processes by their names, and the last day over the second."""
    days, made = found["days"], []
    sums: dict[str, list[int]] = {}
    for number, day in enumerate(days):
        for name, size in day["sizes"].items():
            command, pid = name.rsplit(" ", 1)
            part = "driver" if int(pid) == found["pid"] else "workers" if command.startswith("python") else command
            sums.setdefault(part, [0] * len(days))[number] += size
    for part, sizes in sums.items():
        if not all(sizes):
            continue  # it has come since, or gone
        by_day = ", ".join(f"{size >> 20}" for size in sizes)
        label = f"{engine}: {part}, day {len(days)} over day 2 ({by_day} MB)"
        made.append(measure.Figure(label, sizes[-1] / sizes[1] - 1, "", 0.1, 0.25, at_least=False))
    held = [day["rows"] for day in days]
    label = f"{engine}: rows of the state, day {len(days) - 1} over day 2 ({', '.join(f'{count:,}' for count in held)})"
    # On the last day the end of the input closes what is open.
    return [*made, measure.Figure(label, held[-2] / held[1] - 1, "", 0.0, 0.01, at_least=False)]


@click.command(help="A week of a million keys a day: resident memory and state by day.")
@click.option("--days", default=7, show_default=True)
@click.option("--rows", default=2_000_000, show_default=True, help="Visits a day.")
@click.option("--keys", default=1_000_000, show_default=True, help="Keys a day.")
@click.option("--step-rows", default=100_000, show_default=True)
@click.option("--engines", "chosen", default="embedded,spark", show_default=True)
@click.option("--child", "engine", hidden=True)
@click.option("--place", type=click.Path(path_type=Path), hidden=True)
@measure.common
def main(
    days: int,
    rows: int,
    keys: int,
    step_rows: int,
    chosen: str,
    engine: str | None,
    place: Path | None,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    if engine is not None and place is not None:
        return child(engine, place, days, rows, step_rows)
    made, seconds = [], {}
    for name in chosen.split(","):
        with measure.empty_folder(work or cache) as folder:
            too_late = sum(build(folder / "visits", day, rows, keys, seed) for day in range(days))
            options = {
                "--child": name,
                "--place": folder,
                "--days": days,
                "--rows": rows,
                "--keys": keys,
                "--step-rows": step_rows,
            }
            words = [str(word) for option in options.items() for word in option]
            command = [sys.executable, "-m", "benchmarks.week", *words]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = json.loads(printed.splitlines()[-1])
            check(folder, found, days * rows, too_late)
        seconds[name] = [round(day["seconds"], 2) for day in found["days"]]
        click.echo(f"{name}: {found['late']:,} late, {found['corrected']:,} corrected; seconds by day {seconds[name]}")
        made += figures(name, found)
    return measure.publish(
        "week", {"days": days, "rows": rows, "keys": keys, "step_rows": step_rows}, made, seconds=seconds
    )


if __name__ == "__main__":
    main()
