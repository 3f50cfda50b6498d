"""Text is cut into lines and records where its format says, whatever the blocks."""

from __future__ import annotations

import gzip
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.lines import ends_outside_quotes
from persistent.connect.formats.text import Text
from persistent.errors import SourceError
from persistent.sources import Budget, FileSource, SourceState
from tests.connect.draining import drain
from tests.connect.texts import GOOD_JSON, source_of
from tests.few import examples


def small_blocks(source, bytes):
    """The same source, reading blocks of so many bytes."""
    source._formats["json"] = Text(JsonLines(), bytes)
    source._formats["csv"] = Text(CsvLines(source._given.multiline), bytes)
    return source


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


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join), st.booleans())
@example(b'\xef\xbb\xbf"b,2\nd\n"f",5\n', False)
def test_quotes_are_paired_as_the_parser_pairs_them(data, of_file):
    """Without it a quote in the middle of a field, as in 5" pipe, would swallow the records up to the next one."""
    assert ends_outside_quotes(np.frombuffer(data, np.uint8), of_file).tolist() == ends_one_by_one(data, of_file)


@settings(max_examples=examples(100), deadline=None)
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
