"""Planted defects of the section "peers": what a source might do to the records that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from persistent import FileSource


def _each(change: Callable[[pa.Array], pa.Array]) -> Callable[[Any], Any]:
    """Records with other columns."""

    def changed(records: Any) -> Any:
        columns = [change(column) for column in records.batch.columns]
        return replace(records, batch=pa.RecordBatch.from_arrays(columns, schema=records.batch.schema))

    return changed


def _single(column: pa.Array) -> pa.Array:
    return column.cast(pa.float32(), safe=False).cast(column.type) if pa.types.is_float64(column.type) else column


def _empty_is_null(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column, ""), None, column) if pa.types.is_string(column.type) else column


def _seconds(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.floor_temporal(column, unit="second").cast(column.type)


def _without_last(records: Any) -> Any:
    kept = max(len(records.offsets) - 1, 0)
    batch, times, offsets = records.batch[:kept], records.timestamps[:kept], records.offsets[:kept]
    return replace(records, batch=batch, timestamps=times, offsets=offsets)


def _in_order_of_file(records: Any) -> Any:
    """Values of columns of one type change places."""
    columns, kinds = list(records.batch.columns), records.batch.schema.types
    for place in range(2, len(columns)):
        if kinds[place] == kinds[place - 1]:
            columns[place - 1 : place + 1] = columns[place], columns[place - 1]
    return replace(records, batch=pa.RecordBatch.from_arrays(columns, schema=records.batch.schema))


MUTANTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "the last record of a batch is lost": ("json", _without_last),
    "a dead letter is lost": ("json", lambda records: replace(records, dead=())),
    "columns change places": ("csv", _in_order_of_file),
    "an empty text is null": ("csv", _each(_empty_is_null)),
    "floats are cut to 32 bits": ("csv", _each(_single)),
    "times are cut to seconds": ("parquet", _each(_seconds)),
}
"""What a source might do to the records of a format."""


@contextmanager
def planted(name: str) -> Iterator[str]:
    """Sources with a defect; yields the format that shows it."""
    format, change = MUTANTS[name]
    read = FileSource.read

    def read_wrongly(self: FileSource, split: Any, recorded: Any) -> Iterator[Any]:
        return map(change, read(self, split, recorded))

    with mock.patch.object(FileSource, "read", read_wrongly):
        yield format
