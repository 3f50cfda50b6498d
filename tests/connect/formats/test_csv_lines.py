"""Records of CSV are those of one line after another; each fault costs its own record and no other."""

from __future__ import annotations

import csv
import gzip
import io
import os
import signal
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.codec.decimals import is_exact
from persistent.connect import remedies
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.text import Text
from persistent.errors import SourceError
from persistent.sources import FileSource
from tests.connect.draining import drain
from tests.connect.texts import PROPERTY, STEPS, expected_of, found, of_lines, source_of

GOOD_CSV = [b"%d,a%d" % (i, i) for i in range(8)] + [b'8,"a,b"', b'9,"say ""x"""', b"10,", b'11,5" pipe']


BAD_CSV = [
    b"one,a",
    b"1.5,a",
    b"1",
    b"1,a,b",
    b"99999999999999999999,a",
    b'1,"a',
    b'"',
    b"1,\xff",
    b"1,a\r2,b",
    b"  ",
]


def small_blocks(source, bytes):
    """The same source, reading blocks of so many bytes."""
    source._formats["json"] = Text(JsonLines(), bytes)
    source._formats["csv"] = Text(CsvLines(source._given.multiline), bytes)
    return source


@PROPERTY
@given(of_lines(GOOD_CSV, BAD_CSV), STEPS, st.booleans(), st.booleans(), st.booleans())
def test_csv_agrees_with_one_line_after_another(tmp_path, lines, steps, mark, unended, packed):
    """I9: without it a quote or a missing field could swallow the lines after it."""
    good = {line: dict(zip(["ts", "v"], next(csv.reader([line.decode()])), strict=True)) for line in GOOD_CSV}
    good = {line: {"ts": int(row["ts"]), "v": row["v"] or None} for line, row in good.items()}
    header = b"\xef\xbb\xbf" * mark + b'ts,"v"\r\n'
    data = header + b"".join(line + end for line, end in lines)
    data = data.removesuffix(b"\n") if unended else data
    path = tmp_path / ("a.csv" + ".gz" * packed)
    path.write_bytes(gzip.compress(data) if packed else data)
    rows, exact, splits, block = steps
    alive, dead = expected_of(lines, good, len(header))
    if not alive and not dead:
        return
    drained = drain(small_blocks(source_of(path), block), rows, exact, splits)
    assert found(drained) == (alive, dead)
    if exact:
        total = len(alive) + len(dead)
        assert drained.steps == [min(rows, total - done) for done in range(0, total, rows)]


def test_a_csv_value_that_does_not_convert_names_its_column(tmp_path):
    """Without it the user would count commas."""
    (tmp_path / "a.csv").write_text("v,ts\na,1\nb,two\n")
    drained = drain(source_of(tmp_path))
    assert drained.dead[0].reason.startswith("column 'ts': CSV conversion error to int64: invalid value 'two'. If")


def test_multiline_fields(tmp_path):
    """Without it text with line breaks could not be read at all."""
    rows = [{"ts": i, "v": f'a"{i}\nb,\r\nc' if i % 3 else "plain"} for i in range(40)]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["ts", "v"])
    writer.writeheader()
    writer.writerows(rows)
    for name, data in (("a.csv", text.getvalue().encode()), ("b.csv.gz", gzip.compress(text.getvalue().encode()))):
        (tmp_path / name).write_bytes(data)
        source = source_of(tmp_path / name, multiline=True)
        whole = drain(source)
        assert whole.values == rows and not whole.dead
        for step, exact, block in ((1, True, 1), (7, True, 50), (40, True, 1 << 20), (5, False, 100)):
            drained = drain(small_blocks(source, block), step, exact, 3)
            assert drained.rows == whole.rows
            assert not exact or set(drained.steps[:-1]) <= {step}
    assert len(drain(source_of(tmp_path / "a.csv")).dead) > 0


STRAY = [b'1,5" pipe', b'2,"5"" pipe"', b'3,"a"b"', b'4,"two\nlines"', b'5,a"b"', b'6,"a"\r', b'7,"" x', b'8,"""\n"""']


READ = ['5" pipe', '5" pipe', 'ab"', "two\nlines", 'a"b"', "a", " x", '"\n"']


