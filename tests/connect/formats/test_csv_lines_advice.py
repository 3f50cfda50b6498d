"""What a text source says about files that people have: each remedy is tried on the very input that it is for."""

from __future__ import annotations

import gzip
import io
import logging
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSource, Pipeline, RunReport, SourceError
from persistent.engines.embedded import Embedded
from tests.visits import Visits, pipeline_of, visits_of

GOOD = b"ts,page,n\n1700000000000,a,1\n1700000001000,b,2\n"
SEMICOLONS = GOOD.replace(b",", b";")
TYPES = {"ts": "int64", "page": "string", "n": "int64"}


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("xl/workbook.xml", GOOD)
    return data.getvalue()


def of_parquet() -> bytes:
    data = io.BytesIO()
    table = pa.table({"ts": [1_700_000_000_000, 1_700_000_001_000], "page": ["a", "b"], "n": [1, 2]})
    pq.write_table(table, data)
    return data.getvalue()


def read(
    path: Path, task: Visits | None = None, step_rows: int | None = None, **options: Any
) -> tuple[RunReport, Pipeline]:
    source = FileSource(path, timestamp="ts", timestamp_unit="ms", **options)
    pipeline = pipeline_of(source, f"memory://{uuid.uuid4()}", task, step_rows=step_rows)
    return pipeline.run(engine=Embedded(1)), pipeline


def renamed(ending: str) -> Callable[[Path], None]:
    def rename(path: Path) -> None:
        path.rename(path.with_name(f"a{ending}"))

    return rename


def written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return write


def without_first_line(data: bytes) -> bytes:
    return data.partition(b"\n")[2]


