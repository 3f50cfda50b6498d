"""Late rows and dead letters can be read whatever the schema of the source was when they were set aside."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from monoids import Count
from persistent import FileSource, MemorySink, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.set_aside import read_aside
from persistent.codec.sealed import encode_table
from persistent.storage import MemoryStorage


class Picky(PersistentTask):
    """Counts by minute; raises where it is told to."""

    def persistent_state(self):
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state, message):
        if message.value["bad"]:
            raise ValueError("bad")
        state.update(message.timestamp, 1)


def test_a_change_of_the_schema_does_not_hide_what_was_set_aside(tmp_path):
    """They raised for ever once ``schema=`` had changed: nobody could see what was not counted."""

    def run(place, schema, v):
        rows = [(600_000, False), (0, False), (700_000, True)]
        lines = [json.dumps({"ts": ts, "bad": bad, "v": v}) + "\n" for ts, bad in rows]
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{place}.jsonl").write_text("".join(lines) + "no json\n")
        schema = {"ts": "int64", "bad": "bool", **schema}
        source = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms", schema=schema, ordered=True)
        pipeline = Pipeline(
            source=source,
            task=Picky(),
            checkpoint=str(tmp_path / "c"),
            sink=MemorySink(),
            on_error="dead-letter",
            step_rows=1,
        )
        pipeline.run(engine="embedded")
        return pipeline

    run(1, {"v": "int64"}, 7)
    run(2, {"v": "string"}, "x")
    pipeline = run(3, {"v": pa.struct([("a", pa.int64())])}, {"a": 1})
    late, dead = pipeline.late().to_pylist(), pipeline.dead_letters().to_pylist()
    assert [row["value"]["v"] for row in late] == ["7", "x", '{"a":1}']
    assert [row["value"] and row["value"]["v"] for row in dead] == ["7", None, "x", None, '{"a":1}', None]
    assert [row["data"] for row in dead if row["data"]] == [b"no json"] * 3


def aside(name, columns):
    """What ``late()`` gives of files whose values were of these types, in turn."""
    storage = MemoryStorage(f"test-aside-{name}")
    for number, value in enumerate(columns):
        struct = pa.StructArray.from_arrays([value], ["v"], mask=pa.array([False] * (len(value) - 1) + [True]))
        rows = len(value)
        names = {"partition": ["p"], "file": ["f"], "ordinal": [0], "offset": [0], "timestamp": [0], "reason": ["late"]}
        table = pa.table({**{key: one * rows for key, one in names.items()}, "checkpoint": [0] * rows})
        table = table.append_column("value", struct).append_column("data", pa.nulls(rows, pa.binary()))
        storage.write(f"late/{number}.arrow", encode_table(table)[0])
    table = read_aside(storage, "late")
    table.validate(full=True)
    return table.schema.field("value").type.field("v").type, [row["value"] for row in table.to_pylist()]


def test_of_nothing_set_aside_there_is_an_empty_table():
    """Whoever counts the rows of a job that refused none would be told an error."""
    table = read_aside(MemoryStorage("test-aside-nothing"), "late")
    assert table.num_rows == 0 and {"partition", "reason", "value", "data"} <= {*table.column_names}


FAR = datetime(3000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "first", "second", "kind", "values"),
    [
        ("wider", pa.array([1, 0], pa.int32()), pa.array([2**60, 0]), pa.int64(), [1, 2**60]),
        ("exact", pa.array([2**60 + 1, 0]), pa.array([0.5, 0]), pa.string(), [str(2**60 + 1), "0.5"]),
        ("null", pa.array([None, None], pa.null()), pa.array([3, 0]), pa.int64(), [None, 3]),
        ("then-null", pa.array([3, 0]), pa.array([None, None], pa.null()), pa.int64(), [3, None]),
        ("lists-both", pa.array([[1], []]), pa.array([[2], []]), pa.list_(pa.int64()), [[1], [2]]),
        (
            "far",
            pa.array([FAR, None], pa.timestamp("s", "UTC")),
            pa.array([0, 0], pa.timestamp("ns", "UTC")),
            pa.string(),
            ["3000-01-01 00:00:00Z", "1970-01-01 00:00:00.000000000Z"],
        ),
        ("list", pa.array([[2**60 + 1], []]), pa.array([[0.5], []]), pa.string(), [f"[{2**60 + 1}]", "[0.5]"]),
        ("bytes", pa.array([b"\xff", b""]), pa.array(["é", ""]), pa.string(), ['"/w=="', "é"]),
        (
            "struct",
            pa.array([{"a": 1}, None]),
            pa.array([{"b": "x", "a": "y"}, None]),
            pa.struct([("a", pa.string()), ("b", pa.string())]),
            [{"a": "1", "b": None}, {"a": "y", "b": "x"}],
        ),
    ],
)
def test_values_of_two_types_are_shown_exactly(name, first, second, kind, values):
    """A large number beside one with a fraction would be rounded; a null would become an empty record."""
    found, rows = aside(name, [first, second])
    assert found == kind
    assert rows == [{"v": values[0]}, None, {"v": values[1]}, None]
