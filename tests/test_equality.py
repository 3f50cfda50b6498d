"""Every job on the embedded engine, calm and killed, is equal to its plain twin."""

from __future__ import annotations

import functools
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSink, MemorySink, MemorySource, Pipeline, StepReport
from persistent.checkpoint import compaction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage
from tests.faults import DEATHS, FaultyStorage, Killed, Operations
from tests.few import one_in
from tests.jobs import BY_NAME, JOBS, Job, Record, records_of
from tests.single import only

STEP_ROWS = (None, 211, 64, 23)
KILLS_PER_JOB = 8


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    """A memory that is forgotten afterwards."""
    memory = MemoryStorage(uuid.uuid4().hex)
    yield memory
    memory.clear()


@dataclass(frozen=True)
class Outcome:
    """All that a run leaves for a user to see."""

    published: list[dict[str, Any]]
    late: list[dict[str, Any]]
    ledger: dict[str, Account]
    state: list[dict[str, Any]]

    @staticmethod
    def of(pipeline: Pipeline, published: Sequence[dict[str, Any]]) -> Outcome:
        newest = Log(pipeline.storage).newest()
        assert newest is not None
        late = [{**row, "checkpoint": None} for row in pipeline.late().to_pylist()]
        return Outcome(
            sorted(published, key=repr),
            sorted(late, key=repr),
            dict(newest.manifest.accounts),
            sorted(pipeline.state().to_pylist(), key=repr),
        )


