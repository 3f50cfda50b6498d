"""Records of JSON lines are those of one line after another, and every bad line says why."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.sources.csv_lines import CsvLines
from persistent.sources.json_lines import JsonLines
from persistent.sources.text import Text
from persistent.sources.values import JsonValues
from tests.sources.draining import drain
from tests.sources.texts import GOOD_JSON, PROPERTY, STEPS, expected_of, found, of_lines, source_of

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
