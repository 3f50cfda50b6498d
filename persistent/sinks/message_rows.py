"""The rows of outputs as messages of a broker: a JSON object each, with the number of its batch as ``revision``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from persistent.sinks.protocol import RefusedKeys
from persistent.text.readable import readable

REVISION: Final = "revision"
_BYTES: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


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
        if any(is_one(kind) for is_one in _BYTES):
            # An escaped byte has six characters, and a key occurs twice.
            most += 12 * (pc.max(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_nested(kind):
            return 1 << 62
        most += 2 * (6 * len(name) + 100)
    return most


def large_keys_refused(
    keys: pa.Table, most: int, sizes: Callable[[], Iterator[int]], place: str, remedy: str = ""
) -> RefusedKeys:
    """The rows of key columns that alone are larger than the largest message. ``sizes``: of each as a message."""
    if most_bytes(keys) > most:
        yield (
            np.fromiter(sizes(), np.int64) > most,
            f"{place}: a key is larger than the largest message, {most:,} bytes: make the key shorter in the task, for "
            f"example by a hash{remedy}",
        )


def row_text(outputs: pa.Table, row: int, key: tuple[str, ...]) -> str:
    """A row by its key.

    >>> row_text(pa.table({"page": ["a", "b"]}), 1, ("page",)), row_text(pa.table({"page": ["a"]}), 0, ())
    ("the row with page='b'", 'row 0')
    """
    texts = [f"{name}={str(readable(outputs.column(name)[row]))[:100]!r}" for name in key]
    return f"the row with {', '.join(texts)}" if texts else f"row {row}"