class Watched:
    """A run whose every manifest is looked at."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.manifests: list[Manifest] = []

    def __call__(self, report: StepReport) -> None:
        manifest = Log(self.pipeline.storage).read(report.id).manifest
        for partition, account in manifest.accounts.items():
            parts = account.processed + account.late + account.dead + account.duplicate
            assert account.read == parts, f"{partition} in checkpoint {report.id}: {account}"
        assert report.clock_ms == manifest.clock.watermark
        self.manifests.append(manifest)

    def run(self, engine: Embedded, **options: Any) -> Any:
        return self.pipeline.run(engine=engine, on_step=self, **options)


def check_late(job: Job, pipeline: Pipeline, records: Sequence[Record]) -> None:
    """The recorded late rows are exactly those whose windows had all ended by the watermark of their step."""
    found = pipeline.late().to_pylist()
    late = {row["value"]["id"]: row for row in found if row["reason"] == "late"}
    partly = {row["value"]["id"] for row in found if row["reason"] == "partly-late"}
    assert len(late) + len(partly) == len(found), "a late row stands twice"
    by_id = {record.row["id"]: record for record in records}
    for id, row in late.items():
        assert row["timestamp"] < by_id[id].watermark, f"row {id} is late above the watermark of its step"
        assert row["value"] == by_id[id].row
    assert set(late) == {id for id, record in by_id.items() if job.is_late(record)}
    ended = [id for id, r in by_id.items() if any(end and end <= r.watermark for _, end in job.windows(r.row["ts"]))]
    assert partly == set(ended) - set(late)


def check_equal(job: Job, pipeline: Pipeline, published: Sequence[dict[str, Any]], step_rows: int | None) -> None:
    """Published windows and state together are what the twin computes from the rows that are not recorded as late."""
    records = records_of(job.rows, step_rows)
    check_late(job, pipeline, records)
    left_out = {row["value"]["id"] for row in pipeline.late().to_pylist() if row["reason"] == "late"}
    expected = job.expected(record for record in records if record.row["id"] not in left_out)
    state, outputs = job.read(pipeline.state().to_pylist()), job.read(published)
    if job.window is None:
        assert state == expected
        assert outputs in ({}, expected)
    else:
        assert not state.keys() & outputs.keys(), "published, and still in the state"
        assert {**state, **outputs} == expected
    newest = Log(pipeline.storage).newest()
    assert newest is not None
    (account,) = newest.manifest.accounts.values()
    assert (account.read, account.late, account.dead) == (len(job.rows), len(left_out), 0)


@pytest.mark.parametrize(("step_rows", "batch"), one_in(3, product(STEP_ROWS, [False, True])))
@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_a_calm_run_equals_the_plain_computation(
    job: Job, step_rows: int | None, batch: bool, storage: MemoryStorage
) -> None:
    """Without it no number that this package prints could be believed."""
    sink = MemorySink()
    pipeline = job.pipeline(list(job.rows), sink, storage, batch=batch, step_rows=step_rows)
    watched = Watched(pipeline)
    engine = Embedded(2)
    report = watched.run(engine)
    steps = 1 if step_rows is None else -(-len(job.rows) // step_rows)
    assert (report.rows, report.steps >= steps) == (len(job.rows), True)
    check_equal(job, pipeline, sink.rows(), step_rows)
    held = pipeline.state().to_pylist()
    assert report.open_windows == (len({row["window_start"] for row in held}) if job.window else 0)
    watched.run(engine, end_of_input=True)
    check_equal(job, pipeline, sink.rows(), step_rows)
    assert (pipeline.state().num_rows == 0) == (job.window is not None)
    newest = Log(storage).ids()[-1]
    assert watched.run(engine, end_of_input=True).steps == 0
    assert Log(storage).ids()[-1] == newest, "a run with nothing new has written"
    engine.stop()


@pytest.mark.parametrize("job", [job for job in JOBS if job.window], ids=repr)
def test_some_rows_are_late(job: Job) -> None:
    """The comparisons would say nothing of late rows."""
    records = records_of(job.rows, 23)
    assert sum(map(job.is_late, records)) >= 3
    assert not any(map(job.is_late, records_of(job.rows, None)))


@pytest.mark.parametrize("step_rows", one_in(2, [64, None]))
@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_batches_mean_what_messages_mean(job: Job, step_rows: int | None) -> None:
    """A task made faster with process_batch would go on from its checkpoint with other sums."""
    runs, outputs, states = [], [], []
    for batch in (False, True):
        memory = MemoryStorage(uuid.uuid4().hex)
        sink = MemorySink()
        pipeline = job.pipeline(list(job.rows), sink, memory, batch=batch, step_rows=step_rows)
        watched = Watched(pipeline)
        watched.run(Embedded(1))
        states.append(pipeline.state())
        watched.run(Embedded(1), end_of_input=True)
        runs.append([[(r.rows, r.sha256) for r in m.state_runs()] for m in watched.manifests])
        outputs.append(sink.table)
        memory.clear()
    assert runs[0] == runs[1]
    assert any(runs[0]) and states[0].equals(states[1])
    assert outputs[0].equals(outputs[1])


@functools.cache
def calm(job: Job, batch: bool) -> tuple[Outcome, int]:
    """What a run leaves that nobody kills, and how many storage operations it takes."""
    process = Killable(job, batch)
    process.run(Operations())
    return process.outcome(), len(process.log)


class Killable:
    """A job whose processes share nothing but a checkpoint and a sink."""

    def __init__(self, job: Job, batch: bool) -> None:
        self.job, self.batch = job, batch
        self.checkpoint = MemoryStorage(uuid.uuid4().hex)
        self.results = MemoryStorage(uuid.uuid4().hex)
        self.log: list[tuple[str, str, str]] = []

    def pipeline(self, operations: Operations) -> Pipeline:
        sink = FileSink(FaultyStorage(self.results, operations))
        checkpoint = FaultyStorage(self.checkpoint, operations)
        source = MemorySource(list(self.job.rows), timestamp="ts", ordered=True)
        return self.job.pipeline(source, sink, checkpoint, batch=self.batch, step_rows=64)

    def run(self, operations: Operations) -> bool:
        """Whether the process came to its end."""
        try:
            self.pipeline(operations).run(engine=Embedded(2), end_of_input=True)
        except Killed:
            return False
        finally:
            self.log = operations.log
        return True

    def published(self) -> list[dict[str, Any]]:
        names = self.results.list("")
        return [row for name in names for row in pq.read_table(pa.BufferReader(self.results.read(name))).to_pylist()]

    def outcome(self) -> Outcome:
        return Outcome.of(self.pipeline(Operations()), self.published())

    def forget(self) -> None:
        self.checkpoint.clear()
        self.results.clear()


@pytest.mark.crash
@pytest.mark.parametrize("kill", one_in(8, range(KILLS_PER_JOB)))
@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_a_killed_run_equals_the_plain_computation(job: Job, kill: int) -> None:
    """A crash would lose or repeat some of what a job has counted."""
    rng = random.Random(f"{job.name} {kill}")
    batch = bool(kill // 4)
    expected, operations = calm(job, batch)
    process = Killable(job, batch)
    at, how = rng.randrange(operations), rng.choice(DEATHS)
    assert not process.run(Operations(at=at, how=how)), "it was not killed"
    while not process.run(Operations(at=rng.randrange(operations), how=rng.choice(DEATHS))):
        pass
    found = process.outcome()
    if job.window is None:
        # The revision is an id, and a fence takes one.
        found, expected = (_without_revisions(outcome) for outcome in (found, expected))
    assert found == expected, f"killed {how} operation {at}, {process.log[-1:]}"
    check_equal(job, process.pipeline(Operations()), process.published(), 64)
    process.forget()


def _without_revisions(outcome: Outcome) -> Outcome:
    published = [{**row, "revision": None} for row in outcome.published]
    return Outcome(sorted(published, key=repr), outcome.late, outcome.ledger, outcome.state)


def test_a_state_without_windows_is_published_when_it_has_changed(storage: MemoryStorage) -> None:
    """Every end of input would repeat every key, or the newest value of a key could not be told from older ones."""
    job = BY_NAME["totals"]
    half = len(job.rows) // 2
    rows = list(job.rows[:half])
    sink = MemorySink()
    engine = Embedded(1)
    run = functools.partial(job.pipeline(rows, sink, storage, step_rows=40).run, engine=engine)
    run()
    assert sink.rows() == []
    first_id = run(end_of_input=True).checkpoint
    first = sink.rows()
    assert {row["revision"] for row in first} == {first_id}
    assert job.read(first) == job.expected(map(Record, job.rows[:half]))

    changed = [row for row in job.rows[half:] if row["user"] < "user-2"]
    rows += changed
    second_id = run(end_of_input=True).checkpoint
    second = [row for row in sink.rows() if row["revision"] == second_id]
    assert second_id > first_id and len(second) + len(first) == len(sink.rows())
    whole = job.expected(map(Record, [*job.rows[:half], *changed]))
    users = {row["user"] for row in changed}
    assert job.read(second) == {place: values for place, values in whole.items() if place[0][0] in users}
    run(end_of_input=True)
    assert len(sink.rows()) == len(first) + len(second)


def test_an_input_out_of_order_has_no_late_rows(storage: MemoryStorage) -> None:
    """A backfill in any order would lose what the clock had passed, though it was listed all the time."""
    job = BY_NAME["visits"]
    rows = list(job.rows)
    random.Random(9).shuffle(rows)
    sink = MemorySink()
    pipeline = job.pipeline(MemorySource(rows, timestamp="ts"), sink, storage, step_rows=30)
    pipeline.run(engine=Embedded(1), end_of_input=True)
    assert pipeline.late().num_rows == 0
    assert job.read(sink.rows()) == job.expected(map(Record, rows))


def test_late_rows_are_allowed_for_by_the_disorder(storage: MemoryStorage) -> None:
    """max_out_of_orderness would be an option that changes nothing."""
    job = BY_NAME["visits"]
    behind = max(mark - r["ts"] for r, mark in ((r.row, r.watermark) for r in records_of(job.rows, 23)))
    source = MemorySource(list(job.rows), timestamp="ts", ordered=True, max_out_of_orderness=behind)
    sink = MemorySink()
    pipeline = job.pipeline(source, sink, storage, step_rows=23)
    pipeline.run(engine=Embedded(1), end_of_input=True)
    assert pipeline.late().num_rows == 0
    assert job.read(sink.rows()) == job.expected(map(Record, job.rows))


def test_a_run_stopped_and_gone_on_with_equals_one_run(storage: MemoryStorage) -> None:
    """Rows appended between runs would be read twice, or not at all."""
    job = BY_NAME["visits"]
    rows: list[Any] = []
    sink = MemorySink()
    pipeline = job.pipeline(rows, sink, storage, step_rows=50)
    for stop in range(100, len(job.rows) + 1, 100):
        rows[:] = job.rows[:stop]
        assert pipeline.run(engine=Embedded(1)).rows == 100
    pipeline.run(engine=Embedded(1), end_of_input=True)
    check_equal(job, pipeline, sink.rows(), 50)


@pytest.mark.parametrize("name", ["totals", "trails", "sliding-not-dividing", "words"])
def test_every_checkpoint_is_the_sum_of_what_was_read_before_it(
    name: str, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3. A fold of runs would lose a part of them or count it twice, most of all one that takes several steps."""
    # So small that folds take several steps, and what they have folded is folded again, piece by piece.
    monkeypatch.setattr(compaction, "_ROWS_MIN", 1)
    monkeypatch.setattr(compaction, "_TIER_0_ROWS", 8)
    job = BY_NAME[name]
    rows = list(job.rows)
    records = records_of(rows, 3)
    late = {id(record) for record in records if job.is_late(record)}
    pipeline = job.pipeline(rows, MemorySink(), storage, step_rows=3)
    partial: list[int] = []

    def on_step(report: StepReport) -> None:
        manifest = Log(storage).read(report.id).manifest
        runs = manifest.state_runs()
        partial.extend(run.low for run in runs if run.low > run.start)
        assert len(runs) < 60
        if report.id % 4:
            return
        ((_, offset),) = only(manifest.sources).positions.values()
        expected = job.expected(each for each in records[:offset] if id(each) not in late)
        closed, size = manifest.clock.closed, (job.window or (0, 0))[0]
        opened = {place: v for place, v in expected.items() if place[1] is None or place[1] + size > closed}
        assert job.read(pipeline.state(at=report.id).to_pylist()) == opened

    pipeline.run(engine=Embedded(1), on_step=on_step, end_of_input=True)
    assert partial or job.window, "no fold went on over several steps"


