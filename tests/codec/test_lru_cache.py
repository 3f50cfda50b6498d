"""What is remembered of a file is of that file, and costs little."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from persistent import FileSource
from persistent.connect.files.listing import Files
from persistent.sources import Budget, SourceState
from tests.connect.draining import drain
from tests.connect.reading import ids
from tests.proof.inputs_job import encoded


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
