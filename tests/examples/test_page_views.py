"""The demo's plain computation must pass a right run and find each kind of wrong one."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, FILE_ROWS, STEP_ROWS = 60_000, 17_000, 20_000
MINUTE_MS = 60_000

Run = tuple[Path, Path, pa.Table]


@pytest.fixture(scope="module")
def page_views() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "page_views.py"
    spec = importlib.util.spec_from_file_location("page_views", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "page_views", module)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(right: Run, tmp_path: Path) -> Run:
    """A right run whose results a test may spoil."""
    events, results, late = right
    return events, Path(shutil.copytree(results, tmp_path / "results")), late


@pytest.fixture(scope="module")
def right(page_views: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A right run, worked out row by row: the folder of events, that of results, and the late rows."""
    place = tmp_path_factory.mktemp("right")
    events, results = place / "events", place / "results"
    page_views.generate(events, ROWS, FILE_ROWS, seed=3)
    results.mkdir()
    windows: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    late: dict[str, list[object]] = {"timestamp": [], "ordinal": [], "offset": []}
    clock = largest = number = 0
    for ordinal, file in enumerate(sorted(events.iterdir())):
        table = pq.read_table(file)
        times = table["ts"].cast(pa.int64()).to_pylist()
        for offset, (millis, row) in enumerate(zip(times, table.to_pylist())):
            if number % STEP_ROWS == 0:
                clock = largest
            number += 1
            largest = max(largest, millis)
            minute = millis // MINUTE_MS * MINUTE_MS
            if minute + MINUTE_MS <= clock:
                for name, value in (("timestamp", millis), ("ordinal", ordinal), ("offset", offset)):
                    late[name].append(value)
            else:
                window = windows[row["page"], minute]
                window[:] = [window[0] + 1, window[1] + row["bytes"], max(window[2], row["millis"])]
    rows = [
        {"page": page, "window_start": minute, "visits": visits, "bytes": sent, "slowest": slowest}
        for (page, minute), (visits, sent, slowest) in windows.items()
    ]
    publish(results, pa.Table.from_pylist(rows))
    return events, results, pa.table(late)


def publish(results: Path, rows: pa.Table) -> None:
    start = rows["window_start"].cast(pa.timestamp("ms", "UTC"))
    pq.write_table(rows.set_column(1, "window_start", start), results / "all.parquet")


def published(results: Path) -> pa.Table:
    return pq.read_table(results / "all.parquet")


def test_a_right_run_passes(page_views: ModuleType, run: Run) -> None:
    """Without it the demo could fail, or pass with nothing late, where nothing is wrong."""
    verdict = page_views.compare(*run, STEP_ROWS)
    assert verdict.passed
    assert verdict.rows == ROWS
    assert verdict.late == run[2].num_rows > 0
    assert verdict.windows == published(run[1]).num_rows > 100


def test_a_duplicate_is_found(page_views: ModuleType, run: Run) -> None:
    """Without it a result published twice would go unseen."""
    rows = published(run[1])
    publish(run[1], pa.concat_tables([rows, rows.slice(7, 2)]))
    verdict = page_views.compare(*run, STEP_ROWS)
    assert (verdict.passed, verdict.duplicates, verdict.lost, verdict.different) == (False, 2, 0, 0)


def test_a_loss_is_found(page_views: ModuleType, run: Run) -> None:
    """Without it a result never published would go unseen."""
    publish(run[1], published(run[1]).slice(3))
    verdict = page_views.compare(*run, STEP_ROWS)
    assert (verdict.passed, verdict.lost, verdict.duplicates, verdict.invented) == (False, 3, 0, 0)


@pytest.mark.parametrize("column", ["visits", "bytes", "slowest"])
def test_another_value_is_found(page_views: ModuleType, run: Run, column: str) -> None:
    """Without it a message counted twice or not at all would go unseen."""
    rows = published(run[1])
    values = rows[column].to_pylist()
    values[11] += 1
    publish(run[1], rows.set_column(rows.column_names.index(column), column, pa.array(values)))
    verdict = page_views.compare(*run, STEP_ROWS)
    assert (verdict.passed, verdict.different, verdict.lost) == (False, 1, 0)


def test_an_invented_window_is_found(page_views: ModuleType, run: Run) -> None:
    """Without it a result of no event would go unseen."""
    rows = published(run[1])
    row = rows.slice(0, 1).set_column(0, "page", pa.array(["/nowhere"]))
    publish(run[1], pa.concat_tables([rows, row]))
    verdict = page_views.compare(*run, STEP_ROWS)
    assert (verdict.passed, verdict.invented, verdict.duplicates) == (False, 1, 0)


def test_a_late_row_not_below_its_clock_is_found(page_views: ModuleType, run: Run) -> None:
    """Without it a run could call any message late, and lose it with impunity."""
    events, results, recorded = run
    first = pq.read_table(sorted(events.iterdir())[0]).slice(0, 1)
    wrong = pa.table({"timestamp": first["ts"].cast(pa.int64()), "ordinal": [0], "offset": [0]})
    verdict = page_views.compare(events, results, pa.concat_tables([recorded, wrong]), STEP_ROWS)
    assert (verdict.passed, verdict.late_wrongly) == (False, 1)


def test_a_late_row_recorded_twice_or_not_is_found(page_views: ModuleType, run: Run) -> None:
    """Without it the late rows of a killed step could appear twice, or not at all."""
    events, results, recorded = run
    twice = pa.concat_tables([recorded, recorded.slice(0, 1)])
    assert page_views.compare(events, results, twice, STEP_ROWS).late_wrongly == 1
    verdict = page_views.compare(events, results, recorded.slice(1), STEP_ROWS)
    assert (verdict.passed, verdict.late_unrecorded) == (False, 1)
