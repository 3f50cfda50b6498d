"""A field that no inferred column has is named once in the report of the run, with the first file that has it."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import Count
from persistent import FileSource, LogSource, Pipeline, RunReport, SegmentedLog, WindowState, tumbling
from persistent.connect.formats.lines import BLOCK_BYTES
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage
from tests.visits import Counted

START = {"ts": 1_700_000_000_000, "page": "a"}
LATER = {**START, "price": 1.5}


def write(path: Path, *rows: dict[str, Any]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
    elif path.suffix == ".csv":
        lines = [[*rows[0]], *([row.get(name, "") for name in rows[0]] for row in rows)]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(folder: Path, step_rows: int | None = None, threads: int = 1, **options: Any) -> RunReport:
    source = FileSource(folder, timestamp="ts", timestamp_unit="ms", **options)
    task = Counted(WindowState(Count(), tumbling("1 h")))
    checkpoint = f"memory://{uuid.uuid4()}"
    pipeline = Pipeline(source=source, task=task, checkpoint=checkpoint, discard_closed=True, step_rows=step_rows)
    return pipeline.run(engine=Embedded(threads))


def noted(report: RunReport) -> list[str]:
    return [note for note in report.notes if "not read, as the columns were inferred" in note]


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(("step_rows", "threads"), [(None, 1), (2, 1), (None, 4)])
def test_a_field_of_a_later_file_is_named_once(
    format: str, step_rows: int | None, threads: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was dropped without a word, though all columns are promised."""
    write(tmp_path / f"a.{format}", START)
    for name in "bcd":
        write(tmp_path / f"{name}.{format}", LATER, LATER)
    with caplog.at_level(logging.WARNING):
        report = run(tmp_path, step_rows, threads)
    (note,) = noted(report)
    assert note.startswith(f"the field 'price' (first in b.{format}) is not read") and "schema=" in note
    assert (report.rows, report.dead) == (7, 0)
    assert len([one for one in caplog.messages if "'price'" in one]) == 1
    declared = {"ts": "int64", "page": "string"}
    assert noted(run(tmp_path, schema=declared)) == []


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_the_advice_reads_it(format: str, tmp_path: Path) -> None:
    """``schema=`` with the field gives its values."""
    write(tmp_path / f"a.{format}", START)
    write(tmp_path / f"b.{format}", LATER)
    schema = {"ts": "int64", "page": "string", "price": "double"}
    if format == "csv":
        # A file without the column does not fit, as the advice says.
        (tmp_path / "a.csv").unlink()
    report = run(tmp_path, schema=schema)
    assert (report.rows, report.dead, noted(report)) == (1 + (format == "jsonl"), 0, [])


def test_a_field_behind_the_first_block_is_named(tmp_path: Path) -> None:
    """The columns are those of the first 16 MiB."""
    line = json.dumps({**START, "text": "x" * 1_000}) + "\n"
    lines = [line] * (BLOCK_BYTES // len(line) + 10)
    (tmp_path / "a.jsonl").write_text("".join([*lines, json.dumps({**LATER, "text": ""}) + "\n"]))
    report = run(tmp_path)
    assert (report.dead, report.rows) == (0, len(lines) + 1)
    assert noted(report)[0].startswith("the field 'price' (first in a.jsonl) is not read")


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([{**START, "s": {"a": 1, "b": [{"c": 1}]}, "l": [{"d": 1, "e": 1}]}], ["s.b", "l.e"]),
        ([{**START, "x": 1}, {**START, "x": "text"}, {**START, "x": {}}], ["x"]),
        ([{**START, "é": 1, "x": 2}, {**START, "é": 1, "x": 2, "y": []}], ["x", "y", "é"]),
    ],
)
def test_fields_of_any_values_cost_no_record(rows: list[dict[str, Any]], names: list[str], tmp_path: Path) -> None:
    """Values that no column has may be of any types, and are no fault of their records."""
    write(tmp_path / "a.jsonl", {**START, "s": {"a": 1}, "l": [{"d": 1}]})
    write(tmp_path / "b.jsonl", *rows)
    report = run(tmp_path)
    assert (report.rows, report.dead) == (1 + len(rows), 0)
    (note,) = noted(report)
    assert [name for name in names if f"{name!r} (first in b.jsonl)" not in note] == []


