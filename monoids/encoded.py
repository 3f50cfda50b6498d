"""The canonical encoding of a whole column of plain values, as a column of bytes.

    encoded_column(array)[i] == encode(array[i].as_py())

Strings, bytes and integers are encoded without a Python object for each. Values of other types are encoded once for
each distinct value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import encoding
from monoids.arrays import plain_array
from monoids.column import ArrowColumn, Column

_INT_BYTES_MAX = 8
_TAGS = {tag: ord(tag) for tag in "isb"}


def encoded_column(array: pa.Array) -> ArrowColumn:
    """The encoding of each value of an Arrow array; null becomes None. TypeError for values that are not plain.

    >>> encoded_column(pa.array(["a", None])).array.to_pylist() == [encoding.encode("a"), encoding.encode(None)]
    True
    """
    array = plain_array(array)
    if pa.types.is_integer(array.type) and array.type != pa.uint64() and not array.null_count:
        return ArrowColumn(_integers(array.cast(pa.int64()).to_numpy(zero_copy_only=False)))
    if not array.null_count and (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return ArrowColumn(_texts(b"s", array.cast(pa.binary())))
    if not array.null_count and (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        return ArrowColumn(_texts(b"b", array.cast(pa.binary())))
    return _by_distinct_value(array)


def encoded_list(values: list[Any]) -> ArrowColumn:
    """The encoding of each Python value."""
    if set(map(type, values)) in ({str}, {int}, {bytes}):
        try:
            return encoded_column(pa.array(values))
        except (OverflowError, UnicodeEncodeError):
            pass  # Arrow cannot hold integers over 64 bits or lone surrogates; encode can
    return ArrowColumn(pa.array([encoding.encode(value) for value in values], pa.binary()))


def check_encoded(owner: str, array: pa.Array) -> None:
    """ValueError unless each value of a binary array without nulls is an encoding that ``encode`` writes.

    >>> check_encoded("keys", encoded_column(pa.array(["a", "b"])).array)
    """
    rows = pa.array(np.flatnonzero(~_plainly_encoded(array)))
    for data in array.take(rows).unique().to_pylist():
        try:
            encoding.decode(data)
        except ValueError as error:
            raise ValueError(f"{owner}: the key {data!r:.60} is not as this monoid writes it: {error}") from error


def _plainly_encoded(array: pa.Array) -> Column:
    """Which values are recognized, without decoding, as a short string, short bytes or an integer."""
    lengths = pc.binary_length(array).to_numpy()
    plain: Column = lengths > 2
    if not plain.any():
        return plain
    _, offsets, buffer = array.buffers()
    data = np.frombuffer(buffer, np.uint8)
    begins = np.frombuffer(offsets, np.int32, len(array), 4 * array.offset)
    tags, sizes, firsts, seconds = (data[np.minimum(begins + place, len(data) - 1)] for place in range(4))
    plain &= (sizes < 0x80) & (sizes == lengths - 2)
    extended = ((firsts == 0x00) & (seconds < 0x80)) | ((firsts == 0xFF) & (seconds >= 0x80))
    integers = (tags == _TAGS["i"]) & ~((sizes > 1) & extended)
    texts = plain & (tags == _TAGS["s"])
    if texts.any():
        try:
            (array if texts.all() else array.take(pa.array(np.flatnonzero(texts)))).cast(pa.string())
        except pa.ArrowInvalid:
            texts[:] = False
    plain &= integers | texts | (tags == _TAGS["b"])
    return plain


def _texts(tag: bytes, array: pa.Array) -> pa.Array:
    """Tag, length, bytes. Few lengths occur, so each is written once."""
    lengths = pc.binary_length(array).dictionary_encode()
    heads = [_head(tag, length) for length in lengths.dictionary.to_pylist()]
    return pc.binary_join_element_wise(pa.array(heads, pa.binary()).take(lengths.indices), array, b"")


def _head(tag: bytes, length: int) -> bytes:
    whole = encoding.encode(b"\0" * length)
    return tag + whole[1 : len(whole) - length]


def _integers(values: Column) -> pa.Array:
    """Tag, size, then the fewest big-endian bytes that hold the number and its sign."""
    magnitudes = np.where(values < 0, ~values, values)
    sizes = np.ones(len(values), np.int64)
    for size in range(1, _INT_BYTES_MAX):
        sizes += magnitudes >= 1 << (8 * size - 1)
    ends = np.cumsum(sizes + 2)
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for place in range(_INT_BYTES_MAX):
        rows = slice(None) if place == 0 else np.flatnonzero(sizes > place)
        data[ends[rows] - 1 - place] = (values[rows] >> (8 * place)) & 0xFF
    data[ends - sizes - 1] = sizes
    data[ends - sizes - 2] = encoding.encode(0)[0]
    if len(data) > np.iinfo(np.int32).max:
        raise ValueError(f"{len(values)} keys exceed what one Arrow column holds: use fewer rows at once")
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _by_distinct_value(array: pa.Array) -> ArrowColumn:
    if pa.types.is_nested(array.type):
        return ArrowColumn(pa.array([encoding.encode(value) for value in array.to_pylist()], pa.binary()))
    by_bits = array.view(pa.int64()).dictionary_encode() if pa.types.is_float64(array.type) else None
    if by_bits is not None:  # by bit pattern, because 0.0 and -0.0 have different encodings
        values, indices = by_bits.dictionary.view(pa.float64()), by_bits.indices
    else:
        by_value = array.dictionary_encode(null_encoding="encode")
        values, indices = by_value.dictionary, by_value.indices
    distinct = [encoding.encode(value) for value in values.to_pylist()]
    if indices.null_count:
        distinct.append(encoding.encode(None))
        indices = indices.fill_null(len(distinct) - 1)
    return ArrowColumn(pa.array(distinct, pa.binary()).take(indices))
