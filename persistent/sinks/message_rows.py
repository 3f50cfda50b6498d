"""The rows of outputs as messages of a broker: a JSON object each, with the number of its batch as ``revision``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

REVISION: Final = "revision"


def with_revision(table: pa.Table, number: int) -> pa.Table:
    """The table with the number of its batch, unless it has a revision.

    >>> with_revision(pa.table({"page": ["a"]}), 5).to_pylist()
    [{'page': 'a', 'revision': 5}]
    """
    if REVISION in table.column_names:
        return table
    return table.append_column(REVISION, pa.repeat(pa.scalar(number, pa.int64()), table.num_rows))


def most_bytes(outputs: pa.Table) -> int:
    """A rough upper bound for the JSON of any row; practically infinite for nested values."""
    most = 0
    for name, column in zip(outputs.column_names, outputs.columns):
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # An escaped byte has six characters, and a key occurs twice.
            most += 12 * (pc.max(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return 1 << 62
        most += 2 * (6 * len(name) + 100)
    return most


def row_text(outputs: pa.Table, row: int, key: tuple[str, ...]) -> str:
    """A row by its key.

    >>> row_text(pa.table({"page": ["a", "b"]}), 1, ("page",)), row_text(pa.table({"page": ["a"]}), 0, ())
    ("the row with page='b'", 'row 0')
    """
    texts = [f"{name}={str(outputs.column(name)[row].as_py())[:100]!r}" for name in key]
    return f"the row with {', '.join(texts)}" if texts else f"row {row}"
