"""The contract of a sink, over all sinks: staged is invisible, published is visible once."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import uuid
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent.errors import CorruptCheckpoint, InvalidPipeline, SinkMismatch, StagedMissing
from persistent.sinks import FileSink, MemorySink, Sink, Staged
from persistent.storage import LocalStorage, MemoryStorage, Put
from persistent.storage.fsspec_storage import rename_by_copy
from tests.faults import FaultyStorage, Killed, Operations

Rows = list[dict[str, Any]]


def rows_of(sink: FileSink) -> Rows:
    """What a reader of the folder sees."""
    rows: Rows = []
    for name in sink.storage.list(""):
        data = sink.storage.read(name)
        if name.endswith(".parquet"):
            rows += pq.read_table(pa.BufferReader(data)).to_pylist()
        else:
            rows += [json.loads(line) for line in data.to_pybytes().splitlines()]
    return rows


@pytest.fixture(params=["parquet", "jsonl", "storage", "memory"])
def sink_and_rows(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Sink, Callable[[], Rows]]:
    """A sink with nothing in it, and a reader of what it has published."""
    if request.param == "memory":
        memory = MemorySink()
        return memory, memory.rows
    if request.param == "storage":
        files = FileSink(MemoryStorage(uuid.uuid4().hex))
    else:
        files = FileSink(tmp_path / "out", format=request.param)
    return files, lambda: rows_of(files)


@pytest.mark.parametrize("name", ["json", "jsonl", "ndjson"])
def test_a_format_has_the_names_that_a_source_takes(tmp_path: Path, name: str) -> None:
    """Without it the word that FileSource takes would be refused here, or name another file."""
    sink = FileSink(tmp_path, format=name)
    sink.publish(7, [sink.stage(pa.table({"n": [1]}), 7, attempt(1, 7))])
    (shown,) = tmp_path.glob("0*")
    assert (sink.format, shown.suffix, rows_of(sink)) == ("jsonl", ".jsonl", [{"n": 1}])


def attempt(epoch: int, id: int) -> str:
    return f"e{epoch}-c{id}-{uuid.uuid4().hex}"


def outputs(*counts: int) -> pa.Table:
    return pa.table({"page": [f"p{count}" for count in counts], "visits": pa.array(counts, pa.int64())})


def test_staged_is_invisible_and_published_is_visible_once(
    sink_and_rows: tuple[Sink, Callable[[], Rows]],
) -> None:
    """A result of a step that failed would be seen, or one of a step that did not would be missing or
    doubled."""
    sink, rows = sink_and_rows
    assert isinstance(sink, Sink)
    staged = [sink.stage(outputs(1, 2), 7, attempt(1, 7)), sink.stage(outputs(3), 7, attempt(1, 7))]
    sink.stage(outputs(99), 7, attempt(1, 7))
    assert [file.rows for file in staged] == [2, 1]
    assert all(file.bytes > 0 for file in staged)
    assert rows() == []
    for _ in range(2):
        sink.publish(7, staged)
        assert sorted(row["visits"] for row in rows()) == [1, 2, 3]
    sink.publish(8, [])
    sink.publish(8, [sink.stage(outputs(4), 8, attempt(1, 8))])
    assert sorted(row["visits"] for row in rows()) == [1, 2, 3, 4]
    assert rows()[-1] == {"page": "p4", "visits": 4}


def test_what_is_neither_staged_nor_published_is_an_error(
    sink_and_rows: tuple[Sink, Callable[[], Rows]],
) -> None:
    """Rows that a checkpoint promises would be missing without a word."""
    sink, rows = sink_and_rows
    one, other = (sink.stage(outputs(count), 7, attempt(1, 7)) for count in (1, 2))
    sink.sweep([one.name], 1, 7)
    with pytest.raises(StagedMissing, match="neither staged nor published"):
        sink.publish(7, [one, other])
    assert [row["visits"] for row in rows()] == [1]


def test_a_sweep_takes_what_nobody_will_publish(sink_and_rows: tuple[Sink, Callable[[], Rows]]) -> None:
    """Disks fill with the outputs of failed attempts; or outputs of a step under way are deleted."""
    sink, rows = sink_and_rows
    old, dead, live, under_way, newer = (
        sink.stage(outputs(count), id, attempt(epoch, id))
        for count, (epoch, id) in enumerate([(1, 9), (2, 7), (2, 7), (2, 8), (3, 1)])
    )
    sink.sweep([live.name], 2, 7)
    for id, gone in ((9, old), (7, dead)):
        with pytest.raises(StagedMissing):
            sink.publish(id, [gone])
    sink.publish(7, [live])
    sink.publish(8, [under_way])
    sink.publish(9, [newer])
    assert [row["visits"] for row in rows()] == [2, 3, 4]
    sink.sweep([], 99, 99)
    assert [row["visits"] for row in rows()] == [2, 3, 4]


def test_another_attempt_stages_beside_the_first(sink_and_rows: tuple[Sink, Callable[[], Rows]]) -> None:
    """A retried worker would overwrite the file that the driver has already named."""
    sink, rows = sink_and_rows
    first = sink.stage(outputs(1), 7, attempt(1, 7))
    second = sink.stage(outputs(1), 7, attempt(1, 7))
    assert first.name != second.name
    sink.publish(7, [second])
    assert len(rows()) == 1


def test_an_attempt_of_another_form_is_refused(sink_and_rows: tuple[Sink, Callable[[], Rows]]) -> None:
    """Its file could never be swept."""
    with pytest.raises(ValueError, match="attempt"):
        sink_and_rows[0].stage(outputs(1), 7, "mine")


def test_a_sink_is_of_one_job(sink_and_rows: tuple[Sink, Callable[[], Rows]]) -> None:
    """A second job would sweep away what the first has staged and committed, and mix its rows with theirs."""
    sink, rows = sink_and_rows
    for _ in range(2):
        sink.claim("a" * 32)
    staged = sink.stage(outputs(1), 7, attempt(1, 7))
    with pytest.raises(SinkMismatch, match=f"{'a' * 32}.*{'b' * 32}.*[Tt]wo jobs.*own"):
        sink.claim("b" * 32)
    sink.claim("a" * 32)
    sink.publish(7, [staged])
    assert [row["visits"] for row in rows()] == [1]


def test_an_id_publishes_one_list(sink_and_rows: tuple[Sink, Callable[[], Rows]]) -> None:
    """Two copies of a checkpoint with one output folder would mix their results without a word."""
    sink, rows = sink_and_rows
    sink.publish(7, [sink.stage(outputs(1), 7, attempt(1, 7))])
    other = sink.stage(outputs(2), 7, attempt(1, 7))
    for _ in range(2):
        with pytest.raises(SinkMismatch, match="own") as error:
            sink.publish(7, [other])
        assert not isinstance(error.value, StagedMissing)
    assert [row["visits"] for row in rows()] == [1]


# -- files
# -----------------------------------------------------------------------------------------------------------


def test_published_lists_all_files_of_a_checkpoint(tmp_path: Path) -> None:
    """A reader that needs all rows of a checkpoint or none could not tell which it sees."""
    sink = FileSink(tmp_path)
    staged = [sink.stage(outputs(*range(count)), 7, attempt(2, 7)) for count in (1, 2)]
    sink.publish(7, staged)
    sink.publish(8, [])
    assert sink.storage.list("_published") == ["00000000000000000007.json"]
    listed = json.loads(sink.storage.read("_published/00000000000000000007.json").to_pybytes())
    assert sorted(file["name"] for file in listed["files"]) == sink.storage.list("")
    for file in listed["files"]:
        assert pq.read_table(tmp_path / file["name"]).num_rows == file["rows"]
    assert (listed["id"], listed["rows"]) == (7, 3)
    sink.publish(7, staged[::-1])


def test_what_was_published_may_be_taken_away(tmp_path: Path) -> None:
    """A consumer that moves the files it has read would stop every later run."""
    sink = FileSink(tmp_path)
    staged = [sink.stage(outputs(count), 7, attempt(1, 7)) for count in (1, 2)]
    sink.publish(7, staged)
    for name in sink.storage.list(""):
        sink.storage.delete(name)
    sink.publish(7, staged)
    assert sink.storage.list("") == []
    sink.storage.delete(f"_published/{7:020d}.json")
    with pytest.raises(StagedMissing):
        sink.publish(7, staged)


def test_the_owner_is_out_of_sight_of_readers(tmp_path: Path) -> None:
    """Readers of the results, or of the lists, would stumble over it; a sink of the same folder must find it."""
    FileSink(tmp_path).claim("a" * 32)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        "_published/JOB"
    ]
    FileSink(tmp_path, format="jsonl").claim("a" * 32)
    with pytest.raises(SinkMismatch, match="choose another folder, or delete this one"):
        FileSink(tmp_path).claim("b" * 32)


@pytest.mark.parametrize("damage", [b"", b"a" * 7, b"a" * 32 + b"\nx", b"\0" * 33])
def test_a_damaged_owner_is_not_another_job(damage: bytes, tmp_path: Path) -> None:
    """The advice for two jobs is to delete a folder: here it is the own one, with all results."""
    sink = FileSink(tmp_path / "my results")
    sink.claim("a" * 32)
    owner = tmp_path / "my results" / "_published" / "JOB"
    owner.write_bytes(damage)
    with pytest.raises(SinkMismatch, match="/JOB is damaged") as error:
        sink.claim("a" * 32)
    assert "delete" not in str(error.value)
    subprocess.run(str(error.value).partition("as by '")[2].partition("'. Otherwise")[0], shell=True, check=True)
    sink.claim("a" * 32)


@pytest.mark.parametrize("damage", [b"", b'{"files":[{"na', b"\0" * 99])
def test_a_damaged_list_is_not_that_of_another_job(damage: bytes, tmp_path: Path) -> None:
    """What the message says must help: the list can be made anew."""
    sink = FileSink(tmp_path)
    staged = sink.stage(outputs(1), 7, attempt(1, 7))
    sink.publish(7, [staged])
    listed = tmp_path / "_published" / f"{7:020d}.json"
    whole = listed.read_bytes()
    listed.write_bytes(damage)
    with pytest.raises(SinkMismatch, match=rf"^{listed} is damaged: delete it, and run again"):
        sink.publish(7, [staged])
    listed.unlink()
    sink.publish(7, [staged])
    assert listed.read_bytes() == whole


def test_the_final_name_is_fixed_when_staged(tmp_path: Path) -> None:
    """A publication repeated with another format set would publish the rows twice."""
    name = attempt(3, 41)
    staged = FileSink(tmp_path, format="jsonl").stage(outputs(1), 41, name)
    data = (tmp_path / "_staged" / f"{name}.jsonl").read_bytes()
    assert staged == Staged(f"_staged/{name}.jsonl", 1, len(data), sha256(data).hexdigest())
    FileSink(tmp_path, format="parquet").publish(41, [staged])
    assert FileSink(tmp_path).storage.list("") == [f"{41:020d}-{name.rpartition('-')[2]}.jsonl"]


def test_a_staged_file_that_was_damaged_is_found(tmp_path: Path) -> None:
    """A driver that takes over publishes what another has staged; nobody has read it since."""
    sink = FileSink(tmp_path, format="jsonl")
    staged = [sink.stage(outputs(count), 7, attempt(1, 7)) for count in (1, 2)]
    assert sink.damaged(staged) is None
    path = tmp_path / staged[1].name
    path.write_bytes(path.read_bytes()[:-1])
    assert sink.damaged(staged) == str(path)
    # What is published already is not staged any more.
    path.unlink()
    assert sink.damaged(staged) is None


def test_the_published_list_comes_last() -> None:
    """A reader would be told that all files are there while some are not."""
    operations = Operations()
    sink = FileSink(FaultyStorage(MemoryStorage(uuid.uuid4().hex), operations))
    staged = [sink.stage(outputs(1), 7, attempt(1, 7)) for _ in range(2)]
    sink.publish(7, staged)
    verbs = [verb for verb, _, _ in operations.log]
    assert verbs == ["write", "write", "read", "rename", "rename", "put_if_absent"]


@pytest.mark.crash
@pytest.mark.parametrize("store", ["local", "memory"])
@pytest.mark.parametrize("how", ["before", "after", "half"])
def test_a_publication_killed_anywhere_is_finished(tmp_path: Path, store: str, how: str) -> None:
    """A crash between two renames would leave rows out for ever, or stop every later run."""
    for at in range(5):
        inner = LocalStorage(tmp_path / f"{at}") if store == "local" else MemoryStorage(uuid.uuid4().hex)
        sink = FileSink(inner)
        staged = [sink.stage(outputs(count), 7, attempt(1, 7)) for count in range(2)]
        killed = FileSink(FaultyStorage(inner, Operations(at=at, how=how)))
        if at < 4:
            with pytest.raises(Killed):
                killed.publish(7, staged)
        else:
            killed.publish(7, staged)
        sink.publish(7, staged)
        sink.sweep([], 2, 0)
        assert sorted(row["visits"] for row in rows_of(sink)) == [0, 1]
        assert inner.list("_staged") == []
        assert len(inner.list("_published")) == 1


def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    """A lost answer would be taken for a list that was never put, or for another job's."""

    class Silent(LocalStorage):
        """Answers UNKNOWN: once without having done anything, once after having done it."""

        asked = 0

        def put_if_absent(self, name: str, data: bytes) -> Put:
            self.asked += 1
            if self.asked > 1:
                super().put_if_absent(name, data)
            return Put.UNKNOWN

    storage = Silent(tmp_path)
    sink = FileSink(storage)
    sink.publish(7, [sink.stage(outputs(1), 7, attempt(1, 7))])
    assert storage.asked == 2
    assert storage.list("_published") == ["00000000000000000007.json"]
    storage.asked = 0
    sink.claim("a" * 32)
    assert storage.asked == 2
    with pytest.raises(SinkMismatch, match="Two jobs"):
        sink.claim("b" * 32)


