"""A sealed file is an Arrow IPC stream of record batches, followed by an index that proves every byte.

    [schema message][record batch]...[end of stream][index, canonical JSON][index length, 8 bytes][magic, 8 bytes]

The index lists the offset, rows, first hash and SHA-256 of every message; the manifest holds the SHA-256 of the index.
So any range of keys can be read and verified alone, and every byte of the file is covered. Without a manifest that
names the file, it is held against its own index, and its batches are validated in full. A table (a listing, late rows,
dead letters) is such a file too.

Messages have plain types. Refused are dictionaries, extension types, unions, views and run ends, with all of which a
few bytes can stand for many, or run code.

Bytes whose SHA-256 was proven once in this process are recognised by their CRC-32, which takes a third of the time.

A file never changes once it is named, and a state whose keys are looked up in every step is read in every step. Its
bytes are still checked every time, before they are used: a disk can fail after the first read, and a file can be
overwritten. Only proven bytes have a stored checksum; bytes that differ from it are judged by their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.text import Words
from persistent.codec.documents import spelled
from persistent.errors import CorruptCheckpoint, StorageError

_KNOWN_MAX = 1 << 16


def has_sha256(data: Any, sha256: str) -> bool:
    """Whether bytes have this SHA-256."""
    return hashlib.sha256(data).hexdigest() == sha256


def is_recognised(data: Any, sha256: str) -> bool:
    """Whether bytes have this SHA-256, or the length and the CRC-32 of bytes that were proven here to have it."""
    checksum = (len(data), zlib.crc32(data))
    known = _known(sha256)
    if checksum in known:
        return True
    # The checksum is older than the proof: bytes that change between the two are never remembered as proven.
    if not has_sha256(data, sha256):
        return False
    known[:] = [checksum]
    return True


@lru_cache(maxsize=_KNOWN_MAX)
def _known(sha256: str) -> list[tuple[int, int]]:
    """Where the checksum of the bytes with this SHA-256 is kept."""
    return []


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
    """The schema in a message of its own. Malformed if our files never have such a schema."""
    return _read_schema(bytes(message))


@lru_cache
def _read_schema(data: bytes) -> pa.Schema:
    """``read_schema`` of the bytes, cached: every run of a state has the same schema, which is checked once."""
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


BATCH_ROWS_MAX = 1 << 16
HASH_LIMIT = 1 << 64

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MAGIC = b"PMRUN\x00\x00\x01"
_TRAILER_BYTES = 16
_INTEGER_CHARS_MAX = 20
_HEAD, _PANES, _TAIL = b'{"batches":[', b'],"panes":[', b'],"schema":'
_ENTRY = rb'\[[0-9]{1,19},[0-9]{1,19},[0-9]{1,6},[0-9]{1,20},"[0-9a-f]{64}"\]'
_BATCHES = re.compile(rb"(?:%b(?:,%b)*+)?" % (_ENTRY, _ENTRY))
_SCHEMA = re.compile(rb'\[[0-9]{1,19},"[0-9a-f]{64}"\]\}')


@dataclass(frozen=True)
class SealedBatch:
    """One record batch: its position, its rows, the hash of the first, and its SHA-256."""

    offset: int
    size: int
    rows: int
    first: int
    sha256: str


@dataclass(frozen=True)
class SealedIndex:
    """The index of a sealed file. ``is_proven``: a manifest holds its SHA-256."""

    schema_bytes: int
    schema_sha256: str
    batches: tuple[SealedBatch, ...]
    panes: list[int]
    is_proven: bool

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)


def seal(batches: Sequence[pa.RecordBatch], hashes: Any, panes: Sequence[int]) -> tuple[bytes, str]:
    """The file of record batches and the SHA-256 of its index. StorageError for types that could not be read back.

    ``hashes``: the hashes of the rows of all batches of a run.
    """
    message = batches[0].schema.serialize()
    try:
        read_schema(message)
    except ValueError as error:
        names = ", ".join(batches[0].schema.names)
        raise StorageError(
            f"rows with the columns {names} were not stored, because they could not be read back: {error}"
        ) from error
    parts = [message]
    index: dict[str, Any] = {"schema": [message.size, _sha256(message)], "batches": [], "panes": list(panes)}
    offset, row = message.size, 0
    for batch in batches:
        for start in range(0, max(len(batch), 1), BATCH_ROWS_MAX):
            message = _owned(batch.slice(start, BATCH_ROWS_MAX)).serialize()
            first = int(hashes[row]) if hashes is not None and len(hashes) else 0
            rows = min(BATCH_ROWS_MAX, len(batch) - start)
            index["batches"].append([offset, message.size, rows, first, _sha256(message)])
            parts.append(message)
            offset += message.size
            row += rows
    # The index is known to hold only whole numbers and text; it may have too many panes to check one by one.
    trailer = spelled(index).encode()
    tail = _END_OF_STREAM + trailer + len(trailer).to_bytes(8, "little") + _MAGIC
    return b"".join([*parts, tail]), _sha256(trailer)


def open_sealed(
    data: pa.Buffer, index: SealedIndex, place: str, low: int = 0, high: int = HASH_LIMIT, hashes: Words | None = None
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The schema, and the batches that may hold hashes ``low <= hash < high``, and one of ``hashes`` (ascending; None:
    any), each verified."""
    message = data.slice(0, index.schema_bytes)
    _verify(message, index.schema_sha256, f"{place}: schema")
    try:
        schema = read_schema(message)
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: schema: {error}") from error
    chosen = []
    followers = [*(batch.first for batch in index.batches[1:]), HASH_LIMIT]
    for number, (batch, following) in enumerate(zip(index.batches, followers)):
        if (batch.first >= high and number) or following < low or not _holds_any(batch, following, hashes):
            continue
        message = data.slice(batch.offset, batch.size)
        # Whoever looks up some keys of a state does so again in the next step.
        _verify(message, batch.sha256, f"{place}: batch {number}", often=hashes is not None)
        try:
            chosen.append(read_batch(message, schema, batch.rows, is_proven=index.is_proven))
        except ValueError as error:
            raise CorruptCheckpoint(f"{place}: batch {number}: {error}") from error
    return schema, chosen


