"""The sink of late records is one more named output of the job: it receives each late record once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from monoids import Count
from persistent import (
    Dedupe,
    FileSink,
    FileSource,
    FunctionSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.connect.promises import AT_LEAST_ONCE
from persistent.driver.publish import check_folder
from persistent.engines.embedded import Embedded
from persistent.errors import InvalidPipeline, Refused, SinkMismatch, StorageError
from persistent.names import new_nonce
from persistent.operations import collect_garbage, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.storage.subfolder import savepoint_folder
from persistent.verify import verify
from tests.checkpoint.samples import body_of, manifest
from tests.connect.ledger import Ledger, LedgerSink

TIMES = (1, 12, 3, 25, 14, 26, 2, 38, 4, 39, 55, 27)
"""Late, at a row a step: 3, 14, 2, 4, 27."""
LATE = [3, 14, 2, 4, 27]


class Visits(PersistentTask):
    """Counts visits of a page."""

    key = "page"

    def __init__(self, **options: Any) -> None:
        self.options = options

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10), **self.options)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Totals(Visits):
    """Without windows."""

    name = "Visits"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())


class Job:
    """A checkpoint, a sink of results, and a ledger of late records, that live on."""

    def __init__(self, times: Sequence[int] = TIMES) -> None:
        self.storage, self.times = MemoryStorage(new_nonce()), list(times)
        self.results, self.ledger = MemorySink(), Ledger()

    def pipeline(self, late_sink: Any = None, task: Any = None, **options: Any) -> Pipeline:
        rows = [{"ts": time, "page": "a"} for time in self.times]
        options = {"step_rows": 1, "sink": self.results, "checkpoint": self.storage, **options}
        source = options.pop("source", MemorySource(rows, timestamp="ts", ordered=True))
        return Pipeline(source=source, task=task or Visits(), late_sink=late_sink, **options)

    def run(self, late_sink: Any = None, task: Any = None, *, end: bool = True, **options: Any) -> Any:
        return self.pipeline(late_sink, task, **options).run(engine=Embedded(threads=1), end_of_input=end)

    @property
    def newest(self) -> Manifest:
        found = Log(self.storage).newest()
        assert found is not None
        return found.manifest


def times_of(rows: Sequence[Any]) -> list[int]:
    return [row["timestamp"] for row in rows]


def listed(job: Job) -> list[int]:
    """What ``late()`` of the pipeline shows."""
    return times_of(job.pipeline().late().to_pylist())


# -- what it receives --------------------------------------------------------------------------------------------------


def test_every_kind_of_sink_receives_each_late_record_once(tmp_path: Any) -> None:
    """A dashboard of what is late, wherever it is; ``late()`` shows the same, and results are as without."""
    plain = Job()
    plain.run()
    files, memory, asked = FileSink(tmp_path / "late", format="jsonl"), MemorySink(), list[Any]()
    table = SqliteSink(tmp_path / "late.db", "late")
    call = FunctionSink(lambda table, id: asked.extend(table.to_pylist()))
    for sink in (files, memory, table, call, ledger_of := LedgerSink(Ledger())):
        job = Job()
        report = job.run(sink)
        assert job.results.rows() == plain.results.rows() and report.late == 5 and listed(job) == LATE
        assert verify(job.storage).ok and not job.run(sink).steps
        assert job.newest.sinks[LATE_SINK].late and not job.newest.sinks["memory"].late
    lines = [json.loads(line) for name in files.published() for line in (tmp_path / "late" / name).open()]
    for rows in (lines, memory.rows(), asked, ledger_of.ledger.rows()):
        assert sorted(times_of(rows)) == sorted(LATE)
        assert {json.loads(row["value"])["ts"] for row in rows} == set(LATE)
    import sqlite3

    with sqlite3.connect(tmp_path / "late.db") as database:
        found = database.execute("SELECT timestamp, reason, value FROM late ORDER BY revision").fetchall()
    assert [row[0] for row in found] == LATE and found[0][1:] == ("late", '{"ts":3,"page":"a"}')


def test_the_rows_have_the_columns_of_the_late_files() -> None:
    """So that a row of the sink leads to its record."""
    job, sink = Job(), MemorySink()
    job.run(sink)
    assert sink.table is not None
    shown = job.pipeline().late()
    columns = [name for name in shown.column_names if name not in ("value", "data")]
    assert sink.table.select(columns).to_pylist() == shown.select(columns).to_pylist()
    assert sink.table.schema.field("value").type == pa.string()


def test_what_is_partly_late_or_too_old_to_be_known_is_there_too() -> None:
    """It is listed in ``late()``, so it is in the sink."""
    job, sink = Job([1, 100, 1]), MemorySink()
    rows = [{"ts": time, "page": "a", "id": str(i)} for i, time in enumerate((1, 100, 101, 2))]
    source = MemorySource(rows, timestamp="ts", ordered=True)
    job.run(sink, Totals(), source=source, dedupe=Dedupe.by_id("id", within=10))
    assert [row["reason"] for row in sink.rows()] == job.pipeline().late().column("reason").to_pylist() != []


def test_it_needs_no_other_sink() -> None:
    """A job that discards its results can still say what was late."""
    job = Job()
    sink = LedgerSink(job.ledger)
    job.run(sink, sink=None, discard_closed=True)
    assert times_of(job.ledger.rows()) == LATE and job.newest.publishes is False
    job.times += [80, 28]
    job.run(sink, sink=None, discard_closed=True)
    assert times_of(job.ledger.rows()) == [*LATE, 28] and verify(job.storage).ok


def test_it_does_not_make_a_sink_of_totals_join() -> None:
    """A sink of results that is new gets every key; that late records have a sink says nothing of it."""
    job, rows = Job([1, 2, 3]), MemorySink()
    source = MemorySource([{"ts": 1, "page": "a", "id": "x"}], timestamp="ts", ordered=True)
    options = {"source": source, "dedupe": Dedupe.by_id("id", within=10), "sink": rows}
    job.run(None, Totals(), **options)
    assert len(rows.rows()) == 1
    job.run(MemorySink(), Totals(), **options)
    assert len(rows.rows()) == 1


# -- joining, leaving, coming back -------------------------------------------------------------------------------------


def test_one_that_joins_receives_what_is_late_from_then_on() -> None:
    """And the report says so: nobody expects what was late before."""
    job = Job()
    job.run(end=False)
    sink = MemorySink()
    job.times += [70, 28, 71]
    report = job.run(sink)
    assert times_of(sink.rows()) == [28] and listed(job) == [*LATE, 28]
    assert "the sink of late records is new: it receives what is late from now on" in str(report)


def test_one_that_is_left_out_cannot_come_back() -> None:
    """It lacks what was late meanwhile."""
    job = Job()
    job.run(LedgerSink(job.ledger), end=False)
    job.times += [70, 71]
    job.run(LedgerSink(job.ledger), end=False)
    job.times += [28, 72, 73]
    report = job.run(end=False)
    assert "the sink of late records is left out: it receives no more, and cannot come back" in str(report)
    assert LATE_SINK not in job.newest.sinks
    with pytest.raises(InvalidPipeline, match="was left out meanwhile, and lacks what was published since"):
        job.run(LedgerSink(job.ledger))
    other = MemorySink()
    job.times += [29, 74]
    job.run(other)
    assert times_of(other.rows()) == [29]


class Away(LedgerSink):
    """A ledger at a server that is away."""

    def deliver(self, batch: Any) -> None:
        raise StorageError("the server is away")


def test_one_that_is_away_holds_back_no_results_and_keeps_its_rows() -> None:
    """The next run begins with what it lacks; without it, the run is refused."""
    job = Job((1, 12, 3, 25))
    with pytest.raises(StorageError, match="sink 'late': the server is away"):
        job.run(Away(job.ledger))
    assert times_of(job.ledger.rows()) == []
    with pytest.raises(InvalidPipeline, match=r"has outputs for its old sink \('late'\)"):
        job.run()
    with pytest.raises(InvalidPipeline, match=r"has outputs for its old sink \('late'\)"):
        job.run(sink=None, discard_closed=True)
    job.run(LedgerSink(job.ledger))
    assert times_of(job.ledger.rows()) == [3] and verify(job.storage).ok


def test_another_folder_or_a_sink_of_another_job_is_refused(tmp_path: Any) -> None:
    """As for sinks of results."""
    job = Job()
    job.run(FileSink(tmp_path / "late"), end=False)
    with pytest.raises(SinkMismatch, match="has none of the outputs of job"):
        job.run(FileSink(tmp_path / "other"))
    with pytest.raises(StorageError, match=r"another job|of job"):
        Job().run(FileSink(tmp_path / "late"))


def test_a_name_means_results_or_late_records() -> None:
    """The mark of the one would be taken for that of the other."""
    job, sinks = Job(), {"late": MemorySink(), "table": MemorySink()}
    job.run(sink=sinks, end=False)
    with pytest.raises(InvalidPipeline, match="is to receive late records under the name 'late'"):
        job.run(MemorySink(), sink=sinks["table"])
    fresh = Job()
    fresh.run(MemorySink(), end=False)
    with pytest.raises(InvalidPipeline, match="is to receive results under the name 'late'"):
        fresh.run(sink={"memory": fresh.results, "late": MemorySink()})


# -- going back, starting from a savepoint -----------------------------------------------------------------------------


@pytest.mark.parametrize("discards", [False, True])
def test_a_rollback_takes_back_what_was_late_since(discards: bool) -> None:
    """Or the records would be there twice, because they are read again."""
    job = Job()
    options = {"sink": None, "discard_closed": True} if discards else {}
    job.times = list(TIMES[:5])
    job.run(LedgerSink(job.ledger), end=False, **options)
    target = job.newest.base
    job.times = list(TIMES)
    job.run(LedgerSink(job.ledger), end=False, **options)
    assert times_of(job.ledger.rows()) == LATE
    rollback(job.storage, target, outputs="retract")
    with pytest.raises(InvalidPipeline, match="must take back later outputs"):
        job.run(**options)
    job.run(LedgerSink(job.ledger), end=False, **options)
    assert times_of(job.ledger.rows()) == LATE == sorted(listed(job), key=LATE.index) and verify(job.storage).ok


def test_a_rollback_asks_the_sink_of_late_records_too() -> None:
    """One that cannot take back is not told so after the fact."""
    job = Job()
    job.run(FunctionSink(lambda table, id: None), end=False)
    with pytest.raises(Refused, match="the sink 'late' of this job cannot take back"):
        rollback(job.storage, job.newest.base, outputs="retract")


def test_a_rollback_publishes_no_totals_again_because_late_records_have_a_new_sink() -> None:
    """That nothing was late yet says nothing of the sinks of results."""
    job = Job([1, 2, 3])
    rows = MemorySink()
    source = MemorySource([{"ts": 1, "page": "a", "id": "x"}], timestamp="ts", ordered=True)
    options = {"source": source, "dedupe": Dedupe.by_id("id", within=10), "sink": rows}
    job.run(MemorySink(), Totals(), **options)
    rollback(job.storage, job.newest.base, outputs="retract")
    job.run(MemorySink(), Totals(), **options)
    assert len(rows.rows()) == 1


def test_an_heir_takes_over_the_place() -> None:
    """A job that starts from a savepoint continues in the same table, above what is there."""
    job = Job(TIMES[:5])
    job.run(LedgerSink(job.ledger), end=False)
    savepoint(job.storage, "now")
    heir = Job()
    heir.ledger = job.ledger
    heir.run(LedgerSink(job.ledger), start_from=savepoint_folder(job.storage, "now"), end=False)
    assert times_of(job.ledger.rows()) == LATE


def test_garbage_of_the_sink_is_collected(tmp_path: Any) -> None:
    """``gc`` of a pipeline looks into every place."""
    job, sink = Job(), FileSink(tmp_path / "late")
    job.run(sink, end=False)
    (tmp_path / "late" / "_staged").mkdir(exist_ok=True)
    (tmp_path / "late" / "_staged" / "e1-c2-00ff.parquet").write_bytes(b"")
    names = collect_garbage(job.storage, sink=job.pipeline(sink).all_sinks)
    assert [name for name in names if "e1-c2-00ff" in name]


# -- what is refused, and said -----------------------------------------------------------------------------------------


def test_what_cannot_hold_late_records_is_refused_where_the_pipeline_is_made(tmp_path: Any) -> None:
    job = Job()
    with pytest.raises(InvalidPipeline, match='late records are added, each once: use mode="append"'):
        job.pipeline(SqliteSink(tmp_path / "late.db", "late", mode="upsert"))
    with pytest.raises(InvalidPipeline, match="nothing is ever late in a state whose windows do not close"):
        job.pipeline(MemorySink(), Totals())
    with pytest.raises(
        InvalidPipeline, match=r"sink=\{'late': \.\.\.\} has the name that the sink of late records has"
    ):
        job.pipeline(MemorySink(), sink={"late": MemorySink()})
    with pytest.raises(InvalidPipeline, match=r"late_sink=.* is not a late_sink: .*use FileSink"):
        job.pipeline("late/")
    same = MemorySink()
    with pytest.raises(InvalidPipeline, match="late records are no results, and have other columns"):
        job.pipeline(same, sink=same)


def test_a_source_does_not_read_what_is_late(tmp_path: Any) -> None:
    """Late records would come in again, as records."""
    (tmp_path / "in.jsonl").write_text('{"ts": 1, "page": "a"}\n')
    source = FileSource(str(tmp_path / "**.jsonl"), timestamp="ts")
    with pytest.raises(InvalidPipeline, match=r"the sink .* is inside the source"):
        Job().run(FileSink(tmp_path / "late", format="jsonl"), source=source)


def test_the_guarantee_names_it() -> None:
    """A function may receive late records twice."""
    guarantee = Job().pipeline(FunctionSink(lambda table, id: None)).guarantee()
    assert guarantee.startswith(AT_LEAST_ONCE) and guarantee.parts["late_sink"].level == AT_LEAST_ONCE


def test_its_manifest_says_so() -> None:
    """Or it would be taken for one of results."""
    job = Job()
    job.run(MemorySink())
    body = body_of(job.newest.encode(), "m")
    assert "node" not in body["sinks"]["late"]
    assert [body["sinks"]["memory"]["node"]] == [*job.newest.nodes]


def test_one_that_joins_a_job_that_lists_no_sink_is_new(tmp_path: Any) -> None:
    """A manifest of an older format lists none that has published everything, and a folder without outputs of the job
    would be taken for one that has lost them."""
    job = Job()
    before = replace(manifest(4), sinks={}, publishes=True)
    check_folder(job.pipeline(FileSink(tmp_path / "late")).job(), Log(job.storage), before)
    with pytest.raises(SinkMismatch, match="has none of the outputs of job"):
        check_folder(job.pipeline(sink=FileSink(tmp_path / "results")).job(), Log(job.storage), before)


@pytest.mark.check
@pytest.mark.spark
def test_on_spark_it_receives_the_same(spark: Any, tmp_path: Any) -> None:
    """Workers of another process stage late records."""
    rows = "".join(f'{{"ts": {time}, "page": "a"}}\n' for time in TIMES)
    (tmp_path / "in.jsonl").write_text(rows)
    source = FileSource(str(tmp_path / "in.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=True)
    sink = FileSink(tmp_path / "late", format="jsonl")
    pipeline = Pipeline(
        source=source,
        task=Visits(),
        sink=FileSink(tmp_path / "results"),
        late_sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        step_rows=1,
    )
    assert pipeline.run(spark).engine == "spark"
    lines = [json.loads(line) for name in sink.published() for line in (tmp_path / "late" / name).open()]
    assert sorted(times_of(lines)) == sorted(LATE)
