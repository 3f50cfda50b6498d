"""JSON lines and CSV: exact positions, and bad lines that cost only themselves."""

from __future__ import annotations

import csv
import gzip
import io
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from persistent.errors import SourceError
from persistent.sources import Budget, FileSource, SourceState
from persistent.sources.csv_lines import CsvLines
from persistent.sources.json_lines import JsonLines
from persistent.sources.lines import ends_outside_quotes
from persistent.sources.text import Text
from tests.sources.draining import Drained, drain

NESTED = b'{"ts":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
GOOD_JSON = [b'{"ts":%d,"v":"a%d"}' % (i, i) for i in range(12)]
BAD_JSON = [
    b"nonsense",
    b"[1]",
    b"5",
    b'"text"',
    b"null",
    b'{"ts":"one","v":"a"}',
    b'{"ts":1.5}',
    b'{"ts":99999999999999999999}',
    b'{"ts":1,"v":7}',
    b'{"ts":1,"v":"a"',
    b'{"ts":1}{"ts":2}',
    b'{"ts":1} {"ts":2}',
    b'{"ts":1}}',
    b'{"ts":1,"ts":2}',
    b'{"ts":1,"v":"\xff"}',
    b'{"ts":1,"v":"\\ud800"}',
    b'{"ts":1,"v":"\\udc00"}',
    b'{"ts":1,"v":"a\tb"}',
    b'{"ts":1,"v":{"w":1}}',
    b"{]}",
    b'{"ts":1,\r"v":"\r"}',
]
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
BLANKS = [b"", b"\r"]


