"""Bad input is a clear error, which says fault, place and remedy, or a counted dead letter: nothing is ever lost."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import Count, Max, Sum, record
from persistent import (
    Batch,
    CorruptCheckpoint,
    FileSink,
    FileSource,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    Message,
    NonWindowState,
    OtherJob,
    PersistentTask,
    Pipeline,
    SourceChanged,
    SourceError,
    State,
    StorageError,
    UserCodeError,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.codec.documents import FORMAT
from persistent.names import manifest_name
from persistent.operations import rollback
from persistent.storage import LocalStorage, MemoryStorage
from tests.checkpoint.samples import body_of, document
from tests.faults import FaultyStorage, Killed, Operations
from tests.jobs import BY_NAME, Job
from tests.visits import GOOD, Visits, pipeline_of, run, says, visits_of, write_lines


def files(path: Path | str, **options: Any) -> FileSource:
    return FileSource(path, timestamp="ts", timestamp_unit="ms", **options)


# -- the source --------------------------------------------------------------------------------------------------------


def test_no_such_timestamp_column(tmp_path: Path, storage: MemoryStorage) -> None:
    """A misspelt name would make every record a dead letter."""
    path = write_lines(tmp_path / "a.jsonl", GOOD)
    source = FileSource(path, timestamp="time", timestamp_unit="ms")
    with pytest.raises(SourceError) as error:
        run(pipeline_of(source, storage))
    says(error, str(path), "no column 'time'", "ts, page, n", "timestamp=")
    with pytest.raises(SourceError) as error:
        run(pipeline_of(MemorySource(GOOD, timestamp="time"), storage))
    says(error, "no column 'time'", "ts, page, n", "timestamp=")
    assert run(pipeline_of(GOOD, storage)).rows == 20


def test_an_empty_folder(tmp_path: Path, storage: MemoryStorage) -> None:
    """A misspelt path would be a run that succeeds with nothing."""
    (tmp_path / "events").mkdir()
    for path in (tmp_path / "events", tmp_path / "missing", tmp_path / "*.jsonl"):
        with pytest.raises(SourceError) as error:
            run(pipeline_of(files(path), storage))
        says(error, str(path), "no file", "check the path", "follow=True")
    assert Log(storage).newest() is None, "the failed runs have left a checkpoint"


@pytest.mark.parametrize("format", ["jsonl", "parquet", "csv"])
def test_an_empty_file_is_nothing(format: str, tmp_path: Path, storage: MemoryStorage) -> None:
    """A writer that has had nothing to say would stop every run after it."""
    (tmp_path / f"a.{format}").write_bytes(b"")
    pipeline = pipeline_of(files(tmp_path), storage)
    assert (run(pipeline).rows, pipeline.state().num_rows) == (0, 0)
    table = pa.Table.from_pylist(GOOD)
    if format == "parquet":
        pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
        pq.write_table(table, tmp_path / "c.parquet")
    elif format == "jsonl":
        write_lines(tmp_path / "b.jsonl", ["\n \n"])
        write_lines(tmp_path / "c.jsonl", GOOD)
    else:
        write_lines(tmp_path / "b.csv", ["ts,page,n\n"])
        write_lines(tmp_path / "c.csv", ["ts,page,n\n", *(f"{r['ts']},{r['page']},{r['n']}\n" for r in GOOD)])
    report = run(pipeline)
    assert (report.rows, report.dead, visits_of(pipeline)) == (20, 0, 20)


def test_a_truncated_parquet_file(tmp_path: Path, storage: MemoryStorage) -> None:
    """Half a file would count as a whole one."""
    pq.write_table(pa.Table.from_pylist(GOOD), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:-20])
    with pytest.raises(SourceError) as error:
        run(pipeline_of(files(tmp_path), storage))
    says(
        error,
        str(tmp_path / "b.parquet"),
        "not a complete Parquet file",
        "Repair or remove",
        "on_bad_file='dead-letter'",
    )
    assert Log(storage).newest() is None, "the failed run has left a checkpoint"
    pipeline = pipeline_of(files(tmp_path, on_bad_file="dead-letter"), storage)
    report = run(pipeline)
    assert (report.rows, report.dead, visits_of(pipeline)) == (21, 1, 20)
    (dead,) = pipeline.dead_letters().to_pylist()
    assert (dead["file"], dead["offset"], dead["timestamp"]) == ("b.parquet", 0, None)
    assert "not a complete Parquet file" in dead["reason"]


@pytest.mark.parametrize("step_rows", [None, 5, 100])
@pytest.mark.parametrize("remedy", ["dead-letter", "removed"])
def test_a_listed_file_that_breaks_off(
    step_rows: int | None, remedy: str, tmp_path: Path, storage: MemoryStorage
) -> None:
    """Repaired or removed, as the error said, it would end every run."""
    write_lines(tmp_path / "a.jsonl", GOOD)
    text = "".join(
        json.dumps({**row, "n": random.Random(place).randrange(1 << 40)}) + "\n" for place, row in enumerate(GOOD)
    )
    whole, bad = gzip.compress(text.encode()), tmp_path / "b.jsonl.gz"
    bad.write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(SourceError) as error:
            run(pipeline_of(files(tmp_path), storage, step_rows=step_rows))
        says(error, str(bad), "break off", "listed", "on_bad_file='dead-letter'", "a file with a new name")
        assert "Repair or remove" not in str(error.value)
    if remedy == "removed":
        bad.unlink()
    pipeline = pipeline_of(files(tmp_path, on_bad_file="dead-letter"), storage, step_rows=step_rows)
    run(pipeline)
    (dead,) = pipeline.dead_letters().to_pylist()
    assert (dead["file"], dead["offset"]) == ("b.jsonl.gz", 0)
    (tmp_path / "c.jsonl.gz").write_bytes(whole)
    run(pipeline)
    assert visits_of(pipeline) == 40


@pytest.mark.parametrize(
    "line", ["[1, 2]", "nonsense", '"text"', '{"ts": 1700000000000, "page": "a", "n": "many"}', "{"]
)
def test_a_bad_line_is_a_dead_letter(line: str, tmp_path: Path, storage: MemoryStorage) -> None:
    """A line cut short by a crash of its writer would take the rest of its file with it."""
    path = write_lines(tmp_path / "a.jsonl", [*GOOD[:10], line + "\n", *GOOD[10:]])
    pipeline = pipeline_of(files(path), storage)
    report = run(pipeline)
    assert (report.rows, report.dead, visits_of(pipeline)) == (21, 1, 20)
    (dead,) = pipeline.dead_letters().to_pylist()
    assert (dead["file"], dead["data"]) == ("a.jsonl", line.encode())
    assert path.read_bytes()[dead["offset"] :].startswith(line.encode())
    assert dead["reason"]


def test_a_file_that_does_not_fit_the_schema(tmp_path: Path, storage: MemoryStorage) -> None:
    """Its columns would silently be null."""
    pq.write_table(pa.Table.from_pylist(GOOD), tmp_path / "a.parquet")
    source = files(tmp_path)
    run(pipeline_of(source, storage))
    pq.write_table(pa.table({"ts": [GOOD[0]["ts"]], "page": ["a"]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError) as error:
        run(pipeline_of(source, storage))
    says(error, str(tmp_path / "b.parquet"), "no column 'n'", "ts, page", "schema=", "dead-letter")
    assert visits_of(pipeline_of(source, storage)) == 20
    (tmp_path / "b.parquet").unlink()
    pq.write_table(pa.table({"ts": [GOOD[0]["ts"]], "page": ["a"], "n": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError) as error:
        run(pipeline_of(source, storage))
    says(error, "c.parquet", "'n'", "string", "int64")


def test_a_changed_input_file(tmp_path: Path, storage: MemoryStorage) -> None:
    """A replay would read other records than the first time."""
    path = write_lines(tmp_path / "a.jsonl", GOOD)
    pipeline = pipeline_of(files(path), storage, step_rows=5)
    operations = Operations(at=40)
    faulty = pipeline_of(files(path), FaultyStorage(storage, operations), step_rows=5)
    with pytest.raises(Killed):
        run(faulty)
    before = visits_of(pipeline)
    assert 0 < before < 20
    text = path.read_text()
    path.write_text(text.replace('"n": 19', '"n": 18'))
    with pytest.raises(SourceChanged) as error:
        run(pipeline)
    says(error, str(path))
    path.write_text(text + "\n")
    with pytest.raises(SourceChanged) as error:
        run(pipeline)
    says(error, str(path))
    path.write_text(text)
    run(pipeline)
    assert visits_of(pipeline) == 20


def test_a_list_that_has_become_shorter(storage: MemoryStorage) -> None:
    """Rows appended later would be taken for those that are gone."""
    run(pipeline_of(GOOD, storage))
    with pytest.raises(SourceChanged) as error:
        run(pipeline_of(GOOD[:5], storage))
    says(error, "20", "5", "same list")


# -- the task ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "parts"),
    [
        (lambda s, b: s.update_batch(b.timestamps, {"total": b["n"][:0]}), ("'total'", "0 values for")),
        (
            lambda s, b: s.update_batch(b.timestamps[:0], {"total": b["n"]}, keys=b["page"][:0]),
            ("'total'", "for 0 rows"),
        ),
        (lambda s, b: s.update_batch(b.timestamps, {"total": 1}, keys=b["page"][:0]), ("'page'", "0 rows")),
        (lambda s, b: s.update_batch(b.timestamps, {"totl": 1}), ("unknown field 'totl'", "visits, total")),
        (lambda s, b: s.update_batch(b.timestamps + 1, {"total": 1}), ("needs keys=", "batch.timestamps")),
        (lambda s, b: s.update_batch(b.timestamps, {"total": 1}, keys=(b["page"], b["n"])), ("2 columns", "page")),
        (lambda s, b: s.update_batch(b["page"], {"total": 1}, keys=b.keys), ("timestamp",)),
        (lambda s, b: s.update_batch(b.timestamps, {"total": b["page"]}), ("Sum()", "string")),
    ],
)
def test_wrong_arguments_of_update_batch(
    update: Callable[[Any, Batch], None], parts: tuple[str, ...], storage: MemoryStorage
) -> None:
    """Values would be credited to other rows."""

    class Wrong(Visits):
        def process_batch(self, state: State, batch: Batch) -> None:
            update(state, batch)

    pipeline = pipeline_of(GOOD, storage, Wrong())
    with pytest.raises(UserCodeError) as error:
        run(pipeline)
    says(error, "Wrong", "position (0, 0)", *parts)
    assert pipeline.state().num_rows == 0


@pytest.mark.parametrize(
    ("update", "parts"),
    [
        (lambda s, m: s.update("now", {"total": 1}), ("timestamp is an integer", "'now'")),
        (lambda s, m: s.update(1.5, {"total": 1}), ("timestamp is an integer", "1.5")),
        (lambda s, m: s.update(-1, {"total": 1}), ("before 1970",)),
        (lambda s, m: s.update(m.timestamp, {"total": 1.5}), ("Sum()", "1.5")),
        (lambda s, m: s.update(m.timestamp, 1), ("a mapping of its fields", "visits, total")),
        (lambda s, m: s.update(m.timestamp, {"total": 1}, key=("a", "b")), ("'page'",)),
        (lambda s, m: s.update(m.timestamp, {"total": 1 << 70}), ("OverflowError",)),
        (lambda s, m: m.value["pgae"], ("no field 'pgae'", "ts, page, n")),
    ],
)
def test_wrong_arguments_of_update(
    update: Callable[[Any, Message], None], parts: tuple[str, ...], storage: MemoryStorage
) -> None:
    """A value of the wrong type would be a number nobody has meant."""

    class Wrong(Visits):
        def process_message(self, state: State, message: Message) -> None:
            update(state, message)

    with pytest.raises(UserCodeError) as error:
        run(pipeline_of(GOOD, storage, Wrong()))
    says(error, "Wrong", "position (0, 0)", *parts)


def test_a_sum_that_overflows(storage: MemoryStorage) -> None:
    """A total would wrap; or one message be blamed, and left out, for what it is in sum with others. It is no result
    only where it is presented: the messages are all in the state, and what takes it back may still come."""

    class Huge(Visits):
        key = None

        def process_message(self, state: State, message: Message) -> None:
            state.update(message.timestamp, {"total": 1 << 60})

    for on_error in ("stop", "dead-letter"):
        pipeline = pipeline_of(GOOD, storage, Huge(), on_error=on_error)
        run(pipeline)
        assert pipeline.dead_letters().num_rows == 0
    with pytest.raises(UserCodeError) as error:
        pipeline_of(GOOD, storage, Huge()).state()
    says(error, "Sum()", "64-bit")


def test_names_used_twice_in_the_output() -> None:
    """One of the two columns would be lost, or the file not be readable."""

    class Twice(Visits):
        def __init__(self, key: Any, state: Any) -> None:
            self.key, self.state = key, state

        def persistent_state(self) -> Any:
            return self.state

    window = tumbling("1 s")
    for key, state, name in (
        ("visits", WindowState(record(visits=Count()), window), "visits"),
        ("value", WindowState(Count(), window), "value"),
        ("window_start", WindowState(Count(), window), "window_start"),
        (("page", "window_end"), WindowState(Count(), window), "window_end"),
        ("revision", NonWindowState(Count()), "revision"),
        (None, NonWindowState(record(revision=Count())), "revision"),
    ):
        with pytest.raises(InvalidPipeline) as error:
            pipeline_of(GOOD, "memory://never", Twice(key, state))
        says(error, f"two columns named {name!r}", "rename")
    with pytest.raises(InvalidPipeline, match=r"twice: page, page"):
        pipeline_of(GOOD, "memory://never", Twice(("page", "page"), WindowState(Count(), window)))


# -- the checkpoint ----------------------------------------------------------------------------------------------------


def equal_runs(job: Job, found: Pipeline, sink: MemorySink) -> None:
    """A run that went through trouble has left what a calm one leaves."""
    calm_sink = MemorySink()
    calm = job.pipeline(list(job.rows), calm_sink, f"memory://{uuid.uuid4().hex}", step_rows=60)
    run(calm, end_of_input=True)
    assert job.read(sink.rows()) == job.read(calm_sink.rows())
    assert found.state().equals(calm.state())
    newest, calm_newest = Log(found.storage).newest(), Log(calm.storage).newest()
    assert newest is not None and calm_newest is not None
    assert newest.manifest.accounts == calm_newest.manifest.accounts


@pytest.mark.parametrize("how", ["full-once", "full"])
@pytest.mark.parametrize("part", range(6))
def test_a_disk_full_during_a_step(how: str, part: int, storage: MemoryStorage) -> None:
    """The last checkpoint would be gone with the step that failed."""
    job = BY_NAME["visits"]
    rows, sink = list(job.rows), MemorySink()
    counting = Operations()
    counted = FaultyStorage(MemoryStorage(uuid.uuid4().hex), counting)
    run(job.pipeline(rows, MemorySink(), counted, step_rows=60), end_of_input=True)
    last = max(number for number, (verb, *_) in enumerate(counting.log) if verb == "put_if_absent")
    at = random.Random(f"{how} {part}").randrange(last * part // 6, last * (part + 1) // 6)
    faulty = FaultyStorage(storage, Operations(at=at, how=how))
    with pytest.raises(StorageError) as error:
        run(job.pipeline(rows, sink, faulty, step_rows=60), end_of_input=True)
    says(error, "No space left on device", storage.url)
    pipeline = job.pipeline(rows, sink, storage, step_rows=60)
    newest = Log(storage).newest()
    if newest is not None:
        done = sum(account.processed for account in newest.manifest.accounts.values())
        assert sum(row["visits"] for row in pipeline.state().to_pylist()) <= done
    run(pipeline, end_of_input=True)
    equal_runs(job, pipeline, sink)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 kB; skips where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_disk_full(small_disk: Path, tmp_path: Path) -> None:
    """The faults of the test storage could be kinder than those of a disk."""
    job = BY_NAME["visits"]
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 60_000)
    checkpoint, results = small_disk / "checkpoint", small_disk / "results"
    pipeline = job.pipeline(list(job.rows), FileSink(results), str(checkpoint), step_rows=20)
    with pytest.raises(StorageError) as error:
        run(pipeline, end_of_input=True)
    says(error, "No space left on device", str(small_disk))
    assert pipeline.state().num_rows > 0
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    run(pipeline, end_of_input=True)
    rows = [row for path in sorted(results.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    sink = MemorySink()
    run(job.pipeline(list(job.rows), sink, f"memory://{uuid.uuid4().hex}", step_rows=20), end_of_input=True)
    assert job.read(rows) == job.read(sink.rows())


def test_another_jobs_checkpoint(storage: MemoryStorage, tmp_path: Path) -> None:
    """One job would go on from the sums of another."""

    class Clicks(Visits):
        pass

    run(pipeline_of(GOOD, storage))
    newest = Log(storage).ids()
    with pytest.raises(OtherJob) as error:
        run(pipeline_of(GOOD, storage, Clicks()))
    says(error, storage.url, "states", "Visits", "Clicks", "checkpoint of its own")
    with pytest.raises(OtherJob) as error:
        pipeline_of(GOOD, storage, Clicks()).state()
    path = write_lines(tmp_path / "a.jsonl", GOOD)
    with pytest.raises(OtherJob) as error:
        run(pipeline_of(files(path), storage))
    says(error, "source", "MemorySource", "FileSource")
    assert Log(storage).ids() == newest, "a refused run has written"


def _with_state(state: Any, key: Any = "page") -> PersistentTask:
    class Changed(Visits):
        name = "Visits"

        def persistent_state(self) -> Any:
            return state

    task = Changed()
    task.key = key
    return task


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        (
            _with_state(WindowState(record(visits=Count(), total=Max()), tumbling("1 h"))),
            ("total: Sum(int) -> Max(int)",),
        ),
        (_with_state(WindowState(record(visits=Count()), tumbling("1 h"))), ("total: Sum(int) -> none",)),
        (
            _with_state(WindowState(record(total=Sum(), visits=Count()), tumbling("1 h"))),
            ("visits, total -> total, visits",),
        ),
        (
            _with_state(WindowState(record(visits=Count(), total=Sum()), tumbling("2 h"))),
            ('window: tumbling("1 h") -> tumbling("2 h")',),
        ),
        (
            _with_state(WindowState(record(visits=Count(), total=Sum()), sliding("1 h", every="5 s"))),
            ('window: tumbling("1 h") -> sliding("1 h", every="5 s")',),
        ),
        (_with_state(NonWindowState(record(visits=Count(), total=Sum()))), ("state: WindowState -> NonWindowState",)),
        (
            _with_state(WindowState(record(visits=Count(), total=Sum()), tumbling("1 h")), ("page", "n")),
            ("key: page -> page, n",),
        ),
        (
            _with_state(WindowState(record(visits=Count(), total=Sum()), tumbling("1 h")), None),
            ("key: page -> none",),
        ),
    ],
)
def test_another_monoid_key_or_window(task: PersistentTask, parts: tuple[str, ...], storage: MemoryStorage) -> None:
    """Sums of one kind would be added to sums of another."""
    run(pipeline_of(GOOD, storage))
    before = Log(storage).ids()
    changed = pipeline_of(GOOD, storage, task)
    for refused in (lambda: run(changed), changed.state):
        with pytest.raises(FingerprintChanged) as error:
            refused()
        says(error, storage.url, "Visits", "new checkpoint", *parts)
    assert Log(storage).ids() == before, "a refused run has written"
    assert visits_of(pipeline_of(GOOD, storage)) == 20


def _runs(storage: LocalStorage) -> list[Path]:
    newest = Log(storage).newest()
    assert newest is not None
    return [Path(storage.url) / name for name in sorted(newest.manifest.files())]


def test_a_missing_run(tmp_path: Path) -> None:
    """A file lost would be a sum that is too small."""
    storage = LocalStorage(tmp_path / "checkpoint")
    rows = GOOD[:12]
    pipeline = pipeline_of(rows, storage, step_rows=6)
    run(pipeline)
    path = _runs(storage)[0]
    saved = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptCheckpoint) as error:
        pipeline.state()
    says(error, str(path), "missing", "a manifest names it", "persistent verify")
    rows += GOOD[12:]
    pipeline = pipeline_of(rows, storage, sink=MemorySink(), step_rows=6)
    with pytest.raises(CorruptCheckpoint) as error:
        run(pipeline, end_of_input=True)
    says(error, str(path))
    path.write_bytes(saved)
    run(pipeline, end_of_input=True)
    assert sum(row["visits"] for row in pipeline.sink.rows()) == 20


def test_a_corrupt_run(tmp_path: Path) -> None:
    """A bit flipped on a disk would be a number that is wrong."""
    storage = LocalStorage(tmp_path / "checkpoint")
    pipeline = pipeline_of(GOOD, storage, step_rows=6)
    run(pipeline)
    table = pipeline.state()
    for path in _runs(storage):
        saved = path.read_bytes()
        for at in range(0, len(saved), 37):
            path.write_bytes(saved[:at] + bytes([saved[at] ^ 4]) + saved[at + 1 :])
            with pytest.raises(CorruptCheckpoint) as error:
                pipeline.state()
            says(error, str(path), "persistent verify")
        for size in (0, 1, len(saved) // 2, len(saved) - 1):
            path.write_bytes(saved[:size])
            with pytest.raises(CorruptCheckpoint) as error:
                pipeline.state()
            says(error, str(path))
        path.write_bytes(saved)
    assert pipeline.state().equals(table)


def test_a_corrupt_newest_manifest(tmp_path: Path) -> None:
    """A run would silently go on from an older state, or the way back that its error tells would not work."""
    storage = LocalStorage(tmp_path / "checkpoint")
    checkpoint, results = tmp_path / "checkpoint", tmp_path / "results"
    rows = [dict(row) for row in GOOD[:10]]
    task = Visits()
    task.size = "3 s"

    def make() -> Pipeline:
        source = MemorySource(rows, timestamp="ts", ordered=True)
        return pipeline_of(source, storage, task, sink=FileSink(results), step_rows=5)

    run(make())
    good = Log(storage).ids()[-1]
    at_good = make().state()
    late = {**GOOD[3], "n": 1000}
    rows += [late, {**late, "ts": "soon"}, *GOOD[10:]]
    run(make())
    ids = Log(storage).ids()
    for id in [id for id in ids if id > good]:
        path = checkpoint / manifest_name(id)
        data = path.read_bytes()
        # A digit of a time of day may be any: only another one is damage.
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    listed = sorted(os.listdir(checkpoint / "d" / "Visits"))
    for refused in (lambda: run(make()), lambda: make().state()):
        with pytest.raises(CorruptCheckpoint) as error:
            refused()
        says(error, str(checkpoint / manifest_name(ids[-1])), "SHA-256")
        says(error, f"Checkpoint {good} is the newest", f"'persistent rollback {storage.url} {good} --outputs=retract'")
    assert sorted(os.listdir(checkpoint / "d" / "Visits")) == listed, "a refused run has deleted"

    rollback(storage, good, outputs="retract")
    assert make().state().equals(at_good)
    run(make(), end_of_input=True)
    found = [row for path in sorted(results.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    calm = MemorySink()
    source = MemorySource(rows, timestamp="ts", ordered=True)
    pipeline = pipeline_of(source, f"memory://{uuid.uuid4().hex}", task, sink=calm, step_rows=5)
    run(pipeline, end_of_input=True)
    assert sorted(found, key=repr) == sorted(calm.rows(), key=repr)
    assert make().late()["value"].to_pylist() == pipeline.late()["value"].to_pylist() == [late]
    assert make().dead_letters().num_rows == pipeline.dead_letters().num_rows == 1


def test_a_manifest_of_an_unknown_format(tmp_path: Path) -> None:
    """An older release would read what it does not understand."""

    storage = LocalStorage(tmp_path / "checkpoint")
    pipeline = pipeline_of(GOOD, storage)
    run(pipeline)
    path = Path(storage.url) / manifest_name(Log(storage).ids()[-1])
    body = body_of(path.read_bytes(), "")
    path.write_bytes(document({**body, "format": FORMAT + 1}))
    with pytest.raises(CorruptCheckpoint) as error:
        run(pipeline)
    says(error, f"format {FORMAT + 1}", "newer release")


def test_a_format_without_manifests_and_manifests_without_a_format(tmp_path: Path) -> None:
    """A checkpoint copied by half would be taken for an empty one."""
    storage = LocalStorage(tmp_path / "checkpoint")
    pipeline = pipeline_of(GOOD, storage)
    run(pipeline)
    place = Path(storage.url)
    (place / "FORMAT").rename(tmp_path / "FORMAT")
    with pytest.raises(CorruptCheckpoint) as error:
        run(pipeline)
    says(error, str(place / "FORMAT"), "missing", "Restore it from a copy")
    (tmp_path / "FORMAT").rename(place / "FORMAT")
    (place / "m").rename(tmp_path / "m")
    with pytest.raises(CorruptCheckpoint) as error:
        run(pipeline)
    says(error, str(place), "every manifest is missing", "restore")
