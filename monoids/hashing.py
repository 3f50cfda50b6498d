"""The key hash maps canonical values to 64 bits. It is the same in every process, machine and release.

Version 1. Every value becomes one 64-bit word, by type; the words of a composite key are chained; the bijective
finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) finishes the chain.
So keys from one null-free integer, date, time, bool or float column never collide. Text and bytes are read eight bytes
at a time; values longer than 512 bytes are reduced by SHA-256 first. The tests hold test vectors.

The text of a decimal is its value in scientific notation, independent of its scale and of the caller's context:

    decimal_texts(column)[i] == decimal_text(column[i])

Fractions have no trailing zeros: 1.50 is ``1.5``, 100 is ``100``, 0.00 is ``0``, 0.0000001 is ``1E-7``.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.arrays import from_numpy, plain_array
from monoids.scalars import nanosecond
from monoids.text import WORD_BYTES, TextWords, Words

VERSION = 1


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
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_LONG_BYTES = 512
_MASK = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_ROWS = 1 << 15


@lru_cache(maxsize=1_000)
def key_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a key column is kept: one type for each kind of value.

    >>> key_type(pa.int32()), key_type(pa.dictionary(pa.int32(), pa.string()))
    (DataType(int64), DataType(string))
    """
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return key_type(type_.value_type)
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if any(test(type_) for test in _BINARY):
        return pa.binary()
    if pa.types.is_date(type_):
        return pa.date32()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC")
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_boolean(type_) or pa.types.is_decimal128(type_) or pa.types.is_null(type_):
        return type_
    raise TypeError(
        f"a key of type {type_} is not supported: use an integer, float, bool, string, bytes, date, timestamp "
        "or a decimal of at most 38 digits, pa.decimal128"
    )


def key_column(values: Any) -> pa.Array:
    """Values as a canonical key column: of a ``key_type``, with -0.0 stored as 0.0 and one NaN.

    TypeError for values that cannot be keys; pyarrow.ArrowInvalid for values that the key type cannot hold.
    """
    if isinstance(values, np.ndarray):
        values = from_numpy(values)
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=False)
    wanted = key_type(array.type)
    array = plain_array(array)
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
    """Whether different keys in these columns always have different hashes."""
    if not columns:
        return True
    (first, *rest) = columns
    return not rest and not first.null_count and not _is_bytes(first.type)


def hash_keys(columns: Sequence[pa.Array], rows: int) -> Words:
    """The hash of each of ``rows`` keys, given as key columns. Without columns, each is the hash of the empty key."""
    if not columns:
        return _finish(np.full(rows, _SEED, np.uint64))
    hashes = np.empty(rows, np.uint64)
    for start in range(0, rows, _CHUNK_ROWS):
        # In chunks, which stay in the processor's cache from one column to the next.
        piece = slice(start, start + _CHUNK_ROWS)
        first, *others = (_words(column[piece]) for column in columns)
        state = _chain(_SEED, first)
        for word in others:
            state = _chain(state, word)
        hashes[piece] = _finish(state)
    return hashes


def hash_key(*values: Any) -> int:
    """The hash of one key, given as Python values: equal to ``hash_keys`` of the same values.

    TypeError for a value that cannot be a key; OverflowError for an integer outside int64.

    >>> hash_key(1) == hash_key(True) or hash_key(1) == hash_key(1.0)
    False
    >>> hash_key("a", None) == int(hash_keys((pa.array(["a"]), pa.nulls(1)), 1)[0])
    True
    """
    state = int(_SEED)
    for value in values:
        state = _chained(state, _word(value))
    state = (state ^ state >> 30) * int(_MIX_1) & _MASK
    state = (state ^ state >> 27) * int(_MIX_2) & _MASK
    return state ^ state >> 31


def _chained(state: int, word: int) -> int:
    state = (state ^ word) * int(_CHAIN) & _MASK
    return state ^ state >> 32


def _word(value: Any) -> int:
    """The word of one value: the scalar form of ``_words``."""
    match value:
        case None:
            return int(_NULL)
        case bool():
            return int(value) ^ int(_TAGS["bool"])
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError("a key is outside 64-bit integers: give it as a string")
            return value & _MASK
        case float():
            number = math.nan if value != value else value + 0.0
            return int.from_bytes(struct.pack("<d", number), "little") ^ int(_TAGS["double"])
        case str():
            return _text_word(value.encode("utf-8", "surrogatepass"), int(_TAGS["string"]))
        case bytes():
            return _text_word(value, int(_TAGS["binary"]))
        case Decimal():
            return _text_word(decimal_text(value).encode(), int(_TAGS["decimal"]))
        case datetime():
            if nanosecond(value):
                raise ValueError(f"the key {value!r} is finer than microseconds: round it")
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(microseconds=1) & _MASK ^ int(_TAGS["timestamp[us, tz=UTC]"])
        case date():
            return value.toordinal() - _EPOCH.toordinal() & _MASK ^ int(_TAGS["date32[day]"])
    raise TypeError(
        f"{value!r} ({type(value).__name__}) cannot be a key: use numbers, bools, text, bytes, dates or times"
    )


def _text_word(data: bytes, tag: int) -> int:
    state = _chained(tag, len(data))
    data = hashlib.sha256(data).digest()[:8] if len(data) > _LONG_BYTES else data
    for start in range(0, len(data), 8):
        state = _chained(state, int.from_bytes(data[start : start + 8], "little"))
    return state


