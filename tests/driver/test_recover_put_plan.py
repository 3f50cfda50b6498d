"""A step that failed is planned anew with corrected options: the same records and borders, under the next number."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import Sum
from persistent import (
    FileSink,
    FileSource,
    LogSource,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    WindowState,
    then,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.plan import StepPlan
from persistent.engines.embedded import Embedded
from persistent.errors import Fenced, UserCodeError
from persistent.log import SegmentedLog
from persistent.names import plan_name
from persistent.storage import MemoryStorage
from persistent.testing.faults import DEATHS, FaultyStorage, Killed, Operations

INFERRED = None
NUMBERS = {"ts": "int64", "page": "string", "n": "int64"}
WRONG = {**NUMBERS, "n": "double"}
ROWS = [{"ts": 10 * number, "page": "ab"[number % 2], "n": number} for number in range(10)]


class Totals(PersistentTask):
    """Sums of numbers, which raises at floats. ``meanwhile``: called once, in the middle of a step."""

    key = "page"

    def __init__(self, meanwhile: Callable[[], None] | None = None) -> None:
        self.meanwhile = meanwhile

    def persistent_state(self) -> Any:
        return WindowState(Sum(), tumbling(20))

    def process_batch(self, state: Any, batch: Any) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        state.update_batch(batch.timestamps, batch["n"])


def write(folder: Path, format: str, rows: list[dict[str, Any]] = ROWS) -> None:
    folder.mkdir(exist_ok=True)
    for number, part in enumerate((rows[:5], rows[5:])):
        if format == "parquet":
            table = pa.Table.from_pylist(part, pa.schema({"ts": pa.int64(), "page": pa.string(), "n": pa.int32()}))
            pq.write_table(table, folder / f"{number}.parquet")
        elif format == "csv":
            lines = ["ts,page,n", *(f"{row['ts']},{row['page']},{row['n']}" for row in part)]
            (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
        else:
            (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


class Job:
    """One checkpoint and one sink, whose options change between runs."""

    def __init__(self) -> None:
        self.url = uuid.uuid4().hex
        self.storage = MemoryStorage(self.url)
        self.sink: Any = MemorySink()

    def pipeline(self, source: Any, storage: Any = None, task: Any = None, **options: Any) -> Pipeline:
        options = {"step_rows": 3, **options}
        storage = storage or self.storage
        return Pipeline(source=source, task=task or Totals(), sink=self.sink, checkpoint=storage, **options)

    def run(self, source: Any, *arguments: Any, **options: Any) -> Any:
        pipeline = self.pipeline(source, *arguments, **options)
        return pipeline.run(engine=Embedded(threads=1), end_of_input=True)

    def stops_after_a_step(self, source: Any) -> None:
        def stop(_: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.pipeline(source).run(engine=Embedded(threads=1), on_step=stop)

    def counted(self) -> dict[Any, int]:
        return {(row["page"], row["window_start"].microsecond // 1000): row["value"] for row in self.sink.rows()}

    def plans(self, base: int) -> list[StepPlan]:
        found = [Log(self.storage).plan(base, number) for number in range(4)]
        return [plan for plan in found if plan is not None]

    def fails(self, source: Any, **options: Any) -> int:
        """A run that ends with the error of the task; returns the base of the plan that it leaves."""
        with pytest.raises(UserCodeError, match="takes integers"):
            self.run(source, **options)
        newest = Log(self.storage).newest()
        assert newest is not None
        return newest.manifest.base


def expected(rows: list[dict[str, Any]] = ROWS) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for row in rows:
        place = row["page"], row["ts"] // 20 * 20
        found[place] = found.get(place, 0) + row["n"]
    return found


def borders(plan: StepPlan) -> Any:
    return {name: (step.start, step.end, step.splits) for name, step in plan.sources.items()}


def files(folder: Path, schema: Any, **options: Any) -> FileSource:
    options = {"timestamp": "ts", "timestamp_unit": "ms", **options}
    return FileSource(folder, schema=schema, ordered=True, **options)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("steps", [0, 1], ids=["at the first step", "after a step"])
def test_a_corrected_schema_counts_for_the_step_that_failed(
    format: str, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The plan of the failed step held the old one, and every later run ended with the same error."""
    write(tmp_path, format)
    job = Job()
    if steps:
        job.stops_after_a_step(files(tmp_path, NUMBERS))
    base = job.fails(files(tmp_path, WRONG))
    (put,) = job.plans(base)
    before = job.storage.read(plan_name(base, 0)).to_pybytes()
    with caplog.at_level(logging.WARNING):
        job.run(files(tmp_path, NUMBERS))
    assert job.counted() == expected()
    first, second = job.plans(base)
    assert first == put and job.storage.read(plan_name(base, 0)).to_pybytes() == before
    assert (second.number, borders(second)) == (1, borders(put))
    assert f"{plan_name(base, 0)} was put with other options, and never committed" in caplog.text
    assert "a smaller step" not in caplog.text


