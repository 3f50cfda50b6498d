"""Reads of a source that fail, and inputs that change: a store's fault is no file's, and nothing is silently missed."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSource
from persistent.errors import InputGone, SourceChanged, SourceError, StorageError
from persistent.sources import Budget, SourceState
from persistent.sources.files import Files
from persistent.sources.formats import InputFile
from tests.faults import Killed
from tests.proof.inputs import EVER, Fault, Inputs, on_disk, patience, served
from tests.proof.inputs_job import FORMATS, Job, encoded, small_edges
from tests.sources.draining import drain


def source(root, clock, lenient=True, **options):
    """A lenient source whose pauses take no time."""
    bad = "dead-letter" if lenient else "raise"
    made = FileSource(root, timestamp="ts", timestamp_unit="ms", on_bad_file=bad, **options)
    made._files.patience = patience(clock)
    return made


def ids(drained):
    return [row["id"] for row in drained.values]


@pytest.mark.parametrize("ending", ["jsonl.gz", "parquet"])
@pytest.mark.parametrize("kind", ["timeout", "reset", "short"])
def test_a_read_that_fails_once_is_no_dead_letter(ending, kind):
    """Without it one timeout costs the rest of a file, for good."""
    files = {f"in/a.{ending}": encoded(ending, range(40))}
    places = [at for at, (verb, _) in enumerate(_verbs(files)) if verb == "read"]
    assert places
    for at in places:
        with small_edges(), served(Inputs(dict(files), (Fault(kind, at),))) as clock:
            drained = drain(source("store://in", clock), 7, True)
            assert ids(drained) == list(range(40)) and not drained.dead, at


def _verbs(files):
    inputs = Inputs(dict(files))
    with small_edges(), served(inputs) as clock:
        drain(source("store://in", clock), 7, True)
    return inputs.verbs


def test_after_a_failed_read_a_step_has_its_own_rows_only():
    """I1: without it 1,700 of 1,000 rows were counted: a step got the whole row group that it cuts."""
    files = {"in/a.parquet": encoded("parquet", range(40))}
    for at in range(len(_verbs(files))):
        with small_edges(), served(Inputs(dict(files), (Fault("reset", at),))) as clock:
            drained = drain(source("store://in", clock), 5, True)
            assert ids(drained) == list(range(40)) and drained.steps == [5] * 8


@pytest.mark.parametrize("ending", FORMATS)
def test_a_store_that_stays_away_is_named_with_what_to_do(ending):
    """Without it the run would end with an error that blames the file, or count it as dead."""
    files = {f"in/a.{ending}": encoded(ending, range(40))}
    for verb in ("range", "read", "list", "look", "open"):
        inputs, told = (
            Inputs(dict(files), (Fault("timeout", 0, EVER, verb),)),
            r"store://in.*12 tries over .*checkpoint",
        )
        with small_edges(), served(inputs) as clock, pytest.raises(StorageError, match=told):
            drain(source("store://in", clock))


def test_a_data_node_away_for_half_a_minute_does_not_end_the_run():
    """Without it a rolling restart of a store is the end of every job that reads from it."""
    inputs = Inputs({"in/a.jsonl": encoded("jsonl", range(40))}, (Fault("reset", 3, 8),))
    with served(inputs) as clock:
        assert ids(drain(source("store://in", clock))) == list(range(40))
        assert not inputs.left[inputs.faults[0]]


def test_bytes_that_differ_at_a_second_reading_are_no_dead_letter():
    """Without it a bit that a cable flips once is a line that was never there."""
    data = encoded("jsonl", range(5_000))
    files = {"in/a.jsonl": data}
    places = [at for at, (verb, _) in enumerate(_verbs(files)) if verb == "read"]
    with served(Inputs(dict(files), tuple(Fault("wrong", at) for at in places[-1:]))) as clock:
        try:
            drained = drain(source("store://in", clock))
        except StorageError as error:
            assert "other bytes" in str(error)
        else:
            assert not drained.dead


def test_too_little_memory_is_no_fault_of_a_file(tmp_path, monkeypatch):
    """Without it a machine that is short of memory for a moment loses records for good."""
    (tmp_path / "a.jsonl").write_bytes(encoded("jsonl", range(4)))

    def decode(*arguments):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    lenient = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", on_bad_file="dead-letter")
    plan = lenient.plan(SourceState({}), Budget(10))
    monkeypatch.setattr(lenient._formats["json"]._dialect, "decode", decode)
    with pytest.raises(MemoryError):
        list(lenient.read(plan.splits[0], plan.recorded))


def twins(folder):
    """Two Parquet files of one size with the same beginning and end, and other rows between."""
    for name, add in (("a", 0), ("b", 1_000_000)):
        numbers = np.arange(40_000, dtype=np.int64)
        numbers[15_000:25_000] += add
        table = pa.table({"ts": np.arange(40_000, dtype=np.int64), "id": numbers})
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(table, folder / f"{name}.parquet", **plain)
    return folder


def test_a_cut_row_group_is_that_of_its_own_file(tmp_path):
    """Without it a step is served rows of another file, which has the same size and ends."""
    source = FileSource(twins(tmp_path), timestamp="ts", timestamp_unit="ms")
    index = source.plan(SourceState({}), Budget(1)).appended
    assert len(set(index.column("fingerprint").to_pylist())) == 1
    found = ids(drain(source, 30_000, True))
    expected = pq.read_table(tmp_path / "a.parquet")["id"].to_pylist()
    assert found == expected + pq.read_table(tmp_path / "b.parquet")["id"].to_pylist()


def test_a_file_overwritten_by_one_of_equal_size_after_it_was_read_is_noticed(tmp_path):
    """Without it the new records are never read, and nobody is told."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(encoded("jsonl", range(40), "x"))
    made = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", on_bad_file="dead-letter")
    done = drain(made)
    path.write_bytes(encoded("jsonl", range(40), "y"))
    for _ in range(2):
        with pytest.raises(SourceChanged, match=r"a\.jsonl: .*move the file to a new name"):
            made.plan(done.state, Budget(1))
    path.rename(tmp_path / "b.jsonl")
    assert ids(drain(made, state=done.state)) == list(range(40))


