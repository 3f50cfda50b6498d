"""Reading: one key, one window, a difference and an export say what the whole state says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import Count, Max, SetUnion, Sum, record
from persistent import (
    CorruptCheckpoint,
    FingerprintChanged,
    InvalidPipeline,
    MemorySource,
    NoCheckpoint,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UnknownCheckpoint,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import compact
from persistent.reading import diff, export, place, state_table
from persistent.storage import LocalStorage, MemoryStorage
from persistent.worker.state_tables import OneKey

PAGES = ["/home", "/ä", None, "/long/" + "x" * 40]


class Visits(PersistentTask):
    key: Any = ("page", "status")
    window = tumbling(1_000)

    def persistent_state(self) -> Any:
        return WindowState(record(visits=Count(), who=SetUnion(str), last=Max(float)), self.window)

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value
        state.update(message.timestamp, {"visits": 1, "who": value["who"], "last": value["last"]})


class Sliding(Visits):
    window = sliding(3_000, every=1_000)


class Totals(PersistentTask):
    key: Any = "number"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["amount"])

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["amount"])


def visits(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "ts": 10_000 + 10 * n,
            "page": PAGES[n % 4],
            "status": 200 + n % 3,
            "who": "abc"[n % 3],
            "last": math.nan if n % 7 == 0 else n / 2,
        }
        for n in range(start, start + count)
    ]


def pipeline_of(rows: Any, place: Path | str, task: PersistentTask | None = None, step_rows: int = 100) -> Pipeline:
    source = MemorySource(rows, timestamp="ts")
    task = task or Visits()
    return Pipeline(source=source, task=task, checkpoint=str(place), discard_closed=True, step_rows=step_rows)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    made = pipeline_of(visits(700), tmp_path_factory.mktemp("reading") / "checkpoint")
    made.run(engine="embedded")
    return made


def same(some: pa.Table, rows: list[dict[str, Any]]) -> bool:
    return sorted(map(repr, some.to_pylist())) == sorted(map(repr, rows))


@pytest.mark.parametrize("task", [Visits(), Sliding()], ids=["tumbling", "sliding"])
def test_each_key_and_window_is_that_part_of_the_whole(task: PersistentTask, tmp_path: Path) -> None:
    """Without it a look at one key, a null one too, could miss a run or show a neighbour."""
    made = pipeline_of(visits(400), tmp_path, task)
    made.run(engine="embedded")
    whole = made.state().to_pylist()
    assert same(state_table(made), whole)
    starts = sorted({row["window_start"] for row in whole})
    for page in (*PAGES, "/none"):
        for status in (200, 201, 999):
            rows = [row for row in whole if (row["page"], row["status"]) == (page, status)]
            assert same(state_table(made, key=(page, status)), rows), (page, status)
    for start in starts:
        start_ms = int(start.timestamp() * 1000)
        rows = [row for row in whole if row["window_start"] == start]
        assert same(state_table(made, window=start_ms), rows)
        rows = [row for row in rows if (row["page"], row["status"]) == ("/ä", 201)]
        assert same(state_table(made, window=start_ms, key=("/ä", 201)), rows)
    assert state_table(made, window=0).num_rows == 0


def test_a_key_is_read_without_the_rest(tmp_path: Path) -> None:
    """Without it one key of a large state would cost as much as all of them."""
    count = 150_000
    rows = pa.table({"ts": pa.array([1] * count), "number": pa.array(range(count)), "amount": pa.array(range(count))})
    made = pipeline_of(rows, tmp_path, Totals(), count)
    made.run(engine="embedded")
    compact(made)
    newest = Log(made.storage).newest()
    assert newest is not None
    (run,) = newest.manifest.operators["Totals"].runs
    numbers = sorted(range(2_000), key=lambda number: OneKey.of([pa.array([number])]).group)
    path = tmp_path / run.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    for number in (numbers[0], numbers[-1]):
        assert state_table(made, key=number).to_pylist() == [{"number": number, "value": number}]
    for refused in (lambda: state_table(made), lambda: state_table(made, key=numbers[1_000])):
        with pytest.raises(CorruptCheckpoint):
            refused()


def test_a_state_at_an_earlier_checkpoint(pipeline: Pipeline) -> None:
    """Without it a wrong result could not be traced to the step it came with."""
    ids = [entry for entry in Log(pipeline.storage).ids() if entry > 1]
    for id in ids[-3:]:
        assert same(state_table(pipeline, at=id), pipeline.state(at=id).to_pylist())
        key = ("/home", 200)
        rows = [row for row in pipeline.state(at=id).to_pylist() if (row["page"], row["status"]) == key]
        assert same(state_table(pipeline, at=id, key=key), rows)


def test_a_state_as_of_a_clock(pipeline: Pipeline) -> None:
    """Without it the command and the method could answer differently."""
    clock = place(pipeline.storage).manifest.clock.watermark // 1_000 * 1_000
    whole = pipeline.state(as_of=clock).to_pylist()
    assert same(state_table(pipeline, as_of=clock), whole)
    rows = [row for row in whole if (row["page"], row["status"]) == ("/ä", 201)]
    assert same(state_table(pipeline, as_of=clock, key=("/ä", 201)), rows)


def test_what_cannot_be_read_is_told(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without it a mistyped id, key or window would be an empty answer."""

    class Other(Visits):
        name = "Visits"

        def persistent_state(self) -> Any:
            return WindowState(Count(), self.window)

    for options, error, text in (
        ({"at": 999}, UnknownCheckpoint, "keeps no checkpoint 999"),
        ({"key": "/home"}, InvalidPipeline, "the key is (page, status): give 2"),
        ({"key": ("/home", "ok")}, InvalidPipeline, "column status holds int64"),
        ({"window": 10_001}, InvalidPipeline, "no window starts at 1970-01-01 00:00:10.001Z"),
        ({"at": 1, "as_of": 1}, InvalidPipeline, "choose one"),
    ):
        with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")):
            state_table(pipeline, **options)
    with pytest.raises(NoCheckpoint, match="no checkpoint here"):
        state_table(pipeline_of(visits(1), tmp_path))
    with pytest.raises(FingerprintChanged):
        state_table(pipeline_of(visits(1), pipeline.storage.url, Other()))
    with pytest.raises(InvalidPipeline, match="no windows"):
        made = pipeline_of([{"ts": 1, "number": 1, "amount": 1}], f"memory://{tmp_path.name}", Totals())
        made.run(engine="embedded")
        state_table(made, window=0)


