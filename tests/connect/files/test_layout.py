"""Folders named day=2024-05-03 are columns, and may tell the time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

from persistent.errors import SourceError
from persistent.sources import NO_TIMESTAMP, Budget, FileSource, SourceState
from tests.connect.draining import after, drain
from tests.connect.written import START, rows, write

DAYS = {"a/day=1970-01-04": 2, "b/day=1970-01-02": 1, "b/day=1970-01-03": 2, "c/day=__HIVE_DEFAULT_PARTITION__": 1}


@pytest.mark.parametrize("unit", ["date32", "string", "timestamp[us]"])
def test_where_folders_tell_the_time_the_clock_goes_by_them(tmp_path, unit):
    """The files have no column of times, without which the clock stood."""
    for folder, count in DAYS.items():
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"k": ["x"] * count}), tmp_path / folder / "x.parquet")
    source = FileSource(tmp_path, timestamp="day", schema={"k": "string", "day": unit})
    drained = drain(source, 1, True)
    assert [row[2] for row in drained.rows[:-1]] == [day * 86_400_000 for day in (3, 3, 1, 2, 2)]
    assert drained.rows[-1][2] == NO_TIMESTAMP
    caps = [plan.cap["files"] for plan in drained.plans]
    assert caps == [day * 86_400_000 if day else None for day in (1, 1, 2, 2, 0, 0)]


def test_a_folder_is_a_decimal_exactly_or_refused(tmp_path):
    """Arrow reads -44 as -9.97, which would be the value of every record in the folder."""
    for value in ("-4", "-44"):
        write(tmp_path / value / f"w={value}" / "x.jsonl", rows(0, 1))
    sources = {
        value: FileSource(tmp_path / value, timestamp="ts", schema={"ts": "string", "w": pa.decimal128(38, 37)})
        for value in ("-4", "-44")
    }
    assert [row["w"] for row in drain(sources["-4"]).values] == [-4]
    with pytest.raises(SourceError, match=r"w=-44 is not of type decimal128\(38, 37\)"):
        drain(sources["-44"])


def test_folders_are_columns(tmp_path):
    """Without it what only the folder says would be lost."""
    for ending in ("parquet", "jsonl"):
        root = tmp_path / ending
        write(root / "day=2024-01-01" / "site=a%2Fb" / f"x.{ending}", rows(0, 2))
        write(root / "day=2024-01-02" / "site=__HIVE_DEFAULT_PARTITION__" / f"x.{ending}", rows(2, 1))
        found = drain(FileSource(root, timestamp="ts"), 1, True).values
        assert [(row["day"], row["site"], row["v"]) for row in found] == [
            ("2024-01-01", "a/b", "é, 0"),
            ("2024-01-01", "a/b", "é, 1"),
            ("2024-01-02", None, "é, 2"),
        ]
        schema = {"day": "date32", "n": pa.int64(), "ts": "string"}
        typed = drain(FileSource(root / "day=*" / "**", timestamp="day", schema=schema))
        assert [str(row["day"]) for row in typed.values] == ["2024-01-01", "2024-01-01", "2024-01-02"]
        assert typed.rows[0][2] == int(START.timestamp()) * 1_000 and list(typed.values[0]) == list(schema)
        clash = FileSource(write(tmp_path / "c" / "n=1" / f"x.{ending}", rows(0, 1)).parents[1], timestamp="ts")
        with pytest.raises(SourceError, match="'n' is both a column of the file and the name of a folder"):
            clash.plan(SourceState({}), Budget(1))
        shutil.rmtree(tmp_path / "c")
        write(root / f"bare.{ending}", rows(3, 1))
        with pytest.raises(SourceError, match="its folders name"):
            FileSource(root, timestamp="ts").plan(SourceState({}), Budget(1))


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_a_column_that_a_folder_names_too_is_refused_with_declared_columns_as_well(ending: str, tmp_path: Path) -> None:
    """The folder's value was taken for the file's own, without a word."""

    def save(name: str, *own: str) -> None:
        path = tmp_path / "in" / name / f"x.{ending}"
        path.parent.mkdir(parents=True)
        table = pa.table({"ts": [1, 2], **{column: ["zug", "zug"] for column in own}})
        if ending == "parquet":
            pq.write_table(table, path)
        elif ending == "csv":
            write_csv(table, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))

    schema = {"ts": "int64", "shop": "string"}
    source = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="s", schema=schema)
    save("shop=bern")
    assert [row["shop"] for row in drain(source).values] == ["bern", "bern"]
    save("shop=chur", "shop")
    with pytest.raises(SourceError, match=r"shop=chur/x.*'shop' is both a column of the file and the name of a folder"):
        drain(FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="s", schema=schema))
    without = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="s", schema={"ts": "int64"})
    assert drain(without).values == [{"ts": 1}, {"ts": 2}] * 2


def test_a_record_with_a_field_that_its_folder_names_too_is_a_dead_letter(tmp_path: Path) -> None:
    """Only the first record was looked at: those after it took the folder's value, without a word."""
    options: dict[str, str] = {"timestamp": "ts", "timestamp_unit": "s"}
    path = tmp_path / "in" / "shop=bern" / "x.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"ts": 1}\n{"ts": 2, "shop": "zug"}\n{"ts": 3, "shop": null}\n{"ts": 4, "o": 1, "sh\\u006fp": []}\n'
    )
    schema = {"ts": "int64", "shop": "string"}
    found = drain(FileSource(tmp_path / "in", schema=schema, **options))
    assert found.values == [{"ts": 1, "shop": "bern"}, {"ts": 3, "shop": "bern"}]
    clash = "'shop' is both a column of the file and the name of a folder"
    assert [record.reason.partition(";")[0] for record in found.dead] == [clash, clash]
    for content in (path.read_text(), '{"ts": 0, "shop": null}\n' + path.read_text()):
        path.write_text(content)
        found = drain(FileSource(tmp_path / "in", **options))
        assert {row["shop"] for row in found.values} == {"bern"} and len(found.values) == content.count("\n") - 2
        assert [record.reason.partition(";")[0] for record in found.dead] == [clash, clash]
    (tmp_path / "in" / "shop=a").mkdir()
    (tmp_path / "in" / "shop=a" / "x.jsonl").write_text('{"ts": 0}\n')
    found = drain(FileSource(tmp_path / "in", **options))
    assert [row["shop"] for row in found.values] == ["a", "bern", "bern", "bern"]
    assert [record.reason.partition(";")[0] for record in found.dead] == [clash, clash]


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_a_column_that_is_declared_once_its_files_are_listed_is_not_taken_from_the_folder(
    ending: str, tmp_path: Path
) -> None:
    """Only the listing looked for it, and the folder's value was taken, without a word."""
    write(tmp_path / "in" / "v=1" / f"x.{ending}", rows(0, 3))
    narrow, wide = (
        FileSource(tmp_path / "in", timestamp="ts", schema=dict.fromkeys(names, "string"), on_bad_file="dead-letter")
        for names in (["ts"], ["ts", "v"])
    )
    listed = after(SourceState({}), narrow.plan(SourceState({}), Budget(1, exact=True)))
    found = drain(wide, state=listed)
    assert found.values == [] and found.dead
    assert all("'v' is both a column of the file and the name of a folder" in record.reason for record in found.dead)


