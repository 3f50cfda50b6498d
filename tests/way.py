"""A record's way, walked: the modules and functions of ours that a run executes, and what one small step calls.

    python -m tests.way

The run reads one file of 300 rows and publishes one row, on the embedded engine, in this process; what is imported but
never called does not count. The step is of 1,000 records and publishes. ``tests/test_way.py`` keeps the figures.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from monoids import Count
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling
from tests.figures import FILES

ROWS, STEP_ROWS, STEPS = 300, 1_000, 20
OURS = {str(path): module for module, path in FILES.items()}


class Visits(PersistentTask):
    """A count by page in windows of a minute."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, 1)


@dataclass
class Way:
    """``functions``: those of ours that were called, in the order of the first call; a comprehension or a lambda is a
    part of the function around it. ``calls``: of Python functions, anyone's. ``syncs``: of files and folders."""

    functions: dict[CodeType, None]
    calls: int = 0
    syncs: int = 0

    @property
    def modules(self) -> list[str]:
        """In the order in which they were entered."""
        return list(dict.fromkeys(OURS[code.co_filename] for code in self.functions))


@contextmanager
def watched() -> Iterator[Way]:
    """The way of what runs inside, on this thread and those it starts."""
    way, fsync = Way({}), os.fsync

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            way.calls += 1
            if frame.f_code.co_filename in OURS and not frame.f_code.co_name.startswith("<"):
                way.functions.setdefault(frame.f_code)

    def counted(fd: Any) -> None:
        way.syncs += 1
        fsync(fd)

    os.fsync = counted
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield way
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        os.fsync = fsync


def write_events(folder: Path, rows: int, pages: int) -> None:
    """A file of records, one a second, of ``pages`` pages in turn."""
    folder.mkdir(parents=True)
    lines = (f'{{"ts": {1_000 * number}, "page": "p{number % pages}"}}\n' for number in range(rows))
    (folder / "events.jsonl").write_text("".join(lines), encoding="utf-8")


def pipeline(folder: Path, **options: Any) -> Pipeline:
    return Pipeline(
        source=FileSource(str(folder / "events"), timestamp="ts", timestamp_unit="ms"),
        task=Visits(),
        sink=FileSink(str(folder / "results")),
        checkpoint=str(folder / "checkpoint"),
        **options,
    )


def first_run(folder: Path) -> Way:
    """Of a run over ``ROWS`` rows of one page, up to its published rows."""
    write_events(folder / "events", ROWS, 1)
    job = pipeline(folder)
    with watched() as way:
        report = job.run(engine="embedded")
    assert report.rows == ROWS and report.outputs
    return way


def small_step(folder: Path) -> Way:
    """Of one step of ``STEP_ROWS`` records that publishes: the mean of those after the first five."""
    write_events(folder / "events", STEPS * STEP_ROWS, 100)
    marks: list[tuple[int, int]] = []
    with watched() as way:
        pipeline(folder, step_rows=STEP_ROWS).run(
            engine="embedded", on_step=lambda _: marks.append((way.calls, way.syncs))
        )
    (calls, syncs), (last_calls, last_syncs) = marks[5], marks[-1]
    steps = len(marks) - 6
    return Way(way.functions, (last_calls - calls) // steps, (last_syncs - syncs) // steps)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        way, step = first_run(Path(folder, "run")), small_step(Path(folder, "steps"))
    print(f"from a file to a row: {len(way.modules)} modules, {len(way.functions)} functions of ours")
    print(f"a step of {STEP_ROWS} records: {step.calls} calls of Python functions, {step.syncs} fsyncs")
    for module in way.modules:
        names = [code.co_name for code in way.functions if OURS[code.co_filename] == module]
        print(f"{len(names):4} {module}: {', '.join(names)}")


if __name__ == "__main__":
    main()
