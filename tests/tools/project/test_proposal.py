"""A proposal is what the first records of a file suggest, as the source will read them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import InvalidPipeline, SourceError
from persistent.tools.project import Field, proposal_of
from tests.visits import says


def csv(path: Path, *lines: str) -> str:
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def test_a_csv_file(tmp_path: Path) -> None:
    """Without it nothing could be proposed for the file that most people have."""
    path = csv(
        tmp_path / "sales.csv",
        "order_id,shop,day,amount,pieces,note text",
        *(f"{n},{'ab'[n % 2]},2024-05-0{n + 1} 10:00:00,{n}.5,{n},x" for n in range(6)),
    )
    found = proposal_of(path)
    assert (found.times, found.key, found.values) == ({"day": None}, "shop", ("amount", "pieces"))
    assert found.fields["amount"] == Field("amount", "float") and found.fields["pieces"] == Field("pieces", "int")
    assert (found.schema["day"], found.schema["amount"]) == ("string", "double")
    assert (found.read, found.dead) == (6, 0)


def test_a_code_is_text_although_it_looks_like_a_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it the places 01234 and 1234 would be one, and shown as a number that is neither's code."""
    path = csv(tmp_path / "a.csv", "t,zip,n", "2024-05-01,01234,1", "2024-05-02,1234,2", "2024-05-02,01234,0")
    found = proposal_of(path)
    assert found.fields["zip"] == Field("zip", "str") and found.schema["zip"] == "string"
    assert (found.key, found.values) == ("zip", ("n",))
    assert not caplog.records


def test_a_code_in_a_later_file_is_text_too(tmp_path: Path) -> None:
    """Without it the schema would pin a number, and the places 01234 and 1234 of that file be one."""
    csv(tmp_path / "a.csv", "t,place,n", "2024-05-01,12345,1", "2024-05-02,12346,1")
    csv(tmp_path / "b.csv", "t,place,n", "2024-05-01,01234,1.5", "2024-05-02,1234,1")
    assert {name: proposal_of(str(tmp_path)).schema[name] for name in ("place", "n")} == {
        "place": "string",
        "n": "double",
    }


def test_a_code_is_known_by_its_name(tmp_path: Path) -> None:
    """Without it the first one with a zero could come in a year, and be another one's."""
    found = proposal_of(csv(tmp_path / "a.csv", "t,zip,n", "2024-05-01,12345,1", "2024-05-02,12346,1"))
    assert (found.schema["zip"], found.schema["n"]) == ("string", "int64")


def test_a_few_times_may_be_missing(tmp_path: Path) -> None:
    """Without it a single n/a would make the file one that no project can be made for; or nobody would be told."""
    lines = [f"{'n/a' if n == 5 else '' if n == 6 else '2024-05-01'},{n}" for n in range(30)]
    found = proposal_of(csv(tmp_path / "a.csv", "t,n", *lines))
    assert (found.times, found.timeless, found.read) == ({"t": None}, {"t": 2}, 30)
    with pytest.raises(SourceError, match="no column holds times"):
        proposal_of(csv(tmp_path / "b.csv", "t,n", *lines[:7]))


