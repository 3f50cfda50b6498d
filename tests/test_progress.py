"""Progress: how much is done of all, on the standard error: one line that changes or lines that do not flood a log."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

from monoids import Count
from persistent import FileSource, MemorySource, NonWindowState, PersistentTask, Pipeline, StepReport
from persistent import progress as progress_module
from persistent.connect.source import Reached
from persistent.driver.report import Idle
from persistent.engines.embedded import Embedded
from persistent.progress import RunFigures, fitting, progress

MEGABYTE = 1 << 20


def step(id: int, **changes: Any) -> StepReport:
    report = StepReport(id, 1_000, 0.1, 0, 0, 0, 1_700_000_000_000, 2_000, 512, 0, 256, 0.01)
    return replace(report, **changes)


def read(done: int, files: int = 1) -> Reached:
    return Reached(done * MEGABYTE, 100 * MEGABYTE, "bytes", files, 4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_at_most_each_second() -> None:
    """Without it a log would get a line a step, hundreds a second."""
    stream = io.StringIO()
    with progress(stream) as shown:
        for id in range(50):
            shown(step(id))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("1,000 rows")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Without it nobody would see that a long run goes on, or the line would break into several."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with progress(stream) as shown:
        for id in range(3):
            shown(step(id, reached=read(id * 10)))
    text = stream.getvalue()
    assert "20 % of 100.0 MB  3,000 rows" in text
    assert "\x1b[" in text


def test_what_is_done_of_all_and_how_long_the_rest_takes() -> None:
    """Without it nobody could tell a run of a minute from one of a night."""
    tally = RunFigures(0.0)
    first = tally.add(step(1, reached=read(10)), 5.0)
    assert first[:2] == ["10 % of 100.0 MB", "1,000 rows"]
    assert not any(part.endswith("left") for part in first), "how fast is not known yet"
    second = tally.add(step(2, reached=read(40, files=2)), 8.0)
    assert second[:4] == ["40 % of 100.0 MB", "2,000 rows", "250 rows/s", "6.0 s left"]
    assert "2 of 4 files" in second
    assert not any("left" in part for part in tally.add(step(3, reached=read(100, files=4)), 9.0))


def test_shares_are_true() -> None:
    """97 of 100,000 would be one of a hundred."""
    figures = RunFigures(0.0)
    shown = figures.add(step(1, rows=100_000, late=97, dead=3_000), 1.0)
    assert "97 late (under 1 % of all)" in shown and "3,000 dead letters (3 % of all)" in shown


def test_what_only_one_state_misses_is_shown() -> None:
    """A state would miss records, and the line would show nothing set aside."""
    figures = RunFigures(0.0)
    refused = {"Visits/hourly": {0: 30, None: 10}, "Visits/total": {}}
    assert "40 late in hourly (4 % of all)" in figures.add(step(1, late_windows=refused), 1.0)
    late = RunFigures(0.0).add(step(1, late=40, late_windows={"Visits/a": {0: 40}, "Visits/b": {0: 40}}), 1.0)
    assert [part for part in late if "late" in part] == ["40 late (4 % of all)"]


def test_the_age_of_old_data_is_no_delay() -> None:
    """Without it a replay of last year would be told as 20,779 days behind."""
    done, years = read(100, files=4), 20_779 * 86_400_000
    assert "behind" not in " ".join(RunFigures(0.0, follow=True).add(step(1, reached=done, lag_ms=years), 1.0))
    assert "behind" not in " ".join(RunFigures(0.0).add(step(1, reached=done), 1.0)), "a run that ends follows nobody"
    assert "behind" not in " ".join(RunFigures(0.0, follow=True).add(step(1, reached=read(50)), 1.0)), "not caught up"
    assert "clock 2023-11-14 22:13:20Z, 2.0 s behind" in RunFigures(0.0, follow=True).add(step(1, reached=done), 1.0)


def test_a_clock_that_has_not_begun_is_no_time() -> None:
    """Without it the clock of a source that waits for all its files would be 1970."""
    assert "clock not begun" in RunFigures(0.0).add(step(1, clock_ms=0), 1.0)


def test_an_idle_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a run that waits looks like one that hangs, and a path without files like one that is read."""
    now = [0.0]
    monkeypatch.setattr(progress_module, "monotonic_s", lambda: now[0])
    stream = io.StringIO()
    idle = Idle(read(100, files=4), 1_700_000_000_000, 3, 1_700_000_060_000)
    with progress(stream, follow=True) as shown:
        shown(step(1))
        for _ in range(20):
            now[0] += 0.2
            shown.idle(idle)
        shown(step(2))
        now[0] += 2.0
        shown.idle(Idle(Reached(0, 0, "bytes"), 0, 0, None))
    _, first, _, second = stream.getvalue().splitlines()
    assert first.startswith("idle 1 s: waiting for input  4 of 4 files  clock 2023-11-14 22:13:20Z")
    assert "open windows: 3, the first until clock 2023-11-14 22:14:20Z" in first
    assert second.startswith("idle 2 s: no input yet  clock not begun")


def test_a_line_never_breaks() -> None:
    """Without it a narrow terminal would fill with pieces of lines."""
    parts = RunFigures(0.0).add(step(1, late=5, reached=read(7)), 1.0)
    for room in range(20, 200):
        assert cell_len(fitting(parts, room)) <= room
    assert fitting(parts, 1_000).count("  ") == len(parts) - 1


class Rows(PersistentTask):
    """Counts records."""

    key = None

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def write(folder: Path, kind: str) -> None:
    """Three files of records, and one between them that has none."""
    for number in range(3):
        path = folder / f"{2 * number}.{kind}"
        rows = [{"ts": 1_000 * number + at} for at in range(100)]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20)
            continue
        text = (
            "".join(f"{row['ts']}\n" for row in rows)
            if "csv" in kind
            else "".join(f'{{"ts":{row["ts"]}}}\n' for row in rows)
        )
        data = (("ts\n" if "csv" in kind else "") + text).encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    if kind == "csv":
        (folder / "1.csv").write_text("ts\n")
        (folder / "9.csv").write_text("ts\n")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_is_measured(tmp_path: Path, kind: str) -> None:
    """Without it the share that is done could go back, pass the whole, or never reach it."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", kind)
    source = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms")
    pipeline = Pipeline(source=source, task=Rows(), checkpoint=str(tmp_path / "checkpoint"), step_rows=30)
    steps: list[StepReport] = []
    report = pipeline.run(engine=Embedded(1), on_step=steps.append)
    reached = [one.reached for one in steps if one.reached is not None]
    assert len(reached) == len(steps) == 10
    done = [one.done for one in reached]
    assert done == sorted(done) and done[-1] == reached[-1].total > 0
    assert [one.files_done for one in reached] == sorted(one.files_done for one in reached)
    assert report.reached == reached[-1] and report.reached.is_all
    if kind != "jsonl.gz":
        assert len(set(done)) > 6, "also within a file"


def test_a_list_in_memory_is_measured_in_rows() -> None:
    """Without it a try with rows in memory would show another line than the real run."""
    source = MemorySource([{"ts": at} for at in range(10)])
    pipeline = Pipeline(source=source, task=Rows(), checkpoint="memory://test-progress", step_rows=5)
    steps: list[StepReport] = []
    pipeline.run(engine=Embedded(1), on_step=steps.append)
    assert [one.reached for one in steps] == [Reached(5, 10, "rows"), Reached(10, 10, "rows")]