@pytest.mark.parametrize("step", [1, 2, 3, 8])
@pytest.mark.parametrize("block", [1, 30, 1 << 24])
def test_a_quote_inside_a_field_costs_no_other_record(tmp_path, step, block):
    """Without it such a quote swallowed the rest of the file, and how much of it, step borders decided."""
    (tmp_path / "a.csv").write_bytes(b"ts,v\n" + b"\n".join(STRAY * 3) + b"\n")
    drained = drain(small_blocks(source_of(tmp_path, multiline=True), block), step, True, 3)
    assert [row["v"] for row in drained.values] == READ * 3 and not drained.dead


def test_a_quote_that_is_never_closed_is_a_bad_record(tmp_path):
    """Without it the rest of the file passed for the text of one field, where that held a quote by chance."""
    (tmp_path / "a.csv").write_bytes(b'ts,v\n1,a\n2,"""\n3,c\n4,d\n')
    drained = drain(source_of(tmp_path, multiline=True))
    assert drained.values == [{"ts": 1, "v": "a"}]
    assert [dead.data for dead in drained.dead] == [b'2,"""\n3,c\n4,d\n']


def test_a_csv_file_with_another_header_does_not_fit(tmp_path):
    """Without it a file without a header would lose its first record and give the rest wrong names."""
    (tmp_path / "a.csv").write_text("ts,v\n1,a\n")
    (tmp_path / "b.csv").write_text("v,more,ts\nb,x,2\n")
    (tmp_path / "c.csv").write_text("3,c\n4,d\n")
    with pytest.raises(SourceError, match=r"c\.csv: its header has no column 'ts' nor 'v'; it reads 3, c"):
        drain(source_of(tmp_path))
    drained = drain(source_of(tmp_path, on_bad_file="dead-letter"), 1, True)
    assert drained.values == [{"ts": 1, "v": "a"}, {"ts": 2, "v": "b"}]
    assert [(dead.ordinal, dead.offset) for dead in drained.dead] == [(2, 0)]
    (tmp_path / "c.csv").write_text("ts,ts,v\n1,2,c\n")
    with pytest.raises(SourceError, match="names 'ts' twice"):
        drain(source_of(tmp_path))


