"""The sinks are looked at: what is published is there as it was published, and what cannot be known is said."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import uuid
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from monoids import Count
from persistent import (
    FileSink,
    FunctionSink,
    LogSink,
    MemorySink,
    MemorySource,
    Pipeline,
    Retention,
    SegmentedLog,
    SqliteSink,
    WindowState,
    tumbling,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.connect.sink import Sink
from persistent.engines.embedded import Embedded
from persistent.operations import compact, pin, rollback, savepoint
from persistent.storage import MemoryStorage, Storage, open_storage
from persistent.verify import Finding, verify_sinks
from tests.faults import DEATHS, FaultyStorage, Killed, Operations
from tests.few import one_in, share
from tests.verify.checkpoints import Visits, rows

Sinks = dict[str, Sink]


class Often(Visits):
    """Publishes in nearly every step."""

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling(1_200))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def job(folder: Path, count: int = 1200, **more: Any) -> Pipeline:
    """A job of some twenty checkpoints, of which ten are kept, with a sink of each kind that can tell what it holds."""
    sinks: Sinks = {
        "columns": FileSink(folder / "columns"),
        "lines": FileSink(folder / "lines", format="jsonl"),
        "log": LogSink(SegmentedLog(folder / "log", segment_bytes=4_000)),
        "table": SqliteSink(folder / "table.db", "visits"),
    }
    source = MemorySource(rows(count), timestamp="ts")
    given = {"task": Often(), "sink": sinks, "checkpoint": folder / "checkpoint", "step_rows": 60, **more}
    return Pipeline(source=source, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done") / "job"
    folder.mkdir()
    job(folder).run(engine="embedded")
    return folder


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(done, tmp_path / "job"))


def found(pipeline: Pipeline) -> list[tuple[str, str]]:
    return [(one.severity, f"{one.place}: {one.text}") for one in verify_sinks(pipeline).findings]


def only(pipeline: Pipeline, severity: str, part: str) -> Finding:
    """The only finding: one of this severity, in this part."""
    (one,) = verify_sinks(pipeline).findings
    assert (one.severity, one.part) == (severity, f"sink {part}"), one
    return one


def published(folder: Path, sink: str) -> list[Path]:
    return sorted(path for path in (folder / sink).iterdir() if path.is_file())


def lists(folder: Path, sink: str) -> list[Path]:
    return sorted((folder / sink / "_published").glob("*.json"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def moved(folder: Path, change: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / "table.db")) as database:
        assert database.execute(f"UPDATE persistent_marks SET {change}", values).rowcount == 1
        database.commit()


def test_whole_sinks_are_looked_at_and_found_whole(done: Path) -> None:
    """Without it, whoever verifies every night would be woken for nothing, or shown what was never read."""
    looked = verify_sinks(job(done))
    assert looked.findings == []
    assert {name: (part.checked > 0, part.rows) for name, part in looked.parts.items()} == {
        **{f"sink {name}": (True, looked.parts["sink columns"].rows) for name in ("columns", "lines", "log")},
        "sink table": (True, 0),
    }
    assert looked.parts["sink columns"].checked == len(published(done, "columns")) > 13


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", ["columns", "lines"])
def test_every_byte_of_a_file_that_a_kept_checkpoint_knows_counts(copy: Path, sink: str) -> None:
    """A flipped byte in a result would be read for ever as what the job has published."""
    path = published(copy, sink)[-1]
    size = path.stat().st_size
    for at in (0, size // 3, size // 2, size - 1):
        flip(path, at)
        fault = only(job(copy), "fault", sink)
        assert fault.place == str(path) and "SHA-256 differs. Restore it" in fault.text
        flip(path, at)
    path.write_bytes(path.read_bytes()[:-7])
    assert f"has {size - 7:,} bytes, but {size:,} were published" in only(job(copy), "fault", sink).text


def test_a_damaged_page_of_an_old_file_is_found(copy: Path) -> None:
    """No kept checkpoint knows its hash any more; without the checksums of its pages it would be read as it is."""
    path = published(copy, "columns")[0]
    page = pq.ParquetFile(path).metadata.row_group(0).column(0)
    flip(path, page.data_page_offset + page.total_compressed_size - 1)
    assert "cannot be read" in only(job(copy), "fault", "columns").text
    path.write_bytes(path.read_bytes()[:-10])
    assert "cannot be read" in only(job(copy), "fault", "columns").text


def test_old_lines_are_counted_and_parsed(copy: Path) -> None:
    """Of an old file of lines only that can be known: a line that is lost, cut off or broken."""
    path = published(copy, "lines")[0]
    lines = path.read_bytes().splitlines(keepends=True)
    for data, said in (
        (b"".join(lines[1:]), f"has {len(lines) - 1} rows, but {len(lines)} were published"),
        (b"".join(lines)[:-1], "its last line has no end"),
        (b"".join(lines).replace(b'"', b"'", 1), "cannot be read"),
        (b"", f"has 0 rows, but {len(lines)} were published"),
    ):
        path.write_bytes(data)
        assert said in only(job(copy), "fault", "lines").text


def test_files_may_be_removed_the_oldest_first(copy: Path) -> None:
    """Who moves the files that he has read would be told of damage; who has lost one in between, of nothing."""
    files = published(copy, "columns")
    for path in files[:3]:
        path.unlink()
    note = only(job(copy), "note", "columns")
    assert note.place == f"{files[0]} and 2 more"
    files[5].unlink()
    assert [one[0] for one in found(job(copy))] == ["note", "warning"]
    assert f"{files[5]}: listed, but gone, while older files exist" in found(job(copy))[1][1]
    for path in files:
        path.unlink(missing_ok=True)
    assert only(job(copy), "note", "columns").place == f"{files[0]} and {len(files) - 1} more"


def test_lists_must_stay_but_for_the_oldest(copy: Path) -> None:
    """Readers go by the lists: the rows of a checkpoint whose list is gone are lost to them."""
    paths = lists(copy, "lines")
    for gone in (paths[-2], paths[-4]):
        data = gone.read_bytes()
        gone.unlink()
        fault = only(job(copy), "fault", "lines")
        assert fault.place == str(gone) and fault.text.startswith("missing: ")
        gone.write_bytes(data)
    paths[-1].unlink()
    assert "the next run, publishes checkpoint" in only(job(copy), "note", "lines").text
    published(copy, "lines")[-1].unlink()
    assert "neither staged nor published" in only(job(copy), "fault", "lines").text
    for path in paths[:-4]:
        path.unlink()
    said = found(job(copy))
    assert {severity for severity, _ in said} == {"note", "warning", "fault"}
    assert any("missing, like all before it" in text for severity, text in said if severity == "note")
    for path in paths[-4:-1]:
        path.unlink()
    assert [text for _, text in found(job(copy)) if text.startswith(f"{paths[-2]}: missing: ")]


def test_a_list_that_is_not_its_checkpoints_is_told(copy: Path, tmp_path: Path) -> None:
    """A list of another job, or of another checkpoint, would send readers to files that this one never published."""
    other = tmp_path / "other"
    other.mkdir()
    job(other).run(engine="embedded")
    newest, old = lists(copy, "lines")[-1], lists(copy, "lines")[0]
    for path, data, said in (
        (newest, lists(other, "lines")[-1].read_bytes(), "or the list of another job"),
        (old, lists(copy, "lines")[1].read_bytes(), "is not the list of what checkpoint"),
        (old, b"", "is not the list of what checkpoint"),
        (old, old.read_bytes().replace(b'"rows":', b'"rows":1', 1), "do not add up"),
    ):
        before = path.read_bytes()
        path.write_bytes(data)
        faults = [text for severity, text in found(job(copy)) if severity == "fault"]
        assert [text.startswith(str(path)) and said in text for text in faults] == [True]
        path.write_bytes(before)


def test_the_folder_of_another_job_is_told(copy: Path) -> None:
    """Each run would be refused, and nobody would know since when."""
    owner = copy / "lines" / "_published" / "JOB"
    owner.write_text("another\n")
    assert "holds the results of job another" in only(job(copy), "fault", "lines").text
    owner.unlink()
    assert "this is another folder, or results were deleted" in only(job(copy), "fault", "lines").text
    owner.write_text("")
    assert "nobody knows whose results are here" in only(job(copy), "fault", "lines").text
    shutil.rmtree(copy / "lines")
    assert only(job(copy), "fault", "lines").place == str(owner)


def test_files_that_no_list_names_do_not_count(copy: Path) -> None:
    """Who reads the whole folder counts them; who goes by the lists does not, so nothing is wrong."""
    (copy / "lines" / "notes.txt").write_text("mine")
    (copy / "lines" / f"{7:020d}-00ff.jsonl").write_text("{}\n")
    (copy / "lines" / f"{700:020d}-00ff.jsonl").write_text("{}\n")
    said = [one for one in verify_sinks(job(copy)).findings if one.severity == "warning"]
    assert [one.place for one in said] == [f"{copy}/lines/{7:020d}-00ff.jsonl and 1 more"]


# -- logs ------------------------------------------------------------------------------------------------------------


def test_every_entry_of_a_log_is_read(copy: Path) -> None:
    """A job downstream would find the damage when it comes there, perhaps after the copies are gone."""
    sealed = sorted((copy / "log").rglob("*.sealed")) or sorted(p for p in (copy / "log").rglob("*") if p.is_file())
    biggest = max(sealed, key=lambda path: path.stat().st_size)
    data = biggest.read_bytes()
    flip(biggest, len(data) // 2)
    assert only(job(copy), "fault", "log")
    biggest.unlink()
    assert only(job(copy), "fault", "log")
    biggest.write_bytes(data)
    assert found(job(copy)) == []


# -- marks -----------------------------------------------------------------------------------------------------------


def test_a_mark_that_is_not_where_it_was_left_is_told(copy: Path) -> None:
    """The next run would be refused or, with a mark between two batches, call the table an older copy."""
    newest = Log(open_storage(copy / "checkpoint")).newest()
    assert newest is not None
    last = newest.manifest.sinks["table"].last
    assert last is not None
    for change, value, said in (
        ("number = ?", last - 2, "is none that checkpoint|is an older copy"),
        ("number = ?", 3, "it is an older copy, or its mark has moved"),
        ("number = ?", newest.manifest.id + 1, "beyond the newest checkpoint"),
        ("job = ?", "another", "has no mark of this job"),
        ("target = ?", "another", "has no mark of this job"),
    ):
        data = (copy / "table.db").read_bytes()
        moved(copy, change, value)
        text = only(job(copy), "fault", "table").text
        assert any(one in text for one in said.split("|")), text
        (copy / "table.db").write_bytes(data)
    (copy / "table.db").unlink()
    assert "has no mark of this job" in only(job(copy), "fault", "table").text


def test_a_table_that_is_gone_is_told(copy: Path) -> None:
    """Its mark would say that all has been published, and no row of it would be there."""
    with closing(sqlite3.connect(copy / "table.db")) as database:
        database.execute("DROP TABLE visits")
        database.commit()
    fault = only(job(copy), "fault", "table")
    assert fault.place == f"{copy}/table.db: table 'visits'" and fault.text.startswith("is gone, although")


def test_a_look_changes_nothing(copy: Path) -> None:
    """A database that is not the job's, or may only be read, would get a table of ours by being looked at."""
    with closing(sqlite3.connect(copy / "table.db")) as database:
        database.execute("DROP TABLE persistent_marks")
        database.commit()
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert "has no mark of this job" in only(job(copy), "fault", "table").text
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_mark_between_two_batches_is_told(tmp_path: Path) -> None:
    """In a sink that gets few batches, a mark can stand where no batch ever was."""

    def made(count: int = 1120) -> Pipeline:
        sinks: Sinks = {"table": SqliteSink(tmp_path / "table.db", "visits")}
        return job(tmp_path, count, task=Visits(), sink=sinks, step_rows=20)

    made(1000).run(engine="embedded")
    made().run(engine="embedded")
    log = Log(open_storage(tmp_path / "checkpoint"))
    newest = log.newest()
    assert newest is not None
    part = newest.manifest.sinks["table"]
    numbers = {part.last, *(batch.before for batch in part.unpublished)}
    between = range(max(one or 0 for one in numbers) + 1, newest.manifest.id + 1)
    assert len(between) > 2 and found(made()) == []
    for number in between:
        moved(tmp_path, "number = ?", number)
        assert "is none that checkpoint" in only(made(), "fault", "table").text