# -- differences -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_does_not_differ_from_itself(pipeline: Pipeline) -> None:
    """Without it NaN, nulls and lists could look changed, and every diff would be noise."""
    here = place(pipeline.storage)
    found = diff(here, here, pipeline=pipeline)
    assert found.is_empty
    assert found.equal == pipeline.state().num_rows > 0


def test_every_difference_is_found_and_no_other() -> None:
    """Without it a diff could hide the very key that somebody looks for."""
    storage = MemoryStorage("reading-diff")
    storage.clear()
    rows = visits(60)
    source = MemorySource(rows, timestamp="ts")
    made = Pipeline(source=source, task=Visits(), checkpoint=storage, discard_closed=True, step_rows=20)
    made.run(engine="embedded")
    before = place(storage)
    old = {_identity(row): row for row in made.state().to_pylist()}
    rows += visits(110, 60)
    made.run(engine="embedded")
    new = {_identity(row): row for row in made.state().to_pylist()}
    found = diff(before, place(storage), pipeline=made)
    expected = {
        **dict.fromkeys(old.keys() - new.keys(), "closed"),
        **dict.fromkeys(new.keys() - old.keys(), "added"),
        **{name: "changed" for name in old.keys() & new.keys() if repr(old[name]) != repr(new[name])},
    }
    assert found.rows is not None
    assert {_identity(row): row["change"] for row in found.rows.to_pylist()} == expected
    assert set(expected.values()) == {"closed", "added"}
    assert (found.differing, found.equal) == (len(expected), len(old.keys() & new.keys()))
    bounded = diff(before, place(storage), pipeline=made, limit=3)
    assert (bounded.rows.num_rows, bounded.differing) == (3, len(expected))  # type: ignore[union-attr]
    parts = {(change.part, change.name): (change.before, change.after) for change in found.changes}
    assert parts["account", "read of memory"] == (60, 170)
    assert parts["position", "memory"] == ([0, 60], [0, 170])
    assert ("clock", "clock") in parts


def test_a_changed_value_shows_both() -> None:
    """Without it one would know that a key differs, and not how."""
    storage = MemoryStorage("reading-changed")
    storage.clear()
    rows = [{"ts": 1, "number": n % 3, "amount": n} for n in range(6)]
    made = Pipeline(source=MemorySource(rows, timestamp="ts"), task=Totals(), checkpoint=storage, step_rows=6)
    made.run(engine="embedded")
    before = place(storage)
    rows += [{"ts": 1, "number": 1, "amount": 40}]
    made.run(engine="embedded")
    found = diff(before, place(storage), pipeline=made)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"change": "changed", "number": 1, "value before": 5, "value after": 45}]
    assert found.equal == 2
    compact(made)
    folded = diff(before, place(storage), pipeline=made)
    runs = [change for change in folded.changes if change.part == "run"]
    assert any("compacted into" in str(change.after) for change in runs)
    assert any("of the runs before" in str(change.after) for change in runs)


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["page"], row["status"], row["window_start"]


# -- export ----------------------------------------------------------------------------------------------------------


def test_an_export_is_the_state_as_duckdb_reads_it(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without it what analysts see could be of other types or rows than the state."""
    done = export(pipeline, str(tmp_path / "out"), file_bytes=150)
    state = pipeline.state()
    assert len(done.files) > 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [*(f.name for f in done.files), "_export.json"]
    read = duckdb.sql(f"select * from '{tmp_path}/out/*.parquet'").to_arrow_table()
    assert read.column_names == state.column_names
    names = ["page", "status", "visits", "who", "last"]
    assert same(read.select(names), state.select(names).to_pylist())
    manifest = place(pipeline.storage).manifest
    metadata = pq.read_schema(tmp_path / "out" / done.files[-1].name).metadata
    assert metadata[b"persistent.job"] == manifest.job.encode()
    assert metadata[b"persistent.checkpoint"] == str(manifest.id).encode() == str(done.checkpoint).encode()
    assert metadata[b"persistent.clock_ms"] == str(manifest.clock.watermark).encode()
    assert done.rows == state.num_rows


def test_an_empty_state_is_exported_with_its_columns(tmp_path: Path) -> None:
    """Without it a query over the export of a quiet day would fail."""
    made = pipeline_of(visits(30), tmp_path / "checkpoint", step_rows=10)
    made.run(engine="embedded", end_of_input=True)
    assert export(made, str(tmp_path / "out")).rows == 0
    read = duckdb.sql(f"select page, status, visits from '{tmp_path}/out/*.parquet'").to_arrow_table()
    assert (read.num_rows, read.column_names) == (0, ["page", "status", "visits"])


def test_an_export_never_mixes_with_another(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without it two exports in one folder would be counted together."""
    export(pipeline, str(tmp_path / "out"))
    with pytest.raises(InvalidPipeline, match="to be empty"):
        export(pipeline, str(tmp_path / "out"))
    with pytest.raises(InvalidPipeline, match="to be empty"):
        export(pipeline, LocalStorage(pipeline.storage.url))
