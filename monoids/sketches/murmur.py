"""MurmurHash3 x64 128 is the hash of Apache DataSketches: it maps bytes and a seed to two 64-bit words.

    murmur3(data, seed) == (h1, h2)                        one item, as in the definition
    murmur3_words(words, seed)[i] == h1 of the eight bytes of words[i], little-endian
    murmur3_bytes(array, seed)[i] == h1 of the bytes of array[i]
    hash_values(column)[i] == h1 >> 1 of the bytes of value i, under SEED: the hashes in theta sketches

A seed is a word, or a column of words of shape (n, 1); then the result has n rows, one for each seed.

The bytes of a value are those of DataSketches: eight for an integer (little-endian, two's complement), eight for a
float (the IEEE double), UTF-8 for a string, bytes as they are. Types that DataSketches does not hash (bool, date,
datetime, Decimal) have the eight bytes of their key hash. Source: Appleby: MurmurHash3, 2011 (public domain).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from monoids.sketches.hashed_inputs import key_hash
from monoids.text import Words

SEED = 9001
"""The default seed of DataSketches."""

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_MIX_1, _MIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_ADD_1, _ADD_2 = 0x52DCE729, 0x38495AB5
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_FEW_ROWS = 8
_BLOCK = 16


def hash_values(column: pa.Array) -> Words:
    """The 63-bit hash of every value of a key column without nulls."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        hashes = murmur3_bytes(column, SEED)
    elif pa.types.is_int64(type_) or pa.types.is_float64(type_):
        hashes = murmur3_words(column.to_numpy().view(np.uint64), SEED)
    else:
        hashes = murmur3_words(key_hash(column), SEED)
    hashes >>= np.uint64(1)
    return hashes


def murmur3_words(words: Words, seed: Any) -> Words:
    """The first word of the hash of eight-byte items."""
    h2 = np.asarray(seed, np.uint64) ^ np.uint64(8)
    return _finish(_mixed_word(words, _C1, 31, _C2) ^ h2, h2)


def murmur3_bytes(array: pa.Array, seed: Any) -> Words:
    """The first word of the hash of Arrow strings or bytes without nulls.

    All rows advance block by block together; the few that are much longer than the others are hashed separately.
    """
    seeds = np.asarray(seed, np.uint64)
    data, offsets = _data(array)
    lengths = np.diff(offsets)
    h1 = np.empty((*seeds.shape[:-1], len(array)), np.uint64)
    h1[...] = seeds
    h2 = h1.copy()
    words = np.lib.stride_tricks.as_strided(data.view("<u8")[:1], (len(data) - 7,), (1,))
    active = np.flatnonzero(lengths >= _BLOCK)
    at = 0
    while len(active) > _FEW_ROWS:
        places = offsets[active] + at
        h1[..., active], h2[..., active] = _block(h1[..., active], h2[..., active], words[places], words[places + 8])
        at += _BLOCK
        active = active[lengths[active] >= at + _BLOCK]
    for row in active.tolist():
        value = data[offsets[row] : offsets[row + 1]].tobytes()
        for place in np.ndindex(h1.shape[:-1]):
            of_seed = (*place, row)
            h1[of_seed], h2[of_seed] = _blocks_one(value, at, int(h1[of_seed]), int(h2[of_seed]))
    whole = lengths // _BLOCK * _BLOCK
    places, left = offsets[:-1] + whole, lengths - whole
    h1 ^= _mixed_word(words[places] & _low_bytes(np.minimum(left, 8)), _C1, 31, _C2)
    h2 ^= _mixed_word(words[places + 8] & _low_bytes(np.maximum(left - 8, 0)), _C2, 33, _C1)
    sizes = lengths.view(np.uint64)
    return _finish(h1 ^ sizes, h2 ^ sizes)


