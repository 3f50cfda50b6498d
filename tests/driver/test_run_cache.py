"""What is due, and what is open, equals the plain definition, and costs no more than the panes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver.run_cache import RunCache
from persistent.storage import MemoryStorage
from persistent.time.window import Panes, Window, sliding
from tests.few import examples


def learned(window: Window | None, panes_of: Sequence[Sequence[int]]) -> tuple[RunCache, tuple[Run, ...]]:
    """A cache that knows runs of these panes."""
    cache = RunCache(MemoryStorage("run-cache"), window)
    runs = []
    for number, panes in enumerate(panes_of):
        run = Run(f"d/V/{number}", len(panes), 9, "", 0, 0, KEY_GROUPS, min(panes), max(panes), number, number)
        cache.learn(run, np.unique(np.array(panes, np.int64)))
        runs.append(run)
    return cache, tuple(runs)


@settings(deadline=None, max_examples=examples(400))
@given(
    st.integers(1, 30).flatmap(
        lambda every: st.builds(Window, st.integers(1, 30), st.just(every), st.integers(0, every - 1))
    ),
    st.none() | st.integers(1, 20),
    st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=12), max_size=4),
    st.integers(0, 300),
    st.integers(0, 60),
)
def test_open_windows_are_as_defined(
    window: Window, interval: int | None, times: list[list[int]], closed: int, ahead: int
) -> None:
    """A window overlooked is never published; one too many is a step that does nothing, for ever."""
    grid = Panes(window, interval)
    held = [[time for time in some if window.holds(np.array([time]))[0]] for some in times]
    cache, runs = learned(window, [[int(grid.starts(time)) for time in some] for some in held if some])
    ends = {
        window.end_of(number)
        for some in held
        for time in some
        for number in range(window.first_number(time), window.last_number(time) + 1)
        if closed < window.end_of(number)
    }
    assert cache.is_due(runs, closed, closed + ahead) == any(end <= closed + ahead for end in ends)
    assert cache.largest_end(runs, closed) == max(ends, default=0)
    assert cache.open_windows(runs, closed) == len(ends)


def test_nothing_is_due_without_windows() -> None:
    """A state over all time would close windows it does not have."""
    cache, runs = learned(None, [[-1]])
    assert not cache.is_due(runs, 0, 9)
    assert cache.largest_end(runs, 0) == cache.open_windows(runs, 0) == 0


def test_open_windows_are_not_listed_one_by_one() -> None:
    """Every step asks what is due: an hour of windows that start each millisecond is millions of them."""
    cache, runs = learned(sliding("10 min", "1 ms"), [range(0, 1_000_000, 100_000)])
    tracemalloc.start()
    try:
        assert cache.open_windows(runs, 0) == 1_500_000
        assert not cache.is_due(runs, 0, 0)
        assert cache.is_due(runs, 0, 2_000_000)
        assert cache.largest_end(runs, 0) == 1_500_000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
