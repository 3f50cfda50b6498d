"""What a split learns about the records seen before it, and reports about those that it has seen. All are values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from monoids.groupby.cells import Integers
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.fields import Run


@dataclass(frozen=True)
class SeenBefore:
    """The committed ``runs`` of seen records, in panes of ``pane_ms``; those before ``horizon`` have expired. ``also``:
    the records seen by earlier splits of the step."""

    runs: tuple[Run, ...]
    horizon: int
    pane_ms: int
    also: tuple[GroupSums, ...] = ()


@dataclass(frozen=True)
class SeenSpan:
    """By hash of the key, ascending: the first and last number seen, the first and last timestamp, and the latest
    timestamp of the committed state (-1: none). For ids, only the hashes."""

    hashes: Words
    firsts: Integers
    lasts: Integers
    begins: Integers
    ends: Integers
    before: Integers

    @staticmethod
    def of(codes: Integers, hashes: Words, numbers: Integers, times: Integers, before: Integers) -> SeenSpan:
        """The span of these records. ``codes``: the place of each record's key in ``hashes`` and ``before``."""
        places = np.flatnonzero(np.bincount(codes, minlength=len(hashes)))
        ends = [np.full(len(hashes), start, np.int64) for start in (2**63 - 1, -(2**63), 2**63 - 1, -(2**63))]
        for column, kernel, values in zip(ends, (np.minimum, np.maximum) * 2, (numbers, numbers, times, times)):
            kernel.at(column, codes, values)
        first, last, begin, end = (column[places] for column in ends)
        return SeenSpan(hashes[places], first, last, begin, end, before[places])

    @staticmethod
    def of_ids(hashes: Words) -> SeenSpan:
        """The span of ids with these hashes."""
        none = np.zeros(0, np.int64)
        return SeenSpan(np.unique(hashes), none, none, none, none, none)

    @property
    def is_of_ids(self) -> bool:
        return len(self.firsts) < len(self.hashes)

    @staticmethod
    def joined(spans: Sequence[SeenSpan]) -> SeenSpan:
        """One span of all, from first to last."""
        spans = [span for span in spans if len(span.hashes)]
        if not spans or spans[0].is_of_ids:
            return SeenSpan.of_ids(np.concatenate([np.zeros(0, np.uint64), *(span.hashes for span in spans)]))
        columns = [np.concatenate([getattr(span, field.name) for span in spans]) for field in fields(SeenSpan)]
        order = np.argsort(columns[0], kind="stable")
        hashes, *others = (column[order] for column in columns)
        starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
        # The committed state of a key is the same for each split: the minimum, if different keys share a hash.
        kernels = (np.minimum, np.maximum, np.minimum, np.maximum, np.minimum)
        reduced = [kernel.reduceat(column, starts) for kernel, column in zip(kernels, others)]
        return SeenSpan(hashes[starts], *reduced)


@dataclass(frozen=True)
class SeenAfter:
    """The records that a split has seen: their run, if any, and their span. ``doubtful``: the span of the records that
    were too old, or used a number again: what other splits have seen may make copies of them. ``behind_ms``: how far
    behind the clock the oldest record was that a copy repeats."""

    run: Run | None
    span: SeenSpan
    doubtful: SeenSpan
    behind_ms: int = 0


def silence_ms(spans: Sequence[SeenSpan]) -> int:
    """The longest time that an origin was silent, between one split and the next, or since the committed state. An id
    has no second record."""
    spans = [span for span in spans if not span.is_of_ids]
    if not spans:
        return 0
    columns: list[Integers] = [
        np.concatenate([getattr(span, name) for span in spans]) for name in ("hashes", "begins", "ends", "before")
    ]
    order = np.lexsort((columns[1], columns[0]))
    hashes, begins, ends, before = (column[order] for column in columns)
    same = hashes[1:] == hashes[:-1]
    before[1:] = np.where(same, np.maximum(ends[:-1], before[1:]), before[1:])
    reached = np.where(before < 0, begins, before)
    return max(0, int((begins - reached).max())) if len(begins) else 0
