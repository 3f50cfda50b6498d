"""The files of late rows and dead letters, and the rows of a sink of late records, have one set of columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from persistent.checkpoint.aside_columns import ASIDE_SCHEMA, LATE_KEY, LATE_SCHEMA, aside_rows


def test_the_columns_are_those_that_readers_know() -> None:
    """A table of late records keeps its columns from release to release."""
    places = ["partition", "file", "ordinal", "offset", "timestamp", "reason", "checkpoint"]
    assert ASIDE_SCHEMA.names == [*places, "value", "data"] and LATE_SCHEMA.names == [*places, "value"]
    assert [LATE_SCHEMA.field(name) for name in places] == [ASIDE_SCHEMA.field(name) for name in places]
    assert [str(kind) for kind in LATE_SCHEMA.types] == ["string"] * 2 + ["int64"] * 3 + ["string", "int64", "string"]
    assert LATE_KEY == ("partition", "ordinal", "offset")


def test_a_column_is_an_array_or_one_value_or_null() -> None:
    values = pa.array([{"a": 1}, None])
    rows = aside_rows(2, partition="p", ordinal=7, offset=np.array([1, 2]), reason=["x", "y"], value=values)
    assert rows.schema.names == ASIDE_SCHEMA.names and rows.column("value").equals(values)
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("p", None, 7, 1, None, "x", None, {"a": 1}, None),
        ("p", None, 7, 2, None, "y", None, None, None),
    ]
    assert aside_rows(2).schema == ASIDE_SCHEMA and aside_rows(0, partition="p").num_rows == 0


def test_a_column_that_there_is_not_is_no_row() -> None:
    """A misspelt one would be null."""
    with pytest.raises(AssertionError, match="reasons"):
        aside_rows(1, reasons="late")
