"""Reads of a source that fail, and inputs that change: a store's fault is no file's, and nothing is silently missed."""

from __future__ import annotations

import pytest

from persistent import FileSource
from persistent.connect.files.listing import Files
from persistent.errors import InputGone, SourceChanged, StorageError
from persistent.sources import Budget
from tests.connect.draining import drain
from tests.connect.reading import at, ids, job_of, source
from tests.proof.inputs import EVER, Fault, Inputs, on_disk, served
from tests.proof.inputs_job import FORMATS, encoded, small_edges


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


def test_a_local_read_that_the_system_refuses_is_the_stores_fault(tmp_path):
    """Without it a failing disk makes dead letters."""
    files = {"in/a.parquet": encoded("parquet", range(40))}
    for verb in ("read", "open", "look", "list"):
        inputs = on_disk(str(tmp_path), files, faults=(Fault("reset", 0, EVER, verb),))
        with small_edges(), served(inputs) as clock, pytest.raises(StorageError, match="tries over"):
            drain(source(f"{tmp_path}/in", clock))


def test_a_reader_is_asked_for_the_rights_of_a_reader():
    """Without it the remedy tells to give rights to write to an input."""

    def refused():
        raise PermissionError(13, "Permission denied", "a")

    with pytest.raises(StorageError, match="Give this user the rights to list and to read there"):
        Files("/in/").request("read", "a")(refused)
