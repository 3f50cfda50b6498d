"""A codec turns state rows and manifests into bytes that prove themselves.

A *run* is an Arrow IPC stream of the columns ``hash``, ``key:<name>``..., ``pane``, ``element:<name>``...,
sorted by (hash, key, pane), followed by an index: the place, rows, first hash and SHA-256 of every message in
it. The SHA-256 of the index stands in the manifest. So any range of keys is read, and verified, alone, and
every byte of the file is covered.

    [schema message][record batch]...[end of stream][index, canonical JSON][index length, 8 bytes][magic, 8 bytes]

A *document* is canonical JSON in one line, followed by a line with its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.monoid import concat
from persistent.errors import CorruptCheckpoint, StorageError
from persistent.rows import Rows, agreed_types, empty

DOCUMENT_BYTES_MAX = 1 << 24
KEY_GROUPS = 1024
_GROUP_SHIFT = 54
_BATCH_ROWS = 1 << 16
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MAGIC = b"PMRUN\x00\x00\x01"
_TRAILER_BYTES = 16


@dataclass(frozen=True)
class Run:
    """What a manifest says of a run.

    ``start``, ``high``: the key groups that were written to it (``start <= group < high``); those from
    ``low`` on still count. ``pane_min``, ``pane_max``: of its rows. ``first``, ``last``: the ids of the
    checkpoints whose deltas it sums.
    """

    name: str
    rows: int
    bytes: int
    sha256: str
    start: int
    low: int
    high: int
    pane_min: int
    pane_max: int
    first: int
    last: int

    @property
    def rows_left(self) -> int:
        """About how many of its rows still count."""
        return self.rows * (self.high - self.low) // (self.high - self.start)

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Run:
        return Run(**data)


# -- runs --------------------------------------------------------------------------------------------------------


def encode_run(
    monoid: Monoid[Any], rows: Rows, key_names: Sequence[str], panes: Sequence[int] = ()
) -> tuple[bytes, str]:
    """The bytes of a run, and the SHA-256 of its index, which lists ``panes``. Equal rows give equal bytes."""
    columns = [
        pa.array(rows.hashes),
        *rows.keys,
        pa.array(rows.panes),
        *monoid.to_arrow(rows.columns),
    ]
    names = [
        "hash",
        *(f"key:{name}" for name in key_names),
        "pane",
        *(f"element:{name}" for name in monoid.schema.names),
    ]
    return _encode_batches([pa.RecordBatch.from_arrays(columns, names)], rows.hashes, panes)


def decode_run(
    monoid: Monoid[Any], data: pa.Buffer, run: Run, place: str, low: int = 0, high: int = KEY_GROUPS
) -> Rows:
    """The rows of a run in the key groups ``low <= group < high`` that it still counts for, verified."""
    low, high = max(low, run.low), min(high, run.high)
    batches = _decode_batches(data, run.sha256, place, low << _GROUP_SHIFT, high << _GROUP_SHIFT)
    parts = [_rows_of(monoid, batch) for batch in batches]
    if not parts:
        return empty(monoid, 0)
    (rows,) = parts if len(parts) == 1 else (_concat(parts),)
    return rows.between(low << _GROUP_SHIFT, high << _GROUP_SHIFT)


def decode_panes(data: pa.Buffer, run: Run, place: str) -> list[int]:
    """The panes of a run, ascending, from its index alone."""
    return list(_decode_index(data, run.sha256, place)["panes"])


def encode_table(table: pa.Table) -> tuple[bytes, str]:
    """A table (a listing, dead letters) in the same self-proving form, without hashes."""
    # Several, where the text of a column has more than 2 GB.
    batches = table.combine_chunks().to_batches()
    return _encode_batches(batches or [pa.RecordBatch.from_pylist([], schema=table.schema)], None, ())


def decode_table(data: pa.Buffer, sha256: str | None, place: str) -> pa.Table:
    """The inverse of ``encode_table``, verified; without ``sha256``, against its own index."""
    return pa.Table.from_batches(_decode_batches(data, sha256, place, 0, 1 << 64))


def groups_of(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The key group of each hash."""
    return (hashes >> np.uint64(_GROUP_SHIFT)).astype(np.int64)


def _encode_batches(batches: Sequence[pa.RecordBatch], hashes: Any, panes: Sequence[int]) -> tuple[bytes, str]:
    """``hashes``: of the rows of the one batch of a run."""
    message = batches[0].schema.serialize()
    parts = [message]
    index: dict[str, Any] = {"schema": [message.size, _sha256(message)], "batches": [], "panes": list(panes)}
    offset = message.size
    for batch in batches:
        for start in range(0, max(len(batch), 1), _BATCH_ROWS):
            message = batch.slice(start, _BATCH_ROWS).serialize()
            first = int(hashes[start]) if hashes is not None and len(hashes) else 0
            rows = min(_BATCH_ROWS, len(batch) - start)
            index["batches"].append([offset, message.size, rows, first, _sha256(message)])
            parts.append(message)
            offset += message.size
    # Whole numbers and text by construction: its panes may be too many to look at one by one.
    trailer = _spelled(index).encode()
    tail = _END_OF_STREAM + trailer + len(trailer).to_bytes(8, "little") + _MAGIC
    return b"".join([*parts, tail]), _sha256(trailer)


