"""A state on its own: checkpoint and recover keep their contract, whatever the window."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Last, Max, Mean, SetUnion, Sum, mapping, record
from persistent import (
    CorruptCheckpoint,
    FingerprintChanged,
    NonWindowState,
    WindowState,
    sliding,
    tumbling,
)
from persistent.state.state import PersistentState
from tests.few import examples

Updates = list[tuple[int, Any]]

MAKES: dict[str, tuple[Callable[[Any], PersistentState], int, tuple[int, int] | None]] = {
    "none": (lambda monoid: NonWindowState(monoid, interval_ms=5), 5, None),
    "tumbling": (lambda monoid: WindowState(monoid, tumbling(10)), 10, (10, 10)),
    "tumbling-grid": (lambda monoid: WindowState(monoid, tumbling(10), interval_ms=4), 4, (10, 10)),
    "sliding": (lambda monoid: WindowState(monoid, sliding(10, every=5)), 5, (10, 5)),
    "sliding-not-dividing": (lambda monoid: WindowState(monoid, sliding(9, every=4), interval_ms=6), 6, (9, 4)),
    "sliding-gaps": (lambda monoid: WindowState(monoid, sliding(3, every=7), interval_ms=7), 7, (3, 7)),
}
LAWFUL = record(n=Count(), total=Sum(), top=Max(), names=SetUnion(int))

updates = st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(-9, 9)), max_size=25)


def lifted(value: Any) -> dict[str, Any]:
    return {"n": 1, "total": value, "top": value, "names": value}


def plain(window: tuple[int, int] | None, given: Updates) -> Any:
    """What ``get`` must return, by looking at every window."""

    def summary(values: list[Any]) -> dict[str, Any]:
        some = [value for value in values if value is not None]
        return {"n": len(values), "total": sum(some), "top": max(some, default=None), "names": sorted(set(some))}

    if window is None:
        return summary([value for _, value in given])
    size, every = window
    found = {}
    for start in range(-20 * every, 100 * every, every):
        inside = [value for time, value in given if start <= time < start + size]
        if inside:
            found[start, start + size] = summary(inside)
    return found


def of(name: str, given: Updates, rng: random.Random | None = None) -> PersistentState:
    """A state that has had these updates, by one or by many at once."""
    state = MAKES[name][0](LAWFUL)
    apply(state, given, rng)
    return state


def apply(state: PersistentState, given: Updates, rng: random.Random | None = None) -> None:
    left = list(given)
    while left:
        count = rng.randint(1, len(left)) if rng else 1
        some, left = left[:count], left[count:]
        if count == 1:
            state.update(some[0][0], lifted(some[0][1]))
            continue
        values = pa.array([value for _, value in some], pa.int64())
        columns = {"n": 1, "total": values, "top": values, "names": values}
        state.update_batch(np.array([time for time, _ in some]), columns)


@pytest.mark.parametrize("name", MAKES)
@given(given=updates, rng=st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_get_is_the_sum_of_every_window(name: str, given: Updates, rng: random.Random) -> None:
    """All else here would compare one wrong state with another."""
    expected = plain(MAKES[name][2], given)
    assert of(name, given).get() == expected
    assert of(name, given, rng).get() == expected
    shuffled = list(given)
    rng.shuffle(shuffled)
    assert of(name, shuffled).get() == expected


@pytest.mark.parametrize("name", MAKES)
@given(given=updates, clock=st.integers(0, 16))
@settings(max_examples=examples(40), deadline=None)
def test_a_checkpoint_holds_exactly_what_is_before_its_clock(name: str, given: Updates, clock: int) -> None:
    """An update at the clock would be counted by the checkpoint and by the replay."""
    make, grid, window = MAKES[name]
    clock *= grid
    state = of(name, given)
    before = state.get()
    data = state.checkpoint(clock)
    assert state.get() == before, "a checkpoint has changed the state"
    assert state.checkpoint(clock) == data
    recovered = make(LAWFUL)
    apply(recovered, [(1, 7), (70, 7)])
    recovered.recover(clock, data)
    assert recovered.get() == plain(window, [(time, value) for time, value in given if time < clock])
    assert recovered.checkpoint(clock) == data


@pytest.mark.parametrize("name", MAKES)
@given(given=updates, clock=st.integers(0, 16), rng=st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_equal_contents_are_equal_bytes(name: str, given: Updates, clock: int, rng: random.Random) -> None:
    """Whether two states agree could not be told from their checkpoints."""
    clock *= MAKES[name][1]
    shuffled = list(given)
    rng.shuffle(shuffled)
    after = [(time, value) for time, value in shuffled if time >= clock]
    assert of(name, given).checkpoint(clock) == of(name, shuffled, rng).checkpoint(clock)
    fewer = [pair for pair in shuffled if pair not in after]
    assert of(name, fewer).checkpoint(clock) == of(name, given, rng).checkpoint(clock)


@pytest.mark.parametrize("name", MAKES)
@given(first=updates, later=updates, clock=st.integers(0, 16), rng=st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_recover_and_replay_equal_a_run_that_never_stopped(
    name: str, first: Updates, later: Updates, clock: int, rng: random.Random
) -> None:
    """A crash would lose what came before the clock but after the checkpoint, or count twice what came at it."""
    make, grid, window = MAKES[name]
    clock *= grid
    data = of(name, first).checkpoint(clock)
    recovered = make(LAWFUL)
    recovered.recover(clock, data)
    replayed = [pair for pair in first if pair[0] >= clock] + later
    rng.shuffle(replayed)
    apply(recovered, replayed, rng)
    never_stopped = of(name, first + later)
    assert recovered.get() == never_stopped.get() == plain(window, first + later)
    end = 70 // grid * grid + grid
    assert recovered.checkpoint(end) == never_stopped.checkpoint(end)


@pytest.mark.parametrize("name", MAKES)
def test_clocks_off_the_grid_are_refused(name: str) -> None:
    """A checkpoint would hold a part of a pane, which the replay would add again."""
    _, grid, _ = MAKES[name]
    state = of(name, [(3, 1), (33, 2)])
    good = state.checkpoint(3 * grid)
    before = state.get()
    for clock in (-grid, 1, grid + 1, 3 * grid - 1, 1.5, "noon", None):
        for refused in (lambda c: state.checkpoint(c), lambda c: state.recover(c, good)):
            with pytest.raises((ValueError, TypeError), match=r"not on the grid|neither milliseconds|not a time"):
                refused(clock)  # type: ignore[no-untyped-call]
    with pytest.raises(
        ValueError, match=r"clock 1970-01-01 00:00:00.* is not on the grid of this state, (clocks|the b)"
    ):
        state.checkpoint(3 * grid + 1)
    with pytest.raises(ValueError, match=rf"taken at clock {3 * grid}"):
        state.recover(4 * grid, good)
    assert state.get() == before


def test_a_window_is_on_the_grid_at_the_cuts_of_its_panes() -> None:
    """The default grid of a window would be none, or a wrong one."""
    state = WindowState(Sum(), sliding(10, every=4))
    on = [clock for clock in range(30) if _takes(state, clock)]
    assert on == sorted({*range(0, 30, 4), *range(2, 30, 4)})
    assert [clock for clock in range(30) if _takes(WindowState(Sum(), tumbling(10)), clock)] == [0, 10, 20]


def _takes(state: PersistentState, clock: int) -> bool:
    try:
        state.checkpoint(clock)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", ["none", "sliding"])
def test_corrupt_bytes_raise_and_change_nothing(name: str) -> None:
    """A torn checkpoint would silently mean zero, as it does elsewhere."""
    _, grid, _ = MAKES[name]
    saved = of(name, [(1, 3), (12, None), (22, -4)])
    clock = 6 * grid
    data = saved.checkpoint(clock)
    state = of(name, [(2, 5)])
    before = state.get()
    broken = [data[:size] for size in range(len(data))]
    broken += [data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] for at in range(len(data)) for bit in (1, 128)]
    broken += [data + b"\0", data + data, b"\0" + data]
    for each in broken:
        with pytest.raises(CorruptCheckpoint):
            state.recover(clock, each)
    assert state.get() == before
    state.recover(clock, data)
    assert state.get() == saved.get()


def test_a_checkpoint_of_another_state_is_refused() -> None:
    """Counts would go on as sums, minutes as hours."""
    data = WindowState(Count(), tumbling(10)).checkpoint(20)
    for other, says in (
        (WindowState(Sum(), tumbling(10)), r"monoid: Count\(\) -> Sum\(int\)"),
        (WindowState(Count(), tumbling(20)), r'window: tumbling\("10 ms"\) -> tumbling\("20 ms"\)'),
        (WindowState(Count(), tumbling(10), interval_ms=10), "interval_ms: none -> 10"),
        (WindowState(record(n=Count()), tumbling(10)), r"monoid: Count\(\) -> record\(n=Count\(\)\)"),
        (NonWindowState(Count(), interval_ms=10), "state: WindowState -> NonWindowState"),
    ):
        with pytest.raises(FingerprintChanged, match=says):
            other.recover(20, data)


def test_get_presents() -> None:
    """A user would see the inside of a mean."""
    state: PersistentState = NonWindowState(Mean())
    assert state.get() is None
    state.update(5, 1)
    state.update(7, 2)
    assert state.get() == 1.5
    state = NonWindowState(mapping(Sum()))
    state.update(5, {"a": 1})
    state.update(500_000, {"a": 2, "b": 3})
    assert state.get() == {"a": 3, "b": 3}
    state = WindowState(Max(), tumbling("1 min"))
    assert state.get() == {}
    state.update(59_999, None)
    assert state.get() == {(0, 60_000): None}
    state.update(60_000, 2)
    assert list(state.get().items()) == [((0, 60_000), None), ((60_000, 120_000), 2)]


def test_an_order_that_matters_is_kept() -> None:
    """The fold of a state on its own would be in the order of a dictionary."""
    from tests.jobs import Trail

    state = NonWindowState(Trail(), interval_ms=10)
    for time, page in ((25, "c"), (3, "a"), (4, "b"), (27, "d")):
        state.update(time, page)
    assert state.get()["path"] == ["a", "b", "c", "d"]
    data = state.checkpoint(20)
    state.recover(20, data)
    assert state.get() == {"seen": {"a": 1, "b": 1}, "path": ["a", "b"]}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.update(-1, {}), "before 1970"),
        (lambda s: s.update(1.0, {}), "timestamp is an integer"),
        (lambda s: s.update(1 << 63, {}), "too large: give milliseconds"),
        (lambda s: s.update(True, {}), "timestamp is an integer"),
        (lambda s: s.update(1, {"x": 1}), "unknown field 'x'"),
        (lambda s: s.update(1, {"n": 1}, key="a"), "one key"),
        (lambda s: s.update_batch(np.array([1]), {"n": 1}, keys=pa.array(["a"])), "one key"),
        (lambda s: s.update_batch(np.array([1, 2]), {"n": pa.array([1])}), "1 values for 2 rows"),
        (lambda s: s.update_batch([1, 2], {"n": 1}), "Arrow array of integers"),
        (lambda s: s.update_batch(np.array([1.0]), {"n": 1}), "Arrow array of integers"),
        (lambda s: s.update_batch(pa.array([1, None]), {"n": 1}), "null"),
        (lambda s: s.update_batch(np.array([-5]), {"n": 1}), "before 1970"),
    ],
)
def test_wrong_updates_are_refused_and_change_nothing(call: Callable[[Any], None], error: str) -> None:
    """A state would go on with half an update."""
    state = of("sliding", [(1, 1)])
    before = state.get()
    with pytest.raises((TypeError, ValueError), match=error):
        call(state)
    assert state.get() == before


def test_many_kinds_of_timestamps_are_taken() -> None:
    """Seconds would be taken for milliseconds."""
    expected = plain((10, 10), [(5, 1), (25, 1)])
    for times in (
        np.array([5, 25], np.int32),
        np.array([5, 25], np.uint64),
        pa.array([5, 25]),
        pa.chunked_array([[5], [25]]),
        pa.array([5, 25], pa.timestamp("ms", "UTC")),
        pa.array([5_999, 25_000], pa.timestamp("us")),
    ):
        state = WindowState(LAWFUL, tumbling(10))
        state.update_batch(times, {"n": 1, "total": 1, "top": 1, "names": 1})
        assert state.get() == expected
    state.update_batch(np.zeros(0, np.int64), {"n": 1})
    assert state.get() == expected


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: NonWindowState(Count), r"Count\(\)"),
        (lambda: NonWindowState(5), "monoid"),
        (lambda: NonWindowState(Sum(), interval_ms=0), "interval_ms"),
        (lambda: NonWindowState(Sum(), interval_ms="soon"), "interval_ms"),
        (lambda: WindowState(Sum(), 60_000), "tumbling"),
        (lambda: WindowState(Sum(), tumbling(10), interval_ms=0), "interval_ms"),
    ],
)
def test_wrong_states_are_refused_at_once(make: Callable[[], Any], error: str) -> None:
    """The error would come out of a worker, hours later."""
    with pytest.raises((TypeError, ValueError), match=error):
        make()


@pytest.mark.parametrize("window", [None, 60_000, "everything", tumbling, NonWindowState(Last())])
def test_what_is_no_window_is_refused(window: Any) -> None:
    """It would be found when the first message is counted."""
    with pytest.raises(TypeError, match=r"calendar\(unit\) or assigned\(assigner\), not"):
        WindowState(Sum(), window)
