"""Words of many segments are sorted by splitting on their upper bits, until parts are small enough to sort directly.

Sorting five million words at once takes twenty rounds of comparisons. Counting them into a hundred parts takes one
pass, and each of those into a hundred again another; NumPy sorts parts of a few hundred without a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.cells import Integers

CHUNK_ROWS = 1 << 18
"""The number of words to pass at a time: they stay in the cache while they are split."""

UnsignedWords = np.ndarray[Any, Any]
"""Unsigned integers of 32 or 64 bits."""

_PART_ROWS = 1 << 16
_LEAF_ROWS = 440
_SPLIT_BITS_MAX = 8


def split_bits(rows: int) -> int:
    """The number of parts, as a power of two, that makes parts of this many rows fit the cache."""
    return min((rows // _PART_ROWS).bit_length(), _SPLIT_BITS_MAX)


def split_words(
    chunks: Iterable[tuple[Integers, UnsignedWords]], rows: int, segment_bits: int, word_bits: int, splits: int
) -> Iterator[tuple[int, int, UnsignedWords]]:
    """Split words into parts ``(first, bits, packed)`` of adjacent segments, ascending; unordered within a part.

    ``chunks`` yields the segment and the word of each of ``rows`` rows, below ``2**segment_bits`` and ``2**word_bits``.
    There are at most ``2**splits`` parts. A row of a part is ``(segment - first) << word_bits | word``, below
    ``2**bits``, as uint32 where that fits; the caller may overwrite it.
    """
    splits = min(splits, segment_bits)
    shift = segment_bits - splits
    dtype = np.dtype(np.uint32 if shift + word_bits <= 32 else np.uint64)
    parts: list[list[UnsignedWords]] = [[] for _ in range(1 << splits)]
    # One array for all chunks: allocating the pages of many arrays takes a third of the time.
    split, end = np.empty(rows if splits else 0, dtype), 0
    for segments, words in chunks:
        packed = segments.astype(dtype)
        codes = (packed >> dtype.type(shift)).astype(np.uint16) if splits else None
        packed <<= dtype.type(word_bits)
        packed |= words
        if codes is None:
            parts[0].append(packed)
        else:
            packed &= dtype.type((1 << shift + word_bits) - 1)
            begin, end = end, end + len(packed)
            _split(codes, packed, parts, split[begin:end])
    for number, slices in enumerate(parts):
        if slices:
            yield number << shift, shift + word_bits, np.concatenate(slices)
            slices.clear()


def sorted_words(words: UnsignedWords, bits: int) -> UnsignedWords:
    """The words, below ``2**bits``, in order. May overwrite its argument."""
    splits = min((len(words) // _LEAF_ROWS).bit_length(), _SPLIT_BITS_MAX, bits)
    if splits <= 1:
        words.sort()
        return words
    shift = bits - splits
    codes = (words >> words.dtype.type(shift)).astype(np.uint16)
    if splits < 16:
        codes &= np.uint16((1 << splits) - 1)
    order, ends = _order(codes, 1 << splits)
    words = words.take(order, mode="clip")
    start = 0
    for end in ends:
        if end - start > 4 * _LEAF_ROWS:
            words[start:end] = sorted_words(words[start:end], shift)
        else:
            words[start:end].sort()
        start = end
    return words


def _split(codes: UnsignedWords, packed: UnsignedWords, parts: list[list[UnsignedWords]], split: UnsignedWords) -> None:
    """Append to each of ``parts`` the rows whose code is its number, written to ``split``."""
    order, ends = _order(codes, len(parts))
    packed = packed.take(order, out=split, mode="clip")  # rows are in range; skipping the check is a quarter faster
    start = 0
    for part, end in zip(parts, ends):
        if end > start:
            part.append(packed[start:end])
            start = end


def _order(codes: UnsignedWords, count: int) -> tuple[Integers, list[int]]:
    """The permutation that sorts codes below ``count``, and the end of each code in it."""
    order = np.asarray(pc.array_sort_indices(pa.array(codes))).view(np.int64)
    ends = np.searchsorted(codes, np.arange(count, dtype=codes.dtype), side="right", sorter=order)
    return order, ends.tolist()
