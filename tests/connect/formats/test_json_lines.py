"""Records of JSON lines are those of one line after another, and every bad line says why."""

from __future__ import annotations

import gzip
import json
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.connect import remedies
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.text import Text
from persistent.connect.formats.values import JsonValues
from persistent.sources import FileSource
from tests.connect.draining import drain
from tests.connect.texts import GOOD_JSON, PROPERTY, STEPS, expected_of, found, of_lines, source_of

NESTED = b'{"ts":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


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


def small_blocks(source, bytes):
    """The same source, reading blocks of so many bytes."""
    source._formats["json"] = Text(JsonLines(), bytes)
    source._formats["csv"] = Text(CsvLines(source._given.multiline), bytes)
    return source


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


@pytest.mark.parametrize("line", BAD_JSON)
def test_every_bad_json_line_says_why(tmp_path, line):
    """Without it a dead letter could not be repaired."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD_JSON[0], line, GOOD_JSON[1]]))
    drained = drain(source_of(tmp_path))
    assert [row[2] for row in drained.rows] == [0, 1]
    assert len(drained.dead) == 1 and len(drained.dead[0].reason) > 10


def test_a_line_nested_too_deeply_does_not_kill_the_worker(tmp_path):
    """Without it one line could stop every run for ever."""
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD_JSON[0], NESTED, GOOD_JSON[1]]))
    drained = drain(source_of(tmp_path))
    assert [row[2] for row in drained.rows if row[2] != 1 or row[3]["v"]] == [0, 1]
    assert len(drained.rows) + len(drained.dead) == 3


@pytest.mark.parametrize("line", [b'{"a": 1, "b" 2}', b'{"a": 1, "a": 2}', b'{"a": "x"}', b'{"a": tru}'])
def test_a_reason_names_no_row(line: bytes) -> None:
    """A bad line is decoded alone, so its row is 0 wherever it stands; its place is in the dead letter."""
    value = JsonValues().decode([b'{"a": 1}', line], pa.schema([("a", pa.int64())]))
    assert [row for row, _ in value.dead] == [1]
    assert "row" not in value.dead[0][1] and len(value.dead[0][1]) > 10


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (b"\0" * 50 + b'{"ts":1}\n{"ts":2}\n', lambda data: data.replace(b"\0", b"")),
        ('{"ts":1}\n{"ts":2}\n'.encode("utf-16"), lambda data: data.decode("utf-16").encode()),
    ],
)
def test_zero_bytes_are_said_to_be_what_they_are(data, remedy, tmp_path):
    """A log that was cut while it was written begins with them; its first record is there, behind them."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    dead = drain(FileSource(path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64"})).dead
    assert "it has zero bytes, as text in UTF-16 has (iconv -f UTF-16 -t UTF-8), or a log" in dead[0].reason
    path.write_bytes(remedy(data))
    assert [row[2] for row in drain(FileSource(path, timestamp="ts", timestamp_unit="ms")).rows] == [1, 2]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("-44", (38, 37)),
        ("810668805306698087268883539948", (38, 16)),
        ('"x"', (9, 2)),
        ("1.234", (9, 2)),
        ("1e-192", (38, 0)),
        ("0.00000000000000000000000000000000000001E-154", (38, 0)),
        ("{}", (9, 2)),
    ],
)
@pytest.mark.parametrize("around", ["%s", '{"x":[1,%s]}'])
def test_a_decimal_that_its_type_cannot_hold_is_a_dead_letter(written, kind, around, tmp_path):
    """Arrow multiplies it beyond 128 bits without noticing: -44 was read as -9.97, and 1e-192 as 0."""
    type_ = pa.decimal128(*kind)
    lines = [f'{{"ts":{ts},"v":{around % value}}}\n' for ts, value in ((1, written), (2, "1"), (3, "0e-192"))]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    schema = {"ts": "int64", "v": type_ if around == "%s" else pa.struct([("x", pa.list_(type_))])}
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=schema))
    assert [row["v"] for row in drained.values] == ([1, 0] if around == "%s" else [{"x": [1, 1]}, {"x": [1, 0]}])
    (dead,) = drained.dead
    assert dead.reason.startswith("column 'v': ") and dead.reason.endswith(remedies.TYPES)
    assert f"is no value of type {type_}" in dead.reason or written == "{}"