def source_of(path, **options):
    return FileSource(path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64", "v": "string"}, **options)


def small_blocks(source, bytes):
    """The same source, reading blocks of so many bytes."""
    source._formats["json"] = Text(JsonLines(), bytes)
    source._formats["csv"] = Text(CsvLines(source._given.multiline), bytes)
    return source


def expected_of(lines, good, header=0):
    """Offsets and contents by the slow definition: one line after another."""
    offset, alive, dead = header, [], []
    for line, end in lines:
        if line in good:
            alive.append((offset, good[line]))
        elif line not in BLANKS:
            dead.append((offset, line))
        offset += len(line) + len(end)
    return alive, dead


def found(drained: Drained):
    alive = [(offset, fields) for _, offset, _, fields in drained.rows]
    return alive, [(dead.offset, dead.data) for dead in drained.dead]


def of_lines(good, bad):
    line = st.tuples(st.sampled_from(good * 3 + bad + BLANKS[:1]), st.sampled_from([b"\n", b"\n", b"\r\n"]))
    return st.lists(line, min_size=1, max_size=30)


STEPS = st.tuples(st.integers(1, 40), st.booleans(), st.integers(1, 4), st.sampled_from([1, 30, 100, 1 << 24]))
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PROPERTY
@given(of_lines(GOOD_JSON, BAD_JSON), STEPS, st.booleans(), st.booleans(), st.booleans())
def test_json_lines_agree_with_one_line_after_another(tmp_path, lines, steps, mark, unended, packed):
    """I9: without it one bad line could cost its neighbours, or shift the positions of all that follow."""
    good = {line: json.loads(line) for line in GOOD_JSON}
    data = b"\xef\xbb\xbf" * mark + b"".join(line + end for line, end in lines)
    data = data.removesuffix(b"\n") if unended else data
    path = tmp_path / ("a.jsonl" + ".gz" * packed)
    path.write_bytes(gzip.compress(data) if packed else data)
    rows, exact, splits, block = steps
    alive, dead = expected_of(lines, good, 3 * mark)
    if not alive and not dead:
        return
    drained = drain(small_blocks(source_of(path), block), rows, exact, splits)
    assert found(drained) == (alive, dead)
    if exact:
        total = len(alive) + len(dead)
        assert drained.steps == [min(rows, total - done) for done in range(0, total, rows)]


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


@pytest.mark.parametrize("line", BAD_JSON)
def test_every_bad_json_line_says_why(tmp_path, line):
    """Without it a dead letter could not be repaired."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD_JSON[0], line, GOOD_JSON[1]]))
    drained = drain(source_of(tmp_path))
    assert [row[2] for row in drained.rows] == [0, 1]
    assert len(drained.dead) == 1 and len(drained.dead[0].reason) > 10


def test_a_csv_value_that_does_not_convert_names_its_column(tmp_path):
    """Without it the user would count commas."""
    (tmp_path / "a.csv").write_text("v,ts\na,1\nb,two\n")
    drained = drain(source_of(tmp_path))
    assert drained.dead[0].reason.startswith("column 'ts': CSV conversion error to int64: invalid value 'two'. If")


def test_errors_that_make_up_for_each_other_are_found(tmp_path):
    """Without it bad lines that give the right number of records together would shift all positions between."""
    lines = [b"1,a\r2,b", b'3,"c', b'd"', b"4,d"]
    (tmp_path / "a.csv").write_bytes(b"ts,v\n" + b"\n".join(lines) + b"\n")
    drained = drain(source_of(tmp_path))
    assert [dead.data for dead in drained.dead] == lines[:3]
    assert [row[1:3] for row in drained.rows] == [(21, 4)]


def test_a_line_nested_too_deeply_does_not_kill_the_worker(tmp_path):
    """Without it one line could stop every run for ever."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD_JSON[0], NESTED, GOOD_JSON[1]]))
    drained = drain(source_of(tmp_path))
    assert [row[2] for row in drained.rows if row[2] != 1 or row[3]["v"]] == [0, 1]
    assert len(drained.rows) + len(drained.dead) == 3


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


PIECES = [b'"', b'"', b",", b"\n", b"\r\n", b"\r", b"a", b"1", b" ", b"\xef\xbb\xbf"]


def ends_one_by_one(data, of_file=True):
    """The slow definition of the rule of pyarrow.csv: where the lines of a text end."""
    ends, state, place = [], "start", 3 if of_file and data.startswith(b"\xef\xbb\xbf") else 0
    while place < len(data):
        here = data[place : place + 1]
        if state == "quoted":
            if here == b'"':
                place, state = (place + 1, state) if data[place + 1 : place + 2] == b'"' else (place, "plain")
        elif here == b'"' and state == "start":
            state = "quoted"
        else:
            state = "start" if here in b",\r\n" else "plain"
            ends += [place] if here == b"\n" else []
        place += 1
    return ends


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join), st.booleans())
@example(b'\xef\xbb\xbf"b,2\nd\n"f",5\n', False)
def test_quotes_are_paired_as_the_parser_pairs_them(data, of_file):
    """Without it a quote in the middle of a field, as in 5" pipe, would swallow the records up to the next one."""
    assert ends_outside_quotes(np.frombuffer(data, np.uint8), of_file).tolist() == ends_one_by_one(data, of_file)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*PIECES[:5], b"a", b"1"]), max_size=10).map(b"".join))
def test_the_parser_has_the_same_rule(data):
    """Without it the rule above could be another than that of pyarrow.csv, which says what a record is."""
    ends = ends_one_by_one(data)
    lines = [data[start + 1 : end].removesuffix(b"\r") for start, end in pairwise([-1, *ends])]
    whole = data[: ends[-1] + 1] if ends else b""
    assert _rows(whole) == sorted(row for line in lines if line for row in _rows(line + b"\n"))