def mix_records(partition: str, ordinal: int, offsets: Any, timestamps: Any) -> int:
    """The sum, modulo 2**64, of the key hashes of (partition, ordinal, offset, timestamp) over all records."""
    prefix = np.array([_chained(_chained(int(_SEED), _word(partition)), ordinal & _MASK)], np.uint64)
    offsets, timestamps = offsets.view(np.uint64), timestamps.view(np.uint64)
    total = 0
    for start in range(0, len(offsets), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        state = _chain(_chain(prefix, offsets[rows]), timestamps[rows])
        total += int(_finish(state).sum(dtype=np.uint64))
    return total & 0xFFFF_FFFF_FFFF_FFFF


def _chain(state: Words | np.uint64, words: Words) -> Words:
    """Append one word. For a given state it is injective in ``words``, and order matters."""
    chained: Words = state ^ words
    chained *= _CHAIN
    chained ^= chained >> np.uint64(32)
    return chained


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
        words = _bytes_words(decimal_texts(column), _TAGS["decimal"])
    elif _is_bytes(type_):
        words = _bytes_words(column, _TAGS[str(type_)])
    else:
        words, tag = _fixed_words(column), _TAGS[str(type_)]
        words = words ^ tag if tag or column.null_count else words
    if column.null_count:
        words[np.asarray(column.is_null())] = _NULL
    return words


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
    rows = len(column)
    text = TextWords(column)
    lengths = text.lengths(0, rows)
    state = _chain(np.full(rows, tag), lengths.astype(np.uint64))
    for row in (lengths > _LONG_BYTES).nonzero()[0].tolist():
        begin = int(text.offsets[row])
        digest = hashlib.sha256(text.data[begin : begin + int(lengths[row])]).digest()
        state[row] = _chain(state[row : row + 1], np.frombuffer(digest, "<u8", 1))[0]
        lengths[row] = 0
    shortest = int(lengths.min()) if rows else 0
    for at in range(0, int(lengths.max(initial=0)), WORD_BYTES):
        if at < shortest:
            state = _chain(state, text.words(0, rows, at))
        else:
            active = np.flatnonzero(lengths > at)
            begins = text.offsets[:-1][active] + at
            state[active] = _chain(state[active], text.words_at(begins, lengths[active] - at))
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


_CONTEXT = Context(prec=76, capitals=1)
_DIGITS_MAX = 38
_PLAIN_MIN = -6
"""Numbers below 10**-6 are written with an exponent."""


def decimal_text(value: Decimal) -> str:
    """The text of one decimal of at most 76 digits.

    >>> decimal_text(Decimal("-1.50")), decimal_text(Decimal("100")), decimal_text(Decimal("0.00"))
    ('-1.5', '100', '0')
    """
    return _CONTEXT.to_sci_string(_CONTEXT.add(_CONTEXT.normalize(value), 0))


def decimal_texts(column: pa.Array) -> pa.Array:
    """The texts of a decimal128 column; null stays null."""
    whole = column.view(pa.decimal128(_DIGITS_MAX, 0)).cast(pa.string())
    digits = pc.ascii_rtrim(whole, "0")
    exponents = _lengths(whole) - _lengths(digits) - column.type.scale
    negative = pc.starts_with(digits, "-")
    digits = pc.ascii_ltrim(digits, "-")
    zero = pc.equal(digits, "")
    # Rows with the same exponent share one format; a column has at most 39 exponents.
    exponents[np.asarray(zero.fill_null(True))] = 0
    order = np.argsort(exponents.astype(np.int16), kind="stable")
    distinct, starts = np.unique(exponents[order], return_index=True)
    digits = pc.if_else(zero, "0", digits).take(pa.array(order))
    parts = [
        _of_exponent(digits[start:stop], int(exponent))
        for exponent, start, stop in zip(distinct, starts, [*starts[1:], len(order)])
    ]
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    texts = pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(places))
    return pc.if_else(negative, pc.binary_join_element_wise("-", texts, ""), texts)


def _of_exponent(digits: pa.Array, exponent: int) -> pa.Array:
    """The texts of digits * 10**exponent. The digits do not end in 0, or are ``0``."""
    if not exponent:
        return digits
    if exponent > 0:
        return pc.binary_join_element_wise(digits, "0" * exponent, "")
    padded = pc.ascii_lpad(digits, 1 - exponent, "0")
    whole, rest = pc.utf8_slice_codeunits(padded, 0, exponent), pc.utf8_slice_codeunits(padded, exponent)
    plain = pc.binary_join_element_wise(whole, rest, ".")
    powers = _lengths(digits) - 1 + exponent
    if int(powers.min()) >= _PLAIN_MIN:
        return plain
    return pc.if_else(pa.array(powers >= _PLAIN_MIN), plain, _scientific(digits, powers))


def _scientific(digits: pa.Array, powers: Any) -> pa.Array:
    first, rest = pc.utf8_slice_codeunits(digits, 0, 1), pc.utf8_slice_codeunits(digits, 1)
    pointed = pc.if_else(pc.equal(rest, ""), first, pc.binary_join_element_wise(first, rest, "."))
    return pc.binary_join_element_wise(pointed, pa.array(powers).cast(pa.string()), "E")


def _lengths(texts: pa.Array) -> Any:
    lengths = pc.binary_length(texts)
    return (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy().astype(np.int64)