def test_a_column_that_two_folders_name_is_refused(tmp_path: Path) -> None:
    """The inner folder won, without a word."""
    write(tmp_path / "in" / "shop=a" / "shop=b" / "x.csv", rows(0, 1))
    with pytest.raises(SourceError, match="two of its folders name the column 'shop': rename one"):
        drain(FileSource(tmp_path / "in", timestamp="ts"))
    assert drain(FileSource(tmp_path / "in", timestamp="ts", schema={"ts": "string"})).values


def test_files_that_all_have_a_column_of_their_folder_are_dead_letters_if_asked(tmp_path: Path) -> None:
    """The run ended, with the advice to give the option that was given."""
    for name in ("a.csv", "b.csv"):
        write(tmp_path / "in" / "v=1" / name, rows(0, 2))
    found = drain(FileSource(tmp_path / "in", timestamp="ts", on_bad_file="dead-letter"))
    assert found.values == [] and len(found.dead) == 2


def test_a_name_with_a_slash_is_no_field_of_a_record(tmp_path: Path) -> None:
    """A value of another type was told as one that the folder names, or the reverse."""
    path = tmp_path / "in" / "shop=bern" / "a%2Fb=1" / "x.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"ts": 1, "shop/x": "text"}\n{"ts": 2, "a/b": 1}\n')
    schema = {"ts": "int64", "shop": "string", "a/b": "string", "shop/x": "int64"}
    found = drain(FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="s", schema=schema))
    first, second = (record.reason for record in found.dead)
    assert "both a column" not in first and "'a/b' is both a column of the file" in second


def test_a_first_record_whose_names_cannot_be_told_is_no_fault_of_its_file(tmp_path: Path) -> None:
    """Its columns are declared: what else it has may be called anything."""
    (tmp_path / "in" / "shop=bern").mkdir(parents=True)
    (tmp_path / "in" / "shop=bern" / "x.jsonl").write_bytes(b'{"ts": 1, "\xff": 1}\n{"ts": 2}\n')
    schema = {"ts": "int64", "shop": "string"}
    source = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="s", schema=schema)
    assert drain(source).values == [{"ts": 1, "shop": "bern"}, {"ts": 2, "shop": "bern"}]


def test_a_decimal_in_a_folder_name_that_its_type_cannot_hold_is_a_bad_file(tmp_path):
    """44 was read as 9.97, because Arrow does not notice that it overflows."""
    for value in ("44", "5"):
        folder = tmp_path / f"w={value}"
        folder.mkdir()
        (folder / "a.csv").write_text("ts\n1\n")
    schema = {"ts": "int64", "w": pa.decimal128(38, 37)}
    options = {"timestamp": "ts", "timestamp_unit": "ms", "schema": schema, "on_bad_file": "dead-letter"}
    drained = drain(FileSource(tmp_path, **options))
    assert [row["w"] for row in drained.values] == [5] and "w=44 is not of type" in drained.dead[0].reason