def test_a_copy_costs_one_fingerprint_for_each_file_and_run(tmp_path, monkeypatch):
    """Without it a backup that is restored would stop the job, or every listing would read all files again."""
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(encoded("jsonl", range(40)))
    state = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")).state
    for name in "ab":
        shutil.copyfile(tmp_path / f"{name}.jsonl", tmp_path / "copy.tmp")
        os.replace(tmp_path / "copy.tmp", tmp_path / f"{name}.jsonl")
    again = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    looks = []
    edges = Files.edges
    monkeypatch.setattr(Files, "edges", lambda *arguments: looks.append(arguments[1]) or edges(*arguments))
    for _ in range(3):
        assert not again.plan(state, Budget(1)).splits
    assert looks == ["a.jsonl", "b.jsonl"]


def test_an_index_of_an_older_release_has_no_hints(tmp_path):
    """Without it a checkpoint made before hints were kept could not be read on, or would fingerprint all its files."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(encoded("jsonl", range(40), "x"))
    made = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    state = drain(made).state
    old = SourceState(state.positions, state.recorded, state.index.drop_columns("hint"))
    (tmp_path / "b.jsonl").write_bytes(encoded("jsonl", range(40, 43)))
    later = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"), state=old)
    assert ids(later) == [40, 41, 42]
    assert later.state.index.column("hint").is_null().to_pylist() == [True, False]
    fresh = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    assert fresh.plan(old, Budget(9)).splits
    path.write_bytes(encoded("jsonl", range(40), "y"))
    with pytest.raises(SourceChanged):
        fresh.plan(old, Budget(1))


def test_a_file_written_to_while_it_is_read_stops_the_run():
    """Without it a step holds the beginning of the old bytes and the end of the new ones."""
    old, new = encoded("parquet", range(40), "x"), encoded("parquet", range(40), "y")
    files = {"in/a.parquet": old}
    places = [at for at, (verb, _) in enumerate(_verbs(files)) if verb == "read"]
    for at in places[len(places) // 2 :]:
        inputs = Inputs(dict(files), moves={at: lambda inputs: inputs.put("in/a.parquet", new)})
        with small_edges(), served(inputs) as clock, pytest.raises(SourceError, match=r"a\.parquet"):
            drain(source("store://in", clock), 7, True)


def job_of(inputs, clock, **options):
    return Job(inputs, "store://in" if type(inputs) is Inputs else f"{inputs.folder}/in", clock, **options)


def at(folder, count, act):
    """Do something before so many-th put in a folder of the checkpoint."""
    left = [count]

    def before_put(name):
        if name.startswith(folder):
            left[0] -= 1
            if left[0] == 0:
                act()

    return before_put


def die():
    raise Killed("before the commit")


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("is_on_disk", [True, False])
def test_a_file_deleted_before_it_was_read_is_one_dead_letter(ending, is_on_disk, tmp_path):
    """Without it one deleted file blocks a job for ever, though it is told to count such files."""
    firsts = {"a": range(19), "b": range(30, 60), "c": range(60, 90)}
    files = {f"in/{name}.{ending}": encoded(ending, rows) for name, rows in firsts.items()}
    inputs = on_disk(str(tmp_path), files) if is_on_disk else Inputs(dict(files))
    with small_edges(), served(inputs) as clock:
        job = job_of(inputs, clock)
        job.run(at("m/", 3, lambda: inputs.delete(f"in/b.{ending}")))
        found = job.outcome()
    assert sorted(found.counted) == [*range(19), *range(60, 90)] and set(found.counted.values()) == {1}
    assert [(file, offset) for file, offset, _ in found.dead] == [(f"b.{ending}", 0)]
    assert "gone before it was read" in found.dead[0][2]
    assert found.account["files"].dead == 1 and found.account["files"].read == 50


@pytest.mark.parametrize("ending", FORMATS)
def test_a_plan_that_was_put_can_be_run_without_the_file(ending):
    """Without it a file deleted between plan and read blocks the job whatever the options say.

    And a replay that counted it otherwise would make another step of it.
    """
    files = {f"in/{name}.{ending}": encoded(ending, range(first, first + 9)) for name, first in (("a", 0), ("b", 9))}
    inputs, outcomes = Inputs({}), []
    for dies in (False, True):
        inputs.files.update(files)
        with small_edges(), served(inputs) as clock:
            job = job_of(inputs, clock, lenient=False)
            with pytest.raises(InputGone):
                job.run(at("p/", 1, lambda: inputs.delete(f"in/b.{ending}")))
            with pytest.raises(InputGone, match=rf"b\.{ending}: .*gone before it was read.*Put it back.*on_bad_file"):
                job.run()
            job.lenient = True
            if dies:
                with pytest.raises(Killed):
                    job.run(at("m/", 2, die))
            job.run()
            outcomes.append(job.outcome())
    assert outcomes[0] == outcomes[1]
    assert sorted(outcomes[0].counted) == list(range(9)) and len(outcomes[0].dead) == 1


def test_a_deleted_file_that_is_put_back_is_read(tmp_path):
    """Without it the remedy that the error names would not be one."""
    inputs = Inputs({"in/a.jsonl": encoded("jsonl", range(12)), "in/b.jsonl": encoded("jsonl", range(12, 24))})
    data = inputs.files["in/b.jsonl"]
    with served(inputs) as clock:
        job = job_of(inputs, clock, lenient=False)
        with pytest.raises(InputGone):
            job.run(at("p/", 1, lambda: inputs.delete("in/b.jsonl")))
        inputs.put("in/b.jsonl", data)
        job.run()
        assert sorted(job.outcome().counted) == list(range(24)) and not job.outcome().dead


@pytest.mark.parametrize(
    ("root", "mount", "names"),
    [
        ("in", "in", ("a.jsonl", "b.jsonl")),
        ("in/", "in", ("a.jsonl", "b.jsonl")),
        ("in/*.jsonl", "in", ("a.jsonl", "b.jsonl")),
        ("in/", "in", ("x/a.jsonl", "x/b.jsonl")),
        ("in/", "in/x", ("a.jsonl", "x/y/b.jsonl")),
        ("in", "in", ("a", "in")),
    ],
)
def test_files_are_not_lost_with_a_root_that_is_away(tmp_path, root, mount, names):
    """Without it a disk that is not mounted makes dead letters of all that was not read yet, also where the empty
    folder on which it is mounted stays."""
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(encoded("jsonl", range(4)))
    options = {"timestamp": "ts", "timestamp_unit": "ms", "format": "json"}
    made = FileSource(f"{tmp_path}/{root}", on_bad_file="dead-letter", **options)
    first = made.plan(SourceState({}), Budget(4, exact=True))
    state = SourceState(first.end, first.recorded, first.appended)
    plan = made.plan(state, Budget(4))
    (tmp_path / mount).rename(tmp_path / "away")
    # A folder that is not there, below a root that is, was deleted.
    for is_there in (False, True) if mount == "in" else (True,):
        if is_there:
            (tmp_path / mount).mkdir()
        for again in (made, pickle.loads(pickle.dumps(made)), FileSource(f"{tmp_path}/{root}", **options)):
            again._bad_file_raises = False
            with pytest.raises(SourceError, match=f"{mount}/?: gone or empty, with listed files .*mounted"):
                again.plan(state, Budget(4))
            with pytest.raises(SourceError, match="mounted"):
                again.without_lost(plan.splits, plan.recorded)
    (tmp_path / mount / "_gone").touch()
    assert [record.ordinal for record in drain(made, state=state).dead] == [1]


def test_a_file_that_the_store_lists_and_does_not_find_is_not_lost():
    """Without it a store that contradicts itself would cost a file."""
    inputs = Inputs({f"in/{name}.jsonl": encoded("jsonl", range(4)) for name in "ab"})
    with served(inputs) as clock:
        made = source("store://in", clock)
        first = made.plan(SourceState({}), Budget(4, exact=True))
        inputs.faults = (Fault("not there", 0, EVER, "look"), Fault("not there", 0, EVER, "range"))
        plan = made.plan(SourceState(first.end, first.recorded, first.appended), Budget(4))
        assert "lost" not in plan.splits[0].spans[0].at and made.without_lost(plan.splits, plan.recorded) is None
        with pytest.raises(InputGone):
            list(made.read(plan.splits[0], plan.recorded))


def test_errors_of_inputs_travel_whole():
    """Without it a worker's error would come back with its sentence twice, or not at all."""
    inputs = Inputs({})
    with served(inputs) as clock:
        files = Files("store://in/")
        files.patience = patience(clock)
        with pytest.raises(InputGone) as raised:
            InputFile(files, "a.jsonl", 3).fingerprint_now()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_local_read_that_the_system_refuses_is_the_stores_fault(tmp_path):
    """Without it a failing disk makes dead letters."""
    files = {"in/a.parquet": encoded("parquet", range(40))}
    for verb in ("read", "open", "look", "list"):
        inputs = on_disk(str(tmp_path), files, faults=(Fault("reset", 0, EVER, verb),))
        with small_edges(), served(inputs) as clock, pytest.raises(StorageError, match="tries over"):
            drain(source(f"{tmp_path}/in", clock))


def test_page_checksums_are_looked_at(tmp_path):
    """Without it a flipped bit in a value passes, though the writer has left a checksum."""
    data = bytearray(encoded("parquet", range(40), "x"))
    chunk = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(1).column(2)
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    (tmp_path / "a.parquet").write_bytes(bytes(data))
    made = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    with pytest.raises(SourceError, match=r"row group 1 .*CRC"):
        drain(made)


def test_a_reader_is_asked_for_the_rights_of_a_reader():
    """Without it the remedy tells to give rights to write to an input."""

    def refused():
        raise PermissionError(13, "Permission denied", "a")

    with pytest.raises(StorageError, match="Give this user the rights to list and to read there"):
        Files("/in/").request("read", "a")(refused)
