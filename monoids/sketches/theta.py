"""Theta keeps the distinct values whose hash is below a threshold, to estimate and compare sets of any size.

combine(a, b) == the k smallest hashes of both below both thetas; theta is the next hash, if there is one

The compact theta sketch of Apache DataSketches, as bytes: serial version 3, family 3, little-endian.

byte 0      the number of 8-byte words before the hashes: 1 (none or one hash), 2, or 3 (theta is one of them)
bytes 1, 2  serial version 3, family 3
byte 5      flags: 2 read only, 4 empty, 8 compact, 16 ordered
bytes 6, 7  the hash of the seed
bytes 8-11  the number of hashes (with 2 and 3 words)
bytes 16-   theta (with 3 words)
then        the hashes, 63 bits each, none of them 0
Source: datasketches-cpp, compact_theta_sketch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged, is_constant
from monoids.monoid import Monoid, check_schema
from monoids.ordered import IntegerKeys
from monoids.sketches.datasketches import SEED, hash_values, murmur3
from monoids.sketches.inputs import hash_column, hash_value
from monoids.table import Table, list_array, list_entries
from monoids.text import Words
from monoids.values import INT64_MAX

THETA_MAX = (1 << 63) - 1
"""The theta of a sketch that holds the hash of every value it has seen."""

_VERSION, _FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16
_BIG_ENDIAN = 1
_HEAD = struct.Struct("<BBBHBH")
SEED_HASH = murmur3(struct.pack("<Q", SEED), 0)[0] & 0xFFFF


def to_bytes(theta: int, hashes: Sequence[int]) -> bytes:
    """The sketch of these hashes, ascending and all below ``theta``."""
    count = len(hashes)
    words = 3 if theta < THETA_MAX else 2 if count > 1 else 1
    empty = 0 if count or theta < THETA_MAX else _EMPTY
    parts = [_HEAD.pack(words, _VERSION, _FAMILY, 0, _READ_ONLY | _COMPACT | _ORDERED | empty, SEED_HASH)]
    if words > 1:
        parts.append(struct.pack("<II", count, 0))
    if words > 2:
        parts.append(struct.pack("<Q", theta))
    return b"".join([*parts, np.array(hashes, "<u8").tobytes()])


def from_bytes(data: bytes) -> tuple[int, Words]:
    """The theta of a sketch, and its hashes, ascending. ValueError for bytes that are not a sketch."""
    if len(data) < 8:
        raise ValueError(f"{len(data)} bytes are not a theta sketch of DataSketches, which has at least 8")
    words, version, family, _, flags, seed_hash = _HEAD.unpack_from(data)
    if version != _VERSION or family != _FAMILY or not flags & _COMPACT or flags & _BIG_ENDIAN:
        raise ValueError(
            f"a theta sketch of serial version {version}, family {family} is not supported: write it with"
            " 'sketch.compact().serialize()', which makes version 3, family 3"
        )
    if flags & _EMPTY:
        return THETA_MAX, np.zeros(0, np.uint64)
    if seed_hash != SEED_HASH:
        raise ValueError(f"a theta sketch with another seed (hash {seed_hash}, not {SEED_HASH}): use the seed {SEED}")
    if words not in (1, 2, 3) or len(data) < 8 * words:
        raise ValueError(f"a theta sketch of {len(data)} bytes with a head of {words} words is truncated")
    count = 1 if words == 1 else struct.unpack_from("<I", data, 8)[0]
    if len(data) != 8 * (words + count):
        raise ValueError(f"a theta sketch of {count} hashes has {8 * (words + count)} bytes, not {len(data)}")
    theta = struct.unpack_from("<Q", data, 16)[0] if words == 3 else THETA_MAX
    hashes = np.frombuffer(data, "<u8", count, 8 * words).astype(np.uint64)
    if not flags & _ORDERED:
        hashes.sort()
    if not 1 <= theta <= THETA_MAX or (count and not 0 < hashes[0] <= hashes[-1] < theta):
        raise ValueError(f"a theta sketch with a hash of 0, or one not below its theta {theta}, is damaged")
    if (hashes[1:] <= hashes[:-1]).any():
        raise ValueError("a theta sketch whose hashes do not ascend is damaged")
    return theta, hashes


_HASHES = IntegerKeys(np.dtype(np.uint64))
_LIST = pa.list_(pa.field("item", pa.uint64(), nullable=False))


@dataclass(frozen=True)
class ThetaSample:
    """All ``hashes`` of a set of values below ``theta``, ascending. A ``theta`` of 2**63 - 1 keeps all values."""

    theta: int
    hashes: tuple[int, ...]


class Theta(Monoid[ThetaSample]):
    """The number of distinct non-None values, with set operations; also known as KMV, the k minimum values.

    ``k``: the number of hashes kept, from 2 to 2**26. Up to k distinct values the count is exact; beyond, its standard
    error is 1 / sqrt(k - 1), 1.6 % for 4096.

        combine(a, b) == union(a, b)      commutative, idempotent, exact

    ``intersection`` and ``difference`` return elements too, so operations nest; ``estimate`` reads any of them. They
    keep only hashes below the theta of both sides. With n values in the union of all operands and s in the result, the
    standard error is about sqrt(n / s / k) of s: estimates of small parts of large sets are poor.

    Values and their hashes are those of DataSketches: int, float and str, seed 9001 (and bytes, as there from C++), so
    ``from_datasketches`` and ``to_datasketches`` convert both ways. An empty string, which DataSketches ignores, is a
    value. For bool, date, datetime and Decimal the key hash is hashed. ``1``, ``1.0`` and ``True`` are three values;
    all NaN are one, -0.0 is 0.0; a str and its UTF-8 bytes are one. Integers outside int64 raise OverflowError.

    Source: Dasgupta, Lang, Rhodes, Thaler: A framework for estimating stream expression cardinalities, 2016; Beyer and
    others: On synopses for distinct-value estimation under multiset operations, 2007.

    >>> visitors = Theta()
    >>> monday = visitors.fold([visitors.lift(name) for name in ("ann", "bob", "eve")])
    >>> tuesday = visitors.fold([visitors.lift(name) for name in ("bob", "eve", "joe")])
    >>> visitors.present(visitors.union(monday, tuesday))
    4
    >>> visitors.present(visitors.intersection(monday, tuesday)), visitors.present(visitors.difference(monday, tuesday))
    (2, 1)
    """

    commutative = True
    idempotent = True
    counts_distinct = True
    name = "Theta"
    identity = ThetaSample(THETA_MAX, ())
    output_type = pa.int64()
    schema = pa.schema([pa.field("theta", pa.uint64(), nullable=False), pa.field("hashes", _LIST, nullable=False)])

    def __init__(self, k: int = 4096) -> None:
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"Theta(k) takes an integer, such as 4096, not {k!r}")
        if not 2 <= k <= 1 << 26:
            raise ValueError(
                f"Theta({k}): write a k from 2 to {1 << 26}; 4096 has an error of 1.6 %, four times k halves it"
            )
        self.k = k
        self._smallest = _Smallest(k + 1, repr(self))

    def parameters(self) -> dict[str, Any]:
        return {"k": self.k}

    def __repr__(self) -> str:
        return f"Theta({self.k})"

    # One element.

    def combine(self, a: ThetaSample, b: ThetaSample) -> ThetaSample:
        theta = min(a.theta, b.theta)
        return self._sample(theta, {hash for hash in (*a.hashes, *b.hashes) if hash < theta})

    def fold(self, elements: Sequence[ThetaSample]) -> ThetaSample:
        theta = min((element.theta for element in elements), default=THETA_MAX)
        return self._sample(theta, {hash for element in elements for hash in element.hashes if hash < theta})

    def lift(self, value: Any) -> ThetaSample:
        hash = hash_value(value, hash_values, repr(self))
        return ThetaSample(THETA_MAX, (hash,)) if hash and hash < THETA_MAX else self.identity

    def present(self, element: ThetaSample) -> int:
        """The estimate, rounded; 0 for the identity."""
        estimate = self.estimate(element)
        return round(estimate) if estimate < 2.0**63 else INT64_MAX

    def estimate(self, element: ThetaSample) -> float:
        """The estimated number of distinct values: the number kept, divided by their share, ``theta`` / 2**63."""
        return len(element.hashes) / (element.theta / THETA_MAX)

    def union(self, a: ThetaSample, b: ThetaSample) -> ThetaSample:
        """The values in ``a`` or ``b``: ``combine``."""
        return self.combine(a, b)

    def intersection(self, a: ThetaSample, b: ThetaSample) -> ThetaSample:
        """The values in both ``a`` and ``b``; see the class for the error."""
        return self._sample(min(a.theta, b.theta), set(a.hashes) & set(b.hashes))

    def difference(self, a: ThetaSample, b: ThetaSample) -> ThetaSample:
        """The values in ``a`` that are not in ``b``; see the class for the error."""
        theta = min(a.theta, b.theta)
        return self._sample(theta, {hash for hash in set(a.hashes) - set(b.hashes) if hash < theta})

    def jaccard(self, a: ThetaSample, b: ThetaSample) -> float:
        """The share of the values in ``a`` or ``b`` that are in both; 1.0 if both are empty.

        The standard error for a share j is sqrt(j * (1 - j) / h), with h hashes of ``a`` or ``b`` below both thetas. h
        is at least k if both are lifted or unions and one has more than k values. It is less, and the error larger, if
        one is an intersection or a difference.
        """
        theta = min(a.theta, b.theta)
        either = {hash for hash in (*a.hashes, *b.hashes) if hash < theta}
        return len(either.intersection(a.hashes).intersection(b.hashes)) / len(either) if either else 1.0

    def to_datasketches(self, element: ThetaSample) -> bytes:
        """The bytes of DataSketches' compact theta sketch, which its ``deserialize`` reads."""
        return to_bytes(element.theta, element.hashes)

    def from_datasketches(self, data: bytes) -> ThetaSample:
        """The element in the bytes of a compact theta sketch of DataSketches; at most k of its hashes are kept.

        ValueError for other bytes, sketches with another seed, and the compressed serial version 4.
        """
        theta, hashes = from_bytes(data)
        return self._sample(theta, set(hashes[: self.k + 1].tolist()))

    def encode(self, element: ThetaSample) -> bytes:
        """As ``to_datasketches``."""
        return self.to_datasketches(element)

    def decode(self, data: bytes) -> ThetaSample:
        """The inverse of ``encode``. ValueError for other bytes, and for a sketch with more than k hashes."""
        try:
            theta, hashes = from_bytes(data)
        except ValueError as error:
            raise ValueError(f"{self!r}: {error}") from error
        if len(hashes) > self.k:
            raise ValueError(
                f"{self!r} cannot read a sketch of {len(hashes)} hashes: read it with the k it was made with"
            )
        element = ThetaSample(theta, tuple(hashes.tolist()))
        if self.encode(element) != data:
            raise ValueError(f"{self!r}: these bytes of DataSketches were not written by it: use from_datasketches")
        return element

    def _sample(self, theta: int, hashes: set[int]) -> ThetaSample:
        """The k smallest hashes below theta."""
        kept = sorted(hashes)
        return ThetaSample(theta if len(kept) <= self.k else kept[self.k], tuple(kept[: self.k]))

    # Columns: theta, and the hashes as a table.

    def lift_columns(self, values: Any) -> Columns:
        hashes, valid = hash_column(values, hash_values, repr(self))
        ends = (hashes == 0) | (hashes == THETA_MAX)
        if ends.any():
            valid = ~ends if valid is None else valid & ~ends
        return (_thetas_max(len(hashes)), *self._smallest.single(hashes, valid))

    def pack(self, elements: Sequence[ThetaSample]) -> Columns:
        lengths = np.array([len(element.hashes) for element in elements], np.int64)
        hashes = np.array([hash for element in elements for hash in element.hashes], np.uint64)
        return (np.array([element.theta for element in elements], np.uint64), Ragged.of(lengths, (hashes,)))

    def unpack(self, columns: Columns) -> list[ThetaSample]:
        thetas, table = columns
        hashes = table.flat()[0].tolist()
        ends = np.cumsum(table.lengths).tolist()
        return [ThetaSample(theta, tuple(hashes[i:j])) for theta, i, j in zip(thetas.tolist(), [0, *ends[:-1]], ends)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        thetas, table = columns
        if len(starts) == len(thetas):
            return columns
        lowest = _thetas_max(len(starts)) if _all_max(thetas) else np.minimum.reduceat(thetas, starts)
        return self._cut(lowest, self._smallest.reduce_sorted((table,), starts)[0])

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        thetas, table = columns
        reduced = self._smallest.reduce_cells((table,), cells, counts, held)
        if reduced is None:
            return None
        if _all_max(thetas):
            return self._cut(_thetas_max(len(held)), reduced[0])
        lowest = np.full(len(counts), THETA_MAX, np.uint64)
        np.minimum.at(lowest, cells, thetas)
        return self._cut(lowest[held], reduced[0])

    def present_columns(self, columns: Columns) -> pa.Array:
        thetas, table = columns
        estimates = table.lengths / (thetas.astype(np.float64) / float(THETA_MAX))
        rounded = np.full(len(thetas), INT64_MAX, np.int64)
        fits = estimates < 2.0**63
        rounded[fits] = np.rint(estimates[fits]).astype(np.int64)
        return pa.array(rounded)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        thetas, table = columns
        return [pa.array(np.ascontiguousarray(thetas)), list_array(table.lengths, pa.array(table.flat()[0]), _LIST)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError if hashes are out of order, not below theta, or more than k."""
        check_schema(self, arrays)
        if arrays[0].null_count:
            raise ValueError(f"{self!r}: a theta is null")
        thetas, (lengths, _) = arrays[0].to_numpy(), list_entries(arrays[1], self)
        if (lengths > self.k).any():
            raise ValueError(f"{self!r}: an element has more than {self.k} hashes: read it with the k it was made with")
        if ((thetas < 1) | (thetas > THETA_MAX)).any():
            raise ValueError(f"{self!r}: a theta is outside 1 to {THETA_MAX}")
        (table,) = self._smallest.from_arrow([arrays[1]])
        (hashes,) = table.flat()
        if (hashes >= table.spread(thetas)).any() or not hashes.all():
            raise ValueError(f"{self!r}: a hash is 0, or not below theta")
        return (thetas, table)

    def _cut(self, thetas: Column, table: Ragged) -> Columns:
        """Keep only the hashes below the theta of their row; from k + 1 of them, the largest becomes theta."""
        if not is_constant(thetas):
            (hashes,) = table.flat()
            below = hashes < table.spread(thetas)
            row = table.spread(np.arange(len(table)))
            lengths = np.bincount(row[below], minlength=len(table))
            table = Ragged(np.cumsum(table.lengths) - table.lengths, lengths, (hashes,))
        full = np.flatnonzero(table.lengths > self.k)
        if len(full):
            thetas = thetas.copy()
            thetas[full] = table.columns[0][table.starts[full] + self.k]
        return (thetas, table.head(self.k))


class _Smallest(Table[tuple[int, ...]]):
    """The smallest hashes of a set, up to ``entries_max``; named after the sketch they belong to."""

    identity = ()

    def __init__(self, entries_max: int, owner: str) -> None:
        super().__init__(_HASHES, entries_max=entries_max)
        self.owner = owner

    def __repr__(self) -> str:
        return self.owner


def _thetas_max(rows: int) -> Column:
    return np.broadcast_to(np.uint64(THETA_MAX), rows)


def _all_max(thetas: Column) -> bool:
    return is_constant(thetas) and int(thetas[0]) == THETA_MAX
