"""The key hash is a fixed function from canonical values to 64 bits: the same in every process, machine and release.

Version 1. Every value becomes one 64-bit word by its type; the words of a composite key are chained; the
chain is finished by the bijective finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
number generators, 2014). So keys of one null-free integer, date, time, bool or float column never collide.
Text and bytes are read eight bytes at a time; beyond 512 bytes SHA-256 takes over. Test vectors stand in the
tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VERSION = 1

Words = np.ndarray[Any, np.dtype[np.uint64]]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_CHAIN = np.uint64(0xD6E8FEB86659FD93)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xA0761D6478BD642F)
_TAGS = {
    "int64": np.uint64(0),
    "bool": np.uint64(0xE7037ED1A0B428DB),
    "double": np.uint64(0x8EBC6AF09C88C6E3),
    "date32[day]": np.uint64(0x589965CC75374CC3),
    "timestamp[us, tz=UTC]": np.uint64(0x1D8E4E27C47D124F),
    "string": np.uint64(0xEB44ACCAB455D165),
    "binary": np.uint64(0x2F1E1C6B4BDE5A77),
    "decimal": np.uint64(0xC3A5C85C97CB3127),
}
_LONG_BYTES = 512
_DECIMALS = Context(prec=76, capitals=1)
_CHUNK_ROWS = 1 << 15


def key_type(type_: pa.DataType) -> pa.DataType:
    """The type a key column of this type is kept in: one type for each kind of value.

    >>> key_type(pa.int32()), key_type(pa.dictionary(pa.int32(), pa.string()))
    (DataType(int64), DataType(string))
    """
    if pa.types.is_dictionary(type_):
        return key_type(type_.value_type)
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    if pa.types.is_date(type_):
        return pa.date32()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC")
    if pa.types.is_boolean(type_) or pa.types.is_decimal128(type_) or pa.types.is_null(type_):
        return type_
    raise TypeError(
        f"a key of type {type_} is not supported: use an integer, float, bool, string, bytes, date, timestamp "
        "or decimal"
    )


def key_column(values: Any) -> pa.Array:
    """Values as a canonical key column: of a ``key_type``, with -0.0 as 0.0 and one NaN."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=False)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    wanted = key_type(array.type)
    if pa.types.is_timestamp(array.type) and array.type.tz is None:
        array = array.cast(pa.timestamp("us")).cast(wanted)
    if array.type != wanted:
        array = array.cast(wanted)
    if wanted == pa.float64():
        floats = array.to_numpy(zero_copy_only=False) + 0.0
        missing = np.asarray(array.is_null()) if array.null_count else None
        array = pa.array(np.where(np.isnan(floats), np.nan, floats), mask=missing, from_pandas=False)
    return array


def is_injective(columns: Sequence[pa.Array]) -> bool:
    """Whether different keys of these columns always have different hashes."""
    if not columns:
        return True
    (first, *rest) = columns
    return not rest and not first.null_count and not _is_bytes(first.type)


def hash_keys(columns: Sequence[pa.Array], rows: int) -> Words:
    """The hash of each of ``rows`` keys; ``columns`` are key columns. Without columns: the hash of the empty key."""
    state = np.full(rows, _SEED, np.uint64)
    for column in columns:
        state = _chain(state, _words(column))
    return _finish(state)


def mix_records(partition: str, ordinal: int, offsets: Any, timestamps: Any) -> int:
    """The sum modulo 2**64 of the key hashes of (partition, ordinal, offset, timestamp), one a record."""
    prefix = _chain(np.array([_SEED]), _words(pa.array([partition])))
    prefix = _chain(prefix, np.array([ordinal], np.int64).view(np.uint64))
    offsets, timestamps = offsets.view(np.uint64), timestamps.view(np.uint64)
    total = 0
    for start in range(0, len(offsets), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        state = _chain(_chain(prefix, offsets[rows]), timestamps[rows])
        total += int(_finish(state).sum(dtype=np.uint64))
    return total & 0xFFFF_FFFF_FFFF_FFFF


def _chain(state: Words, words: Words) -> Words:
    """One more word: injective in ``words`` for a given state, and order matters."""
    state = state ^ words
    state *= _CHAIN
    state ^= state >> np.uint64(32)
    return state


def _finish(state: Words) -> Words:
    state ^= state >> np.uint64(30)
    state *= _MIX_1
    state ^= state >> np.uint64(27)
    state *= _MIX_2
    state ^= state >> np.uint64(31)
    return state


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_decimal(type_))