def test_an_older_copy_of_the_checkpoint_is_told(done: Path, tmp_path: Path) -> None:
    """Its next run would commit again what has been published, and be refused by a part of the sinks."""
    folder = Path(shutil.copytree(done, tmp_path / "job"))
    old = Path(shutil.copytree(folder / "checkpoint", tmp_path / "old"))
    job(folder, 1500).run(engine="embedded")
    shutil.rmtree(folder / "checkpoint")
    old.rename(folder / "checkpoint")
    said = found(job(folder))
    assert len([text for severity, text in said if severity == "fault" and "beyond the newest checkpoint" in text]) == 4


# -- what is not looked at -------------------------------------------------------------------------------------------


def test_what_is_not_looked_at_is_said(tmp_path: Path) -> None:
    """A verification without a word would count as a proof of what nobody has seen."""
    memory = MemorySink()

    def made(sink: Sinks) -> Pipeline:
        return job(tmp_path, sink=sink)

    sinks: Sinks = {"function": FunctionSink(lambda table, id: None), "memory": memory}
    assert [text for _, text in found_if_any(made(sinks))] == []
    made(sinks).run(engine="embedded")
    said = found(made({**sinks, "memory": MemorySink()}))
    assert [severity for severity, _ in said] == ["note", "note"]
    assert all("it cannot tell what it holds" in text for _, text in said)
    assert len(found(made(sinks))) == 1
    assert "the pipeline does not have it" in found(made({"memory": memory}))[0][1]
    assert any("nothing is known to be" in text for _, text in found(made({**sinks, "new": MemorySink()})))


