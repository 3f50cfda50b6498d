"""Sorting by parts gives what sorting at once gives."""

from __future__ import annotations

import numpy as np
import pytest

from monoids.groupby.sorting import CHUNK_ROWS, sorted_words, split_bits, split_words


@pytest.mark.parametrize("skew", ["even", "one segment", "one word", "rising"])
@pytest.mark.parametrize(
    ("rows", "segment_bits", "word_bits"),
    [(0, 3, 18), (1, 0, 18), (1_000, 5, 10), (300_000, 17, 18), (300_000, 3, 24), (150_000, 22, 20), (70_000, 0, 32)],
)
def test_parts_are_the_sorted_words(rows: int, segment_bits: int, word_bits: int, skew: str) -> None:
    """Without it registers would be lost or doubled at the borders of parts, or where all keys are one."""
    random = np.random.default_rng(rows + segment_bits)
    segments = random.integers(0, 1 << segment_bits, rows)
    words = random.integers(0, 1 << word_bits, rows).astype(np.uint32)
    if skew == "one segment":
        segments[: rows // 2] = segments.max(initial=0)
    if skew == "one word":
        words[:] = words[:1]
    if skew == "rising":
        segments.sort()
    chunks = [(segments[i : i + CHUNK_ROWS], words[i : i + CHUNK_ROWS]) for i in range(0, rows, CHUNK_ROWS)]
    found = []
    for first, bits, packed in split_words(chunks, rows, segment_bits, word_bits, split_bits(rows)):
        wide = sorted_words(packed, bits).astype(np.uint64)
        of_word = wide & np.uint64((1 << word_bits) - 1)
        found.append((((wide >> np.uint64(word_bits)) + np.uint64(first)) << np.uint64(word_bits)) | of_word)
    expected = np.sort((segments.astype(np.uint64) << np.uint64(word_bits)) | words)
    assert (np.concatenate([expected[:0], *found]) == expected).all() and sum(map(len, found)) == rows


def test_many_rows_are_split_and_come_in_narrow_words() -> None:
    """Without it the whole would quietly become one slow sort of wide words."""
    segments = np.arange(1 << 18)
    chunks = [(segments[i : i + CHUNK_ROWS], np.zeros(CHUNK_ROWS, np.uint32)) for i in range(0, 1 << 18, CHUNK_ROWS)]
    parts = list(split_words(chunks, 1 << 18, 18, 16, split_bits(1 << 18)))
    assert len(parts) == 8 and [first for first, _, _ in parts] == list(range(0, 1 << 18, 1 << 15))
    assert {(bits, packed.dtype) for _, bits, packed in parts} == {(31, np.dtype(np.uint32))}
