"""What a checkpoint records of a source may change where it can be followed; else it is refused with the remedy."""

from __future__ import annotations

import pytest

from persistent.sources import FileSource
from tests.connect.draining import drain


def source(path, **options):
    return FileSource(path, **{"timestamp": "ts", "timestamp_unit": "ms", **options})


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


WORDS = ["", "nan", "NaN", "NA", "null", "#N/A", "7"]


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize(
    ("kind", "good", "dead"),
    [
        ("double", ["None", "nan", "nan", "7.0"], ["NA", "null", "#N/A"]),
        ("int64", ["None", "7"], ["nan", "NaN", "NA", "null", "#N/A"]),
        ("string", ["None", *WORDS[1:]], []),
    ],
)
def test_only_an_empty_field_is_null(tmp_path, rows, kind, good, dead):
    """Numbers that are none, and what Arrow takes for a null, went into one null key, or out of a sum, unseen."""
    (tmp_path / "a.csv").write_text("ts,n\n" + "".join(f"1,{word}\n" for word in WORDS))
    schema = {"ts": "int64", "n": kind}
    drained = drain(source(tmp_path, schema=schema), rows, True)
    assert [str(row["n"]) for row in drained.values] == good
    assert [record.data.decode() for record in drained.dead] == [f"1,{word}" for word in dead]


def test_columns_are_inferred_by_the_rule_of_nulls(tmp_path):
    """A first file of numbers and NA would be full of dead letters."""
    (tmp_path / "a.csv").write_text("ts,n,x\n1,7,0.5\n2,NA,nan\n")
    assert drain(source(tmp_path)).values[0] == {"ts": 1, "n": "7", "x": 0.5}
