"""A Bloom filter is a set of bits that reports every added value, and a few others, as added."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged
from monoids.numbers.integers import BitOr
from monoids.ordered import IntegerKeys
from monoids.sketches.inputs import hash_column, key_hash
from monoids.table import Table
from monoids.text import Words

_WORD_BITS = 64
_BITS_MAX = 1 << 32
_CHUNK_ROWS = 1 << 13
_DECIMALS = Context(prec=50)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXING = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_ENTRY = np.dtype([("word", "<u4"), ("bits", "<u8")])


class BloomFilter(Table[int]):
    """Which non-None values were added: never a false no, and a false yes at most at the rate ``error``.

    ``capacity``: the number of distinct values. ``error``: the rate of false yes in a filter of that many values (0.01,
    or a text or Decimal), from 1e-9 to 0.5. With more values only the error grows. Each value sets about -log2(error)
    bits; the filter has a little more than 1.44 times that for each value of ``capacity``.

        combine(a, b) == a | b      commutative, idempotent, exact

    An element is an int, whose bits are the filter's bits; a file holds its non-zero words. Presented is the number of
    distinct values, estimated from the number of set bits (Swamidass, Baldi, 2007); 0 for the identity. ``lift``,
    ``combine`` and ``contains`` create a new int each time, so for one value they take time in proportion to the size
    of the filter: for many values use columns and ``contains_column``.

    Values are the types of keys: int, float, bool, str, bytes, date, datetime, Decimal. ``1``, ``1.0`` and ``True`` are
    three values; all NaN are one, -0.0 is 0.0. Integers outside int64 raise OverflowError.

    Source: Bloom: Space/time trade-offs in hash coding with allowable errors, 1970. The size allows for the variance of
    the number of set bits (Bose and others: On the false-positive rate of Bloom filters, 2008). SplitMix64 draws the
    bits of a value from its key hash. Double hashing (Kirsch, Mitzenmacher, 2006) would be as good only in large
    filters; in one of 50 values it exceeds an error of 0.001 by half.

    >>> seen = BloomFilter(1_000, 0.01)
    >>> both = seen.combine(seen.lift("ann"), seen.lift("bob"))
    >>> seen.contains(both, "ann"), seen.contains(both, "eve"), seen.present(both)
    (True, False, 2)
    """

    identity = 0
    idempotent = True
    counts_distinct = True
    name = "BloomFilter"
    output_type = pa.int64()

    def __init__(self, capacity: int, error: float | str | Decimal = 0.01) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(
                f"BloomFilter(capacity, error) takes a number of values, such as 1_000_000, not {capacity!r}"
            )
        if capacity < 1:
            raise ValueError(f"BloomFilter({capacity}): write a capacity of 1 or more, the number of distinct values")
        self.capacity = capacity
        self.error = _share(error)
        self.bits, self.hashes = _shape(capacity, self.error)
        super().__init__(IntegerKeys(np.dtype(np.uint32)), BitOr())

    def parameters(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "error": str(self.error), "bits": self.bits, "hashes": self.hashes}

    def __repr__(self) -> str:
        return f"BloomFilter({self.capacity}, {self.error})"

    # One element.

    def combine(self, a: int, b: int) -> int:
        return a | b

    def lift(self, value: Any) -> int:
        bits = 0
        for position in self._bits_of(value):
            bits |= 1 << position
        return bits

    def contains(self, element: int, value: Any) -> bool:
        """Whether ``value`` was added. False is certain; True is wrong at most at the rate ``error``."""
        positions = self._bits_of(value)
        return bool(positions) and all(element >> position & 1 for position in positions)

    def contains_column(self, element: int, values: Any) -> pa.BooleanArray:
        """``contains`` for every value of a column."""
        hashes, valid = hash_column(values, key_hash, repr(self))
        bits = np.frombuffer(element.to_bytes(self.bits // 8, "little"), np.uint8)
        contained = np.empty(len(hashes), bool)
        for start in range(0, len(hashes), _CHUNK_ROWS):
            positions = self._positions(hashes[start : start + _CHUNK_ROWS])
            set_bits = bits[positions >> np.uint64(3)] >> (positions & np.uint64(7)).astype(np.uint8)
            contained[start : start + _CHUNK_ROWS] = (set_bits & 1).all(axis=1)
        return pa.array(contained if valid is None else contained & valid)

    def present(self, element: int) -> int:
        """The estimated number of distinct values; 0 for the identity."""
        return int(self._estimates(np.array([element.bit_count()]))[0])

    def encode(self, element: int) -> bytes:
        """The non-zero 64-bit words in order: four bytes of word number, eight bytes of bits (little-endian)."""
        numbers, bits = self._entries(element)
        data = np.empty(len(numbers), _ENTRY)
        data["word"], data["bits"] = numbers, bits
        return struct.pack("<QB", self.bits, self.hashes) + data.tobytes()

    def decode(self, data: bytes) -> int:
        """ValueError for a filter of another shape, and for bytes that are not a filter."""
        head = struct.calcsize("<QB")
        if len(data) < head or (len(data) - head) % _ENTRY.itemsize:
            raise ValueError(f"{self!r}: these {len(data)} bytes are not a BloomFilter")
        shape = struct.unpack_from("<QB", data)
        if shape != (self.bits, self.hashes):
            raise ValueError(
                f"{self!r} has {self.bits} bits and {self.hashes} hashes, but this filter has {shape[0]} and"
                f" {shape[1]}: read it with its own capacity and error"
            )
        words = np.frombuffer(data, _ENTRY, offset=head)
        numbers, bits = words["word"].astype(np.uint32), words["bits"].astype(np.uint64).view(np.int64)
        table = Ragged.of(np.array([len(words)]), (numbers, bits))
        self._check(table)
        self._check_order(table)
        return self.of_entries(numbers, bits)

    def entries(self, element: int) -> tuple[list[int], list[int]]:
        numbers, bits = self._entries(element)
        return numbers.tolist(), bits.view(np.int64).tolist()

    def of_entries(self, keys: Any, inner: Any) -> int:
        if not len(keys):
            return 0
        words = np.zeros(int(keys[-1]) + 1, np.int64)
        words[np.asarray(keys)] = inner
        return int.from_bytes(words.astype("<i8").tobytes(), "little")

    # Columns.

    def lift_columns(self, values: Any) -> Columns:
        hashes, valid = hash_column(values, key_hash, repr(self))
        if valid is not None:
            lifted = self._lifted(hashes[valid])
            starts, lengths = np.zeros((2, len(hashes)), np.int64)
            starts[valid], lengths[valid] = lifted.starts, lifted.lengths
            return (Ragged(starts, lengths, lifted.columns),)
        return (self._lifted(hashes),)

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        bits = np.bitwise_count(table.flat()[1].view(np.uint64))
        rows = table.spread(np.arange(len(table)))
        return pa.array(self._estimates(np.bincount(rows, weights=bits, minlength=len(table))))

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError if words are out of order, 0, or outside a filter of this size."""
        columns = super().from_arrow(arrays)
        self._check(columns[0])
        return columns

    # Internals.

    def _bits_of(self, value: Any) -> list[int]:
        """The bits of one value, ascending; empty for None."""
        hashes, valid = hash_column([value], key_hash, repr(self))
        return sorted(set(self._positions(hashes)[0].tolist())) if valid is None else []

    def _positions(self, hashes: Words) -> Words:
        """The bits of each value, one row per value; bits may repeat."""
        turns = hashes[:, None] + np.arange(1, self.hashes + 1, dtype=np.uint64) * _STEP
        for bits, factor in _MIXING:
            turns ^= turns >> bits
            turns *= factor
        turns >>= np.uint64(32)
        turns *= np.uint64(self.bits)
        turns >>= np.uint64(32)
        return turns

    def _lifted(self, hashes: Words) -> Ragged:
        """One row per value: its bits, grouped by word."""
        lengths, numbers, bits = [], [], []
        for start in range(0, len(hashes), _CHUNK_ROWS):
            positions = self._positions(hashes[start : start + _CHUNK_ROWS])
            positions.sort(axis=1)
            words = positions >> np.uint64(6)
            first = np.ones(words.shape, bool)
            np.not_equal(words[:, 1:], words[:, :-1], out=first[:, 1:])
            begins = np.flatnonzero(first)
            set_bits = (np.uint64(1) << (positions & np.uint64(63))).ravel()
            lengths.append(first.sum(axis=1))
            numbers.append(words.ravel()[begins].astype(np.uint32))
            bits.append(np.bitwise_or.reduceat(set_bits, begins).view(np.int64))
        if not lengths:
            return Ragged.of(np.zeros(0, np.int64), (np.zeros(0, np.uint32), np.zeros(0, np.int64)))
        return Ragged.of(np.concatenate(lengths), (np.concatenate(numbers), np.concatenate(bits)))

    def _entries(self, element: int) -> tuple[Column, Words]:
        size = -(-element.bit_length() // _WORD_BITS)
        words = np.frombuffer(element.to_bytes(8 * size, "little"), "<u8").astype(np.uint64)
        numbers = np.flatnonzero(words)
        return numbers, words[numbers]

    def _check(self, table: Ragged) -> None:
        numbers, bits = table.flat()
        if len(numbers) and int(numbers.max()) >= self.bits // _WORD_BITS:
            raise ValueError(f"{self!r}: word {numbers.max()} of {self.bits // _WORD_BITS}: a filter of another shape")
        if not bits.all():
            raise ValueError(f"{self!r}: a word without a bit")

    def _estimates(self, set_bits: Column) -> Column:
        """The number of values that set this many bits; a full filter counts as one with a single bit left."""
        share = np.minimum(set_bits, self.bits - 1) / self.bits
        return np.rint(np.log1p(-share) * (-self.bits / self.hashes)).astype(np.int64)


def _share(error: Any) -> Decimal:
    """An error rate as the user wrote it, in its shortest form."""
    if isinstance(error, bool) or not isinstance(error, (float, str, Decimal)):
        raise TypeError(f"BloomFilter(capacity, error) takes an error rate, such as 0.01, not {error!r}")
    try:
        share = Decimal(str(error)).normalize(_DECIMALS)
    except InvalidOperation:
        raise ValueError(f"BloomFilter: {error!r} is not an error rate: write one such as 0.01") from None
    if not share.is_finite() or not Decimal("1e-9") <= share <= Decimal("0.5"):
        raise ValueError(
            f"BloomFilter: an error rate of {error} is not possible: write one from 1e-9 to 0.5, such as 0.01"
        )
    return share


def _shape(capacity: int, error: Decimal) -> tuple[int, int]:
    """The number of bits, and of bits for each value, that give a filter of ``capacity`` values this error everywhere.

    With h hashes the error is about (1 - exp(-h * capacity / bits)) ** h, which needs the fewest bits at h =
    -log2(error).
    """
    with localcontext(_DECIMALS):
        hashes = max(1, math.ceil(-error.ln() / Decimal(2).ln()))
        bits = -hashes * capacity / (1 - (error.ln() / hashes).exp()).ln()
        words = max(1, math.floor(bits / _WORD_BITS))
        while words * _WORD_BITS <= _BITS_MAX and _rate(words * _WORD_BITS, hashes, capacity) > error:
            words += 1
    if words * _WORD_BITS > _BITS_MAX:
        raise ValueError(
            f"BloomFilter({capacity}, {error}) needs more than {_BITS_MAX} bits (512 MB): write a smaller capacity or a"
            " larger error"
        )
    return words * _WORD_BITS, hashes


def _rate(bits: int, hashes: int, capacity: int) -> Decimal:
    """The expected rate of false yes: fill ** hashes, to second order in the variance of the fill."""
    miss, miss_both = 1 - 1 / Decimal(bits), 1 - 2 / Decimal(bits)
    empty, both_empty = miss ** (hashes * capacity), miss_both ** (hashes * capacity)
    variance = (empty - both_empty) / bits + both_empty - empty * empty
    fill = 1 - empty
    return fill**hashes * (1 + hashes * (hashes - 1) / Decimal(2) * variance / (fill * fill))
