"""A run holds state rows in a sealed file: ``hash``, ``key:<name>``..., ``pane``, ``element:<name>``..., sorted.

The rows are sorted by (hash, key, pane), so any range of key groups is a slice of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.arrays import widest
from monoids.column import concat
from monoids.groupby.summing import GroupSums
from monoids.monoid import check_schema
from monoids.text import Words
from persistent.codec import sealed
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.sealed import SealedIndex, open_sealed, read_index, seal
from persistent.errors import CorruptCheckpoint

_GROUP_SHIFT = 54


def encode_run(
    monoid: Monoid[Any], rows: GroupSums, key_names: Sequence[str], panes: Sequence[int] = ()
) -> tuple[bytes, str]:
    """The bytes of a run, and the SHA-256 of its index, which lists ``panes``. Equal rows give equal bytes."""
    names = [
        "hash",
        *(f"key:{name}" for name in key_names),
        "pane",
        *(f"element:{name}" for name in monoid.schema.names),
    ]
    # Piece by piece, because the tables of all rows together may exceed one Arrow array.
    step = sealed.BATCH_ROWS_MAX
    pieces = [rows.slice(start, min(start + step, len(rows))) for start in range(0, max(len(rows), 1), step)]
    elements = _in_widest_types([monoid.to_arrow(piece.columns) for piece in pieces])
    batches = [
        pa.RecordBatch.from_arrays([pa.array(piece.hashes), *piece.keys, pa.array(piece.panes), *arrays], names)
        for piece, arrays in zip(pieces, elements)
    ]
    return seal(batches, rows.hashes, panes)


def is_wide(monoid: Monoid[Any], data: bytes) -> bool:
    """Whether an encoded run has element columns of wider types than its monoid's schema."""
    if not monoid.widens:
        return False
    end = 8 + int.from_bytes(data[4:8], "little")
    return bool(_types(data[:end])[-len(monoid.schema) :] != monoid.schema.types)


@lru_cache
def _types(message: bytes) -> list[pa.DataType]:
    """The types of the columns, from the first message of a run; every run of a state has the same types."""
    return list(pa.ipc.read_schema(pa.py_buffer(message)).types)


def _in_widest_types(pieces: list[list[pa.Array]]) -> list[list[pa.Array]]:
    """The columns of all pieces, in the widest type of each."""
    if len(pieces) == 1:
        return pieces
    types = [reduce(widest, (array.type for array in column)) for column in zip(*pieces)]
    return [[array.cast(type_) for array, type_ in zip(arrays, types)] for arrays in pieces]


def decode_run(
    monoid: Monoid[Any], data: pa.Buffer, run: Run, place: str, low: int = 0, high: int = KEY_GROUPS
) -> GroupSums:
    """The verified rows of a run in the key groups ``low <= group < high``, as far as it still counts for them."""
    low, high = max(low, run.low) << _GROUP_SHIFT, min(high, run.high) << _GROUP_SHIFT
    _, batches = open_sealed(data, _index(data, run, place), place, low, high)
    return _whole(monoid, list(_decoded(monoid, batches, run, place))).between(low, high)


def find_in_run(monoid: Monoid[Any], data: pa.Buffer, run: Run, place: str, hashes: Words) -> GroupSums:
    """The rows of keys with these hashes (ascending, each once) in a run, as far as it still counts for them. Only the
    batches that may hold them are verified and decoded."""
    hashes = _between(hashes, run.low << _GROUP_SHIFT, run.high << _GROUP_SHIFT)
    _, batches = open_sealed(data, _index(data, run, place), place, hashes=hashes)
    return _whole(monoid, [of_hashes(rows, hashes) for rows in _decoded(monoid, batches, run, place)])