def test_a_copied_folder_is_published_once(tmp_path: Path) -> None:
    """A copy made between the halves of a rename holds a file twice; another file of that name is no such copy."""
    sink = FileSink(tmp_path)
    staged = sink.stage(outputs(1), 7, attempt(1, 7))
    final = f"{7:020d}-{staged.name.rpartition('-')[2]}"
    sink.storage.write(final, sink.storage.read(staged.name))
    sink.publish(7, [staged])
    assert [row["visits"] for row in rows_of(sink)] == [1]
    (tmp_path / "_published" / f"{7:020d}.json").unlink()
    (tmp_path / final).write_bytes(b"other")
    with pytest.raises(SinkMismatch, match="move the file away"):
        sink.publish(7, [staged])


def test_an_unknown_format_is_refused_at_once() -> None:
    """The pipeline would fail after the first step, on a worker."""
    with pytest.raises(InvalidPipeline, match="parquet, jsonl"):
        FileSink("memory://x", format="csv")


def test_a_file_sink_travels_to_workers(tmp_path: Path) -> None:
    """Workers would stage elsewhere."""
    sink = pickle.loads(cloudpickle.dumps(FileSink(tmp_path, format="jsonl")))
    assert (sink.url, sink.format, sink.shared) == (str(tmp_path), "jsonl", True)
    assert not FileSink("memory://x").shared


