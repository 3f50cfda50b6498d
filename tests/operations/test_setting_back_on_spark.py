"""On Spark the limits of timestamps and of drift hold as on the embedded engine: workers elsewhere judge records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import Embedded, FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.operations import set_back
from persistent.verify import verify

pytestmark = [pytest.mark.spark, pytest.mark.check]

HOUR = 3_600_000


class Visits(PersistentTask):
    """Visits by page and hour."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 h"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def write(folder: Path, times: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"ts": time, "page": "ab"[n % 2]}) + "\n" for n, time in enumerate(times))
    (folder / "1.jsonl").write_text("".join(lines))


def pipeline(tmp_path: Path, place: str) -> Pipeline:
    options: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms", "ordered": True}
    sources = {name: FileSource(str(tmp_path / name / "*.jsonl"), **options) for name in ("fast", "slow")}
    sink = FileSink(str(tmp_path / f"{place}-out"))
    checkpoint = str(tmp_path / place)
    return Pipeline(source=sources, task=Visits(), sink=sink, checkpoint=checkpoint, step_rows=20, max_drift="2 h")


def test_a_clock_is_set_back_and_a_fast_source_waits(spark: Any, tmp_path: Path) -> None:
    """The limit goes to each worker with its split, and the plan says which source a step reads."""
    slow = [n * HOUR // 20 for n in range(200)]
    write(tmp_path / "slow", [*slow[:90], 15 * HOUR, *slow[90:]])
    write(tmp_path / "fast", [n * HOUR // 4 for n in range(40)])
    found = []
    for place, how in (("embedded", {"engine": Embedded(threads=2)}), ("spark", {"spark": spark})):
        job = pipeline(tmp_path, place)
        job.run(**how)
        set_back(job.storage, not_after=12 * HOUR, outputs="retract")
        report = job.run(**how, end_of_input=True)
        newest = Log(job.storage).newest()
        assert newest is not None and newest.manifest.not_after == 12 * HOUR
        rows = [row for path in sorted((tmp_path / f"{place}-out").glob("*.parquet")) for row in read(path)]
        assert sum(row["value"] for row in rows) == 240
        assert (report.late, sum(one.dead for one in report.ledger.values())) == (0, 1)
        assert verify(job.storage).ok
        found.append(sorted((row["page"], row["window_start"], row["value"]) for row in rows))
    assert found[0] == found[1]


def read(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
