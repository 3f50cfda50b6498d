"""What a checkpoint records of a source may change where it can be followed; else it is refused with the remedy."""

from __future__ import annotations

import gzip

import pytest

from persistent.errors import InvalidPipeline
from persistent.sources import FileSource, SourceState
from tests.sources.draining import drain

OLD = ("above", "csv_empty", "root", "timestamp", "timestamp_unit")
"""What the first release did not record."""


def source(path, **options):
    return FileSource(path, **{"timestamp": "ts", "timestamp_unit": "ms", **options})


def without(state, *names):
    """The state as an older release left it."""
    recorded = {name: value for name, value in state.recorded.items() if name not in names}
    return SourceState(state.positions, recorded, state.index)


# -- the root ----------------------------------------------------------------------------------------------------


# -- the options -------------------------------------------------------------------------------------------------


# -- empty fields of CSV -----------------------------------------------------------------------------------------

EMPTY = 'ts,n,v,w\n1,1,,\n2,2,"",x\n3,,NA,""\n4,4,"""",\n5,5,,\n'
NULLS = [(None, None), ("", "x"), ("NA", ""), ('"', None), (None, None)]


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("multiline", [False, True])
def test_an_empty_field_is_null_and_a_quoted_one_is_text(tmp_path, rows, multiline):
    """The same records would have other keys from CSV than from Parquet or JSON: "" where those have null."""
    (tmp_path / "a.csv").write_text(EMPTY)
    drained = drain(source(tmp_path, multiline=multiline), rows, True)
    assert [(row["v"], row["w"]) for row in drained.values] == NULLS
    assert [row["n"] for row in drained.values] == [1, 2, None, 4, 5]
    plain = [("a", "b"), (None, "c"), ("d", None)]
    (tmp_path / "a.csv").write_text("ts,v,w\n" + "".join(f"1,{v or ''},{w or ''}\n" for v, w in plain))
    assert [(row["v"], row["w"]) for row in drain(source(tmp_path, multiline=multiline)).values] == plain
    old = drain(source(tmp_path, multiline=multiline, csv_empty="text"), rows, True)
    assert [(row["v"], row["w"]) for row in old.values] == [(v or "", w or "") for v, w in plain]


WORDS = ["", "nan", "NaN", "NA", "null", "#N/A", "7"]


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize(
    ("kind", "empty", "good", "dead"),
    [
        ("double", "null", ["None", "nan", "nan", "7.0"], ["NA", "null", "#N/A"]),
        ("int64", "null", ["None", "7"], ["nan", "NaN", "NA", "null", "#N/A"]),
        ("string", "null", ["None", *WORDS[1:]], []),
        ("double", "text", ["None"] * 6 + ["7.0"], []),
        ("int64", "text", ["None"] * 6 + ["7"], []),
        ("string", "text", WORDS, []),
    ],
)
def test_only_an_empty_field_is_null(tmp_path, rows, kind, empty, good, dead):
    """Numbers that are none, and what Arrow takes for a null, went into one null key, or out of a sum, unseen."""
    (tmp_path / "a.csv").write_text("ts,n\n" + "".join(f"1,{word}\n" for word in WORDS))
    schema = {"ts": "int64", "n": kind}
    drained = drain(source(tmp_path, schema=schema, csv_empty=empty), rows, True)
    assert [str(row["n"]) for row in drained.values] == good
    assert [record.data.decode() for record in drained.dead] == [f"1,{word}" for word in dead]
    first = drain(source(tmp_path, schema=schema, csv_empty=empty), rows, True)
    assert drain(source(tmp_path, schema=schema), state=first.state).plans == []


def test_columns_are_inferred_by_the_rule_of_nulls(tmp_path):
    """A first file of numbers and NA would be full of dead letters; and under the old rule keys would become text."""
    (tmp_path / "a.csv").write_text("ts,n,x\n1,7,0.5\n2,NA,nan\n")
    assert drain(source(tmp_path)).values[0] == {"ts": 1, "n": "7", "x": 0.5}
    assert drain(source(tmp_path, csv_empty="text")).values[1] == {"ts": 2, "n": None, "x": None}
    old = {"csv_empty": "text"}
    assert drain(source(tmp_path), state=SourceState({}, recorded=old)).values[1] == {"ts": 2, "n": None, "x": None}


def test_a_checkpoint_begun_under_the_old_rule_keeps_it(tmp_path):
    """Its keys "" would stop growing, and null ones would begin beside them."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(EMPTY.encode()))
    old = without(drain(source(tmp_path)).state, *OLD)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(EMPTY.encode()))
    kept = drain(source(tmp_path), 2, True, state=old)
    assert [(row["v"], row["w"]) for row in kept.values] == [(v or "", w or "") for v, w in NULLS]
    assert kept.state.recorded["csv_empty"] == "text"
    assert drain(source(tmp_path, csv_empty="text"), state=kept.state).plans == []
    with pytest.raises(InvalidPipeline, match=r"csv_empty='null': .* csv_empty='text' again"):
        drain(source(tmp_path, csv_empty="null"), state=old)