def _data(array: pa.Array) -> tuple[Any, Any]:
    """The bytes of all rows, padded so that two words can be read at its end, and the offset of each row."""
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.zeros(1, np.int64)
    if len(array):
        offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros((end - begin) // 8 * 8 + 32, np.uint8)
    if end > begin:
        data[: end - begin] = np.frombuffer(data_buffer, np.uint8, end - begin, begin)
    return data, offsets - begin


def _low_bytes(count: Any) -> Words:
    """A mask of the lowest ``count`` bytes, 0 to 8."""
    bits = (count * 8).astype(np.uint64)
    return np.where(count == 8, np.uint64(_ALL), (np.uint64(1) << (bits & np.uint64(63))) - np.uint64(1))


def _block(h1: Words, h2: Words, k1: Words, k2: Words) -> tuple[Words, Words]:
    h1 = h1 ^ _mixed_word(k1, _C1, 31, _C2)
    h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(_ADD_1)
    h2 = h2 ^ _mixed_word(k2, _C2, 33, _C1)
    return h1, (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(_ADD_2)


def _mixed_word(k: Words, first: int, bits: int, second: int) -> Words:
    k = _rotated(k * np.uint64(first), bits)
    k *= np.uint64(second)
    return k


def _rotated(x: Words, bits: int) -> Words:
    rotated = x << np.uint64(bits)
    rotated |= x >> np.uint64(64 - bits)
    return rotated


def _finish(h1: Words, h2: Words) -> Words:
    """The first word of the result. Changes ``h1``."""
    h1 += h2
    h2 = _mixed(h1 + h2)
    h1 = _mixed(h1)
    h1 += h2
    return h1


def _mixed(k: Words) -> Words:
    """The 64-bit finalizer, in place."""
    for factor in (_MIX_1, _MIX_2):
        k ^= k >> np.uint64(33)
        k *= np.uint64(factor)
    k ^= k >> np.uint64(33)
    return k


# The same for one item.


def murmur3(data: bytes, seed: int) -> tuple[int, int]:
    """The 128 bits of MurmurHash3 x64 as two words, as in the definition.

    >>> [hex(word) for word in murmur3(b"hello", 0)]
    ['0xcbd8a7b341bd9b02', '0x5b1e906a48ae1d19']
    """
    whole = len(data) // _BLOCK * _BLOCK
    return _finish_one(data, whole, *_blocks_one(data, 0, seed, seed))


def _blocks_one(data: bytes, start: int, h1: int, h2: int) -> tuple[int, int]:
    """All whole blocks from ``start`` on."""
    for at in range(start, len(data) // _BLOCK * _BLOCK, _BLOCK):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotated_one(k1 * _C1 & _ALL, 31) * _C2 & _ALL
        h1 = ((_rotated_one(h1, 27) + h2 & _ALL) * 5 + _ADD_1) & _ALL
        h2 ^= _rotated_one(k2 * _C2 & _ALL, 33) * _C1 & _ALL
        h2 = ((_rotated_one(h2, 31) + h1 & _ALL) * 5 + _ADD_2) & _ALL
    return h1, h2


def _finish_one(data: bytes, whole: int, h1: int, h2: int) -> tuple[int, int]:
    """The bytes after the last whole block, and the finalizer."""
    k1 = int.from_bytes(data[whole : whole + 8], "little")
    k2 = int.from_bytes(data[whole + 8 :], "little")
    h2 ^= _rotated_one(k2 * _C2 & _ALL, 33) * _C1 & _ALL
    h1 ^= _rotated_one(k1 * _C1 & _ALL, 31) * _C2 & _ALL
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _ALL
    h2 = h2 + h1 & _ALL
    h1, h2 = _mixed_one(h1), _mixed_one(h2)
    h1 = h1 + h2 & _ALL
    return h1, h2 + h1 & _ALL


def _rotated_one(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _ALL


def _mixed_one(k: int) -> int:
    k = (k ^ k >> 33) * _MIX_1 & _ALL
    k = (k ^ k >> 33) * _MIX_2 & _ALL
    return k ^ k >> 33
