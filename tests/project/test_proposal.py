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
from persistent.project import Field, proposal_of
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


def test_a_compressed_file(tmp_path: Path) -> None:
    """Without it only plain files would be proposed for, although the source reads both."""
    (tmp_path / "a.csv.gz").write_bytes(
        gzip.compress(b"t,user\n2024-05-01,a\n2024-05-02,b\n2024-05-02,a\n2024-05-02,a\n")
    )
    assert proposal_of(str(tmp_path)).key == "user"


@pytest.mark.parametrize(
    ("name", "lines", "parts"),
    [
        ("a.csv", ["t;user;n", "2024-05-01;a;1"], ("a.csv", "separated by ';'", "with commas", "read_csv")),
        ("a.csv", ["2024-05-01,a,1", "2024-05-02,a,1"], ("a.csv", "seems to be a record", "add them")),
        ("a.csv", ["user,n", "a,1"], ("a.csv", "no column holds times", "user, n", "'a'", "ISO 8601")),
        ("a.csv", ["kg,is_new", "0.5,true"], ("a.csv", "no column holds times", "kg, is_new", "ISO 8601")),
        ("a.csv", ["t,user", "05/01/2024,a"], ("no column holds times", "05/01/2024", "ISO 8601")),
        (
            "a.csv",
            ["t,note", '2024-05-01,"a', 'b"', '2024-05-02,"a', 'b"'],
            ("none of its first 4 records", "multiline=True"),
        ),
        ("a.csv", ["t,user"], ("a.csv", "no file with a record", "check the path")),
        ("a.txt", ["t,user"], ("a.txt", "does not show its format", ".csv")),
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


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    """Without it the times would be blamed, which are as they should be."""
    (tmp_path / "a.csv").write_bytes("t,user\n2024-05-01,Jürgen\n2024-05-02,Jürgen\n".encode("latin-1"))
    with pytest.raises(SourceError) as error:
        proposal_of(str(tmp_path))
    says(error, "none of its first 2 records can be decoded", "UTF-8", "iconv")


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