def of_hashes(rows: GroupSums, hashes: Words) -> GroupSums:
    """The rows of keys with these hashes (ascending, each once), looked up in the sorted hashes of the rows."""
    if not len(rows):
        return rows
    hashes = _between(hashes, int(rows.hashes[0]), int(rows.hashes[-1]) + 1)
    starts = np.searchsorted(rows.hashes, hashes)
    is_same = rows.hashes[starts] == hashes
    starts, hashes = starts[is_same], hashes[is_same]
    # A second search, only for those with several rows: of a state without windows there are hardly any.
    several = np.flatnonzero(rows.hashes[np.minimum(starts + 1, len(rows) - 1)] == hashes)
    counts = np.ones(len(starts), np.int64)
    counts[several] = np.searchsorted(rows.hashes, hashes[several], side="right") - starts[several]
    ends = np.cumsum(counts)
    return rows.take(np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0))


def _between(hashes: Words, low: int, high: int) -> Words:
    """The hashes among these, ascending, with ``low <= hash < high`` (0 to 2**64)."""
    start = int(np.searchsorted(hashes, np.uint64(low)))
    return hashes[start : int(np.searchsorted(hashes, np.uint64(high - 1), side="right"))]


def _decoded(monoid: Monoid[Any], batches: Iterable[pa.RecordBatch], run: Run, place: str) -> Iterator[GroupSums]:
    try:
        for batch in batches:
            yield _rows_of(monoid, batch, run.wide)
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error


def _whole(monoid: Monoid[Any], parts: Sequence[GroupSums]) -> GroupSums:
    if not parts:
        none = np.zeros(0, np.int64)
        return GroupSums(none.astype(np.uint64), (), none, monoid.pack([]))
    return parts[0] if len(parts) == 1 else _concat(parts)


def decode_panes(data: pa.Buffer, run: Run, place: str) -> list[int]:
    """The panes of a run, ascending, read from its index alone."""
    panes = read_index(data, run.sha256, place).panes
    try:
        array = np.array(panes, np.int64)
    except OverflowError as error:
        raise CorruptCheckpoint(f"{place}: a pane beyond 64 bits") from error
    if np.any(array[1:] <= array[:-1]):
        raise CorruptCheckpoint(f"{place}: the panes of its index do not ascend")
    return panes


def groups_of(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The key group of each hash."""
    return (hashes >> np.uint64(_GROUP_SHIFT)).astype(np.int64)


def _index(data: pa.Buffer, run: Run, place: str) -> SealedIndex:
    if run.bytes and data.size != run.bytes:
        raise CorruptCheckpoint(f"{place}: has {data.size} bytes, but {run.bytes} according to its manifest")
    index = read_index(data, run.sha256, place)
    if index.rows != run.rows:
        raise CorruptCheckpoint(f"{place}: has {index.rows} rows, but {run.rows} according to its manifest")
    return index


def _rows_of(monoid: Monoid[Any], batch: pa.RecordBatch, may_widen: bool) -> GroupSums:
    pane = batch.schema.names.index("pane")
    arrays = batch.columns
    for column, kind in ((arrays[0], pa.uint64()), (arrays[pane], pa.int64())):
        if column.type != kind or column.null_count:
            raise ValueError(f"a column of {column.type} with {column.null_count} nulls where a run has {kind}")
    hashes = np.asarray(arrays[0])
    if np.any(hashes[1:] < hashes[:-1]):
        raise ValueError("its rows are not in hash order")
    check_schema(monoid, arrays[pane + 1 :])
    if not may_widen and [array.type for array in arrays[pane + 1 :]] != monoid.schema.types:
        raise ValueError("its columns are wider than its manifest says")
    return GroupSums(hashes, tuple(arrays[1:pane]), np.asarray(arrays[pane]), monoid.from_arrow(arrays[pane + 1 :]))


def _concat(parts: Sequence[GroupSums]) -> GroupSums:
    return GroupSums(
        np.concatenate([part.hashes for part in parts]),
        tuple(pa.concat_arrays([part.keys[i] for part in parts]) for i in range(len(parts[0].keys))),
        np.concatenate([part.panes for part in parts]),
        concat([part.columns for part in parts]),
    )
