"""Golden checkpoints are small ones that a release has written, kept as they are: later releases must read them.

    python -m tests.golden.make              writes tests/golden/format-N, N the format of this release
    python -m tests.golden.make --replace    ... anew: only as long as no release has written that format

Each holds: ``input``, the files that were read; ``visits`` and ``totals``, the checkpoints of two tasks; ``out``, what
was published; ``visits.json`` and ``totals.json``, the state as it was shown then.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import FileSink, FileSource, NonWindowState, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.codec.documents import FORMAT
from persistent.operations import compact, pin, rollback

GOLDEN = Path(__file__).parent
MADE_IN = Path("/tmp/golden-checkpoint")
"""Where they are written, whoever writes them: a checkpoint records where its source is."""
_FILE_ROWS = 8


class Visits(PersistentTask):
    """Visits by page and minute."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "total": message.value["n"]})


class Totals(PersistentTask):
    """A running total and the largest number by page and country."""

    key = ("page", "country")

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(total=Sum(), largest=Max()))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"total": message.value["n"], "largest": message.value["n"]})


TASKS = (Visits, Totals)


def pipeline(task: PersistentTask, place: Path, **options: Any) -> Pipeline:
    """The pipeline of a golden checkpoint, or of a copy of it."""
    name = type(task).__name__.lower()
    source = FileSource(
        str(place / "input/*.jsonl"),
        timestamp="ts",
        timestamp_unit="ms",
        ordered=True,
        moved_from=None if place == MADE_IN else f"{MADE_IN}/input/",
    )
    return Pipeline(
        source=source,
        task=task,
        checkpoint=str(place / name),
        sink=FileSink(str(place / "out" / name), format="jsonl"),
        step_rows=5,
        **options,
    )


def shown(rows: Any) -> Any:
    """Rows as they stand in JSON."""
    return json.loads(json.dumps(sorted(rows, key=str), sort_keys=True, default=str))


def write_input(place: Path, number: int) -> None:
    """One file of the source; the second ends in a line that cannot be read."""
    place.mkdir(parents=True, exist_ok=True)
    first = number * _FILE_ROWS
    rows = [
        {"ts": 1000 if i == 9 else 7000 * i, "page": "abcé"[i % 4], "country": ["de", "fr", None][i % 3], "n": i}
        for i in range(first, first + _FILE_ROWS)
    ]
    lines = [json.dumps(row) + "\n" for row in rows] + ["not json\n"] * (number == 1)
    (place / f"{number}.jsonl").write_text("".join(lines))


def make(place: Path) -> None:
    """Write a golden folder: with a pin, a rollback, fences, and the runs of one of the jobs compacted."""
    for number in range(2):
        write_input(place / "input", number)
    jobs = [pipeline(task(), place) for task in TASKS]
    for job in jobs:
        job.run(engine="embedded")
        newest = Log(job.storage).newest()
        assert newest is not None
        pin(job.storage, newest.manifest.base)
        rollback(job.storage, newest.manifest.base - 1, outputs="retract")
    write_input(place / "input", 2)
    for job in jobs:
        job.run(engine="embedded")
    compact(jobs[1])
    for job in jobs:
        text = json.dumps(shown(job.state().to_pylist()), indent=1, sort_keys=True, ensure_ascii=False)
        (place / f"{type(job.task).__name__.lower()}.json").write_text(text + "\n")


if __name__ == "__main__":
    place = GOLDEN / f"format-{FORMAT}"
    if sys.argv[1:] == ["--replace"]:
        shutil.rmtree(place, ignore_errors=True)
    elif place.exists():
        sys.exit(f"{place} is there: golden checkpoints stay as they are (--replace, if no release has written it)")
    shutil.rmtree(MADE_IN, ignore_errors=True)
    make(MADE_IN)
    shutil.move(MADE_IN, place)
    print(f"{place}: {sum(path.is_file() for path in place.rglob('*'))} files")
