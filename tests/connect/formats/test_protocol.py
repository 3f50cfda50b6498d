"""What fails while a file is read is the fault of the file only where that is certain."""

from __future__ import annotations

import gzip
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSource
from persistent.connect.files.listing import Files
from persistent.connect.formats.protocol import InputFile
from persistent.errors import InputGone, SourceError, StorageError
from persistent.sources import Budget, SourceState
from tests.connect.draining import after, drain
from tests.connect.reading import ids, requests_of, source
from tests.proof.inputs import Fault, Inputs, patience, served
from tests.proof.inputs_job import encoded, small_edges


@pytest.mark.parametrize("ending", ["jsonl.gz", "parquet"])
@pytest.mark.parametrize("kind", ["timeout", "reset", "short"])
def test_a_read_that_fails_once_is_no_dead_letter(ending, kind):
    """Without it one timeout costs the rest of a file, for good."""
    files = {f"in/a.{ending}": encoded(ending, range(40))}
    places = [at for at, (verb, _) in enumerate(requests_of(files)) if verb == "read"]
    assert places
    for at in places:
        with small_edges(), served(Inputs(dict(files), (Fault(kind, at),))) as clock:
            drained = drain(source("store://in", clock), 7, True)
            assert ids(drained) == list(range(40)) and not drained.dead, at


def test_bytes_that_differ_at_a_second_reading_are_no_dead_letter():
    """Without it a bit that a cable flips once is a line that was never there."""
    data = encoded("jsonl", range(5_000))
    files = {"in/a.jsonl": data}
    places = [at for at, (verb, _) in enumerate(requests_of(files)) if verb == "read"]
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


def test_errors_of_inputs_travel_whole():
    """Without it a worker's error would come back with its sentence twice, or not at all."""
    inputs = Inputs({})
    with served(inputs) as clock:
        files = Files("store://in/")
        files.patience = patience(clock)
        with pytest.raises(InputGone) as raised:
            InputFile(files, "a.jsonl", 3).fingerprint_now()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("column", ["region", "v"])
def test_a_listed_file_that_lacks_a_column_of_a_changed_schema_is_named(tmp_path, ending, column):
    """Of Parquet every run ended with a KeyError, and of CSV each record that was left was a dead letter at once."""
    if ending != "parquet" and column == "v":
        pytest.skip("any text has the types of CSV")
    table = pa.table({"ts": [1, 2, 3], "v": [1, 2, 3]})
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        text = b"ts,v\n1,1\n2,2\n3,3\n"
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    old = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    first = old.plan(SourceState({}), Budget(1, exact=True))
    state, schema = after(SourceState({}), first), {"ts": "int64", "v": "int64", column: "string"}
    options = {"timestamp": "ts", "timestamp_unit": "ms", "schema": schema}
    with pytest.raises(SourceError, match=f"no column '{column}'|column '{column}' is of type") as error:
        drain(FileSource(tmp_path, **options), state=state)
    every = "give schema= with only those columns that every file has"
    assert (every if column == "region" else "give the columns with schema=") in str(error.value)
    lost = drain(FileSource(tmp_path, **options, on_bad_file="dead-letter"), state=state)
    assert not lost.rows and len(lost.dead) == 1 and column in lost.dead[0].reason
    assert [row["v"] for row in drain(old, state=state).values] == [2, 3]