def _rows(text):
    """The records of a text that the parser finds in it, of however many fields."""
    rows = []
    for width in range(1, 12):
        found = []
        options = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
        names = pa.csv.ReadOptions(use_threads=False, column_names=[str(n) for n in range(width)])
        if text:
            kinds = pa.csv.ConvertOptions(column_types={name: pa.string() for name in names.column_names})
            found = pa.csv.read_csv(pa.BufferReader(text), names, options, kinds).to_pylist()
        rows += [tuple(row.values()) for row in found]
    return sorted(rows)


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


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("step", [1, 2, 100])
def test_a_byte_order_mark_inside_a_file_is_part_of_its_record(tmp_path, step, multiline):
    """Without it files put together into one would read otherwise by where a step begins."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfv,ts\na,1\n\xef\xbb\xbfb,2\nc,3\n")
    drained = drain(source_of(tmp_path, multiline=multiline), step, True)
    assert [row["v"] for row in drained.values] == ["a", "\ufeffb", "c"]


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize("block", [1, 30, 1 << 24])
def test_a_byte_order_mark_inside_a_file_opens_no_quoted_field(tmp_path, step, block):
    """Without it a step that began with such a record took the rest of the file for one field: one dead letter."""
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"v",ts\n"a",1\n\xef\xbb\xbf"b,2\nd,3\ne,4\n"f",5\n')
    drained = drain(small_blocks(source_of(tmp_path, multiline=True), block), step, True)
    assert [row["v"] for row in drained.values] == ["a", '\ufeff"b', "d", "e", "f"] and not drained.dead


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
        (of_depth(61), "the line at byte 9 nests 61 levels deep, and 60 is the most"),
        (of_depth(1_000), "nests 1,000 levels deep"),
        (of_depth(200_000), "nests 200,000 levels deep"),
        (b'{"ts":1,"\xe9":2}', "the name of a field is no UTF-8"),
        (b'{"ts":1,"v":{"\xe9":2}}', "the name of a field is no UTF-8"),
    ],
)
def test_a_first_file_whose_columns_cannot_be_told_is_named(tmp_path, line, says):
    """Without it one line of it ended the process, or every run, and no file was named."""
    (tmp_path / "a.jsonl").write_bytes(b'{"ts":1}\n' + line + b"\n")
    with pytest.raises(SourceError, match=rf"a\.jsonl: its columns cannot be told: .*{says}"):
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
        with pytest.raises(SourceError, match=r"no column 'at' of type (duration|list)"):
            source.plan(SourceState({}), Budget(1))


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


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_text_that_breaks_off(tmp_path, ending):
    """Without it the lines before the break would be lost, or read differently by another split."""
    lines = b"".join(b'{"ts":%d,"v":"%032x"}\n' % (i, i * 2**97 % (2**128 - 159)) for i in range(20_000))
    data = gzip.compress(lines) if ending == "gz" else pa.Codec("zstd").compress(lines, asbytes=True)
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(data[:-1000])
    with pytest.raises(SourceError, match=r"break off.*on_bad_file"):
        drain(source_of(tmp_path))
    whole = drain(source_of(tmp_path, on_bad_file="dead-letter"))
    assert len(whole.rows) > 1_000 and [row[2] for row in whole.rows] == list(range(len(whole.rows)))
    assert len(whole.dead) == 1 and whole.dead[0].offset > whole.rows[-1][1]
    for step in (5_000, len(whole.rows)):
        source = small_blocks(source_of(tmp_path, on_bad_file="dead-letter"), 100_000)
        drained = drain(source, step, True)
        assert (drained.rows, drained.dead) == (whole.rows, whole.dead)
        assert drained.steps[0] == step and sum(drained.steps) == len(whole.rows) + 1
    path.write_bytes(b"this was never compressed" * 100)
    with pytest.raises(SourceError, match="break off"):
        FileSource(tmp_path, timestamp="ts").plan(SourceState({}), Budget(1))


def test_blank_lines_at_the_end_are_no_step_of_their_own(tmp_path):
    """Without it a run over complete input would end with steps that hold nothing."""
    (tmp_path / "a.jsonl").write_bytes(b"\n\n" + GOOD_JSON[0] + b"\n \n\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n \r\n\t\n")
    drained = drain(source_of(tmp_path), 1, True)
    assert drained.steps == [1] and drained.state.positions == {"files": (2, 0)}
