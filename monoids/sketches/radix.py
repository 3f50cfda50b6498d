"""UnsignedWords of many segments are sorted by splitting them on their upper bits, until a part fits a sorting network.

Sorting five million words at once takes twenty steps of comparison each; to count them into a hundred parts takes one,
and each of those into a hundred again another; parts of a few hundred NumPy then sorts without a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.cells import Integers

CHUNK_ROWS = 1 << 18
"""How many words to hand over at a time: what stays in the cache while it is split."""

UnsignedWords = np.ndarray[Any, Any]
"""Unsigned integers of 32 or 64 bits."""

_PART_ROWS = 1 << 16
_LEAF_ROWS = 440
_SPLIT_BITS_MAX = 8


def split_bits(rows: int) -> int:
    """Into how many parts to split so many rows, as a power of two, for parts that fit the cache."""
    return min((rows // _PART_ROWS).bit_length(), _SPLIT_BITS_MAX)


def split_words(
    chunks: Iterable[tuple[Integers, UnsignedWords]], rows: int, segment_bits: int, word_bits: int, splits: int
) -> Iterator[tuple[int, int, UnsignedWords]]:
    """UnsignedWords in parts ``(first, bits, packed)`` of neighbouring segments, ascending; in a part in any order.

    ``chunks`` give the segment and the word of each of ``rows`` rows, below ``2**segment_bits`` and ``2**word_bits``;
    there are at most ``2**splits`` parts. In a part a row is ``(segment - first) << word_bits | word``, below
    ``2**bits``, of uint32 where that fits, and the caller's to change.
    """
    splits = min(splits, segment_bits)
    shift = segment_bits - splits
    dtype = np.dtype(np.uint32 if shift + word_bits <= 32 else np.uint64)
    parts: list[list[UnsignedWords]] = [[] for _ in range(1 << splits)]
    # One array for all chunks: the pages of many are a third of the time.
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
    """UnsignedWords below ``2**bits``, which may be overwritten, in order."""
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
    """Append to each of ``parts`` the rows whose code is its number; they are written to ``split``."""
    order, ends = _order(codes, len(parts))
    packed = packed.take(order, out=split, mode="clip")  # rows are in range: not to check them is a quarter faster
    start = 0
    for part, end in zip(parts, ends):
        if end > start:
            part.append(packed[start:end])
            start = end


def _order(codes: UnsignedWords, count: int) -> tuple[Integers, list[int]]:
    """The permutation that sorts codes below ``count``, and where each code ends in it."""
    order = np.asarray(pc.array_sort_indices(pa.array(codes))).view(np.int64)
    ends = np.searchsorted(codes, np.arange(count, dtype=codes.dtype), side="right", sorter=order)
    return order, ends.tolist()
