"""A date or time that Python does not have fails the message that reads it, and nothing else."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count
from persistent import (
    FileSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.testing import verify_task
from tests.tools.cli.visits import command, json_of

COLUMNS = {
    "years 10000 and 0": (pa.array([2_932_897, 1, -719_529, 2], pa.date32()), "10000-01-01", "-0001-12-31"),
    "PostgreSQL's infinity": (
        pa.array([2**63 - 1, 1, -(2**63), 2], pa.timestamp("us")),
        "294247-01-10T04:00:54.775807",
        "-290308-12-21T19:59:05.224192",
    ),
    "in a list": (pa.array([[2_932_897], [1], [-719_529], []], pa.list_(pa.date32())), "10000-01-01", "-0001-12-31"),
}
columns = pytest.mark.parametrize(("column", "first", "second"), COLUMNS.values(), ids=COLUMNS)


class Reads(PersistentTask):
    """Counts the messages whose field ``at`` can be read."""

    key = "id"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        _ = message.value["at"]
        state.update(message.timestamp, 1)


class ReadsIfItCan(Reads):
    def process_message(self, state: Any, message: Any) -> None:
        assert "at" in repr(message)
        try:
            _ = message.value["at"]
        except ValueError:
            return
        state.update(message.timestamp, 1)


class Windows(Reads):
    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(column: pa.Array, task: type[Reads], checkpoint: Any = None, **options: Any) -> Pipeline:
    table = pa.table({"ts": pa.array(range(100_000, 100_004)), "id": list("abcd"), "at": column})
    checkpoint = checkpoint or f"memory://{uuid.uuid4()}"
    return Pipeline(source=MemorySource(table, timestamp="ts"), task=task(), checkpoint=checkpoint, **options)


def counted(job: Pipeline) -> list[str]:
    return sorted(row["id"] for row in job.state().to_pylist())


@columns
def test_its_neighbours_can_be_read(column: pa.Array, first: str, second: str) -> None:
    """The column was converted whole: a task that caught the error missed every record beside it."""
    job = pipeline(column, ReadsIfItCan)
    job.run(engine="embedded")
    assert counted(job) == ["b", "d"]


@columns
def test_the_error_names_the_record_and_the_field(column: pa.Array, first: str, second: str) -> None:
    """It was an OverflowError of the engine, raised by the text of the error itself."""
    with pytest.raises(UserCodeError) as error:
        pipeline(column, Reads).run(engine="embedded")
    text = str(error.value).replace("['", "").replace("']", "").replace("'", "")
    assert f"field at holds {first}" in text and "batch[at] in process_batch" in str(error.value).replace("'", "")
    assert f"id: a, at: {first}" in text and "position (0, 0)" in text


class ReadsColumns(Reads):
    def process_batch(self, state: Any, batch: Any) -> None:
        assert len(batch["at"]) == len(batch)
        state.update_batch(batch.timestamps, 1)


@columns
def test_what_the_error_advises_reads_the_record(column: pa.Array, first: str, second: str) -> None:
    job = pipeline(column, ReadsColumns)
    job.run(engine="embedded")
    assert counted(job) == ["a", "b", "c", "d"]


@columns
def test_its_dead_letter_is_listed(column: pa.Array, first: str, second: str, tmp_path: Path) -> None:
    """``persistent dead-letters`` ended in a traceback, with and without --json."""
    job = pipeline(column, Reads, tmp_path / "checkpoint", on_error="dead-letter")
    job.run(engine="embedded")
    assert counted(job) == ["b", "d"]
    letters = sorted(json_of("dead-letters", str(tmp_path / "checkpoint")), key=lambda letter: letter["offset"])
    assert first in str(letters[0]["value"]["at"]) and second in str(letters[1]["value"]["at"])
    shown = command("dead-letters", str(tmp_path / "checkpoint")).stdout
    assert first in shown and second in shown


@columns
def test_a_late_sink_takes_it(column: pa.Array, first: str, second: str, tmp_path: Path) -> None:
    """One such date in a column that no task reads stopped every run for good."""
    job = pipeline(column, Windows, sink=MemorySink(), late_sink=FileSink(tmp_path, format="jsonl"))
    job.run(engine="embedded", end_of_input=True)
    source: Any = job.source
    source.rows = pa.concat_tables([source.rows, source.rows])
    assert job.run(engine="embedded").late == 4
    lines = [json.loads(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    values = [json.loads(line["value"])["at"] for line in sorted(lines, key=lambda line: line["offset"])]
    assert first in str(values[0]) and second in str(values[2])


@pytest.mark.parametrize("name", ["years 10000 and 0", "PostgreSQL's infinity"])
def test_as_a_key_it_is_published_and_shown(name: str, tmp_path: Path) -> None:
    """Results could be published, and then neither be read from a MemorySink nor be printed."""
    column, first, second = COLUMNS[name]

    class ByTime(Windows):
        key = "at"

    files, memory = FileSink(tmp_path, format="jsonl"), MemorySink()
    for sink in (files, memory):
        pipeline(column, ByTime, sink=sink).run(engine="embedded", end_of_input=True)
    texts = [str(row["at"]) for row in memory.rows()]
    written = [json.loads(line)["at"] for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    for found in (texts, written):
        assert len(found) == 4
        assert sum(text.startswith(first) for text in found) == 1
        assert sum(text.startswith(second) for text in found) == 1


def test_a_text_that_is_not_utf8_is_set_aside_too(tmp_path: Path) -> None:
    """Its dead letter was a file that nothing could read again, and a sink of late records stopped every run."""
    texts = pa.array([b"\xff", b"b", b"c", b"\xfe"]).view(pa.string())
    job = pipeline(texts, Reads, on_error="dead-letter")
    job.run(engine="embedded")
    assert sorted(row["value"]["at"] for row in job.dead_letters().to_pylist()) == ["\\xfe", "\\xff"]
    job = pipeline(texts, Windows, sink=MemorySink(), late_sink=(late := MemorySink()))
    job.run(engine="embedded", end_of_input=True)
    source: Any = job.source
    source.rows = pa.concat_tables([source.rows, source.rows])
    assert job.run(engine="embedded").late == 4
    assert sorted(json.loads(row["value"])["at"] for row in late.rows()) == ["\\xfe", "\\xff", "b", "c"]


@pytest.mark.parametrize("name", ["years 10000 and 0", "PostgreSQL's infinity"])
def test_a_task_is_verified_with_it(name: str) -> None:
    """``verify_task`` read every field of every message, and failed a task for one that the task does not read."""

    class Counts(Windows):
        pass

    class CountsByTime(Windows):
        key = "at"

    table = pa.table({"ts": pa.array(range(100_000, 100_004)), "id": list("abcd"), "at": COLUMNS[name][0]})
    for task in (Counts(), CountsByTime()):
        verify_task(task, table)
