"""exact_until is a sketch of distinct values that stays exact while there are few of them.

With S the set of the values' hashes, an element is a function of S alone:

    element(S) == S                                     up to n hashes
    element(S) == the sketch of all of S                beyond n: promoted
    combine(element(S), element(T)) == element(S + T)   the union: associative, commutative, idempotent

S + T is at least as large as S, so a promoted element stays promoted. The sketch is commutative and idempotent, so the
sketch of a union is the combination of the sketches. So it leaves no trace when a part was promoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Columns, Ragged, concat, repeat, take
from monoids.groupby.cells import segment_starts
from monoids.monoid import Monoid, check, check_schema
from monoids.numbers.integers import decoded_as
from monoids.ordered import IntegerKeys
from monoids.sketches.inputs import hash_column, hash_value, integer, key_hash
from monoids.table import Table

Hashes = frozenset[int]


class Promoted(NamedTuple):
    """An element of more than n values: the sketch of their hashes."""

    sketch: Any


HashesOrSketch = Hashes | Promoted


def exact_until(n: int, sketch: Monoid[Any]) -> ExactUntil:
    """The number of distinct values: exact up to ``n``, estimated by ``sketch`` beyond.

    Values are the types of keys, as in HyperLogLog; None contributes nothing. The exact part holds their 64-bit key
    hashes. So it is exact unless two values share a hash, with probability below n**2 / 2**65 (never for integers, or
    other eight-byte values, of one type). The sketch is lifted from the hashes, as integers: its elements differ from
    those of a plain sketch of the same values.

    ``sketch`` must declare that it estimates the number of distinct values, with ``counts_distinct = True`` in its
    class, as HyperLogLog, Theta and BloomFilter do; it must be commutative, idempotent, exact and presented as a
    number. TypeError for all others: CountMin and Quantiles count occurrences, which a set of values forgets, and Max
    and Min would see hashes instead of values. Memory: at most 8 * n bytes until promoted, then the sketch's.

    >>> from monoids.sketches.hyperloglog import HyperLogLog
    >>> visitors = exact_until(100, HyperLogLog())
    >>> visitors.present(visitors.fold([visitors.lift(name) for name in ("ann", "bob", "ann")]))
    2
    """
    return ExactUntil(n, sketch)


class ExactUntil(Monoid[HashesOrSketch]):
    """The result of ``exact_until``. Presented as the sketch is; without input as 0."""

    commutative = True
    idempotent = True
    counts_distinct = True
    name = "exact_until"
    identity: HashesOrSketch = frozenset()

    def __init__(self, n: int, sketch: Monoid[Any]) -> None:
        check(sketch)
        self.n = integer("exact_until", "n", n, 0, 2**24)
        if not getattr(sketch, "counts_distinct", False):
            raise TypeError(
                f"exact_until(n, {sketch!r}): it does not declare that it counts distinct values: write exact_until(n,"
                " HyperLogLog()), or counts_distinct = True in the class of your own sketch if it does"
            )
        if not (sketch.commutative and sketch.idempotent and sketch.exact):
            raise TypeError(
                f"exact_until(n, {sketch!r}): the sketch counts inputs or is inexact, but the exact part keeps each"
                " value once: write exact_until(n, HyperLogLog()) or another sketch of distinct values"
            )
        if sketch.output_type not in (pa.int64(), pa.float64()):
            raise TypeError(
                f"exact_until(n, {sketch!r}): the sketch is presented as {sketch.output_type or 'JSON'}, not as a"
                " number: write exact_until(n, HyperLogLog())"
            )
        self.sketch = sketch
        self.output_type = sketch.output_type
        self._exact = _HashTable(IntegerKeys(np.dtype(np.uint64)))
        self._nothing = sketch.pack([sketch.identity])
        self.schema = pa.schema(
            [
                self._exact.schema.field(0).with_name("hashes"),
                pa.field("promoted", pa.bool_(), nullable=False),
                *(field.with_name(f"sketch.{field.name}") for field in sketch.schema),
            ]
        )

    def parameters(self) -> dict[str, Any]:
        return {"n": self.n, "sketch": self.sketch.fingerprint()}

    def __repr__(self) -> str:
        return f"exact_until({self.n}, {self.sketch!r})"

    def combine(self, a: HashesOrSketch, b: HashesOrSketch) -> HashesOrSketch:
        if isinstance(a, Promoted) or isinstance(b, Promoted):
            return Promoted(self.sketch.combine(self._promote(a).sketch, self._promote(b).sketch))
        return self._of(a | b)

    def lift(self, value: Any) -> HashesOrSketch:
        """TypeError for a value that cannot be a key."""
        word = hash_value(value, key_hash, repr(self))
        return self.identity if word is None else self._of(frozenset((word,)))

    def present(self, element: HashesOrSketch) -> Any:
        if isinstance(element, Promoted):
            return self.sketch.present(element.sketch)
        return float(len(element)) if self.output_type == pa.float64() else len(element)

    def is_exact(self, element: HashesOrSketch) -> bool:
        """Whether the element is not promoted, so that its result is exact."""
        return not isinstance(element, Promoted)

    def _of(self, hashes: Hashes) -> HashesOrSketch:
        return hashes if len(hashes) <= self.n else self._promote(hashes)

    def _promote(self, element: HashesOrSketch) -> Promoted:
        """The sketch of an element's hashes, each as a 64-bit integer."""
        if isinstance(element, Promoted):
            return element
        lifted = [self.sketch.lift(hash - (hash >> 63 << 64)) for hash in sorted(element)]
        return Promoted(self.sketch.fold([self.sketch.identity, *lifted]))

    def encode(self, element: HashesOrSketch) -> bytes:
        if isinstance(element, Promoted):
            return encoding.encode((self.n, True, self.sketch.encode(element.sketch)))
        return encoding.encode((self.n, False, np.array(sorted(element), "<u8").tobytes()))

    def decode(self, data: bytes) -> HashesOrSketch:
        parts = decoded_as(self, data, tuple)
        if [part.__class__ for part in parts] != [int, bool, bytes]:
            raise ValueError(f"{self!r}: the encoded element is neither hashes nor a sketch")
        n, promoted, content = parts
        if n != self.n:
            raise ValueError(
                f"{self!r} cannot read an element that is exact until {n}: read it with exact_until({n}, ...)"
            )
        if promoted:
            return Promoted(self.sketch.decode(content))
        if len(content) % 8 or len(content) > 8 * n:
            raise ValueError(f"{self!r}: {len(content)} bytes of hashes: 8 per hash, at most {n} hashes")
        hashes = np.frombuffer(content, "<u8")
        if (hashes[1:] <= hashes[:-1]).any():
            raise ValueError(f"{self!r}: the hashes do not ascend")
        return frozenset(hashes.tolist())

    # Columns: the hashes of each element, whether it is promoted, and the sketch's columns (its identity if not).

    def pack(self, elements: Sequence[HashesOrSketch]) -> Columns:
        exact = [frozenset() if isinstance(element, Promoted) else element for element in elements]
        sketches = [element.sketch if isinstance(element, Promoted) else self.sketch.identity for element in elements]
        promoted = np.array([isinstance(element, Promoted) for element in elements], bool)
        return (*self._exact.pack(exact), promoted, *self.sketch.pack(sketches))

    def unpack(self, columns: Columns) -> list[HashesOrSketch]:
        exact, promoted, *sketch = columns
        rows = zip(promoted.tolist(), self._exact.unpack((exact,)), self.sketch.unpack(tuple(sketch)))
        return [Promoted(sketched) if beyond else hashes for beyond, hashes, sketched in rows]

    def lift_columns(self, values: Any) -> Columns:
        hashes, valid = hash_column(values, key_hash, repr(self))
        rows = len(hashes)
        lifted = (*self._exact.single(hashes, valid), np.zeros(rows, bool), *repeat(self._nothing, rows))
        return lifted if self.n else self.reduce_sorted(lifted, np.arange(rows))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        hashes, promoted, *sketches = columns
        if not len(starts):
            return columns
        segments = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(promoted)))
        (merged,) = self._exact.reduce_sorted((hashes,), starts)
        beyond = np.logical_or.reduceat(promoted, starts) | (merged.lengths > self.n)
        if not beyond.any():
            return (merged, beyond, *repeat(self._nothing, len(starts)))
        of_hashes = merged[np.flatnonzero(beyond)]
        (words,) = of_hashes.flat()
        sketched = np.flatnonzero(promoted)
        parts = concat([take(tuple(sketches), sketched), self.sketch.lift_columns(words.view(np.int64))])
        of_parts = np.concatenate((segments[sketched], of_hashes.spread(np.flatnonzero(beyond))))
        order = np.argsort(of_parts, kind="stable")
        ordered = of_parts[order]
        reduced = self.sketch.reduce_sorted(take(parts, order), segment_starts(ordered[1:] != ordered[:-1]))
        places = np.where(beyond, np.cumsum(beyond), 0)
        exact = Ragged(merged.starts, np.where(beyond, 0, merged.lengths), merged.columns)
        exact = Ragged.of(exact.lengths, exact.flat())
        return (exact, beyond, *take(concat([self._nothing, reduced]), places))

    def present_columns(self, columns: Columns) -> pa.Array:
        exact, promoted, *sketches = columns
        counts = np.array(exact.lengths, np.float64 if self.output_type == pa.float64() else np.int64)
        rows = np.flatnonzero(promoted)
        missing = np.zeros(len(counts), bool)
        if len(rows):
            estimates = self.sketch.present_columns(take(tuple(sketches), rows))
            missing[rows] = np.asarray(estimates.is_null())
            counts[rows] = (estimates.fill_null(0) if estimates.null_count else estimates).to_numpy()
        return pa.array(counts, mask=missing)

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        exact, promoted, *sketches = columns
        return [*self._exact.to_arrow((exact,)), pa.array(promoted), *self.sketch.to_arrow(tuple(sketches))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for an element with more than n hashes, or with both hashes and a sketch."""
        check_schema(self, arrays)
        (exact,) = self._exact.from_arrow(arrays[:1])
        if arrays[1].null_count:
            raise ValueError(f"{self!r}: the flag of a promoted element is null")
        promoted = arrays[1].to_numpy(zero_copy_only=False)
        sketches = self.sketch.from_arrow(arrays[2:])
        if (exact.lengths > np.where(promoted, 0, self.n)).any():
            raise ValueError(f"{self!r}: an element has more than {self.n} hashes, or both hashes and a sketch")
        return (exact, promoted, *sketches)


class _HashTable(Table[Hashes]):
    """The union of sets of hashes."""

    identity: Hashes = frozenset()
    idempotent = True
    name = "Hashes"

    def combine(self, a: Hashes, b: Hashes) -> Hashes:
        return a | b

    def entries(self, element: Hashes) -> tuple[list[int], tuple[()]]:
        return list(element), ()

    def of_entries(self, keys: Sequence[int], inner: Sequence[Any]) -> Hashes:
        return frozenset(keys)
