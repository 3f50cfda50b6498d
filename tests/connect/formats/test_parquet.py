"""Parquet files are read by row groups; what is bad in one is told, and stays there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent.errors import SourceError, StorageError
from persistent.sources import Budget, FileSource, SourceState
from tests.connect.draining import drain
from tests.connect.reading import ids, requests_of, source
from tests.connect.written import rows, write
from tests.proof.inputs import EVER, Fault, Inputs, served
from tests.proof.inputs_job import encoded, small_edges


def test_the_clock_waits_for_what_parquet_statistics_allow(tmp_path):
    """Without it a backfill in any order would be full of late rows."""
    for name, first in (("a", 100), ("b", 0), ("c", 50)):
        table = pa.table({"ts": pa.array(np.arange(first, first + 20), pa.timestamp("ms"))})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    source = FileSource(tmp_path, timestamp="ts")
    caps = [(tuple(plan.end["files"]), plan.cap["files"]) for plan in drain(source, 10).plans]
    assert caps == [((0, 10), 0), ((1, 0), 0), ((1, 10), 10), ((2, 0), 50), ((2, 10), 60), ((3, 0), None)]
    cut = drain(source, 23, True).plans
    assert [plan.cap["files"] for plan in cut] == [0, 50, None]
    ordered = FileSource(tmp_path, timestamp="ts", ordered=True)
    assert {plan.cap["files"] for plan in drain(ordered, 10).plans} == {None}


@pytest.mark.parametrize(
    ("column", "unit", "expected"),
    [
        (pa.array([5_000, 3_000], pa.timestamp("s")), None, 3_000_000),
        (pa.array([5_000_999, 3_000_999], pa.timestamp("us", "Asia/Tokyo")), None, 3_000),
        (pa.array([5_000_000_000, 3_000_999_999], pa.timestamp("ns")), None, 3_000),
        (pa.array([5, 3], pa.int64()), "s", 3_000),
        (pa.array([5, 3], pa.int32()), "ms", 3),
        (pa.array([5, 3], pa.date32()), None, 3 * 86_400_000),
        (pa.array(["1970-01-02", "1970-01-03"]), None, -1),
        (pa.array([5, -3], pa.int64()), "ms", -1),
        (pa.array([5, None], pa.int64()), "ms", 5),
        (pa.array([None, None], pa.int64()), "ms", None),
    ],
)
def test_statistics_of_every_sort_of_time(tmp_path, column, unit, expected):
    """Without it the clock could pass a record of a unit that was read wrongly from the statistics."""
    pq.write_table(pa.table({"ts": pa.array([1], column.type) if unit else column[:1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": column}), tmp_path / "b.parquet")
    plan = FileSource(tmp_path, timestamp="ts", timestamp_unit=unit).plan(SourceState({}), Budget(1, exact=True))
    assert plan.cap == {"files": expected}


def test_a_truncated_parquet_file_stops_the_run_or_is_one_dead_letter(tmp_path):
    """Without it half a file would be read as a whole one, or nothing would be read at all."""
    write(tmp_path / "a.parquet", rows(0, 30))
    torn = write(tmp_path / "b.parquet", rows(30, 30))
    write(tmp_path / "c.parquet", rows(60, 30))
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"b\.parquet: .*footer.*on_bad_file"):
        FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))
    lenient = FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter")
    for step, exact in ((1_000, False), (7, True), (30, True), (1, True)):
        drained = drain(lenient, step, exact, 2)
        assert drained.values == rows(0, 30) + rows(60, 30)
        assert [(d.ordinal, d.offset, d.data) for d in drained.dead] == [(1, 0, b"")]
        assert "footer" in drained.dead[0].reason
    only = FileSource(torn, timestamp="ts", on_bad_file="dead-letter")
    with pytest.raises(SourceError, match="footer"):
        only.plan(SourceState({}), Budget(1))


def test_an_unreadable_row_group_is_one_dead_letter(tmp_path):
    """Without it a flipped bit would cost the whole file, or as many dead letters as there are workers."""
    path = write(tmp_path / "a.parquet", rows(0, 40), row_group=10)
    group = pq.read_metadata(path).row_group(2).column(0)
    data = bytearray(path.read_bytes())
    offset = group.dictionary_page_offset or group.data_page_offset
    data[offset : offset + 30] = b"\xff" * 30
    path.write_bytes(bytes(data))
    with pytest.raises(SourceError, match="row group 2"):
        drain(FileSource(tmp_path, timestamp="ts"))
    for step, exact in ((1_000, False), (15, False), (10, False)):
        drained = drain(FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter"), step, exact)
        assert drained.values == rows(0, 20) + rows(30, 10)
        assert [(d.offset, "row group 2" in d.reason) for d in drained.dead] == [(20, True)]
    for step in (7, 13):
        source = FileSource(tmp_path, timestamp="ts", on_bad_file="dead-letter")
        drained = drain(source, step, True, 2)
        assert drained.values == rows(0, 20) + rows(30, 10) and [d.offset for d in drained.dead] == [20]


def test_after_a_failed_read_a_step_has_its_own_rows_only():
    """I1: without it 1,700 of 1,000 rows were counted: a step got the whole row group that it cuts."""
    files = {"in/a.parquet": encoded("parquet", range(40))}
    for at in range(len(requests_of(files))):
        with small_edges(), served(Inputs(dict(files), (Fault("reset", at),))) as clock:
            drained = drain(source("store://in", clock), 5, True)
            assert ids(drained) == list(range(40)) and drained.steps == [5] * 8


@pytest.mark.parametrize("count", [8, 40])
def test_a_read_that_fails_is_repeated_whether_the_file_is_read_at_once_or_in_parts(count):
    """A small file is read at once, by another way than a large one."""
    files = {"in/a.parquet": encoded("parquet", range(count))}
    verbs = [verb for verb, _ in requests_of(files)]
    for at in range(len(verbs)):
        with small_edges(), served(Inputs(dict(files), (Fault("reset", at),))) as clock:
            assert ids(drain(source("store://in", clock))) == list(range(count))
    always = Fault("reset", verbs.index("read"), EVER, "read")
    with (
        small_edges(),
        served(Inputs(dict(files), (always,))) as clock,
        pytest.raises(StorageError, match="tries over"),
    ):
        drain(source("store://in", clock))


def test_a_small_file_takes_one_read():
    """Calls from Arrow into Python for each of its columns cost a step more than the bytes do."""
    reads = {}
    for count in (8, 40):
        verbs = [verb for verb, _ in requests_of({"in/a.parquet": encoded("parquet", range(count))}, 1_000)]
        reads[count] = verbs.count("read")
    assert reads[8] == 3 < reads[40], "of a small one its two ends, and once all of it"


def test_page_checksums_are_looked_at(tmp_path):
    """Without it a flipped bit in a value passes, though the writer has left a checksum."""
    data = bytearray(encoded("parquet", range(40), "x"))
    chunk = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(1).column(2)
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    (tmp_path / "a.parquet").write_bytes(bytes(data))
    made = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    with pytest.raises(SourceError, match=r"row group 1 .*CRC"):
        drain(made)


def test_the_rows_count_where_all_columns_are_in_folders(tmp_path):
    """A table without columns has no rows of its own: they would be lost without a word."""
    (tmp_path / "day=2024-01-01").mkdir()
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "day=2024-01-01" / "a.parquet")
    source = FileSource(tmp_path, timestamp="day", schema={"day": "string"})
    for step in (1_000_000, 2):
        assert drain(source, step, True).values == [{"day": "2024-01-01"}] * 3


def test_an_extension_column_beside_int96_is_read(tmp_path):
    """It was taken for INT96, and the plan ended with a KeyError."""
    columns = {"ts": pa.array([1]), "t": pa.array([5], pa.timestamp("us")), "a": pa.array(["{}"], pa.json_())}
    options = {"store_schema": False, "use_deprecated_int96_timestamps": True}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"))
    assert [row["a"] for row in drained.values] == ["{}"]
