"""A measurement is the median of alternating runs, printed beside its estimate and its target.

Sides of a comparison take turns (A, B, A, B, ...), so that the drift of a shared machine falls on all of
them. Each starts in an empty folder with everything flushed to disk, and what each leaves there is compared
every time, outside the measured time.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

CACHE = Path(tempfile.gettempdir()) / "persistent-benchmarks"
"""Where generated inputs are kept between runs, unless ``--cache`` says otherwise."""


class RowsDiffer(AssertionError):
    """Two sides of a comparison did not produce the same rows: the figures would mean nothing."""


@dataclass(frozen=True)
class Side:
    """One side: ``run`` works in an empty folder and is measured; ``rows`` reads what it left there."""

    name: str
    run: Callable[[Path], object]
    rows: Callable[[Path], pa.Table]


@dataclass(frozen=True)
class Figure:
    """A measured value beside what was estimated for it and what it has to reach (None: no such number).

    >>> Figure("rows/s", 9.0, "", estimate=10.0, target=8.0).met
    True
    >>> Figure("growth", 0.2, "", target=0.1, at_least=False).met
    False
    """

    name: str
    value: float
    unit: str
    estimate: float | None = None
    target: float | None = None
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def wall_seconds(work: Callable[[], object]) -> float:
    """Wall seconds of ``work``, begun with nothing left to flush to disk and no garbage to collect."""
    gc.collect()
    os.sync()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def child_cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds, user and system, of the processes that ``work`` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def alternate(
    sides: Sequence[Side],
    runs: int,
    folder: Path,
    compare: Callable[[str, pa.Table, pa.Table], None],
    clock: Callable[[Callable[[], object]], float] = wall_seconds,
) -> dict[str, list[float]]:
    """Seconds, by ``clock``, of each run of each side, taking turns, after one warm-up of each.

    ``compare(name, expected, rows)`` is called after every run, the warm-up too, and raises ``RowsDiffer``;
    expected are the rows of the first side in the same turn.
    """
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(runs + 1):
        expected: pa.Table | None = None
        for side in sides:
            with empty_folder(folder) as place:
                taken = clock(lambda: side.run(place))  # noqa: B023  (called before the loop goes on)
                rows = side.rows(place)
            expected = rows if expected is None else expected
            compare(side.name, expected, rows)
            label = f"run {turn} of {runs}" if turn else "warm-up"
            click.echo(f"{label}: {side.name} {taken:.3f} s, {rows.num_rows:,} rows compared")
            if turn:
                seconds[side.name].append(taken)
    return seconds


@contextmanager
def empty_folder(parent: Path) -> Iterator[Path]:
    """A new folder in ``parent``, gone afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least ``share`` of the values at or below it.

    >>> quantile([4, 1, 3, 2], 0.5), quantile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    names = ("numpy", "pyarrow", "pyspark", "polars", "duckdb")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    } | {name: version for name in names if (version := _version(name))}


def publish(benchmark: str, parameters: Mapping[str, Any], figures: Sequence[Figure], **more: Any) -> None:
    """Print the table of figures and the machine, then everything as one JSON line, the last."""
    table = Table(title=benchmark)
    for heading in ("figure", "measured", "estimate", "target", "met"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        target = "" if figure.target is None else f"{sign} {_number(figure.target)}"
        estimate = "" if figure.estimate is None else _number(figure.estimate)
        met = {None: "", True: "yes", False: "NO"}[figure.met]
        table.add_row(figure.name, f"{_number(figure.value)} {figure.unit}".rstrip(), estimate, target, met)
    Console(width=120).print(table)
    here = machine()
    click.echo("machine: " + ", ".join(f"{name} {value}" for name, value in here.items()))
    rows = [asdict(figure) | {"met": figure.met} for figure in figures]
    line = {"benchmark": benchmark, "parameters": dict(parameters), "figures": rows, "machine": here} | more
    click.echo(json.dumps(line, default=str))


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every benchmark: ``--cache`` for inputs, ``--work`` for results, ``--seed``."""
    folder = click.Path(file_okay=False, path_type=Path)
    for option in (
        click.option("--seed", default=1, show_default=True, help="Of the generated input."),
        click.option("--work", type=folder, default=None, help="Results and checkpoints [default: inside --cache]."),
        click.option("--cache", type=folder, default=CACHE, show_default=True, help="Generated inputs are kept here."),
    ):
        command = option(command)
    return command


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