def _decode_batches(data: pa.Buffer, sha256: str | None, place: str, low: int, high: int) -> list[pa.RecordBatch]:
    index = _decode_index(data, sha256, place)
    schema_bytes, schema_sha256 = index["schema"]
    message = data.slice(0, schema_bytes)
    _verify(message, schema_sha256, f"{place}: schema")
    schema = pa.ipc.read_schema(message)
    batches = index["batches"]
    chosen = []
    for number, (offset, size, rows, first, batch_sha256) in enumerate(batches):
        following = batches[number + 1][3] if number + 1 < len(batches) else 1 << 64
        if (first >= high and number) or following < low:
            continue
        message = data.slice(offset, size)
        _verify(message, batch_sha256, f"{place}: batch {number}")
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows != rows:
            raise CorruptCheckpoint(f"{place}: batch {number} has {batch.num_rows} rows, its index says {rows}")
        chosen.append(batch)
    return chosen


def _decode_index(data: pa.Buffer, sha256: str | None, place: str) -> Any:
    size = data.size
    if size < _TRAILER_BYTES or data.slice(size - 8).to_pybytes() != _MAGIC:
        raise CorruptCheckpoint(f"{place}: cut short or not a run ({size} bytes)")
    length = int.from_bytes(data.slice(size - _TRAILER_BYTES, 8).to_pybytes(), "little")
    start = size - _TRAILER_BYTES - length
    if start < len(_END_OF_STREAM):
        raise CorruptCheckpoint(f"{place}: its index is said to be longer than the file")
    trailer = data.slice(start, length)
    if sha256 is not None:
        _verify(trailer, sha256, f"{place}: index")
    index = json.loads(trailer.to_pybytes())
    offset, size_ = (index["batches"][-1] if index["batches"] else (0, index["schema"][0]))[:2]
    if offset + size_ + len(_END_OF_STREAM) != start or data.slice(start - 8, 8).to_pybytes() != _END_OF_STREAM:
        raise CorruptCheckpoint(f"{place}: bytes between its last batch and its index")
    return index


def _rows_of(monoid: Monoid[Any], batch: pa.RecordBatch) -> Rows:
    names = batch.schema.names
    pane = names.index("pane")
    arrays = batch.columns
    return Rows(
        np.asarray(arrays[0]),
        tuple(arrays[1:pane]),
        np.asarray(arrays[pane]),
        monoid.from_arrow(arrays[pane + 1 :]),
    )


def _concat(parts: Sequence[Rows]) -> Rows:
    return Rows(
        np.concatenate([part.hashes for part in parts]),
        tuple(pa.concat_arrays([part.keys[i] for part in parts]) for i in range(len(parts[0].keys))),
        np.concatenate([part.panes for part in parts]),
        concat([part.columns for part in parts]),
    )


def _sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def _verify(data: Any, sha256: str, place: str) -> None:
    if _sha256(data) != sha256:
        raise CorruptCheckpoint(f"{place}: SHA-256 differs from what was committed")


# -- documents ---------------------------------------------------------------------------------------------------


def canonical_json(value: Any) -> str:
    """JSON in one spelling: sorted keys, no spaces, no floats, ASCII. ValueError for what could not be read again."""
    _refuse_floats(value)
    return _spelled(value)


def encode_document(value: Any) -> bytes:
    """A JSON value that proves itself. StorageError if it would be too large to be read again.

    >>> encode_document({"b": 1, "a": [2]}).split(b"\\n")[0]
    b'{"a":[2],"b":1}'
    """
    body = canonical_json(value).encode()
    data = body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
    if len(data) > DOCUMENT_BYTES_MAX:
        raise StorageError(
            f"a manifest, plan or header of {len(data)} bytes is not put: above {DOCUMENT_BYTES_MAX} it could not be "
            "read again. Nothing was committed; take smaller steps (step_rows=), or fewer partitions or columns"
        )
    return data


def decode_document(data: bytes, place: str) -> Any:
    """The inverse of ``encode_document``; CorruptCheckpoint unless every byte is as written."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise CorruptCheckpoint(f"{place}: {len(data)} bytes; a manifest has at most {DOCUMENT_BYTES_MAX}")
    body, newline, trailer = data.partition(b"\n")
    if not newline or trailer != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise CorruptCheckpoint(f"{place}: SHA-256 differs from its trailer")
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise ValueError(f"{value!r} is a float, which a checkpoint does not hold: write it as an integer or as text")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the name {name!r} is not text")
            _refuse_floats(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_floats(inner)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is not an integer")


# -- key types ---------------------------------------------------------------------------------------------------


def common_key_types(found: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The key types on which all parts agree; TypeError where they do not. By name, as they stand in manifests."""
    known = [types for types in found if types]
    if not known:
        return ()
    return tuple(str(type_) for type_ in agreed_types([[type_of(name) for name in types] for types in known]))


def type_of(name: str) -> pa.DataType:
    """The Arrow type of a key column from its name in a manifest."""
    if name.startswith("decimal128("):
        precision, scale = name[len("decimal128(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _KEY_TYPES[name]


_KEY_TYPES = {
    str(type_): type_
    for type_ in (
        pa.null(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    )
}
