"""The demo is a run whose driver is killed twice with -9, and whose results a plain computation confirms.

It makes page views with disorder, and runs ``visits.py`` over them in a process of its own, on Spark
(embedded where there is no Java). Twice that process is killed, each time when a randomly drawn checkpoint id
appears, and started again. Then every published row is compared with what NumPy and Arrow compute from the
same files, without this package: the late rows must be those, and only those, whose window had ended by the
clock of their step, and all others must be counted once. Any difference ends the demo with exit code 1.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from page_views import Verdict, compare, generate
from rich.console import Console
from rich.table import Table
from visits import pipeline

from persistent import Embedded
from persistent.engines.spark_session import local_session, missing

KILLS = 2
POLL_SECONDS = 0.001


def drive(place: Path, engine: str, step_rows: int) -> None:
    """Run the pipeline to the end of its input; print a JSON line when the engine is there, and for each step."""

    def tell(rows: int) -> None:
        click.echo(json.dumps({"rows": rows, "at": time.time()}))

    visits = visits_of(place, step_rows)
    given = {"engine": Embedded(2)} if engine == "embedded" else {"spark": local_session(2)}
    tell(0)
    visits.run(**given, end_of_input=True, on_step=lambda step: tell(step.rows))


def visits_of(place: Path, step_rows: int) -> Any:
    """The pipeline of the demo. Fixed steps, so that the plain computation can tell which rows are late."""
    folders = [str(place / name) for name in ("events/*.parquet", "visits", "checkpoint")]
    return pipeline(*folders, step_rows=step_rows)


@dataclass
class Driver:
    """A running driver: its process, when it was started, and where it prints its steps and errors."""

    process: subprocess.Popen[bytes]
    started: float
    steps: Path
    errors: Path

    def told(self) -> list[dict[str, float]]:
        """What it has told: that its engine is there, then the steps it has committed. ``rows``, and ``at`` (seconds
        since the epoch)."""
        lines = self.steps.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def doing(self, step_rows: int) -> str:
        """What it is at."""
        told = self.told()
        if not told:
            return "starts Python and its engine"
        if len(told) == 1:
            return f"takes over, and runs its first step of {step_rows:,} rows"
        return f"has read {sum(step['rows'] for step in told):,.0f} rows, and runs step {len(told)}"


@contextmanager
def driver(place: Path, engine: str, step_rows: int, number: int) -> Iterator[Driver]:
    """Start a driver; nothing of it is left afterwards."""
    steps, errors = place / f"driver-{number}.out", place / f"driver-{number}.err"
    words = ["drive", "--engine", engine, "--step-rows", str(step_rows), str(place)]
    with steps.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *words],
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield Driver(process, time.time(), steps, errors)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class Kill:
    """One kill: the id that was drawn; how many seconds the next driver took to start its engine, and then to take over
    and commit a step."""

    id: int
    engine_seconds: float
    step_seconds: float


@dataclass(frozen=True)
class Survived:
    """What is known of a run with its kills: those, and rows a second while steps were being committed."""

    kills: list[Kill]
    rows_per_second: float


def newest(checkpoint: Path) -> int:
    """The highest id in the checkpoint folder, -1 if there is none."""
    try:
        names = os.listdir(checkpoint / "m")
    except FileNotFoundError:
        return -1
    return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=-1)


def run_with_kills(place: Path, engine: str, step_rows: int, steps: int, rng: random.Random) -> Survived | None:
    """Run to the end, killed twice on the way; None if a drawn id did not appear before the end."""
    drivers: list[list[dict[str, float]]] = []
    starts: list[float] = []
    drawn: list[int] = []
    for number in range(KILLS + 1):
        kill_at = None
        if number < KILLS:
            # A driver first fences off its predecessor, which takes an id, and is to commit a step before it dies.
            low = newest(place / "checkpoint") + 3
            kill_at = rng.randint(low, max(low, steps - 4 * (KILLS - 1 - number)))
        with driver(place, engine, step_rows, number + 1) as running:
            intent = f", to be killed when checkpoint {kill_at} appears" if kill_at is not None else ""
            click.echo(f"driver {number + 1} started{intent}")
            reached = watch(place / "checkpoint", running, kill_at, step_rows)
            if reached and kill_at is not None:
                running.process.kill()
                click.echo(f"checkpoint {kill_at} is there: driver {number + 1} killed with -9")
                drawn.append(kill_at)
            elif running.process.returncode:
                tail = running.errors.read_text(errors="replace")[-4000:]
                raise click.ClickException(f"driver {number + 1} ended with {running.process.returncode}:\n{tail}")
            elif kill_at is not None:
                click.echo(f"the run ended before checkpoint {kill_at}: drawn again, from the start")
                return None
            running.process.wait()
            drivers.append(running.told())
            starts.append(running.started)
    return Survived(recoveries(drawn, starts, drivers), rate(drivers))


def watch(checkpoint: Path, running: Driver, id: int | None, step_rows: int) -> bool:
    """Wait until ``id`` is in the checkpoint (True) or the driver has ended (False), and show what it does: on a
    terminal in a changing line, elsewhere in a line every 3 s."""
    console, shown = Console(), running.started
    with console.status("") as status:
        while running.process.poll() is None:
            if id is not None and newest(checkpoint) >= id:
                return True
            now = time.time()
            if now - shown > (0.1 if console.is_terminal else 3):
                shown, line = now, f"{now - running.started:.0f} s: the driver {running.doing(step_rows)}"
                if console.is_terminal:
                    status.update(line)
                else:
                    click.echo(f"  {line}")
            time.sleep(POLL_SECONDS)
    return False


def recoveries(drawn: list[int], starts: list[float], drivers: list[list[dict[str, float]]]) -> list[Kill]:
    """Each kill with the time that the next driver needed to its first checkpoint."""
    found = []
    for number, id in enumerate(drawn, start=1):
        engine, first = [*(told["at"] for told in drivers[number][:2]), math.nan, math.nan][:2]
        found.append(Kill(id, engine - starts[number], first - engine))
    return found


def rate(drivers: list[list[dict[str, float]]]) -> float:
    """Rows a second between the first and the last step of each driver."""
    rows = sum(step["rows"] for told in drivers for step in told[2:])
    seconds = sum(told[-1]["at"] - told[1]["at"] for told in drivers if len(told) > 1)
    return rows / seconds if seconds else float("nan")


def show(engine: str, survived: Survived, verdict: Verdict, seconds: float) -> None:
    """The table."""
    table = Table(title=f"visits, killed twice, on {'Spark' if engine == 'spark' else 'the embedded engine'}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in (
        ("rows", f"{verdict.rows:,}"),
        ("rows/s between steps", f"{survived.rows_per_second:,.0f}"),
        ("kills, at checkpoint", ", ".join(str(kill.id) for kill in survived.kills)),
        ("recovery: seconds to start the engine", ", ".join(f"{kill.engine_seconds:.1f}" for kill in survived.kills)),
        ("and to take over, and commit a step", ", ".join(f"{kill.step_seconds:.1f}" for kill in survived.kills)),
        ("windows published", f"{verdict.windows:,}"),
        ("late, each below its clock", f"{verdict.late:,}"),
        ("duplicates", f"{verdict.duplicates:,}"),
        ("lost", f"{verdict.lost:,}"),
        ("invented", f"{verdict.invented:,}"),
        ("different values", f"{verdict.different:,}"),
        ("late, but not by its clock", f"{verdict.late_wrongly:,}"),
        ("late by its clock, not recorded", f"{verdict.late_unrecorded:,}"),
        ("seconds in all", f"{seconds:.0f}"),
    ):
        table.add_row(name, value)
    Console().print(table)


@contextmanager
def place_for(folder: Path | None) -> Iterator[Path]:
    """``folder``, which must be new, or a temporary one that is gone afterwards."""
    if folder is not None:
        folder.mkdir(parents=True)
        yield folder.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="visits-", ignore_cleanup_errors=True) as made:
            yield Path(made)


@click.group(invoke_without_command=True)
@click.option("--rows", default=5_000_000, show_default=True)
@click.option("--step-rows", default=250_000, show_default=True)
@click.option("--engine", type=click.Choice(["auto", "spark", "embedded"]), default="auto", show_default=True)
@click.option("--seed", type=int, default=None, help="Of events and kills [default: a random one, printed].")
@click.option("--folder", type=click.Path(path_type=Path), default=None, help="Keep everything in this new folder.")
@click.pass_context
def main(context: click.Context, rows: int, step_rows: int, engine: str, seed: int | None, folder: Path | None) -> None:
    """Run visits.py over generated page views, kill its driver twice, and check every row."""
    if context.invoked_subcommand is not None:
        return
    begun = time.monotonic()
    lacks = "" if engine == "embedded" else missing()
    if lacks and engine == "spark":
        raise click.ClickException(lacks)
    if engine == "auto":
        engine = "embedded" if lacks else "spark"
        if lacks:
            click.echo(f"{lacks}: on the embedded engine instead of Spark")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    with place_for(folder) as place:
        click.echo(f"making {rows:,} page views with seed {seed} in {place}")
        # Files are no whole number of steps, so steps begin and end inside files.
        generate(place / "events", rows, step_rows * 4 // 5, seed)
        rng = random.Random(seed)
        survived = None
        while survived is None:
            for name in ("visits", "checkpoint"):
                shutil.rmtree(place / name, ignore_errors=True)
            survived = run_with_kills(place, engine, step_rows, -(-rows // step_rows), rng)
        click.echo("comparing with a plain computation")
        verdict = compare(place / "events", place / "visits", visits_of(place, step_rows).late(), step_rows)
    show(engine, survived, verdict, time.monotonic() - begun)
    if not verdict.passed:
        click.echo("DIFFERENT: the run is not what the plain computation gives")
        raise SystemExit(1)
    click.echo("every row is what the plain computation gives")


@main.command("drive", hidden=True)
@click.argument("place", type=click.Path(path_type=Path))
@click.option("--engine", required=True)
@click.option("--step-rows", type=int, required=True)
def drive_command(place: Path, engine: str, step_rows: int) -> None:
    """Be the driver."""
    drive(place, engine, step_rows)


if __name__ == "__main__":
    main()