@pytest.mark.parametrize("around", ["%s", '"%s"', '{"x":[0,%s]}'])
@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (pa.decimal256(76, 60), "9" * 18),
        (pa.decimal256(76, 60), "-1" + "7" * 30 + ".5"),
        (pa.decimal256(76, 76), "9e3"),
        (pa.decimal256(76, 60), "9E+19"),
        (pa.decimal256(76, 2), "-1.5e75"),
        (pa.decimal128(38, 10), str(Decimal((1 << 256) + 5).scaleb(-10, Context(prec=99)))),
    ],
)
def test_a_number_beyond_256_bits_is_a_dead_letter(kind, written, around, tmp_path):
    """9e19 as decimal256(76, 60) was read as 2.95e16, and 2**256 + 5 units of decimal128(38, 10) as 5."""
    lines = [f'{{"ts":{ts},"id":"1e5a0e12","v":{around % value}}}\n' for ts, value in ((1, written), (2, "0"))]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    schema = {"ts": "int64", "id": "string", "v": pa.struct([("x", pa.list_(kind))]) if "x" in around else kind}
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=schema))
    assert [row["ts"] for row in drained.values] == [2]
    assert f"is no value of type {kind}" in drained.dead[0].reason


@pytest.mark.parametrize("kind", ["double", pa.decimal128(38, 10), None])
@pytest.mark.parametrize("written", ["1e1000000000000000000", "-1e99999999999999999999", "1e-99999999999999999999"])
def test_an_exponent_beyond_every_decimal_is_no_error_of_the_run(written, kind, tmp_path):
    """The run ended with an InvalidOperation that named no line, also for a field that is no column."""
    lines = (f'{{"ts":1,"v":{written},"note":0}}', f'{{"ts":2,"v":0,"note":{written}}}', '{"ts":3,"v":0.5,"note":1}')
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    schema = None if kind is None else {"ts": "int64", "v": kind}
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=schema))
    read, dead = [row["ts"] for row in drained.values], [one.reason for one in drained.dead]
    if "e-" not in written:
        assert read == [3] and [reason.partition(": Number too big")[0] for reason in dead] == [
            "column 'v'",
            "column 'note'",
        ]
    elif kind == pa.decimal128(38, 10):
        assert read == [2, 3] and f"is no value of type {kind}" in dead[0]
    else:
        assert read == [1, 2, 3]


@pytest.mark.parametrize("written", ["1e400", '[{"x":-1.5E+400}]'])
def test_a_number_beyond_every_double_names_its_column_and_what_to_do(written, tmp_path):
    """The reason was that of the parser, which names nothing, and no type of schema= reads the number."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"ts":1,"w":2,"v":{written}}}\n')
    options, schema = {"timestamp": "ts", "timestamp_unit": "ms"}, {"ts": "int64", "w": "int64"}
    (dead,) = drain(FileSource(path, schema=schema, **options)).dead
    assert dead.reason.startswith("column 'v': ")
    assert dead.reason.endswith(
        "write it as text, in quotes, and give all columns their types with schema=, this one 'string'"
    )
    path.write_text(json.dumps({"ts": 1, "v": written}))
    assert [row["v"] for row in drain(FileSource(path, schema={**schema, "v": "string"}, **options)).values] == [
        written
    ]


@pytest.mark.parametrize(
    ("kind", "beyond", "good"),
    [
        (pa.decimal32(9, 8), 521, 5),
        (pa.list_(pa.decimal128(38, 37)), [-44], [5]),
        (pa.struct({"f": pa.list_(pa.decimal128(38, 37))}), {"f": [-44]}, {"f": [5]}),
    ],
)
def test_a_decimal_of_few_bits_or_within_a_value_is_read_with_room_too(kind, beyond, good, tmp_path):
    """521 in decimal32(9, 8) was read as 5.60, and [-44] in decimals of 37 fractional digits as [-9.97]."""
    values = [f'{{"ts":1,"v":{json.dumps(value)}}}\n' for value in (beyond, good)]
    (tmp_path / "a.jsonl").write_text("".join(values))
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64", "v": kind}))
    assert json.loads(json.dumps([row["v"] for row in drained.values], default=int)) == [good]
    assert "'v'" in drained.dead[0].reason and "schema=" in drained.dead[0].reason


def test_a_struct_without_doubles_beside_one_with_them_is_read(tmp_path):
    """Looking for rounded integers failed there, and each such record was a dead letter."""
    (tmp_path / "a.jsonl").write_text('{"ts":1,"c":{"a":[null,{"x":2,"f":1e22}],"b":{"x":1}}}\n')
    drained = drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"))
    assert [row["c"]["a"][1]["f"] for row in drained.values] == [1e22] and not drained.dead