class Copying(MemoryStorage):
    """A store without rename. ``asleep``: called once, before the first operation of that verb on such a name."""

    def __init__(self, name: str, verb: str = "", place: str = "", asleep: Callable[[], None] | None = None) -> None:
        super().__init__(name)
        self._until = verb, place
        self._asleep = asleep

    def rename(self, source: str, target: str) -> None:
        rename_by_copy(self, source, target, 3)

    def put_if_absent(self, name: str, data: Any) -> Put:
        self._sleep("put", name)
        return super().put_if_absent(name, data)

    def delete(self, name: str) -> None:
        self._sleep("delete", name)
        super().delete(name)

    def _sleep(self, verb: str, name: str) -> None:
        asleep = self._asleep
        if asleep is not None and verb == self._until[0] and self._until[1] in name:
            self._asleep = None
            asleep()


SLEEPS = [("put", f"{7:020d}-"), ("delete", "_staged"), ("put", "_published")]


@pytest.mark.parametrize(("verb", "place"), SLEEPS, ids=["before the file", "before the delete", "before the list"])
@pytest.mark.parametrize("renames", [False, True], ids=["copies", "renames"])
def test_a_sleeper_brings_nothing_back_that_was_taken_back(verb: str, place: str, renames: bool) -> None:
    """A driver that was fenced in the middle of a publication would show rows that a rollback has taken back, for
    good, beside those that are published in their place."""
    name = uuid.uuid4().hex

    def taken_back() -> None:
        sink = FileSink(Copying(name), format="jsonl")
        sink.mark(5, 12)
        sink.sweep([], 2, 12)
        sink.retract(5, 12)
        sink.publish(13, [sink.stage(outputs(2), 13, attempt(2, 13))])

    store = Copying(name, verb, place, taken_back)
    if renames:
        store.rename = super(Copying, store).rename  # type: ignore[method-assign]
        if place != "_published":
            return
    sleeper = FileSink(store, format="jsonl")
    with pytest.raises(StagedMissing):
        sleeper.publish(7, [sleeper.stage(outputs(1), 7, attempt(1, 7))])
    reader = FileSink(Copying(name), format="jsonl")
    assert [published[:20] for published in reader.published()] == [f"{13:020d}"]
    # Who knows the lists alone sees the same.
    lists = [
        json.loads(reader.storage.read(f"_published/{one}").to_pybytes()) for one in reader.storage.list("_published")
    ]
    assert [one["id"] for one in lists if one["files"]] == [13]
    reader.tidy()
    assert reader.storage.list("") == reader.published()
    assert reader.newest() == 13


