"""Apache DataSketches defines the hash of its sketches, MurmurHash3 x64 128, and the bytes of its Count-Min sketch.

    murmur3(data, seed) == (h1, h2)                        one item, as in the definition
    murmur3_words(words, seed)[i] == h1 of the eight bytes of words[i], little-endian
    murmur3_bytes(array, seed)[i] == h1 of the bytes of array[i]
    hash_values(column)[i] == h1 >> 1 of the bytes of value i, under SEED: the hashes in theta sketches

A seed is a word, or a column of words of shape (n, 1); then the result has n rows, one for each seed.

The bytes of a value are those of DataSketches: eight for an integer (little-endian, two's complement), eight for a
float (the IEEE double), UTF-8 for a string, bytes as they are. Types that DataSketches does not hash (bool, date,
datetime, Decimal) have the eight bytes of their key hash. Source: Appleby: MurmurHash3, 2011 (public domain).

A Count-Min sketch of doubles is a header, the total weight, and every cell.

    byte  0   2, words of header         8   width, uint32              16  total weight, float64
          1   1, the version            12   depth, uint8               24  the cells, float64, row by row
          2   18, Count-Min             13   hash of the seed, uint16
          3   flags: 1, empty           15   0                          little-endian; an empty sketch has 16 bytes

C++'s ``default_random_engine``, as GNU's library defines it, draws the seed of each row. So the cells equal those of
DataSketches built with that library, such as its packages for Linux; other libraries draw other seeds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.sketches.inputs import key_hash
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


_MASK = (1 << 64) - 1
_HEADER = struct.Struct("<BBBB4xIBHx")
_KIND = (2, 1, 18)
_EMPTY = 1
_EXACT_MAX = 2**53
_MODULUS, _FACTOR = 2**31 - 1, 16807


def row_seeds(seed: int, depth: int) -> list[int]:
    """The seed of the hash of each row.

    >>> row_seeds(9001, 2)
    [4480857443237086988, 6631161516192699342]
    """
    draws = _minimal_standard(seed)
    return [(_uniform(draws, _MASK) + seed) & _MASK for _ in range(depth)]


def write(sketch: Any, element: dict[int, int]) -> bytes:
    """OverflowError for counts that a double cannot hold exactly."""
    flags = 0 if element else _EMPTY
    header = _HEADER.pack(*_KIND, flags, sketch.width, sketch.depth, _seed_hash(sketch.seed))
    if not element:
        return header
    if max(map(abs, element.values())) > _EXACT_MAX or abs(sketch.present(element)) > _EXACT_MAX:
        raise OverflowError(f"{sketch!r}: DataSketches counts in doubles, which cannot hold a count beyond 2**53")
    cells = np.zeros(sketch.width * sketch.depth, "<f8")
    cells[list(element)] = list(element.values())
    return header + struct.pack("<d", abs(sketch.present(element))) + cells.tobytes()


def read(sketch: Any, data: bytes) -> dict[int, int]:
    """ValueError for bytes that ``sketch`` could not have written, before any memory of its size is allocated."""
    if len(data) < _HEADER.size:
        raise ValueError(f"{sketch!r}: these {len(data)} bytes are not a DataSketches Count-Min sketch")
    *kind, flags, width, depth, seed_hash = _HEADER.unpack_from(data)
    if tuple(kind) != _KIND or flags & ~_EMPTY:
        raise ValueError(
            f"{sketch!r}: bytes that begin with {data[:4].hex(' ')} are not a DataSketches Count-Min sketch"
        )
    if (width, depth) != (sketch.width, sketch.depth):
        remedy = f"{sketch.type.title[:-1]}, width={width}, depth={depth})"
        raise ValueError(f"{sketch!r} cannot read a sketch of width {width} and depth {depth}: read it with {remedy}")
    if seed_hash != _seed_hash(sketch.seed):
        raise ValueError(f"{sketch!r} cannot read a sketch with another seed: give that seed, as in seed=1")
    size = _HEADER.size if flags & _EMPTY else _HEADER.size + 8 + 8 * width * depth
    if len(data) != size:
        raise ValueError(f"{sketch!r}: a sketch of width {width} and depth {depth} has {size} bytes, not {len(data)}")
    return {} if flags & _EMPTY else _cells(sketch, data)


def _cells(sketch: Any, data: bytes) -> dict[int, int]:
    weights = np.frombuffer(data, "<f8", sketch.width * sketch.depth, _HEADER.size + 8)
    if not (np.abs(weights) <= _EXACT_MAX).all() or (weights != np.floor(weights)).any():
        raise ValueError(f"{sketch!r}: the sketch holds fractions, or counts beyond 2**53")
    counts = weights.astype(np.int64)
    sums = counts.reshape(sketch.depth, sketch.width).astype(object).sum(axis=1)
    (total,) = struct.unpack_from("<d", data, _HEADER.size)
    if (sums != sums[0]).any() or not abs(sums[0]) <= total <= _EXACT_MAX:
        raise ValueError(f"{sketch!r}: the rows of the sketch have different sums, or sums other than its total weight")
    filled = np.flatnonzero(counts)
    return dict(zip(filled.tolist(), counts[filled].tolist()))


def _seed_hash(seed: int) -> int:
    return murmur3(seed.to_bytes(8, "little"), 0)[0] & 0xFFFF


def _minimal_standard(seed: int) -> Iterator[int]:
    """``std::minstd_rand0``, minus 1: numbers from 0 to 2**31 - 3."""
    state = seed % _MODULUS or 1
    while True:
        state = state * _FACTOR % _MODULUS
        yield state - 1


def _uniform(draws: Iterator[int], high: int) -> int:
    """``std::uniform_int_distribution(0, high)`` of GNU's C++ library."""
    numbers = _MODULUS - 1
    if high == numbers - 1:
        return next(draws)
    if high < numbers - 1:
        scale = (numbers - 1) // (high + 1)
        return next(draw for draw in draws if draw < scale * (high + 1)) // scale
    while True:
        number = numbers * _uniform(draws, high // numbers) + next(draws)
        if number <= high:
            return number