@pytest.mark.parametrize("field", [b'"deep":' + b"[" * 100_000 + b"]" * 100_000, b'"\xe9":1', b'"x":"\xe9"'])
def test_fields_that_cannot_be_named_cost_no_record(field: bytes, tmp_path: Path) -> None:
    """Arrow would need a stack that deep to name it, and names are UTF-8."""
    write(tmp_path / "a.jsonl", START)
    line = json.dumps(START).encode()
    (tmp_path / "b.jsonl").write_bytes(line + b"\n" + line[:-1] + b"," + field + b"}\nno record\n")
    report = run(tmp_path)
    assert (report.rows, report.dead) == (4, 1)
    name = "'x'" if field.startswith(b'"x"') else "'(a field that cannot be named)'"
    assert noted(report)[0].startswith(f"the field {name} (first in b.jsonl)")


def test_a_field_of_a_later_message_is_named() -> None:
    """The columns are those of the first messages, and brokers send new fields any day."""
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as adding:
        adding.append_many([json.dumps(START).encode()] * 1_001, [1] * 1_001)
        adding.append(json.dumps(LATER).encode(), 2)
    for schema, count in ((None, 1), ({"ts": "int64", "page": "string"}, 0)):
        task = Counted(WindowState(Count(), tumbling("1 h")))
        source = LogSource(log, schema=schema)
        job = Pipeline(source=source, task=task, checkpoint=f"memory://{uuid.uuid4()}", discard_closed=True)
        report = job.run(engine=Embedded(1))
        assert (report.rows, report.dead, len(noted(report))) == (1_002, 0, count)


def test_a_declared_column_that_no_record_has_is_named(tmp_path: Path) -> None:
    """A misspelt name was null in every record, without a word."""
    schema = {"ts": "int64", "page": "string", "prise": "double"}
    write(tmp_path / "a.jsonl", START, LATER)
    (note,) = (note for note in run(tmp_path, schema=schema).notes if "no record of source" in note)
    assert note.startswith("no record of source 'file' has a field 'prise', so it is null in all. Correct its name")
    for count, row in ((1, {**START, "prise": None}), (0, {**START, "prise": 1.5})):
        write(tmp_path / "b.jsonl", row)
        report = run(tmp_path, step_rows=1, schema=schema)
        assert sum("no record of source" in note for note in report.notes) == count
    for name, row in (("a", {**START, "prise": 1.5}), ("b", START), ("c", START)):
        write(tmp_path / f"{name}.jsonl", row)
    for splits in ({"step_rows": 1}, {"threads": 2}):
        assert "no record of source" not in str(run(tmp_path, schema=schema, **splits))
    write(tmp_path / "a.jsonl", {**START, "inferred": None})
    assert "no record of source" not in str(run(tmp_path))
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as adding:
        adding.append(json.dumps(START).encode(), 1)
    task = Counted(WindowState(Count(), tumbling("1 h")))
    options = {"checkpoint": f"memory://{uuid.uuid4()}", "discard_closed": True}
    job = Pipeline(source=LogSource(log, schema=schema), task=task, **options)
    assert "no record of source 'log' has a field 'prise'" in str(job.run(engine=Embedded(1)))
    with log.writer() as adding:
        adding.append(json.dumps(START).encode(), 2)
    assert "no record of source" not in str(job.run(engine=Embedded(1)))


def test_many_fields_are_counted(tmp_path: Path) -> None:
    """A field a user would make a report as long as its input."""
    write(tmp_path / "a.jsonl", START)
    write(tmp_path / "b.jsonl", *({**START, f"user-{n}": n} for n in range(1_000)))
    assert " and 990 more are not read" in noted(run(tmp_path))[0]