def test_a_list_put_in_spite_of_a_retraction_does_not_count() -> None:
    """Two sleepers, one of which takes back, can bring a list back: then the mark decides."""
    sink = FileSink(MemoryStorage(uuid.uuid4().hex), format="jsonl")
    staged = sink.stage(outputs(1), 7, attempt(1, 7))
    sink.mark(5, 12)
    sink.storage.delete(f"_published/{7:020d}.json")
    sink.publish(7, [staged])
    assert sink.published() == []
    sink.tidy()
    assert sink.storage.list("") == []
    with pytest.raises(StagedMissing, match="taken back"):
        sink.publish(7, [staged])


def test_what_another_published_and_a_reader_took_away_is_not_missing() -> None:
    """The driver that goes on would stop, and call for a file that was delivered long ago."""
    name = uuid.uuid4().hex
    sink = FileSink(MemoryStorage(name), format="jsonl")
    staged = sink.stage(outputs(1), 7, attempt(1, 7))

    class Sleeper(MemoryStorage):
        def rename(self, source: str, target: str) -> None:
            sink.publish(7, [staged])
            for published in sink.published():
                sink.storage.delete(published)
            super().rename(source, target)

    FileSink(Sleeper(name), format="jsonl").publish(7, [staged])
    assert sink.published() == []


