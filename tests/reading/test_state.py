"""Reading: one key, one window, a difference and an export say what the whole state says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count
from persistent import (
    CorruptCheckpoint,
    FingerprintChanged,
    InvalidPipeline,
    NoCheckpoint,
    PersistentTask,
    Pipeline,
    UnknownCheckpoint,
    WindowState,
    sliding,
)
from persistent.checkpoint.log import Log
from persistent.operations import compact
from persistent.reading import place, state_table
from persistent.worker.state_tables import OneKey
from tests.reading.visits import PAGES, Totals, Visits, pipeline_of, same, visits


class Sliding(Visits):
    window = sliding(3_000, every=1_000)


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
    (run,) = newest.manifest.nodes["Totals"].runs
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
        ({"at": 1, "as_of": 1}, InvalidPipeline, "give one of them"),
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


# -- export ----------------------------------------------------------------------------------------------------------
