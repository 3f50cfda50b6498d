"""The bytes of Apache DataSketches' Count-Min sketch of doubles: a header, the total weight, every cell.

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

from monoids.sketches.murmur import murmur3

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
