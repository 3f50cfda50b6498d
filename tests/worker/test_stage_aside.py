"""Late outputs have the same columns whatever the records are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA
from persistent.worker import stage_aside
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
        (
            pa.array([{"t": 1 << 60}], pa.struct([("t", pa.timestamp("s"))])),
            ['{"t":"36534630048-05-13T13:56:16.000Z"}'],
        ),
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


def test_rows_too_large_for_one_array_are_put_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,300 messages of 1 MiB that cannot be decoded were more than 2 GiB: their step ended with an EngineError."""
    rows = late(pa.array([{"a": number} for number in range(40)]))
    parts = [rows.take(pa.array(part)).combine_chunks().to_batches()[0] for part in np.split(np.arange(40), 4)]
    odd, even = (pa.array(range(first, 40, 2)) for first in (1, 0))
    batches = [*parts[2:], *(rows.take(part).combine_chunks().to_batches()[0] for part in (odd, even)), *parts[:2]]
    expected = stage_aside._together(batches)
    monkeypatch.setattr(stage_aside, "_TAKE_BYTES_MAX", 0)
    found = stage_aside._together(batches)
    assert found.equals(expected) and found.column("offset").to_pylist() == sorted([*range(40)] * 2)
