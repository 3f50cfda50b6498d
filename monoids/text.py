"""Text and bytes, read eight bytes at a time as little-endian words. Bytes past the end count as zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Words = np.ndarray[Any, np.dtype[np.uint64]]

WORD_BYTES = 8

_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(WORD_BYTES + 1)], np.uint64)


class TextWords:
    """The words of a string or binary column without nulls.

    >>> text = TextWords(pa.array(["a", "bc"]))
    >>> text.lengths(0, 2).tolist(), text.words(0, 2, 0).tolist()
    ([1, 2], [97, 25442])
    """

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        if data is None or data.size < WORD_BYTES:
            data = pa.py_buffer((data.to_pybytes() if data else b"").ljust(WORD_BYTES, b"\0"))
        self.data = data
        self.offsets = np.zeros(1, np.int32)
        if len(column):
            self.offsets = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        self._last = data.size - WORD_BYTES
        self._words: Words = np.ndarray((self._last + 1,), np.uint64, data, strides=(1,))

    def lengths(self, start: int, stop: int) -> Any:
        """The number of bytes of each row from ``start`` to ``stop``: int32."""
        return self.offsets[start + 1 : stop + 1] - self.offsets[start:stop]

    def words(self, start: int, stop: int, at: int) -> Words:
        """The eight bytes at offset ``at`` of each row from ``start`` to ``stop``."""
        begins = self.offsets[start:stop]
        length = int(begins[-1] - begins[0]) // max(stop - start - 1, 1)
        left = self.lengths(start, stop) - np.int32(at)
        if length and int(begins[-1]) + at <= self._last and (left == length - at).all():
            place = int(begins[0]) + at
            words: Words = np.ndarray((stop - start,), np.uint64, self.data, place, (length,)).copy()
            if length - at < WORD_BYTES:
                words &= _MASKS[max(length - at, 0)]
            return words
        return self.words_at(begins + at, left)

    def words_at(self, begins: Any, left: Any) -> Words:
        """The eight bytes at each position in the data, where ``left`` bytes (zero or more) remain of the text."""
        words: Words
        if int(begins.max(initial=0)) <= self._last:
            words = self._words[begins]
        else:
            # A word that begins past the last whole one: read that one and shift it.
            places = np.minimum(begins, self._last)
            missing = np.minimum(begins - places, WORD_BYTES - 1).astype(np.uint64)
            words = self._words[places] >> (missing * np.uint64(8))
        if int(left.min(initial=WORD_BYTES)) < WORD_BYTES:
            words &= _MASKS[np.maximum(np.minimum(left, WORD_BYTES), 0)]
        return words
