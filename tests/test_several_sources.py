"""Rows in two sources come to what they come to in one, on both engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from monoids import Last, Max, Sum, record
from persistent import (
    FileSink,
    FileSource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.verify import verify
from persistent.verify.source import verify_source

ROWS = tuple({"ts": 5 * (13 * n % 400), "page": "abc"[n % 3], "n": n} for n in range(400))


class Windows(PersistentTask):
    """The sum, the largest and the last number of a page in a hundred milliseconds."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(record(total=Sum(), largest=Max(), last=Last()), tumbling(100))

    def process_message(self, state: Any, message: Any) -> None:
        n = message.value["n"]
        state.update(message.timestamp, {"total": n, "largest": n, "last": (message.order, n)})

    def process_batch(self, state: Any, batch: Any) -> None:
        n = batch["n"]
        state.update_batch(batch.timestamps, {"total": n, "largest": n, "last": (batch.order, n)})


class Overlapping(PersistentTask):
    """Sums in windows that overlap, of all pages."""

    key = None

    def persistent_state(self) -> Any:
        return WindowState(Sum(), sliding(100, every=30))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class Totals(PersistentTask):
    """Sums without windows."""

    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


TASKS = (Windows, Overlapping, Totals)


def files(folder: Path, rows: Sequence[Any]) -> FileSource:
    """The rows in three files."""
    folder.mkdir(parents=True)
    for part in range(3):
        lines = "".join(json.dumps(row) + "\n" for row in rows[part::3])
        (folder / f"{part}.jsonl").write_text(lines)
    return FileSource(folder, timestamp="ts", timestamp_unit="ms", max_out_of_orderness=10_000)


def rows_of(folder: Path) -> list[str]:
    """The rows of a sink, by their values."""
    tables = [pq.read_table(folder / name) for name in FileSink(folder).published()]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(str({name: value for name, value in row.items() if name != "revision"}) for row in rows)


def run(task: type[PersistentTask], folder: Path, source: Any, sinks: Sequence[str], spark: Any) -> Pipeline:
    """Run in two processes: one stops while windows are open."""
    sink = {name: FileSink(folder / name) for name in sinks}
    made = Pipeline(source=source, task=task(), sink=sink, checkpoint=str(folder / "checkpoint"), step_rows=70)
    made.run(spark, engine=None if spark else "embedded")
    made.run(spark, engine=None if spark else "embedded", end_of_input=True)
    return made


def check(task: type[PersistentTask], folder: Path, spark: Any) -> None:
    run(task, folder / "one", files(folder / "in" / "all", ROWS), ["out"], None)
    expected = rows_of(folder / "one" / "out")
    halves = {"left": files(folder / "in" / "left", ROWS[::2]), "right": files(folder / "in" / "right", ROWS[1::2])}
    made = run(task, folder / "two", halves, ["out", "copy"], spark)
    assert expected and rows_of(folder / "two" / "out") == rows_of(folder / "two" / "copy") == expected
    newest = Log(made.storage).newest()
    assert newest is not None
    assert {name: one.processed for name, one in newest.manifest.accounts.items()} == {
        "left/files": 200,
        "right/files": 200,
    }
    assert verify(made.storage).ok and verify_source(made, newest).ok


@pytest.mark.parametrize("task", TASKS)
def test_two_sources_equal_one(task: type[PersistentTask], tmp_path: Path) -> None:
    """A row would be lost, or count twice, because of the source it is in."""
    check(task, tmp_path, None)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.check
def test_two_sources_on_spark_equal_one(task: type[PersistentTask], spark: Any, tmp_path: Path) -> None:
    """The same, where workers read both."""
    check(task, tmp_path, spark)
