"""Sessions: rows a second embedded, and what open sessions cost a step.

First a Parquet file of visits in time order over two hours, counted and summed by key and session of 30 s, in steps of
four million rows; what is published is compared with a plain computation. Then a state of open sessions, with files of
visits that close none, and one after which a hundredth of them closes. The step of the same files over windows of a
day, which keeps the same keys, is what a step costs that has no sessions; both are medians. Then as many sessions that
are closed and, by the allowed lateness, not final: files without late visits, and one of late visits alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import engines, measure
from monoids import Count, Sum, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, StepReport, WindowState, session, tumbling

START_MS = 1_600_041_600_000
SPAN_MS = 7_200_000
GAP_MS = 30_000
OPEN_GAP_MS = 1_800_000


class Visits(PersistentTask):
    """Visits and their milliseconds per key and window."""

    key = "key"

    def __init__(self, window: Any, allowed_lateness: Any = 0) -> None:
        self.window, self.allowed_lateness = window, allowed_lateness

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), millis=Sum())
        return WindowState(monoid, self.window, allowed_lateness=self.allowed_lateness)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "millis": batch["millis"]})


def write(path: Path, times: Any, keys: Any, seed: int) -> None:
    """Write visits at these times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    millis = np.random.default_rng(seed).integers(1, 10_000, len(times))
    pq.write_table(pa.table({"ts": times, "key": keys, "millis": millis}), path, row_group_size=1_000_000)


def pipeline(files: Path, folder: Path, window: Any, step_rows: int, allowed_lateness: Any = 0) -> Pipeline:
    return Pipeline(
        source=FileSource(f"{files}/*.parquet", timestamp="ts", timestamp_unit="ms", ordered=True),
        task=Visits(window, allowed_lateness),
        sink=FileSink(str(folder / "results")),
        checkpoint=str(folder / "checkpoint"),
        step_rows=step_rows,
    )


def plain(table: pa.Table) -> tuple[int, int, int]:
    """How many sessions the visits have, and the sums of their starts and ends: no cut lies within the two hours."""
    order = np.lexsort((table["ts"].to_numpy(), table["key"].to_numpy()))
    times, keys = table["ts"].to_numpy()[order], table["key"].to_numpy()[order]
    other = (keys[1:] != keys[:-1]) | (times[1:] - times[:-1] >= GAP_MS)
    firsts = np.append(0, np.flatnonzero(other) + 1)
    lasts = np.append(firsts[1:], len(times)) - 1
    return len(firsts), int(times[firsts].sum()), int((times[lasts] + GAP_MS).sum())


def rows_a_second(folder: Path, rows: int, keys: int, step_rows: int, seed: int) -> float:
    """Of one run; RowsDiffer if it published other sessions than the plain computation."""
    draws = np.random.default_rng(seed)
    times = START_MS + np.arange(rows) * SPAN_MS // rows
    write(folder / "visits" / "1.parquet", times, draws.integers(0, keys, rows), seed)
    job = pipeline(folder / "visits", folder, session(GAP_MS), step_rows)
    seconds = measure.wall_seconds(lambda: engines.drain(job, None))
    found = pa.concat_tables([pq.read_table(file) for file in (folder / "results").glob("*.parquet")])
    starts, ends = (found[name].cast(pa.int64()).to_numpy() for name in ("window_start", "window_end"))
    if (len(found), int(starts.sum()), int(ends.sum())) != plain(pq.read_table(folder / "visits" / "1.parquet")):
        raise measure.RowsDiffer("what was published is not the plain sessions")
    return rows / seconds


def step_seconds(folder: Path, window: Any, open_keys: int, step_rows: int, steps: int, seed: int) -> list[StepReport]:
    """The steps over a state of as many open keys. Of each hundredth key the last visit is older; the last step but one
    moves the clock past their gap, so that the last one closes their sessions."""
    draws, keys = np.random.default_rng(seed), np.arange(open_keys)
    files = folder / "files"
    write(files / "1-state.parquet", START_MS + np.sort(np.where(keys % 100, 600_000, 0)), _old_first(keys), seed)
    pipeline(files, folder, window, open_keys).run(engine="embedded")
    young = keys[keys % 100 > 0]
    for step in range(steps):
        since = OPEN_GAP_MS if step >= steps - 2 else 600_000
        times = START_MS + since + step * step_rows + np.arange(step_rows)
        write(files / f"2-delta-{step:03}.parquet", times, draws.choice(young, step_rows), seed + step)
    found: list[StepReport] = []
    pipeline(files, folder, window, step_rows).run(engine="embedded", on_step=found.append)
    return found


