"""The bytes of messages become records: a value reads the same alone as among others."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.connect.files.reader import Unreadable
from persistent.connect.formats.values import JsonValues, RawValues, widest

SCHEMA = pa.schema([("page", pa.string()), ("n", pa.int64())])
DEEP = b'{"n":5,\n"page":"d","x":' + b"[" * 2_000 + b"]" * 2_000 + b"}"
GOOD = [b'{"page":"a","n":1}', b'{"n":2}', b' {"page":null,"n":3}\r\n', b'{\n"page": "a\\nb",\r\n"n": 4\n}']
BAD = [
    (None, "the message has no value"),
    (b"", "the value is empty"),
    (b" \n ", "the value is empty"),
    (b"[1]", "the value is not a JSON object, but a list"),
    (b'{"n":', "the value is not a JSON object, but the beginning of one"),
    (b'{"page":"a\nb","n":1}', "the value is not a JSON object: a text has a line break in it"),
    (b'{"n":1}\n{"n":2}', "the value is not one JSON object"),
    (b'{"n":1}{"n":2}', "the value is not one JSON object"),
    (b'{"n":"x"}', "n"),
    (b'{"page":"\xff"}', ""),
]


def test_each_value_is_a_record_or_a_reason() -> None:
    """What is neither is lost, and nobody is told."""
    values = [value for pair in zip(GOOD, (bad for bad, _ in BAD)) for value in pair] + [bad for bad, _ in BAD[4:]]
    decoded = JsonValues().decode(values, SCHEMA)
    assert sorted([*decoded.rows, *(row for row, _ in decoded.dead)]) == list(range(len(values)))
    assert [values[row] for row in decoded.rows] == GOOD
    assert decoded.batch.to_pylist() == [
        {"page": "a", "n": 1},
        {"page": None, "n": 2},
        {"page": None, "n": 3},
        {"page": "a\nb", "n": 4},
    ]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_a_reason_says_what_is_wrong(value: Any, reason: str) -> None:
    """Who looks at a dead letter wants to mend its sender."""
    decoded = JsonValues().decode([value], SCHEMA)
    ((row, said),) = decoded.dead
    assert (
        row == 0
        and reason in said
        and " line" not in said.replace("line break", "")
        and len(decoded.batch) == 0
        and decoded.batch.schema == SCHEMA
    )


def test_values_of_a_registry_are_recognised() -> None:
    """Who reads Avro as JSON sees dead letters alone; the hint says why."""
    framed = b"\0\0\0\0\1\2a"
    ((_, said),) = JsonValues().decode([framed], SCHEMA).dead
    assert said.endswith("as Avro with a schema registry does: give format=Avro(registry)")
    with pytest.raises(Unreadable, match=r"give format=Avro\(registry\)"):
        JsonValues().infer([framed])
    for other in (framed[:5], b"x" + framed, None):
        ((_, said),) = JsonValues().decode([other], SCHEMA).dead
        assert "Avro" not in said


def test_a_line_break_between_tokens_changes_nothing() -> None:
    """What is not read is not looked at: a value is the same with and without."""
    odd = [DEEP, b'{"n":6,\n"x":' + b"7" * 5_000 + b"}", b'{"n":8,\n"x":"\xff"}']
    flat = [value.replace(b"\n", b"") for value in odd]
    one, other = JsonValues().decode(odd, SCHEMA), JsonValues().decode(flat, SCHEMA)
    assert one.batch.to_pylist() == other.batch.to_pylist()
    assert list(one.rows) == list(other.rows) and one.dead == other.dead


@given(st.lists(st.sampled_from([*GOOD, *(bad for bad, _ in BAD)]), max_size=12))
def test_a_value_reads_the_same_alone_as_among_others(values: list[Any]) -> None:
    """Results would depend on how large a step is."""
    together = JsonValues().decode(values, SCHEMA)
    alone = [JsonValues().decode([value], SCHEMA) for value in values]
    assert list(together.rows) == [row for row, one in enumerate(alone) if one.rows]
    assert together.batch.to_pylist() == [record for one in alone for record in one.batch.to_pylist()]
    assert [row for row, _ in together.dead] == [row for row, one in enumerate(alone) if one.dead]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-(2**40), 2**40)), min_size=1, max_size=6))
def test_columns_are_those_of_the_values(values: list[dict[str, int]]) -> None:
    """Without schema= the first records say which there are."""
    encoded = [json.dumps(value, indent=1).encode() for value in values]
    schema = JsonValues().infer(encoded)
    assert schema is not None
    assert set(schema.names) == {name for value in values for name in value}
    if len(schema):
        rows = JsonValues().decode(encoded, schema).batch.to_pylist()
        assert rows == [{name: value.get(name) for name in schema.names} for value in values]


def test_values_that_say_nothing_have_no_columns() -> None:
    """An empty topic is no reason to guess."""
    assert JsonValues().infer([]) is None and JsonValues().infer([None, b""]) is None
    with pytest.raises(Unreadable, match="the value is not a JSON object"):
        JsonValues().infer([b"nonsense"])


def test_bytes_are_kept_as_they_are() -> None:
    """Whatever they mean, the task knows."""
    values = [b"\xff\x00", None, b""]
    schema = RawValues().infer(values)
    assert schema == pa.schema([("value", pa.binary())])
    decoded = RawValues().decode(values, schema)
    assert decoded.batch.column("value").to_pylist() == values and list(decoded.rows) == [0, 1, 2] and not decoded.dead


def test_partitions_agree_on_their_columns() -> None:
    """The first records of two partitions need not have the same fields."""
    a, b = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.float64()), ("page", pa.string())])
    assert widest([a, b]) == widest([b, a]) == pa.schema([("n", pa.float64()), ("page", pa.string())])
