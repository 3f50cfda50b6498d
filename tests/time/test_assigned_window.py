"""Windows of a user's assigner, against a plain walk over its borders; and assigners that are refused."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import AssignerFailed, WindowState, assigned
from persistent.time.assigned_window import AssignedWindow
from persistent.time.clock import instant_ms
from persistent.time.window import Panes
from tests.few import examples

HOUR = 3_600_000


class Cycle:
    """Windows whose lengths repeat: shifts of a day, for example. ``first``: where one of them starts."""

    def __init__(self, *lengths: int, first: int = 0) -> None:
        self.lengths, self.first = lengths, first
        self.calls = 0

    def windows(self, timestamps: Any) -> Any:
        self.calls += 1
        assert (timestamps >= 0).all(), "before 1970"
        borders = np.cumsum([0, *self.lengths])
        cycle, within = np.divmod(timestamps - self.first, borders[-1])
        numbers = np.searchsorted(borders, within, side="right") - 1
        begun = self.first + cycle * borders[-1]
        return begun + borders[numbers], begun + borders[numbers + 1]

    def fingerprint(self) -> dict[str, Any]:
        return {"lengths": list(self.lengths), "first": self.first}


def plain(time: int, lengths: Sequence[int], first: int) -> tuple[int, int]:
    """The window of a time, from one border to the next."""
    start = first - sum(lengths) * (first // sum(lengths) + 1)
    for length in itertools.cycle(lengths):
        if start <= time < start + length:
            return start, start + length
        start += length
    raise AssertionError


cycles = st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(-15, 15))
times = st.lists(st.integers(0, 120), min_size=1, max_size=30)


@given(cycles, times, st.integers(0, 120))
@settings(max_examples=examples(25), deadline=None)
def test_windows_are_those_of_a_plain_walk(cycle: Any, some: list[int], clock: int) -> None:
    """A row would count in another window, or a window close at another clock than its end."""
    lengths, first = cycle
    window, array = assigned(Cycle(*lengths, first=first)), np.array(some)
    expected = [plain(time, lengths, first) for time in some]
    starts, ends = zip(*expected)
    assert window.last_start(array).tolist() == list(starts) == [window.last_start(time) for time in some]
    assert window.last_end(array).tolist() == list(ends) == [window.last_end(time) for time in some]
    assert window.first_number(array).tolist() == window.last_number(array).tolist() == list(starts)
    assert window.ends(np.array(starts)).tolist() == list(ends) and window.holds(array).all()
    late, partly = window.late(array, clock)
    assert late.tolist() == [end <= clock for end in ends] and not partly.any()
    assert window.starts_early == (plain(0, lengths, first)[0] < 0)
    assert Panes(window, None).starts(array).tolist() == [max(start, 0) for start in starts]
    assert Panes(window, None).is_window and Panes(window, None).is_cut(ends[0])


@given(cycles, st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=examples(25), deadline=None)
def test_a_range_of_numbers_covers_the_windows_that_start_in_it(cycle: Any, low: int, more: int) -> None:
    """Numbers between two starts are bounds only: a closing would leave out a window, or take one too many."""
    lengths, first = cycle
    window, high = assigned(Cycle(*lengths, first=first)), low + more
    starting = sorted({plain(time, lengths, first) for time in range(low, high + 13)})
    inside = [one for one in starting if low <= one[0] <= high]
    if inside:
        assert (window.start_of(low), window.end_of(high)) == (inside[0][0], inside[-1][1])
        assert window.start_of(np.array([low, inside[0][0]])).tolist() == [inside[0][0]] * 2
    else:
        assert window.start_of(low) > high


def test_a_window_is_a_value() -> None:
    """Workers would have windows of their own, and a checkpoint could not tell them from others."""
    window = assigned(Cycle(8 * HOUR, 10 * HOUR, 6 * HOUR, first=6 * HOUR))
    assert str(window) == f"assigned(Cycle(first={6 * HOUR}, lengths=({8 * HOUR}, {10 * HOUR}, {6 * HOUR})))"
    assert window.fingerprint() == {
        "assigned": "Cycle",
        "parameters": {"lengths": [8 * HOUR, 10 * HOUR, 6 * HOUR], "first": 6 * HOUR},
    }
    again = pickle.loads(pickle.dumps(window))
    assert again.fingerprint() == window.fingerprint()
    at = instant_ms("2024-03-31T12:30Z")
    assert again.last_end(at) - again.last_start(at) == 8 * HOUR
    assert again.last_start(np.zeros(0, np.int64)).tolist() == []


def test_a_state_on_its_own_has_such_windows() -> None:
    """The state of a test would not be that of the pipeline."""
    state = WindowState(Count(), assigned(Cycle(5, 10)))
    for time in (0, 4, 5, 14, 15, 31):
        state.update(time, 1)
    assert state.get() == {(0, 5): 2, (5, 15): 2, (15, 20): 1, (30, 35): 1}
    saved = state.checkpoint(15)
    state.recover(15, saved)
    assert state.get() == {(0, 5): 2, (5, 15): 2}
    with pytest.raises(ValueError, match=r"previous one is 1970-01-01 00:00:00\.005Z"):
        state.checkpoint(14)


def test_asking_costs_no_more_for_windows_that_are_far_apart() -> None:
    """A walk over the numbers between two windows would take a look at every millisecond."""
    cycle = Cycle(5, 10)
    window = AssignedWindow(cycle)
    window.last_start(np.array([0, 1_700_000_000_000]))
    assert cycle.calls == 3


def test_times_in_any_order_are_asked_for_once() -> None:
    """Windows that take turns in a batch would each be looked at row by row."""
    cycle = Cycle(5, 10)
    order = np.tile(np.array([3, 70, 21, 140]), 10_000)
    assert AssignedWindow(cycle).last_start(order)[:4].tolist() == [0, 65, 20, 140 - 140 % 15 + 5]
    assert cycle.calls == 3


# -- assigners that are refused --------------------------------------------------------------------------------------


class Wrong:
    """An assigner whose windows are made by a function."""

    def __init__(self, function: Callable[[Any], Any], parameters: Any = None) -> None:
        self.function = function
        self.parameters = {} if parameters is None else parameters

    def windows(self, timestamps: Any) -> Any:
        return self.function(timestamps)

    def fingerprint(self) -> Any:
        return self.parameters


def tens(times: Any) -> Any:
    return times - times % 10, times - times % 10 + 10


def overlapping(times: Any) -> Any:
    """Every second window begins before the previous one ends; each time has one of both."""
    starts = times - times % 10
    return starts, starts + np.where(starts % 20 == 0, 11, 10)


def gapped(times: Any) -> Any:
    """The last time of a window is in one of its own, which begins there; no window ends where the next one starts."""
    starts = times - times % 10
    last = times % 10 == 9
    return np.where(last, times, starts), np.where(last, times + 1, starts + 8)


def growing() -> Callable[[Any], Any]:
    counter = itertools.count(1)
    return lambda times: (times - times % 10, times - times % 10 + 10 * next(counter))


def drifting() -> Callable[[Any], Any]:
    counter = itertools.count(0)
    return lambda times: tens_from(times, next(counter))


def tens_from(times: Any, first: int) -> Any:
    starts = times - (times - first) % 10
    return starts, starts + 10


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda times: (times, times), "which does not hold it: start <= timestamp < end"),
        (lambda times: (times - times % 10, times - times % 10 - 10), "which does not hold it"),
        (lambda times: (times + 1, times + 11), "which does not hold it"),
        (lambda times: (times - 10, times), "which does not hold it"),
        (overlapping, "is in the window|overlap"),
        (gapped, "does not hold it|is in the window|overlap"),
        (growing(), "asked again"),
        (drifting(), "asked again"),
        (lambda times: (times - (times - times.min()) % 10, times - (times - times.min()) % 10 + 10), "asked again"),
        (lambda times: (np.full(len(times), times.min()), np.full(len(times), times.max() + 1)), "asked again"),
        (lambda times: (times - times % 10, times - times % 10 + 10 + times % 2), "ends at .* for one time"),
        (lambda times: (times - 5, times + 5), "overlap"),
        (lambda times: (times - times % 10.0, times - times % 10 + 10), "starts are float64"),
        (lambda times: (times - times % 10, (times + 10).tolist()[:1]), r"ends are int64 of shape \(1,\)"),
        (lambda times: times - times % 10, r"a value of type ndarray: return \(starts, ends\)"),
        (lambda times: (times, times, times), r"a tuple of 3: return \(starts, ends\)"),
        (lambda times: {}["x"], "it raised KeyError: 'x', for times from 1970-01-01 00:00:00Z to 2033"),
        (lambda times: times.sort() or tens(times), "it raised ValueError"),
    ],
)
def test_an_assigner_whose_windows_contradict_each_other_is_refused(function: Any, words: str) -> None:
    """Rows would be counted in a window that another clock closes."""
    with pytest.raises(AssignerFailed, match=f"^Wrong.windows: .*({words})"):
        assigned(Wrong(function))


@pytest.mark.parametrize("times", [[5, 25], [25, 5], [5, 15, 25] * 100])
def test_windows_that_contradict_each_other_in_a_batch_are_found(times: list[int]) -> None:
    """What no sample has met would count wrong."""

    def odd(times: Any) -> Any:
        starts = times - times % 10
        return starts, np.where(starts == 20, starts + 5, starts + 10) * (times >= 0)

    window = AssignedWindow(Wrong(odd))
    assert window.last_start(np.array([5, 15])).tolist() == [0, 10]
    with pytest.raises(AssignerFailed, match=r"20Z to 1970-01-01 00:00:00\.025Z, which does not hold it"):
        window.last_start(np.array(times))


def test_the_border_after_a_window_is_that_of_the_next() -> None:
    """A gap would have no window: a clock that stands in it would close none, or the wrong ones."""

    def gap(times: Any) -> Any:
        starts = times - times % 10
        return starts, np.where(times % 10 < 5, starts + 5, starts + 10)

    with pytest.raises(AssignerFailed, match=r"the next one starts where it ends|for one time"):
        AssignedWindow(Wrong(gap)).last_start(np.array([3]))


@pytest.mark.parametrize(
    ("assigner", "error", "words"),
    [
        (Cycle, TypeError, r"give an instance, Cycle\(\)"),
        (object(), TypeError, "this object has no windows"),
        (type("Half", (), {"windows": tens})(), TypeError, "this object has no fingerprint"),
        (Wrong(tens, parameters=["x"]), TypeError, "Wrong.fingerprint returned"),
        (Wrong(tens, parameters={"x": 1.5}), ValueError, "1.5"),
    ],
)
def test_what_is_no_assigner_is_refused(assigner: Any, error: Any, words: str) -> None:
    """The fault would show in a worker, far from its place."""
    with pytest.raises(error, match=words):
        assigned(assigner)


def test_a_border_that_has_moved_is_found_where_its_window_is_published() -> None:
    """The rows of the old window would be published under the borders of a new one."""
    window = AssignedWindow(Cycle(10))
    with pytest.raises(AssignerFailed, match=r"starts at 1970-01-01 00:00:00\.015Z, .* now in one"):
        window.ends(np.array([10, 15]))
    assert window.ends(20) == 30
