"""JSON lines and CSV: exact positions, and bad lines that cost only themselves."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pytest

from persistent.errors import SourceError
from persistent.sources import Budget, FileSource, SourceState
from tests.connect.draining import drain
from tests.connect.texts import source_of


def test_errors_that_make_up_for_each_other_are_found(tmp_path):
    """Without it bad lines that give the right number of records together would shift all positions between."""
    lines = [b"1,a\r2,b", b'3,"c', b'd"', b"4,d"]
    (tmp_path / "a.csv").write_bytes(b"ts,v\n" + b"\n".join(lines) + b"\n")
    drained = drain(source_of(tmp_path))
    assert [dead.data for dead in drained.dead] == lines[:3]
    assert [row[1:3] for row in drained.rows] == [(21, 4)]


def test_inferred_columns(tmp_path):
    """Without it a first file with a bad line, or with whole seconds, would spoil the schema for all that follow."""
    (tmp_path / "a.jsonl").write_text(
        '{"ts":"2024-01-01T00:00:00Z","a":1,"s":{"x":1},"z":null}\nbad\n'
        '{"ts":"2024-01-01T00:00:00.5Z","a":1.5,"s":{"y":"2024-01-01"}}\n{"a":"bad","b":true,"l":[1]}\n'
    )
    source = FileSource(tmp_path / "a.jsonl", timestamp="ts")
    recorded = source.plan(SourceState({}), Budget(1)).recorded
    assert source.schema(recorded) == pa.schema(
        [
            ("ts", pa.string()),
            ("a", pa.float64()),
            ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("z", pa.string()),
            ("b", pa.bool_()),
            ("l", pa.list_(pa.int64())),
        ]
    )
    (tmp_path / "b.csv").write_text("ts,a,b,c\n2024-01-01,1,,x\n1,2\n2024-01-02T00:00:00Z,1.5,,007\n")
    source = FileSource(tmp_path / "b.csv", timestamp="ts")
    recorded = source.plan(SourceState({}), Budget(1)).recorded
    assert [str(kind) for kind in source.schema(recorded).types] == ["string", "double", "string", "string"]


def test_a_first_file_without_any_object_is_refused(tmp_path):
    """Without it a folder of rubbish would be an empty, successful run."""
    (tmp_path / "a.jsonl").write_text("one\ntwo\n")
    for on_bad_file in ("raise", "dead-letter"):
        with pytest.raises(SourceError, match=r"a\.jsonl: .*not a JSON object"):
            drain(FileSource(tmp_path, timestamp="ts", on_bad_file=on_bad_file))
    assert [dead.data for dead in drain(source_of(tmp_path)).dead] == [b"one", b"two"]


def of_depth(levels):
    """A line whose objects and lists nest so deep; brackets in a text, and beside each other, are not deep."""
    lists = levels // 2
    inner = b'{"a":' * (levels - 1 - lists) + b"[" * lists + b'"[[[["' + b"]" * lists + b"}" * (levels - 1 - lists)
    return b'{"ts":1,"v":"' + b"{" * 200 + b'\\"[","w":[' + b"[]," * 200 + b'[]],"x":' + inner + b"}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (of_depth(61), "the line at byte 9 is nested 61 levels deep, the limit is 60"),
        (of_depth(1_000), "nested 1,000 levels deep"),
        (of_depth(200_000), "nested 200,000 levels deep"),
        (b'{"ts":1,"\xe9":2}', "a field name is not UTF-8"),
        (b'{"ts":1,"v":{"\xe9":2}}', "a field name is not UTF-8"),
    ],
)
def test_a_first_file_whose_columns_cannot_be_told_is_named(tmp_path, line, says):
    """Without it one line of it ended the process, or every run, and no file was named."""
    (tmp_path / "a.jsonl").write_bytes(b'{"ts":1}\n' + line + b"\n")
    with pytest.raises(SourceError, match=rf"a\.jsonl: its columns cannot be inferred: .*{says}"):
        drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"))
    (tmp_path / "b.jsonl").write_bytes(b'{"ts":2}\n')
    told = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", on_bad_file="dead-letter"))
    assert [row["ts"] for row in told.values] == [1, 1, 2]
    (tmp_path / "a.jsonl").write_bytes(of_depth(60))
    assert len(drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")).rows) == 2


def test_types_that_a_schema_asks_for(tmp_path):
    """Without it dates, times and decimals would have to be parsed by the user."""
    schema = {"ts": pa.timestamp("ms"), "day": "date32", "price": pa.decimal128(9, 2)}
    (tmp_path / "a.jsonl").write_text(
        '{"ts":"2024-01-01T00:00:01.5","day":"2024-01-02","price":"1.25"}\n{"day":"soon"}\n'
    )
    (tmp_path / "b.csv").write_text("price,ts,day\n1.25,2024-01-01 00:00:01.5,2024-01-02\n,,soon\n")
    for name in ("a.jsonl", "b.csv"):
        drained = drain(FileSource(tmp_path / name, timestamp="ts", schema=schema))
        (row,) = drained.rows
        assert row[2] == 1_704_067_201_500
        assert [str(value) for value in row[3].values()][1:] == ["2024-01-02", "1.25"]
        assert len(drained.dead) == 1
    for name, kind in (("a.jsonl", pa.duration("s")), ("b.csv", pa.list_(pa.int64()))):
        source = FileSource(tmp_path / name, timestamp="ts", schema={"ts": "string", "at": kind})
        with pytest.raises(SourceError, match=r"cannot give column 'at' of type (duration|list)"):
            source.plan(SourceState({}), Budget(1))
