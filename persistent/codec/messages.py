"""A sealed file holds Arrow messages of plain types: the schema, then record batches.

Refused are dictionaries, extension types, unions, views and run ends, with all of which a few bytes can stand for many,
or run code. The bytes of a message are those that were committed: its SHA-256 says so, and is checked before.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

FIELDS_MAX = 10_000
DEPTH_MAX = 64

_REFUSALS = (pa.ArrowException, OSError)
"""The errors that Arrow raises for an unreadable message."""

_REFUSED = {
    pa.lib.Type_DICTIONARY,
    pa.lib.Type_DENSE_UNION,
    pa.lib.Type_SPARSE_UNION,
    pa.lib.Type_RUN_END_ENCODED,
    pa.lib.Type_STRING_VIEW,
    pa.lib.Type_BINARY_VIEW,
    pa.lib.Type_LIST_VIEW,
    pa.lib.Type_LARGE_LIST_VIEW,
}


class Malformed(ValueError):
    """A message that our files never hold."""


def read_schema(message: pa.Buffer) -> pa.Schema:
    """The schema in a message of its own. Malformed for one that our files never have."""
    return _read_schema(bytes(message))


@lru_cache
def _read_schema(data: bytes) -> pa.Schema:
    """Likewise, cached: every run of a state has the same schema, which is checked once."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (*_REFUSALS, UnicodeDecodeError) as error:
        raise Malformed(f"Arrow refuses the schema: {error}") from error
    fields = sum(_fields(field.type, 0) for field in schema)
    if fields > FIELDS_MAX:
        raise Malformed(f"{fields} columns and fields in them; at most {FIELDS_MAX} can be")
    return schema


def _fields(kind: pa.DataType, depth: int) -> int:
    """The number of fields in a column of this type, itself counted."""
    if kind.id in _REFUSED or isinstance(kind, pa.BaseExtensionType):
        raise Malformed(f"a column of type {kind}, which our files never have")
    if depth > DEPTH_MAX:
        raise Malformed(f"types are nested deeper than {DEPTH_MAX}")
    return 1 + sum(_fields(kind.field(number).type, depth + 1) for number in range(kind.num_fields))


def read_batch(message: pa.Buffer, schema: pa.Schema, rows: int, *, is_proven: bool = False) -> pa.RecordBatch:
    """A record batch of ``rows`` rows; valid throughout, unless it ``is_proven`` to be what was committed. Malformed
    for another one."""
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=not is_proven)
    except _REFUSALS as error:
        raise Malformed(f"Arrow refuses it: {error}") from error
    if batch.num_rows != rows:
        raise Malformed(f"{batch.num_rows} rows, but its index says {rows}")
    if batch.nbytes > message.size:
        raise Malformed(f"{batch.nbytes:,} bytes in a message of {message.size:,}: it is compressed")
    return batch
