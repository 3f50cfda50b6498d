"""Sessions are the fragments that a walk along the times, with a list, would merge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.sessions import session_starts

FRAGMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 40), st.integers(0, 25)), max_size=25)


def model(fragments: list[tuple[int, int, int]], gap: int) -> list[tuple[int, int]]:
    """The number of each session's first fragment, and its end."""
    sessions: list[tuple[int, int, int]] = []
    for row, (key, begin, end) in enumerate(fragments):
        if sessions and sessions[-1][0] == key and begin - sessions[-1][2] < gap:
            sessions[-1] = (key, sessions[-1][1], max(sessions[-1][2], end))
        else:
            sessions.append((key, row, end))
    return [(row, end) for _, row, end in sessions]


def arrays(fragments: list[tuple[int, int, int]]) -> list[np.ndarray]:
    return [np.array([fragment[i] for fragment in fragments], np.int64) for i in range(3)]


@settings(deadline=None, max_examples=400)
@given(FRAGMENTS, st.integers(1, 12))
def test_sessions_are_those_of_a_walk(drawn: list[tuple[int, int, int]], gap: int) -> None:
    """Also where an early fragment outlasts later ones, and at exactly a gap, which parts two sessions."""
    fragments = sorted((key, begin, begin + length) for key, begin, length in drawn)
    starts, ends = session_starts(*arrays(fragments), gap)
    assert list(zip(starts.tolist(), ends.tolist())) == model(fragments, gap)


@settings(deadline=None, max_examples=200)
@given(FRAGMENTS, FRAGMENTS, st.integers(1, 12))
def test_merging_early_changes_nothing(
    some: list[tuple[int, int, int]], more: list[tuple[int, int, int]], gap: int
) -> None:
    """Deltas hold sessions of their own: merged with others they must be those of all fragments."""

    def merged(fragments: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        fragments = sorted(fragments)
        starts, ends = session_starts(*arrays(fragments), gap)
        return [(*fragments[row][:2], end) for row, end in zip(starts.tolist(), ends.tolist())]

    a = [(key, begin, begin + length) for key, begin, length in some]
    b = [(key, begin, begin + length) for key, begin, length in more]
    assert merged(merged(a) + merged(b)) == merged(a + b)


@pytest.mark.parametrize(
    ("fragments", "gap", "message"),
    [
        ([(0, 5, 4)], 1, "ends at 4, before it begins at 5"),
        ([(0, 5, 6), (0, 4, 9)], 1, "fragment 1 is out of order"),
        ([(1, 5, 6), (0, 5, 9)], 1, "fragment 1 is out of order"),
        ([], 0, "at least 1, not 0"),
    ],
)
def test_what_is_no_list_of_fragments_is_refused(fragments: list[tuple[int, int, int]], gap: int, message: str) -> None:
    """Fragments out of order would be parted, and counted as several sessions, in silence."""
    with pytest.raises(ValueError, match=message):
        session_starts(*arrays(fragments), gap)