def test_the_same_options_run_the_plan_as_it_was_put(tmp_path: Path) -> None:
    """A plan of another number for each restart would never be tried smaller, and tell of no change."""
    write(tmp_path, "csv")
    job = Job()
    assert {job.fails(files(tmp_path, WRONG)) for _ in range(3)} == {0}
    assert [plan.number for plan in job.plans(0)] == [0]


def test_new_files_do_not_move_the_borders(tmp_path: Path) -> None:
    """Which records a step reads would depend on when it was tried again."""
    write(tmp_path, "csv")
    job = Job()
    job.stops_after_a_step(files(tmp_path, NUMBERS))
    base = job.fails(files(tmp_path, WRONG), step_rows=20)
    (tmp_path / "00.csv").write_text("ts,page,n\n95,a,100\n")
    job.run(files(tmp_path, NUMBERS), step_rows=20)
    put, again = job.plans(base)
    assert borders(again) == borders(put)
    assert job.counted() == expected([*ROWS, {"ts": 95, "page": "a", "n": 100}])


FIRST: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "timestamp_unit": ({"timestamp_unit": "s"}, {}),
    "schema, left out": ({}, {"schema": INFERRED}),
    "multiline": ({"multiline": True}, {}),
    "encoding": ({"encoding": "cp1252"}, {}),
}


@pytest.mark.parametrize("option", FIRST)
def test_before_the_first_commit_any_option_of_a_source_can_be_corrected(option: str, tmp_path: Path) -> None:
    """It was refused as recorded, though nothing had been counted by it; a fresh checkpoint collides with the sink."""
    wrong, right = FIRST[option]
    write(tmp_path, "csv")
    job = Job()
    job.fails(files(tmp_path, **{"schema": WRONG, **wrong}))
    job.run(files(tmp_path, **{"schema": NUMBERS, **right}))
    assert job.counted() == expected()


def test_another_source_folder_and_format_can_be_given_before_the_first_commit(tmp_path: Path) -> None:
    """The plan of the wrong folder was all that the checkpoint had, and no other path was accepted."""
    write(tmp_path / "wrong", "csv")
    write(tmp_path / "right", "jsonl")
    job = Job()
    job.fails(files(tmp_path / "wrong", WRONG))
    job.run(files(tmp_path / "right", INFERRED))
    assert job.counted() == expected()


def test_corrected_rows_of_a_list_are_read_by_their_own_types() -> None:
    """They became dead letters, by the types of the rows that had failed."""
    job = Job()
    job.fails(MemorySource([{**row, "n": row["n"] + 0.5} for row in ROWS]))
    assert job.run(MemorySource(ROWS)).dead == 0
    assert job.counted() == expected()


def append(place: Path, rows: list[dict[str, Any]]) -> None:
    with SegmentedLog(place).writer() as writer:
        writer.append_many([json.dumps(row).encode() for row in rows])