def _words(column: pa.Array) -> Words:
    type_ = column.type
    if pa.types.is_null(type_):
        return np.full(len(column), _NULL)
    if pa.types.is_decimal(type_):
        texts = [None if value is None else _decimal_text(value) for value in column.to_pylist()]
        words = _bytes_words(pa.array(texts, pa.string()), _TAGS["decimal"])
    elif _is_bytes(type_):
        words = _bytes_words(column, _TAGS[str(type_)])
    else:
        words = _fixed_words(column) ^ _TAGS[str(type_)]
    if column.null_count:
        words[np.asarray(column.is_null())] = _NULL
    return words


def _decimal_text(value: Decimal) -> str:
    """Equal decimals as one text, whatever their scale and the context of the caller."""
    return _DECIMALS.to_sci_string(_DECIMALS.add(_DECIMALS.normalize(value), 0))


def _fixed_words(column: pa.Array) -> Words:
    type_ = column.type
    if pa.types.is_boolean(type_):
        return np.asarray(column.fill_null(False)).astype(np.uint64)
    if pa.types.is_floating(type_):
        return np.asarray(column.fill_null(0.0)).view(np.uint64)
    if pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    integers = column.cast(pa.int64())
    return np.asarray(integers.fill_null(0) if integers.null_count else integers).view(np.uint64)


def _bytes_words(column: pa.Array, tag: np.uint64) -> Words:
    if column.null_count:
        column = column.fill_null("" if pa.types.is_string(column.type) else b"")
    _, offset_buffer, data_buffer = column.buffers()
    rows = len(column)
    offsets = (
        np.frombuffer(offset_buffer, np.int32, rows + 1, column.offset * 4).astype(np.int64)
        if rows
        else np.zeros(1, np.int64)
    )
    begin, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros((end - begin) // 8 * 8 + 16, np.uint8)
    if end > begin:
        data[: end - begin] = np.frombuffer(data_buffer, np.uint8, end - begin, begin)
    offsets -= begin
    lengths = np.diff(offsets)
    state = _chain(np.full(rows, tag), lengths.view(np.uint64))
    unaligned = np.lib.stride_tricks.as_strided(data.view(np.uint64)[:1], (len(data) - 7,), (1,))
    active = np.flatnonzero(lengths)
    long = lengths > _LONG_BYTES
    if long.any():
        active = active[~long[active]]
        for row in np.flatnonzero(long).tolist():
            digest = hashlib.sha256(data[offsets[row] : offsets[row + 1]].tobytes()).digest()
            state[row] = _chain(state[row : row + 1], np.frombuffer(digest, "<u8", 1))[0]
    at = 0
    while len(active):
        words = unaligned[offsets[active] + at]
        left = lengths[active] - at
        short = left < 8
        if short.any():
            words[short] &= (np.uint64(1) << (left[short] * 8).astype(np.uint64)) - np.uint64(1)
        state[active] = _chain(state[active], words)
        at += 8
        active = active[left > 8]
    return state


def null_safe_equal(a: pa.Array, b: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Row by row, whether two key columns hold the same key (null equals null, NaN equals NaN)."""
    if pa.types.is_null(a.type):
        return np.ones(len(a), bool)
    if pa.types.is_floating(a.type):
        a, b = a.view(pa.int64()), b.view(pa.int64())
    equal = pc.equal(a, b).fill_null(False)
    if a.null_count and b.null_count:
        equal = pc.or_(equal, pc.and_(a.is_null(), b.is_null()))
    return np.asarray(equal)
