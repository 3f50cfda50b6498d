"""Retention: which checkpoints one can still go back to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.checkpoint.manifest import Retention
from persistent.errors import InvalidPipeline


@given(st.sets(st.integers(0, 200)), st.integers(0, 200))
def test_the_newest_ten_checkpoints_are_kept(checkpoints: set[int], before: int) -> None:
    """Fewer, and there is nothing to go back to; more, and the folder grows for ever. It never goes back."""
    oldest = Retention().oldest(dict.fromkeys(checkpoints, 0), before)
    assert oldest >= before
    assert sum(1 for id in checkpoints if id >= oldest) <= 10
    if checkpoints and oldest > before:
        assert oldest in checkpoints
        assert sum(1 for id in checkpoints if id >= oldest) == min(10, len(checkpoints))


@given(st.dictionaries(st.integers(0, 200), st.integers(0, 40), max_size=40), st.integers(0, 3), st.integers(0, 3))
def test_the_newest_of_each_hour_and_day_is_kept(hours: dict[int, int], hourly: int, daily: int) -> None:
    """Who finds a mistake after a week goes back by days, not by the last ten steps."""
    times = sorted(hours.values())
    checkpoints = {id: hour * 3_600_000 for id, hour in zip(sorted(hours), times)}
    policy = Retention(last=2, hourly=hourly, daily=daily)
    oldest = policy.oldest(checkpoints, 0)
    expected: set[int] = set()
    for count, hours_each in ((hourly, 1), (daily, 24)):
        spans = sorted({ms // (hours_each * 3_600_000) for ms in checkpoints.values()}, reverse=True)[:count]
        expected |= {max(id for id, ms in checkpoints.items() if ms // (hours_each * 3_600_000) == s) for s in spans}
    assert set(policy.thinned(checkpoints, oldest)) == {id for id in expected if id < oldest}


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("last", 0, 1), ("last", True, 1), ("last", 2.0, 1), ("last", None, 1), ("hourly", -1, 0), ("daily", -1, 0)],
)
def test_a_retention_that_makes_no_sense_is_refused(name: str, value: Any, least: int) -> None:
    """To keep none would leave nothing to go on from."""
    with pytest.raises(InvalidPipeline, match=rf"Retention\({name}={value!r}\): .* at least {least}"):
        Retention(**{name: value})


def test_the_least_retention_is_one_checkpoint() -> None:
    """A user who asks for the newest only must not be refused, nor given more than was asked for."""
    assert Retention(last=1, hourly=0, daily=0).oldest({3: 0, 4: 0}, 0) == 4
    assert Retention().oldest({}, 0) == 0
    assert Retention() == Retention(last=10, hourly=0, daily=0)


def test_hours_and_days_begin_on_their_millisecond() -> None:
    """A checkpoint at the hour belongs to the hour that begins, a millisecond before it to the one that ends."""
    hour_ms = 3_600_000
    times = {1: 100 * hour_ms - 1, 2: 100 * hour_ms, 3: 101 * hour_ms - 1}
    assert Retention(hourly=9).thinned(times, 9) == (1, 3)
    day_ms = 24 * hour_ms
    assert Retention(daily=9).thinned({1: 101 * day_ms - 1, 2: 101 * day_ms, 3: 102 * day_ms - 1}, 9) == (1, 3)
