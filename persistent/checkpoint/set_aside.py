"""Late rows and dead letters are one table each, whatever columns their source had at the time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from monoids.encoding import to_json
from persistent.checkpoint.aside_columns import ASIDE_SCHEMA
from persistent.codec.sealed import decode_table
from persistent.connect.formats.schemas import widens
from persistent.names import RETRACTED, is_retracted, retractions
from persistent.storage.protocol import Storage
from persistent.text.readable import readable_list


def read_aside(storage: Storage, folder: str) -> pa.Table:
    """The published late rows ("late") or dead letters ("dead") of a checkpoint.

    ``value`` has every field that any of them has. A field of several types has the type that holds all their values
    exactly; without one it is text, with nested values as JSON.
    """
    names = [f"{folder}/{name}" for name in aside_names(storage, folder)]
    return _joined([decode_table(storage.read(name), None, f"{storage.url}/{name}") for name in names])


def aside_names(storage: Storage, folder: str) -> list[str]:
    """The published files of late rows ("late") or dead letters ("dead") that count, without their folder."""
    names = storage.list(folder)
    # Listed last: files that were taken back meanwhile do not count.
    marks = retractions(storage.list(RETRACTED))
    return [name for name in names if not is_retracted(name, marks)]


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return ASIDE_SCHEMA.empty_table()
    place = ASIDE_SCHEMA.get_field_index("value")
    kind = reduce(_common, [table.schema.field(place).type for table in tables])
    columns = [pa.chunked_array([_cast(chunk, kind) for chunk in table.column(place).chunks], kind) for table in tables]
    return pa.concat_tables([table.set_column(place, "value", column) for table, column in zip(tables, columns)])


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The type that holds every value of both types."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        kinds = {field.name: field.type for field in first}
        for field in second:
            kinds[field.name] = _common(kinds.get(field.name, pa.null()), field.type)
        return pa.struct(list(kinds.items()))
    for narrow, wide in ((first, second), (second, first)):
        # Nanoseconds have a shorter range than other units, and an element of a list may not fit.
        if widens(narrow, wide) and not pa.types.is_nested(wide) and not _is_ns(wide):
            return wide
    return pa.string()


def _is_ns(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as that type: nulls for a column of type null; as text, values without a text of their own are
    JSON."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_struct(kind):
        parts = dict(zip((field.name for field in column.type), column.flatten()))
        fields = [_cast(parts.get(field.name, pa.nulls(len(column))), field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if not pa.types.is_string(kind):
        return column.cast(kind)
    # Nested values, and bytes that are not UTF-8, have no text of their own.
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else to_json(value) for value in readable_list(column)], kind)