# -- memory
# ----------------------------------------------------------------------------------------------------------


def test_a_memory_sink_does_not_travel() -> None:
    """Workers would publish into their own memory, and the user would see nothing."""
    sink = MemorySink()
    assert not sink.shared
    assert sink.table is None and sink.rows() == []
    with pytest.raises(InvalidPipeline, match="embedded engine only"):
        cloudpickle.dumps({"sink": sink})


def test_others_can_read_what_is_published(tmp_path: Path) -> None:
    """Without it, results would be readable by the account that ran the pipeline alone, as checkpoints are."""
    before = os.umask(0o022)
    try:
        sink = FileSink(tmp_path / "results")
        sink.publish(7, [sink.stage(pa.table({"a": [1]}), 7, f"e1-c7-{'0' * 32}")])
    finally:
        os.umask(before)
    (published,) = (tmp_path / "results").glob("*.parquet")
    assert stat.S_IMODE(published.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "results").stat().st_mode) == 0o755


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"files":', b"[1]", b'{"files": [{}]}', b"\xff"])
def test_a_list_that_cannot_be_read_is_told(damage: bytes, tmp_path: Path) -> None:
    """An empty one was taken for a checkpoint without files: its rows were missing, without a word."""
    sink = FileSink(tmp_path, format="jsonl")
    sink.publish(7, [sink.stage(pa.table({"n": [1]}), 7, "e1-c7-a")])
    assert sink.published()
    listed = tmp_path / f"_published/{7:020d}.json"
    listed.write_bytes(damage)
    with pytest.raises(CorruptCheckpoint, match=f"{listed}: not a list .* Restore it"):
        sink.published()
    # Once it is taken back nothing of it counts.
    sink.mark(7, 8)
    assert sink.published() == []


def test_rows_in_memory_whose_types_grew_wider_are_one_table() -> None:
    """The job widens the type of a decimal key; its rows could be published and not read."""
    sink = MemorySink()
    sink.claim("job")
    for id, text in ((1, "1.5"), (2, "12.25")):
        staged = sink.stage(pa.table({"key": pa.array([Decimal(text)])}), id, f"e1-c{id}-a")
        sink.publish(id, [staged])
    assert [row["key"] for row in sink.rows()] == [Decimal("1.50"), Decimal("12.25")]
