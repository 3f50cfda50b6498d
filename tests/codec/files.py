"""Sealed files whose hashes are right and whose contents are hostile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
MAGIC = b"PMRUN\x00\x00\x01"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def index_of(schema: bytes, batches: Sequence[tuple[bytes, int]], /, **changes: Any) -> dict[str, Any]:
    """The index of messages, each with the rows that are said of it."""
    entries, offset = [], len(schema)
    for message, rows in batches:
        entries.append([offset, len(message), rows, 0, sha256(message)])
        offset += len(message)
    return {"batches": entries, "panes": [], "schema": [len(schema), sha256(schema)], **changes}


def finished(body: bytes, index: dict[str, Any] | bytes, length: int | None = None) -> bytes:
    """Messages, end of stream, index, length and magic."""
    trailer = index if isinstance(index, bytes) else json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
    length = len(trailer) if length is None else length
    return body + END_OF_STREAM + trailer + length.to_bytes(8, "little") + MAGIC


def sealed_of(schema: bytes, /, *batches: tuple[bytes, int], **changes: Any) -> bytes:
    """A file of these messages."""
    body = schema + b"".join(message for message, _ in batches)
    return finished(body, index_of(schema, batches, **changes))


def sealed_batch(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """A file of one batch, written by Arrow as it is, without what we do to it."""
    schema = batch.schema.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    messages = [message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(sink.getvalue())]
    return sealed_of(schema, *((message, batch.num_rows) for message in messages[1:]))