@pytest.mark.parametrize(
    ("data", "says", "remedy", "options"),
    [
        (gzip.compress(GOOD, mtime=0), "compressed by gzip: let its name end in .gz", renamed(".csv.gz"), {}),
        (zipped(), "a zip archive, as an .xlsx is too: unpack it, or save", written(lambda _: GOOD), {}),
        (of_parquet(), "Parquet: let its name end in .parquet", renamed(".parquet"), {}),
        (b"\0" * 100 + GOOD, "zero bytes, .* tr -d '.000'", written(lambda data: data.replace(b"\0", b"")), {}),
        (
            b"ts,page\0\0\0" + GOOD[7:],
            "zero bytes, .* tr -d '.000'",
            written(lambda data: data.replace(b"\0", b"")),
            {},
        ),
        (b"\0" + GOOD, "zero bytes, .* tr -d '.000'", written(lambda data: data.replace(b"\0", b"")), {}),
        *(
            (
                GOOD.decode().replace("\n", ",時間\n").encode(encoding),
                "seems to be UTF-16: .* iconv -f UTF-16",
                written(lambda data, encoding=encoding: data.decode(encoding).encode()),
                {},
            )
            for encoding in ("utf-16", "utf-16-le", "utf-16-be")
        ),
        (
            b"sep=;\n" + SEMICOLONS,
            "its line 'sep=;' is for a spreadsheet: remove it, and give delimiter=';'",
            written(without_first_line),
            {"delimiter": ";"},
        ),
        (b"# exported on Monday\n" + GOOD, "seems to be a comment: remove it", written(without_first_line), {}),
        (b"# exported on Monday, by us\n" + GOOD, "seems to be a comment: remove it", written(without_first_line), {}),
        (
            GOOD.replace(b"ts,page,n", b"ts,page,n,n").replace(b"1\n", b"1,1\n").replace(b"2\n", b"2,2\n"),
            "names 'n' twice: rename one of them",
            written(lambda data: data.replace(b"n,n", b"n,other")),
            {},
        ),
        (SEMICOLONS, "seem to be separated by ';': give delimiter=';'", written(bytes), {"delimiter": ";"}),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_file_that_is_not_what_it_seems(
    data: bytes, says: str, remedy: Callable[[Path], None], options: dict[str, Any], tmp_path: Path
) -> None:
    """A wrong guess sends people to convert, rename or declare what was right."""
    path = tmp_path / "in" / "a.csv"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(SourceError, match=rf"a\.csv: .*{says}") as error:
        read(path.parent)
    assert ("schema=" in str(error.value)) == ("twice" in says)
    with pytest.raises(SourceError, match=rf"a\.csv: .*{says}"):
        read(path.parent, schema=TYPES)
    remedy(path)
    report, pipeline = read(path.parent, **options)
    assert (report.rows, report.dead, visits_of(pipeline)) == (2, 0, 2)


def test_a_schema_without_the_name_that_is_there_twice(tmp_path: Path) -> None:
    """The error advises it, and it was refused as well."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"ts,x,page,x,n\n1700000000000,1,a,2,3\n")
    with pytest.raises(SourceError, match=r"names 'x' twice: .*, or do not read it; give the columns with schema="):
        read(path)
    report, pipeline = read(path, schema=TYPES)
    assert (report.rows, report.dead, pipeline.state().to_pylist()[0]["total"]) == (1, 0, 3)


@pytest.mark.parametrize("header", [b"ts,page,n,", b"ts,page,n,,", b",ts,page,n", b",,ts,page,n"])
def test_columns_without_names(header: bytes, tmp_path: Path) -> None:
    """Spreadsheets end lines with separators, and pandas writes an index: two of them were one name twice."""
    path = tmp_path / "a.csv"
    empty = header.count(b",,") + 1
    first, last = (b"," * empty, b"") if header.startswith(b",") else (b"", b"," * empty)
    path.write_bytes(header + b"\n" + first + b"1700000000000,a,3" + last + b"\n")
    report, pipeline = read(path)
    assert (report.rows, report.dead, pipeline.state().to_pylist()[0]["total"]) == (1, 0, 3)
    assert report.notes == ()


@pytest.mark.parametrize("texts", [("1.10", "1.1"), ("12E4", "120000"), ("0x7", "7"), ("007", "7")])
def test_a_text_key_that_was_inferred_to_be_a_number(
    texts: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two versions, or two codes, were one key without a word."""
    path = tmp_path / "a.csv"
    path.write_text("ts,page,n\n" + "".join(f"170000000000{n},{text},1\n" for n, text in enumerate(texts)))
    with caplog.at_level(logging.WARNING):
        report, pipeline = read(path)
    assert pipeline.state().num_rows == 1
    assert any("schema={'page': 'string', ...}" in text for text in caplog.messages)
    types = {**TYPES, "page": "string"}
    caplog.clear()
    report, pipeline = read(path, schema=types)
    assert (pipeline.state().num_rows, report.notes, caplog.messages) == (2, (), [])


def test_a_declared_number_may_be_a_key(tmp_path: Path) -> None:
    """Whoever says that a key is a number means it."""
    path = tmp_path / "a.csv"
    path.write_text("ts,page,n\n1700000000000,1.10,1\n")
    assert read(path, schema={**TYPES, "page": "double"})[0].notes == ()


@pytest.mark.parametrize("options", [{}, {"schema": TYPES}, {"multiline": True}], ids=str)
@pytest.mark.parametrize("data", [GOOD.replace(b"\n", b"\r"), GOOD.replace(b"n\n", b"n\r", 1)], ids=["all", "header"])
def test_lines_that_end_with_a_carriage_return_are_not_a_part_of_the_header(
    data: bytes, options: dict[str, Any], tmp_path: Path
) -> None:
    """Their records were in no account: not counted, and no dead letters."""
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.csv: its header ends with a carriage return alone: end lines with newl"):
        read(tmp_path / "a.csv", **options)
    (tmp_path / "a.csv").write_bytes(data.replace(b"\r", b"\n"))
    assert read(tmp_path / "a.csv", **options)[0].rows == 2


def test_a_line_break_in_a_name_needs_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(GOOD.replace(b",n\n", b',n,"net\nprice"\n', 1).replace(b",1\n", b",1,3\n"))
    with pytest.raises(SourceError, match="a quote in it is not closed; fields of several lines need multiline=True"):
        read(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv", multiline=True)[0].rows == 2


def test_times_with_a_zone_and_without_one_are_read_as_text(tmp_path: Path) -> None:
    """The reason ended in the middle of what Arrow advises about its own functions."""
    times = b"ts,page,n\n2024-05-06T10:00:00Z,a,1\n2024-05-06T10:00:01,b,2\n"
    (tmp_path / "a.csv").write_bytes(times)
    types = {**TYPES, "ts": pa.timestamp("ms")}

    def run(types: dict[str, Any]) -> tuple[RunReport, Pipeline]:
        source = FileSource(tmp_path / "a.csv", timestamp="ts", schema=types)
        pipeline = pipeline_of(source, f"memory://{uuid.uuid4()}")
        return pipeline.run(engine=Embedded(1)), pipeline

    report, pipeline = run(types)
    (reason,) = pipeline.dead_letters()["reason"].to_pylist()
    assert report.dead == 1 and reason.partition("'2024-05-06T10:00:00Z'")[2].startswith(
        '. Give this column as "string"'
    )
    assert run({**types, "ts": "string"})[0].dead == 0