def _holds_any(batch: SealedBatch, following: int, hashes: Words | None) -> bool:
    """Whether a batch may hold rows of one of these hashes (ascending; None: yes). ``following``: the first hash of the
    next batch, whose rows may begin in this one."""
    if hashes is None:
        return True
    place = int(np.searchsorted(hashes, np.uint64(batch.first)))
    return place < len(hashes) and int(hashes[place]) <= following


def read_index(data: pa.Buffer, sha256: str | None, place: str) -> SealedIndex:
    """The verified index of a sealed file; without ``sha256``, as the file states it."""
    size = data.size
    if size < _TRAILER_BYTES or data.slice(size - 8).to_pybytes() != _MAGIC:
        raise CorruptCheckpoint(f"{place}: truncated, or not a run ({size} bytes)")
    length = int.from_bytes(data.slice(size - _TRAILER_BYTES, 8).to_pybytes(), "little")
    start = size - _TRAILER_BYTES - length
    if start < len(_END_OF_STREAM):
        raise CorruptCheckpoint(f"{place}: its index claims to be longer than the file")
    trailer = data.slice(start, length)
    if sha256 is not None:
        _verify(trailer, sha256, f"{place}: index")
    try:
        index = _parsed(trailer.to_pybytes(), sha256 is not None)
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: not an index ({error})") from error
    end = _end_of_batches(index, place)
    if end + len(_END_OF_STREAM) != start or data.slice(start - 8, 8).to_pybytes() != _END_OF_STREAM:
        raise CorruptCheckpoint(f"{place}: bytes between its last batch and its index")
    return index


def _parsed(trailer: bytes, is_proven: bool) -> SealedIndex:
    """The index in its one spelling, checked as bytes, so that parsing allocates nothing else."""
    head, _, rest = trailer.partition(_PANES)
    panes, _, schema = rest.rpartition(_TAIL)
    is_index = head.startswith(_HEAD) and _BATCHES.fullmatch(head, len(_HEAD)) and _SCHEMA.fullmatch(schema)
    if not is_index or not _are_integers(panes):
        raise ValueError("not in the form that this release writes")
    body = json.loads(trailer)
    schema_bytes, schema_sha256 = body["schema"]
    batches = tuple(SealedBatch(*entry) for entry in body["batches"])
    return SealedIndex(schema_bytes, schema_sha256, batches, body["panes"], is_proven)


def _are_integers(text: bytes) -> bool:
    """Whether a list of any length holds only integers with few digits."""
    commas = (np.frombuffer(text, np.uint8) == ord(",")).nonzero()[0]
    ends = np.concatenate(((-1,), commas, (len(text),)))
    widths = ends[1:] - ends[:-1] - 1
    return not text.translate(None, b"0123456789,-") and int(widths.max()) <= _INTEGER_CHARS_MAX


def _end_of_batches(index: SealedIndex, place: str) -> int:
    """The end of the last batch, if each begins where the previous one ends, in hash order."""
    reached, first = index.schema_bytes, 0
    for number, batch in enumerate(index.batches):
        if batch.offset != reached or not first <= batch.first < HASH_LIMIT or batch.rows > BATCH_ROWS_MAX:
            raise CorruptCheckpoint(f"{place}: batch {number} does not begin where the previous one ends")
        reached, first = batch.offset + batch.size, batch.first
    return reached


def _owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without the bytes of their neighbours: Arrow pads its output with the bytes that follow."""
    rows = pa.array(np.arange(len(batch)))
    columns = [column if _fills_words(column) else column.take(rows) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _fills_words(column: pa.Array) -> bool:
    """Whether its memory consists of whole words of its own rows."""
    memory_bytes: int = column.get_total_buffer_size()
    return memory_bytes == 8 * len(column) and pa.types.is_primitive(column.type) and column.type.bit_width == 64


def _sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def _verify(data: Any, sha256: str, place: str, *, often: bool = False) -> None:
    if not (is_recognised(data, sha256) if often else _sha256(data) == sha256):
        raise CorruptCheckpoint(f"{place}: SHA-256 differs from what was committed")


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
    if all(field.type == original.type for field, original in zip(fields, table.schema, strict=True)):
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