@pytest.mark.parametrize("value", ["007", "-01", '"00"'])
def test_a_number_that_begins_with_zeros_is_told(value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it the codes 007 and 7 would be one key, and neither be in the results."""
    (tmp_path / "a.csv").write_text(f"ts,v,w\n1,7,0\n2,3,0.5\nbad\n3,{value},05 June\n")
    assert drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")).values[0]["v"] == 7
    (message,) = caplog.messages
    assert str(tmp_path / "a.csv") in message and "column 'v'" in message and "'string'" in message


def test_a_signal_is_not_a_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM is how a run is stopped. Arrow raises where it arrives, and a good file was a dead letter, for good."""
    (tmp_path / "a.csv").write_text("ts,v\n1,a\n2,b\n")
    parse, calls = pyarrow.csv.read_csv, []

    def interrupted(*args: Any, **options: Any) -> pa.Table:
        calls.append(args)
        if len(calls) % 2:
            raise pa.ArrowCancelled("Operation cancelled. Detail: received signal 15", 15)
        return parse(*args, **options)

    monkeypatch.setattr(pyarrow.csv, "read_csv", interrupted)
    for schema in (None, {"ts": "int64", "v": "string"}):
        options: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms", "schema": schema}
        drained = drain(FileSource(tmp_path, on_bad_file="dead-letter", **options))
        assert drained.values == [{"ts": 1, "v": "a"}, {"ts": 2, "v": "b"}]
        assert drained.dead == []
    assert len(calls) > 10


def test_a_real_signal_is_not_a_fault_of_the_file(tmp_path: Path) -> None:
    """Its handler hears of it, and the file is read: Arrow sends a signal on."""
    (tmp_path / "a.csv").write_text("ts,v\n1,a\n2,b\n")
    heard: list[int] = []
    handler = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    done = threading.Event()

    def shoot() -> None:
        while not done.wait(0.0005):
            os.kill(os.getpid(), signal.SIGTERM)

    shooting = threading.Thread(target=shoot)
    try:
        shooting.start()
        drained = [drain(source_of(tmp_path)).values for _ in range(20)]
    finally:
        done.set()
        shooting.join()
        signal.signal(signal.SIGTERM, handler)
    assert drained == [[{"ts": 1, "v": "a"}, {"ts": 2, "v": "b"}]] * 20
    assert heard


@pytest.mark.parametrize("record", [b"2,b", b"2024-05-01,b", b"x,b"])
def test_a_file_of_one_record_without_names_is_not_empty(tmp_path, record):
    """Its record counted nowhere, as the names of no columns, and the run said that all was well."""
    (tmp_path / "a.csv").write_bytes(b"ts,v\n1,a\n")
    (tmp_path / "b.csv").write_bytes(record + b"\n")
    for options in ({}, {"schema": {"ts": "int64", "v": "string"}}):
        source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", **options)
        with pytest.raises(SourceError, match=r"b\.csv: its header has no column 'ts' nor 'v'; it reads .*, b[.;]"):
            drain(source)
        drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", on_bad_file="dead-letter", **options))
        assert (len(drained.rows), len(drained.dead)) == (1, 1)
    (tmp_path / "b.csv").write_bytes(b"ts,v\n2,b\n")
    assert len(drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")).rows) == 2


def test_a_first_file_of_one_record_without_names_is_not_empty(tmp_path):
    """Alone in its folder it was nothing to read; a header alone still is."""
    (tmp_path / "a.csv").write_bytes(b"2,b\n")
    with pytest.raises(SourceError, match=r"a\.csv: it has one line, which reads 2, b\. .* seems to be a record: add"):
        drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"))
    (tmp_path / "a.csv").write_bytes(b"ts,v\n")
    assert drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")).rows == []


@pytest.mark.parametrize("kind", [(38, 37), (12, 2), (38, 0), (5, -2)])
def test_a_decimal_is_what_stands_in_the_text_or_a_dead_letter(kind, tmp_path):
    """Arrow multiplies it beyond 128 bits without noticing: -44 was read as -9.97."""
    type_ = pa.decimal128(*kind)
    fields = [
        "-44",
        "1e-400",
        "0e-400",
        "0.25",
        "12E+2",
        " +3\t",
        "1e33",
        "9" * 38,
        "x",
        "",
        '""',
        "NA",
        '"1,5"',
        "1.50",
    ]
    path = tmp_path / "a.csv"
    path.write_text("ts,v,w\n" + "".join(f"{ts},{field},w\n" for ts, field in enumerate(fields)))
    drained = drain(
        FileSource(path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64", "v": type_, "w": "string"})
    )
    read = {row["ts"]: row["v"] for row in drained.values}
    for ts, field in enumerate(fields):
        expected = None if field in ("", '""') else field.strip()
        assert (ts in read) == (expected is None or is_exact(expected, type_)), field
        assert ts not in read or read[ts] == (None if expected is None else Decimal(expected)), field
    for dead in drained.dead:
        assert dead.reason.startswith("column 'v': ") and f"is no value of type {type_}. " in dead.reason
        assert dead.reason.endswith(remedies.TYPES)


def test_a_decimal_that_its_type_cannot_hold_is_a_dead_letter(tmp_path):
    """Arrow multiplies it beyond 128 bits without noticing: 44 was read as 9.97, and 0.19e-37 as 0."""
    fields = ["44", " -1.5\t", "", '"2"', "0.19e-37", "x", "1e38", "+.5", '""', "NA"]
    (tmp_path / "a.csv").write_text("ts,v\n" + "".join(f"{ts},{field}\n" for ts, field in enumerate(fields)))
    schema = {"ts": "int64", "v": pa.decimal128(38, 37)}
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=schema))
    values = {row["ts"]: row["v"] for row in drained.values}
    assert values == {1: Decimal("-1.5"), 2: None, 3: 2, 7: Decimal("0.5"), 8: None}
    assert all("'v'" in dead.reason and "schema=" in dead.reason for dead in drained.dead)
    assert len(drained.dead) == len(fields) - len(values)
