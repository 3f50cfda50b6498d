"""Late outputs have the same columns whatever the records are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA
from persistent.worker.stage_aside import late_outputs


def late(values: pa.Array) -> pa.Table:
    """Late records with these values, in the columns of the late files."""
    rows = len(values)
    return pa.table(
        {
            "partition": ["0"] * rows,
            "file": [""] * rows,
            "ordinal": pa.array([0] * rows, pa.int64()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array([5] * rows, pa.int64()),
            "reason": ["late"] * rows,
            "checkpoint": pa.array([3] * rows, pa.int64()),
            "value": values,
            "data": pa.nulls(rows, pa.binary()),
        }
    )


@pytest.mark.parametrize(
    "values, texts",
    [
        (pa.array([{"a": 1, "b": "x"}]), ['{"a":1,"b":"x"}']),
        (pa.array([{"a": [1, None]}, {"a": None}]), ['{"a":[1,null]}', '{"a":null}']),
        (pa.array([{"t": 1}], pa.struct([("t", pa.timestamp("ns"))])), ['{"t":"1970-01-01T00:00:00.000000001Z"}']),
        (pa.array([{"t": 1 << 60}], pa.struct([("t", pa.timestamp("s"))])), [f'{{"t":{1 << 60}}}']),
        (pa.array([{"b": b"\xff"}]), ['{"b":"/w=="}']),
        (pa.nulls(1), [None]),
    ],
    ids=["plain", "nested", "nanoseconds", "beyond every calendar", "bytes", "no columns"],
)
def test_a_record_is_a_text(values: pa.Array, texts: list[str | None]) -> None:
    """A table or topic has one type of a column, and the columns of two files can differ; nor does a value that has no
    text stop a job that has set its record aside."""
    found = late_outputs(late(values))
    assert found.schema == LATE_SCHEMA and found.column("value").to_pylist() == texts
    assert set(LATE_KEY) <= set(found.column_names)
