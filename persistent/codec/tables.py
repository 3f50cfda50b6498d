"""A table (a listing, late rows, dead letters) is stored as a sealed file, in plain types."""

from __future__ import annotations

import pyarrow as pa

from persistent.codec.sealed import open_sealed, read_index, seal


def encode_table(table: pa.Table) -> tuple[bytes, str]:
    """A table as bytes, and the SHA-256 of its index. Dictionaries, views of text and extension types become plain."""
    table = _plain(table)
    # More than one batch if a text column exceeds 2 GB.
    batches = table.combine_chunks().to_batches()
    return seal(batches or [pa.RecordBatch.from_pylist([], schema=table.schema)], None, ())


def decode_table(data: pa.Buffer, sha256: str | None, place: str) -> pa.Table:
    """The inverse of ``encode_table``, verified; without ``sha256``, against its own index."""
    schema, batches = open_sealed(data, read_index(data, sha256, place), place)
    return pa.Table.from_batches(batches, schema)


def _plain(table: pa.Table) -> pa.Table:
    fields = [_plain_field(field) for field in table.schema]
    if all(field.type == found.type for field, found in zip(fields, table.schema, strict=True)):
        return table
    return table.cast(pa.schema(fields))


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), field.nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.large_string() if types.is_string_view(kind) else pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    return kind