@pytest.mark.parametrize("job", [job for job in JOBS if job.name.startswith("sliding")], ids=repr)
def test_windows_may_begin_before_the_epoch(job: Job, storage: MemoryStorage) -> None:
    """The first windows of 1970 would be lost, with an input that counts from zero."""
    earliest = min(row["ts"] for row in job.rows)
    rows = [{**row, "ts": row["ts"] - earliest} for row in job.rows]
    sink = MemorySink()
    pipeline = job.pipeline(MemorySource(rows, timestamp="ts"), sink, storage, step_rows=40)
    pipeline.run(engine=Embedded(1), end_of_input=True)
    found = job.read(sink.rows())
    assert found == job.expected(map(Record, rows))
    size, every = job.window or (0, 0)
    assert (min(start for _, start in found if start is not None) < 0) == (size + job.offset > every)


def test_input_goes_on_after_its_end(storage: MemoryStorage) -> None:
    """What comes after an end of input would be lost, or change windows that are published."""
    job = BY_NAME["visits"]
    rows = list(job.rows[:200])
    sink = MemorySink()
    pipeline = job.pipeline(rows, sink, storage)
    watermark = pipeline.run(engine=Embedded(1), end_of_input=True).clock_ms
    before = job.read(sink.rows())
    late = {**job.rows[0], "id": 9_000, "ts": watermark - 1}
    rows += [late, *({**row, "ts": row["ts"] + 10_000_000} for row in job.rows[200:])]
    assert pipeline.run(engine=Embedded(1)).late == 1
    assert [row["value"] for row in pipeline.late().to_pylist()] == [late]
    newest = Log(storage).newest()
    assert newest is not None and not newest.manifest.clock.end_of_input
    pipeline.run(engine=Embedded(1), end_of_input=True)
    after = job.expected(map(Record, [row for row in rows[200:] if row["id"] != 9_000]))
    assert job.read(sink.rows()) == {**before, **after}
