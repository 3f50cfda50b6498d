"""The start: from a command to its first answer, by a new process each time, as a newcomer waits for it.

``persistent run`` reads the small CSV file that ``persistent init`` makes, embedded. The clock stands once the first
row is in the sink; what follows, the last windows and the report, is measured apart. The project is made once; every
run begins without checkpoint and results. The median of the runs counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks import measure

ROOT = Path(__file__).parents[1]
RUN = ("run", "task.py:pipeline", "--engine", "embedded", "--end-of-input")
ROWS = 21
SECONDS_MAX = 300
ASKED = {
    "persistent --help": ([sys.executable, "-m", "persistent", "--help"], {}, 0.4),
    "a completion": (
        [sys.executable, "-m", "persistent"],
        {"COMP_WORDS": "persistent ", "COMP_CWORD": "1", "_PERSISTENT_COMPLETE": "bash_complete"},
        0.4,
    ),
    "import persistent": ([sys.executable, "-c", "import persistent"], {}, 0.6),
    "import of what a task names": (
        [sys.executable, "-c", "from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState"],
        {},
        0.6,
    ),
}


def environment() -> dict[str, str]:
    """With byte code, as after an installation."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return given | {"PYTHONPATH": str(ROOT)}


def project(folder: Path) -> Path:
    """What ``persistent init`` makes."""
    words = [sys.executable, "-m", "persistent", "init", str(folder), "--yes"]
    subprocess.run(words, check=True, capture_output=True, env=environment())
    return folder


def rows(place: Path) -> int:
    """How many rows are in the sink."""
    return sum(len(path.read_bytes().splitlines()) for path in (place / "results").glob("*.jsonl"))


def first_row(place: Path) -> tuple[float, float, float]:
    """Seconds from the start of the process to the first row, to its end, and of the processor."""
    for left in ("checkpoint", "results"):
        shutil.rmtree(place / left, ignore_errors=True)
    taken = 0.0
    start = time.perf_counter()

    def work() -> None:
        nonlocal taken
        words = [sys.executable, "-m", "persistent", *RUN]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, cwd=place, env=environment(), **both)
        while not rows(place) and process.poll() is None and time.perf_counter() - start < SECONDS_MAX:
            time.sleep(0.005)
        taken = time.perf_counter() - start
        told, _ = process.communicate(timeout=SECONDS_MAX)
        if process.returncode or rows(place) != ROWS:
            raise measure.RowsDiffer(f"{rows(place)} rows instead of {ROWS}: {told.decode()}")

    busy = measure.child_cpu_seconds(work)
    return taken, time.perf_counter() - start, busy


def answer(words: list[str], more: dict[str, str]) -> tuple[float, float]:
    """Seconds of a command, by the wall and of the processor."""
    start = time.perf_counter()
    busy = measure.child_cpu_seconds(
        lambda: subprocess.run(words, check=True, capture_output=True, cwd=ROOT, env=environment() | more)
    )
    return time.perf_counter() - start, busy


@click.command()
@click.option("--runs", default=5, show_default=True, help="Timed runs of each, after a warm-up.")
@measure.common
def main(runs: int, seed: int, work: Path | None, cache: Path) -> None:
    """Measure how long a newcomer waits."""
    figures = []
    with measure.empty_folder(work or cache) as folder:
        place = project(folder / "totals")
        times = [first_row(place) for _ in range(runs + 1)][1:]
    medians = [measure.median(list(side)) for side in zip(*times)]
    named = "persistent run, from its start to the first row"
    figures.append(measure.Figure(named, medians[0], "s", None, 2.0, at_least=False))
    figures.append(measure.Figure("to its end", medians[1], "s"))
    figures.append(measure.Figure("of the processor", medians[2], "s"))
    for name, (words, more, target) in ASKED.items():
        sides = zip(*[answer(words, more) for _ in range(runs + 1)][1:])
        taken, busy = (measure.median(list(side)) for side in sides)
        figures.append(measure.Figure(name, taken, "s", None, target, at_least=False))
        figures.append(measure.Figure(f"{name}, of the processor", busy, "s"))
    measure.publish("start", {"runs": runs}, figures)


if __name__ == "__main__":
    main()
