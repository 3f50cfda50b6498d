"""The columns of late rows and dead letters never change: in the files of a checkpoint, and in a sink of late records.

partition  file  ordinal  offset      where the record was read
timestamp  reason  checkpoint         its time (ms), why it is here, and the step that found it so
value                                 the record: in a file, in its own columns; in a sink, as JSON
data                                  in a file alone: the bytes of a record that cannot be decoded
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_KNOWN: Final = (
    ("partition", pa.string()),
    ("file", pa.string()),
    ("ordinal", pa.int64()),
    ("offset", pa.int64()),
    ("timestamp", pa.int64()),
    ("reason", pa.string()),
    ("checkpoint", pa.int64()),
)
ASIDE_SCHEMA: Final = pa.schema([*_KNOWN, ("value", pa.null()), ("data", pa.binary())])
"""Of a file of the checkpoint. ``value`` has the type of the records."""
LATE_SCHEMA: Final = pa.schema([*_KNOWN, ("value", pa.string())])
"""Of a sink of late records."""
LATE_KEY: Final = ("partition", "ordinal", "offset")
"""The columns that identify a late record."""


def aside_rows(rows: int, **columns: Any) -> pa.RecordBatch:
    """Rows in the columns of a file. A column is an array, a sequence, or one value for all rows; null if left out.

    >>> aside_rows(2, partition="a", offset=[5, 8], reason="late").select(["partition", "offset", "data"]).to_pylist()
    [{'partition': 'a', 'offset': 5, 'data': None}, {'partition': 'a', 'offset': 8, 'data': None}]
    """
    arrays = [_column(columns.pop(column.name, None), rows, column.type) for column in ASIDE_SCHEMA]
    assert not columns, f"no columns of late rows and dead letters: {', '.join(columns)}"
    return pa.RecordBatch.from_arrays(arrays, ASIDE_SCHEMA.names)


def _column(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, str | int):
        return pa.repeat(pa.scalar(value, kind), rows)
    return value if isinstance(value, pa.Array) else pa.array(value, kind)