def seconds_with_lateness(
    folder: Path, closed_keys: int, step_rows: int, steps: int, seed: int
) -> tuple[list[StepReport], StepReport]:
    """The steps over as many sessions that are closed and not final, and one of late visits, each of which makes one of
    them longer."""
    draws, keys, files = np.random.default_rng(seed), np.arange(closed_keys), folder / "files"
    window = session(OPEN_GAP_MS)
    write(files / "1-state.parquet", START_MS + np.zeros(closed_keys, np.int64), keys, seed)
    pipeline(files, folder, window, closed_keys, "1 day").run(engine="embedded")
    for step in range(steps):
        times = START_MS + OPEN_GAP_MS + step * step_rows + np.arange(step_rows)
        write(files / f"2-delta-{step:03}.parquet", times, draws.choice(keys, step_rows), seed + step)
    late = draws.choice(keys, step_rows, replace=False)
    write(files / "3-late.parquet", START_MS + 1 + np.zeros(step_rows, np.int64), late, seed)
    found: list[StepReport] = []
    pipeline(files, folder, window, step_rows, "1 day").run(engine="embedded", on_step=found.append)
    # The first step moves the clock, and the second closes all.
    if found[1].outputs != closed_keys or found[steps].corrected != step_rows:
        raise measure.RowsDiffer("other sessions were closed, or changed, than those that were to be")
    return found[2:steps], found[steps]


def _old_first(keys: Any) -> Any:
    return np.concatenate([keys[keys % 100 == 0], keys[keys % 100 > 0]])


def median_seconds(steps: Sequence[StepReport]) -> float:
    return measure.median([step.seconds for step in steps if step.rows])


@click.command(help="Rows a second of sessions, and a step over open ones.")
@click.option("--rows", default=40_000_000, show_default=True)
@click.option("--keys", default=1_000, show_default=True)
@click.option("--step-rows", default=4_000_000, show_default=True)
@click.option("--open-keys", default=5_000_000, show_default=True, help="Open sessions of the second part.")
@click.option("--delta-rows", default=10_000, show_default=True)
@click.option("--steps", default=30, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(
    rows: int,
    keys: int,
    step_rows: int,
    open_keys: int,
    delta_rows: int,
    steps: int,
    runs: int,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    rates, sides = [], {}
    for run in range(runs + 1):
        with measure.empty_folder(work or cache) as folder:
            rate = rows_a_second(folder, rows, keys, step_rows, seed)
        click.echo(f"{f'run {run} of {runs}' if run else 'warm-up'}: {rate:,.0f} rows/s")
        rates += [rate] if run else []
    for name, window in (("windows", tumbling("1 day")), ("sessions", session(OPEN_GAP_MS))):
        with measure.empty_folder(work or cache) as folder:
            sides[name] = step_seconds(folder, window, open_keys, delta_rows, steps, seed)
    quiet = {name: median_seconds(found[: steps - 2]) for name, found in sides.items()}
    closing = [step for step in sides["sessions"] if step.outputs]
    if sum(step.outputs for step in closing) != len(range(0, open_keys, 100)):
        raise measure.RowsDiffer("other sessions were closed than those whose gap has passed")
    with measure.empty_folder(work or cache) as folder:
        closed, late = seconds_with_lateness(folder, open_keys, delta_rows, steps, seed)
    figures = [
        measure.Figure("sessions", measure.median(rates), "rows/s", 6_000_000, 5_000_000),
        measure.Figure("step that closes none", quiet["sessions"], "s", 0.02, at_least=False),
        measure.Figure("the same, windows of a day", quiet["windows"], "s", 0.02, at_least=False),
        measure.Figure("sessions / windows", quiet["sessions"] / quiet["windows"], "times", 1.1, 1.2, at_least=False),
        measure.Figure("step that closes a hundredth", max(step.seconds for step in closing), "s", 0.5, at_least=False),
        measure.Figure("step over closed ones, not final", median_seconds(closed), "s", 0.02, at_least=False),
        measure.Figure("step of late visits alone", late.seconds, "s", 0.5, at_least=False),
    ]
    sizes = {"rows": rows, "keys": keys, "step_rows": step_rows, "open_keys": open_keys, "delta_rows": delta_rows}
    measure.publish("sessions", {**sizes, "steps": steps, "runs": runs}, figures)


if __name__ == "__main__":
    main()