def test_records_of_a_log_stay_those_that_were_planned(tmp_path: Path) -> None:
    """The first plan of a source that starts at its latest record would begin anew, and pass over those between."""
    append(tmp_path / "log", ROWS[:2])

    def source(schema: Any) -> LogSource:
        options: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms", "start": "latest"}
        return LogSource(tmp_path / "log", format="json", schema=schema, **options)

    job = Job()
    job.run(source(NUMBERS))
    append(tmp_path / "log", ROWS[2:6])
    base = job.fails(source(WRONG))
    append(tmp_path / "log", ROWS[6:])
    job.run(source(NUMBERS))
    put, again = job.plans(base)
    assert borders(again) == borders(put)
    assert job.counted() == expected(ROWS[2:])


@pytest.mark.parametrize("half", ["files", "live"])
def test_both_halves_of_a_source_can_be_corrected(half: str, tmp_path: Path) -> None:
    """The half that is read plans for the whole."""
    write(tmp_path / "in", "csv", ROWS[:6])
    append(tmp_path / "log", ROWS)

    def source(schema: Any) -> Any:
        schemas = {"files": NUMBERS, "live": NUMBERS, half: schema}
        options: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms"}
        live = LogSource(tmp_path / "log", format="json", schema=schemas["live"], max_skew=0, **options)
        return then(files(tmp_path / "in", schemas["files"]), live, at=60, max_skew=0)

    job = Job()
    job.stops_after_a_step(source(NUMBERS))
    base = job.fails(source(WRONG))
    job.run(source(NUMBERS))
    put, again = job.plans(base)
    assert borders(again) == borders(put)
    assert job.counted() == expected()


def test_a_driver_killed_anywhere_keeps_the_borders(tmp_path: Path) -> None:
    """Between the fence and the new plan only the number of the fence tells that there was a correction."""
    write(tmp_path, "csv")

    def failed() -> tuple[Job, int]:
        job = Job()
        job.stops_after_a_step(files(tmp_path, NUMBERS))
        return job, job.fails(files(tmp_path, WRONG), step_rows=20)

    calm, base = failed()
    operations = Operations()
    calm.run(files(tmp_path, NUMBERS), FaultyStorage(calm.storage, operations), step_rows=20)
    put, again = calm.plans(base)
    assert borders(again) == borders(put)
    begins = next(at for at, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent")
    ends = next(at for at, (_, _, name) in enumerate(operations.log) if name == plan_name(base, 1)) + 12
    for at in range(begins, ends):
        for how in DEATHS:
            job, _ = failed()
            with suppress(Killed):
                job.run(files(tmp_path, NUMBERS), FaultyStorage(job.storage, Operations(at=at, how=how)), step_rows=20)
            (tmp_path / "00.csv").write_text("ts,page,n\n95,a,100\n")
            job.run(files(tmp_path, NUMBERS), step_rows=20)
            (tmp_path / "00.csv").unlink()
            assert list(map(borders, job.plans(base))) == [borders(put)] * 2, (at, how)
            assert job.counted() == expected([*ROWS, {"ts": 95, "page": "a", "n": 100}]), (at, how)


def test_a_correction_fences_the_driver_that_still_runs_the_step(tmp_path: Path) -> None:
    """Both would commit the same records, each by its own options."""
    write(tmp_path, "csv")
    job = Job()
    right = files(tmp_path, NUMBERS)
    with pytest.raises(Fenced):
        job.run(files(tmp_path, {**NUMBERS, "n": "int32"}), task=Totals(lambda: job.run(right)))
    assert job.counted() == expected()
    assert [plan.number for plan in job.plans(0)] == [0, 1]


def test_on_spark_a_corrected_schema_counts_too(spark: Any, tmp_path: Path) -> None:
    """Its workers have their own copy of the source."""
    write(tmp_path / "in", "csv")
    job = Job()
    job.sink, url = FileSink(tmp_path / "out"), str(tmp_path / "checkpoint")
    with pytest.raises(UserCodeError):
        job.pipeline(files(tmp_path / "in", WRONG), url).run(spark=spark, end_of_input=True)
    job.pipeline(files(tmp_path / "in", NUMBERS), url).run(spark=spark, end_of_input=True)
    tables = [pq.read_table(tmp_path / "out" / name) for name in job.sink.published()]
    assert sum(sum(table["value"].to_pylist()) for table in tables) == sum(row["n"] for row in ROWS)