def test_columns_of_years(tmp_path: Path) -> None:
    """Without it a table with a column for each year would be taken for one without names."""
    found = proposal_of(csv(tmp_path / "a.csv", "t,user,2023,2024", "2024-05-01,a,1,2", "2024-05-02,a,1,2"))
    assert (list(found.times), found.key) == (["t"], "user")


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_the_unit_of_whole_numbers(unit: str, per_second: int, tmp_path: Path) -> None:
    """Without it seconds would be taken for milliseconds, and all records be of January 1970."""
    rows = [{"n": n, "at": (1_714_989_600 + n) * per_second, "who": "ab"[n % 2]} for n in range(8)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert proposal_of(f"{tmp_path}/*.jsonl").times == {"at": unit}


@pytest.mark.parametrize(
    "times",
    [
        pa.array([datetime(2024, 5, day + 1, tzinfo=UTC) for day in range(4)], pa.timestamp("us", "Europe/Berlin")),
        pa.array([date(2024, 5, day + 1) for day in range(4)]),
        pa.array([f"2024-05-0{day + 1}" for day in range(4)]),
    ],
    ids=lambda times: str(times.type),
)
def test_a_parquet_file(times: Any, tmp_path: Path) -> None:
    """Without it types that a format gives would be given again, in words that cannot say them."""
    table = pa.table(
        {"user": ["a", "b", "a", "b"], "kg": pa.array([1.5] * 4, pa.float32()), "t": times, "l": [[1]] * 4}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = proposal_of(str(tmp_path))
    assert (list(found.times), found.key, found.values, found.schema) == (["t"], "user", ("kg",), {})
    assert found.others.keys() >= {"l"} and "l" not in found.fields


def test_the_likeliest_time_comes_first(tmp_path: Path) -> None:
    """Without it a number in the range of seconds would be taken for the time of the record."""
    line = "1700000001,1700000002,2024-05-01,2024-05-01T10:00Z"
    path = csv(tmp_path / "a.csv", "phone,made_at,updated,created_at", line)
    assert list(proposal_of(path).times) == ["created_at", "updated", "made_at", "phone"]


def test_a_line_that_does_not_decode_is_counted(tmp_path: Path) -> None:
    """Without it a file that is half broken would look whole."""
    found = proposal_of(csv(tmp_path / "a.csv", "t,user", "2024-05-01,a", "broken", "2024-05-02,b", "2024-05-02,a"))
    assert (found.read, found.dead) == (4, 1)


def test_a_text_of_one_value_is_no_key(tmp_path: Path) -> None:
    """Without it everything would be summed up under the name of the currency."""
    path = csv(tmp_path / "a.csv", "t,currency,user", *(f"2024-05-01,EUR,{name}" for name in "abcd"))
    assert proposal_of(path).key == "user"
    assert proposal_of(csv(tmp_path / "b.csv", "t,currency", "2024-05-01,EUR", "2024-05-01,EUR")).key == "currency"


def test_a_compressed_file(tmp_path: Path) -> None:
    """Without it only plain files would be proposed for, although the source reads both."""
    (tmp_path / "a.csv.gz").write_bytes(
        gzip.compress(b"t,user\n2024-05-01,a\n2024-05-02,b\n2024-05-02,a\n2024-05-02,a\n")
    )
    assert proposal_of(str(tmp_path)).key == "user"


@pytest.mark.parametrize(
    ("name", "lines", "parts"),
    [
        ("a.csv", ["t;u.ser;n", "2024-05-01,a,1"], ("none of its first 1 records", "Expected 3 columns")),
        (
            "a.csv",
            ["t,user", "1968-05-01,a"],
            ("a.csv", "times in 't' are before 1970", "as 1968-05-01", "fixed number"),
        ),
        ("a.csv", [], ("a.csv is empty", "put a record into one", "--source")),
        ("a.csv", ["2024-05-01,a,1", "2024-05-02,a,1"], ("a.csv", "seems to be a record", "add them")),
        ("a.csv", ["user,n", "a,1"], ("a.csv", "no column holds times", "user, n", "'a'", "ISO 8601")),
        ("a.csv", ["kg,is_new", "0.5,true"], ("a.csv", "no column holds times", "kg, is_new", "ISO 8601")),
        ("a.csv", ["t,user", "05/01/2024,a"], ("no column holds times", "05/01/2024", "ISO 8601")),
        (
            "a.csv",
            ["t,note", '2024-05-01,"a'],
            ("none of its first 1 records", "multiline=True"),
        ),
        ("a.csv", ["t,user"], ("a.csv has no record", "no file with a record", "check the path")),
        ("a.log", ["t,user"], ("a.log", "does not show its format", ".csv", "let it end in")),
        ("a.parquet", ["PAR1"], ("a.parquet", "Parquet", "Repair or remove")),
    ],
)
def test_a_file_that_nothing_can_be_made_of(
    name: str, lines: list[str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    """Without it the answer to a question would be a traceback of Arrow."""
    with pytest.raises(SourceError) as error:
        proposal_of(csv(tmp_path / name, *lines))
    says(error, *parts)


@pytest.mark.parametrize(("delimiter", "name"), [(";", "a.csv"), ("\t", "a.tsv"), ("|", "a.txt"), (",", "a.csv.gz")])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_is_read_as_it_is(delimiter: str, name: str, encoding: str, tmp_path: Path) -> None:
    """Without it the file of a spreadsheet, or of another country, would have to be written anew."""
    lines = [["t", "user", "n"], ["2024-05-01", "Jürgen", "1"], ["2024-05-02", "a,b;c", "2"]]
    quoted = [[f'"{one}"' if "," in one else one for one in line] for line in lines]
    data = "".join(delimiter.join(line) + "\n" for line in quoted).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = proposal_of(str(tmp_path / name))
    assert (found.times, found.key, found.values, found.dead) == ({"t": None}, "user", ("n",), 0)
    expected = {"delimiter": delimiter, "encoding": {"latin-1": "cp1252"}.get(encoding, encoding)}
    usual = {"delimiter": ",", "encoding": "utf-8"}
    assert found.reading == {
        **({} if ".csv" in name else {"format": "csv"}),
        **{option: value for option, value in expected.items() if value != usual[option]},
    }


def test_what_is_known_is_not_guessed(tmp_path: Path) -> None:
    """Without it a wrong guess could not be put right."""
    (tmp_path / "a.csv").write_bytes("t;user;n\n2024-05-01;Łódź;1\n".encode("cp1250"))
    assert proposal_of(str(tmp_path)).reading == {"delimiter": ";", "encoding": "cp1252"}
    assert proposal_of(str(tmp_path), {"encoding": "cp1250"}).reading == {"delimiter": ";", "encoding": "cp1250"}
    csv(tmp_path / "a.csv", "t,user", "2024-05-01,a")
    with pytest.raises(SourceError, match="separated by ','"):
        proposal_of(str(tmp_path), {"delimiter": "semicolon"})
    assert proposal_of(csv(tmp_path / "a.csv", "t\tuser", "2024-05-01\ta"), {"delimiter": "tab"}).key == "user"


def test_fields_of_several_lines(tmp_path: Path) -> None:
    """Without it each line of a comment would be a dead letter."""
    path = csv(tmp_path / "a.csv", "t,note,n", '2024-05-01,"a', 'b",1', '2024-05-02,"a', "", 'b",2', "2024-05-03,c,3")
    found = proposal_of(path)
    assert (found.reading, found.read, found.dead) == ({"multiline": True}, 3, 0)


def test_a_quote_that_is_not_closed_swallows_nothing(tmp_path: Path) -> None:
    """Without it the good lines between two such quotes would be proposed as the text of one field."""
    lines = [f"2024-05-01,{chr(34) if n in (5, 9) else ''}a,{n}" for n in range(20)]
    found = proposal_of(csv(tmp_path / "a.csv", "t,note,n", *lines))
    assert (found.reading, found.read, found.dead) == ({}, 20, 2)


def test_a_few_times_before_1970_are_counted(tmp_path: Path) -> None:
    """Without it they would be missing from the totals, and nobody told; or one of them forbid the project."""
    lines = [f"{'1969-12-31' if n == 3 else '2024-05-01'},{n}" for n in range(30)]
    found = proposal_of(csv(tmp_path / "a.csv", "t,n", *lines))
    assert (found.times, found.timeless) == ({"t": None}, {"t": 1})


def test_utf_16_is_told(tmp_path: Path) -> None:
    """Without it the names of its columns would be blamed."""
    (tmp_path / "a.csv").write_bytes("t,user\n2024-05-01,a\n".encode("utf-16"))
    with pytest.raises(SourceError) as error:
        proposal_of(str(tmp_path))
    says(error, "a.csv", "UTF-16", "iconv -f UTF-16 -t UTF-8")


def test_files_of_two_formats(tmp_path: Path) -> None:
    """Without it the times would be looked for, and blamed, where the files are at fault."""
    csv(tmp_path / "a.csv", "t,user", "2024-05-01,a")
    csv(tmp_path / "b.jsonl", "{}")
    with pytest.raises(SourceError) as error:
        proposal_of(str(tmp_path))
    says(error, "b.jsonl", "the first file is csv", "narrow the path")


def test_no_file(tmp_path: Path) -> None:
    """Without it a mistyped path would be an empty project."""
    with pytest.raises(SourceError) as error:
        proposal_of(f"{tmp_path}/*.csv")
    says(error, str(tmp_path), "no file with a record", "check the path", "--source")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    """Without it the project would be made, and its first run fail."""
    found = proposal_of(csv(tmp_path / "a.csv", "t,user", "2024-05-01,a"))
    with pytest.raises(InvalidPipeline) as error:
        found.chosen("usr", "--key")
    says(error, "--key 'usr'", "is no column of the file", "choose one of t, user")
