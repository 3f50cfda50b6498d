"""A session is a run of activity without a gap: fragments of one key merge while each begins soon after the last ended.

    fragment  (key, start, end), with start <= end
    merged    iff the next one of the key begins less than ``gap`` after the latest end so far

Merging fragments early, or in any order of folding, gives the same sessions: they are the components of the relation
"less than a gap apart".
"""

from __future__ import annotations

import numpy as np

from monoids.columns import Integers, segment_starts


def session_starts(keys: Integers, begins: Integers, ends: Integers, gap: int) -> tuple[Integers, Integers]:
    """The first fragment of each session, and the end of each session.

    Fragments are in the order (key, begin); ``keys`` are numbers, ``gap`` is in the unit of the times and at least 1.
    The sums of sessions are ``monoid.reduce_sorted(columns, starts)``. ValueError for fragments out of order, or that
    end before they begin.

    >>> starts, ends = session_starts(np.array([0, 0, 0, 1]), np.array([0, 9, 30, 31]), np.array([5, 12, 31, 40]), 10)
    >>> starts.tolist(), ends.tolist()
    ([0, 2, 3], [12, 31, 40])
    """
    if gap < 1:
        raise ValueError(f"a session gap is at least 1, not {gap}")
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _check(keys, begins, ends)
    latest = _latest_ends(keys, ends)
    starts = segment_starts((keys[1:] != keys[:-1]) | (begins[1:] - gap >= latest[:-1]))
    lasts = np.append(starts[1:], len(keys)) - 1
    return starts, latest[lasts]


def _latest_ends(keys: Integers, ends: Integers) -> Integers:
    """The latest end of the key's fragments up to each one: an earlier fragment may end after a later one.

    As one running maximum: ends are ranked, and those of a later key are above all of an earlier one.
    """
    if bool(((ends[1:] >= ends[:-1]) | (keys[1:] != keys[:-1])).all()):
        return ends
    values, ranks = np.unique(ends, return_inverse=True)
    numbers = np.zeros(len(keys), np.int64)
    np.cumsum(keys[1:] != keys[:-1], out=numbers[1:])
    latest = np.maximum.accumulate(numbers * len(values) + ranks)
    return np.asarray(values[latest - numbers * len(values)])


def _check(keys: Integers, begins: Integers, ends: Integers) -> None:
    if (ends < begins).any():
        row = int(np.flatnonzero(ends < begins)[0])
        raise ValueError(f"fragment {row} ends at {ends[row]}, before it begins at {begins[row]}")
    in_order = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (begins[1:] >= begins[:-1]))
    if not in_order.all():
        row = int(np.flatnonzero(~in_order)[0]) + 1
        raise ValueError(f"fragment {row} is out of order: sort them by np.lexsort((begins, keys))")