def found_if_any(pipeline: Pipeline) -> list[tuple[str, str]]:
    return found(pipeline) if pipeline.storage.list("m") else []


def test_behind_an_unreadable_checkpoint_nothing_is_looked_at(copy: Path) -> None:
    """Compared with an older checkpoint, every sink would be called too far."""
    newest = sorted((copy / "checkpoint" / "m").iterdir())[-1]
    newest.write_bytes(b"torn")
    (finding,) = verify_sinks(job(copy)).findings
    assert (finding.severity, finding.part) == ("note", "sinks")


def test_outputs_that_wait_in_the_checkpoint_are_read(copy: Path) -> None:
    """A table that has not got its newest batch never gets it, if the file that holds it is damaged."""
    newest = Log(open_storage(copy / "checkpoint")).newest()
    assert newest is not None
    (batch,) = newest.manifest.sinks["table"].unpublished
    moved(copy, "number = ?", batch.before)
    assert "not published yet" in only(job(copy), "note", "table").text
    waiting = copy / "checkpoint" / batch.staged[0].name
    flip(waiting, 300)
    assert batch.staged[0].name in only(job(copy), "fault", "table").text
    waiting.unlink()
    assert "neither staged nor published" in only(job(copy), "fault", "table").text


def test_a_sink_that_is_away_is_a_fault(copy: Path) -> None:
    """Whoever verifies would take it for looked at; and the other sinks must be looked at nevertheless."""
    (copy / "table.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    fault = only(job(copy), "fault", "table")
    assert "file is not a database" in fault.text


# -- after operations, and beside a run ------------------------------------------------------------------------------


def test_results_that_a_later_rollback_has_taken_back_are_told(copy: Path) -> None:
    """The checkpoint is a copy from before a rollback that has published nothing since: its results do not count."""
    kept = sorted(newest_of(Log(open_storage(copy / "checkpoint"))).manifest.bases)
    FileSink(copy / "columns").retract(kept[-4], kept[-1] + 2)
    (fault,) = [one for one in verify_sinks(job(copy)).findings if one.severity == "fault"]
    assert fault.part == "sink columns" and "a rollback has taken it back" in fault.text


@pytest.mark.parametrize("outputs", ["retract", "again"])
def test_what_operations_leave_is_no_damage(tmp_path: Path, outputs: str) -> None:
    """Verify would cry out at every job that was ever gone back, pinned, compacted or continued from a savepoint."""
    sinks: Sinks = {
        "columns": FileSink(tmp_path / "columns"),
        "table": SqliteSink(tmp_path / "table.db", "visits"),
    }

    def made(count: int, **more: Any) -> Pipeline:
        return job(tmp_path, count, **{"sink": sinks, "late_sink": FileSink(tmp_path / "late"), **more})

    made(700).run(engine="embedded")
    made(1200).run(engine="embedded")
    assert verify_sinks(made(1200)).parts["sink late"].checked
    storage = open_storage(tmp_path / "checkpoint")
    ids = Log(storage).ids()
    pin(storage, ids[-8])
    compact(made(1200))
    assert found(made(1200)) == []
    savepoint(storage, "monday")
    rollback(storage, ids[-6], outputs=outputs)
    assert found(made(1200)) == []
    made(1230).run(engine="embedded")
    assert found(made(1230)) == []
    rollback(storage, Log(storage).ids()[-2], outputs=outputs)
    made(1400).run(engine="embedded", end_of_input=True)
    assert found(made(1400)) == []
    table: Sinks = {"table": sinks["table"], "columns": FileSink(tmp_path / "columns-2")}
    if outputs == "again":
        return
    heir_folder = tmp_path / "heir"
    heir = made(
        1400,
        sink={**table, "table": SqliteSink(tmp_path / "table-2.db", "visits")},
        late_sink=FileSink(tmp_path / "late-2"),
        checkpoint=heir_folder,
        start_from=tmp_path / "checkpoint" / "s" / "monday",
    )
    heir.run(engine="embedded")
    assert found(heir) == []


@pytest.mark.parametrize("kept", [2, 10])
def test_what_a_run_without_its_sink_discards_is_not_missing(tmp_path: Path, kept: int) -> None:
    """Nobody has published it, and nobody will; a checkpoint that is pinned still names it, when all others are gone
    that know it was discarded."""

    def made(count: int) -> Pipeline:
        sinks: Sinks = {"lines": FileSink(tmp_path / "lines", format="jsonl")}
        return job(tmp_path, count, sink=sinks, retention=Retention(last=kept))

    made(600).run(engine="embedded")
    storage = open_storage(tmp_path / "checkpoint")
    pin(storage, Log(storage).ids()[-1])
    lists(tmp_path, "lines")[-1].unlink()
    published(tmp_path, "lines")[-1].unlink()
    job(tmp_path, 660, sink=None, discard_closed=True).run(engine="embedded")
    assert found(made(660)) == []
    made(780).run(engine="embedded")
    assert found(made(780)) == []


class Overtaken(SqliteSink):
    """A table whose job goes on while its mark is read. Counts how often it was closed."""

    closed = 0
    overtaken: Pipeline
    mark = 0

    def newest(self, job: str) -> int:
        self.overtaken.run(engine="embedded")
        return self.mark

    def close(self) -> None:
        self.closed += 1


def test_outputs_that_are_collected_meanwhile_are_not_missing(tmp_path: Path) -> None:
    """A job that goes on deletes what its sinks have got, and a connection that is left open holds a server."""
    sink = Overtaken(tmp_path / "table.db", "visits")

    def made(count: int, sink: Sink) -> Pipeline:
        return job(tmp_path, count, sink={"table": sink})

    table = SqliteSink(tmp_path / "table.db", "visits")
    made(600, table).run(engine="embedded")
    newest = Log(open_storage(tmp_path / "checkpoint")).newest()
    assert newest is not None
    (batch,) = newest.manifest.sinks["table"].unpublished
    sink.mark, sink.overtaken = batch.before or 0, made(900, table)
    assert found(made(900, sink)) == []
    assert sink.closed == 1
    assert not (tmp_path / "checkpoint" / batch.staged[0].name).exists()


def dying(place: str, count: int, operations: Operations | None = None) -> Pipeline:
    """A job that dies where these operations say, with sinks of both kinds."""

    def store(name: str) -> Storage:
        inner = MemoryStorage(f"{place}-{name}")
        return inner if operations is None else FaultyStorage(inner, operations)

    return Pipeline(
        source=MemorySource(rows(count), timestamp="ts"),
        task=Often(),
        sink={"lines": FileSink(store("out"), format="jsonl"), "log": LogSink(store("log"))},
        late_sink=FileSink(store("late")),
        checkpoint=store("cp"),
        step_rows=100,
    )


def only_notes(pipeline: Pipeline) -> None:
    if pipeline.storage.list("m"):
        findings = verify_sinks(pipeline).findings
        assert {one.severity for one in findings} <= {"note"}, findings


def second_run(place: str, operations: Operations) -> None:
    """Run, go back, and run again, until death comes."""
    dying(place, 250).run(engine="embedded")
    log = Log(MemoryStorage(f"{place}-cp"))
    rollback(log.storage, log.ids()[-2], outputs="again")
    with suppress(Killed):
        dying(place, 450, operations).run(engine=Embedded(threads=1))


@pytest.mark.parametrize("part", one_in(4, range(4)))
def test_a_death_anywhere_leaves_no_damage(part: int) -> None:
    """Whoever looks before the next run would be told of damage that this run mends by itself."""
    counted = Operations()
    second_run(f"verify-count-{uuid.uuid4().hex}", counted)
    assert counted.count > 100
    for at, how in share(50, [*product(range(counted.count), DEATHS)][part::4]):
        place = f"verify-death-{uuid.uuid4().hex}"
        second_run(place, Operations(at=at, how=how))
        whole = dying(place, 450)
        only_notes(whole)
        whole.run(engine="embedded")
        only_notes(whole)


def test_what_was_never_published_and_is_taken_back_is_not_missing(tmp_path: Path) -> None:
    """A driver that died before it published, and a rollback before the next run: nobody can publish it any more."""

    def made() -> Pipeline:
        return job(tmp_path, sink={"lines": FileSink(tmp_path / "lines", format="jsonl")})

    made().run(engine="embedded")
    lists(tmp_path, "lines")[-1].unlink()
    published(tmp_path, "lines")[-1].unlink()
    assert "neither staged nor published" in only(made(), "fault", "lines").text
    storage = open_storage(tmp_path / "checkpoint")
    rollback(storage, Log(storage).ids()[-3], outputs="retract")
    assert found(made()) == []
    made().run(engine="embedded")
    assert found(made()) == []


def test_a_job_at_work_may_be_looked_at(tmp_path: Path) -> None:
    """What is published while it is looked at would be called lost, or beyond the checkpoint."""
    place = f"verify-sinks-{uuid.uuid4().hex}"
    made = Pipeline(
        source=MemorySource(rows(2_000), timestamp="ts"),
        task=Often(),
        sink={
            "lines": FileSink(MemoryStorage(f"{place}-out"), format="jsonl"),
            "log": LogSink(MemoryStorage(f"{place}-log")),
            "table": SqliteSink(tmp_path / "table.db", "visits"),
        },
        checkpoint=MemoryStorage(place),
        step_rows=20,
    )
    running = threading.Thread(target=made.run, kwargs={"engine": Embedded(threads=1)})
    running.start()
    looks, ids = 0, set()
    while running.is_alive():
        if made.storage.list("m"):
            looked = verify_sinks(made)
            assert {one.severity for one in looked.findings} <= {"note"}, looked.findings
            looks, ids = looks + 1, ids | {looked.newest}
    running.join()
    assert looks >= 3 and len(ids) >= 3
    assert verify_sinks(made).findings == []


# -- what a look costs -----------------------------------------------------------------------------------------------


class Counted(MemoryStorage):
    """Counts its requests, and the files that are held at a time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[tuple[str, str]] = []

    def read(self, name: str) -> Any:
        self.asked.append(("read", name))
        return super().read(name)

    def list(self, folder: str) -> Any:
        self.asked.append(("list", folder))
        return super().list(folder)


def test_a_look_reads_each_file_once_and_lists_seldom() -> None:
    """On a store in the network, a request too many for each file is an hour too many for each night."""
    out = Counted(f"verify-cost-{uuid.uuid4().hex}")
    source = MemorySource(rows(1200), timestamp="ts")
    made = Pipeline(source=source, task=Often(), sink=FileSink(out), checkpoint="memory://verify-cost", step_rows=60)
    made.run(engine="embedded")
    out.asked.clear()
    assert verify_sinks(made).findings == []
    reads = [name for verb, name in out.asked if verb == "read"]
    assert len(reads) == len(set(reads)) == 1 + 2 * len([one for one in reads if one.endswith(".parquet")])
    assert len([name for verb, name in out.asked if verb == "list"]) <= 8
