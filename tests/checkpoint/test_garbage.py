"""Garbage is decided by names alone: never by age, never while somebody may still work for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.checkpoint.garbage import Retention, attempt_name, garbage, is_abandoned
from persistent.errors import InvalidPipeline

NONCE = "0123456789abcdef" * 2


def name(epoch: int, id: int) -> str:
    return f"d/Visits/{attempt_name(epoch, id, NONCE)}.arrow"


def test_what_is_live_stays() -> None:
    """The state itself."""
    mine = [name(1, 1), name(2, 5), name(3, 7)]
    assert garbage(mine, set(mine), epoch=3, id=7) == []


def test_zombies_of_lower_epochs_go() -> None:
    """A driver that was fenced may have written for any id, even a larger one: nobody will ever name it."""
    assert garbage([name(2, 1), name(2, 999)], set(), epoch=3, id=7) == [name(2, 1), name(2, 999)]


def test_what_is_still_being_made_stays() -> None:
    """The next step is mapped while this one is collected: to delete its files would commit a manifest of
    missing runs."""
    assert garbage([name(3, 8), name(3, 9)], set(), epoch=3, id=7) == []
    assert garbage([name(3, 7), name(3, 1)], set(), epoch=3, id=7) == [name(3, 7), name(3, 1)]


def test_younger_epochs_stay() -> None:
    """Who is fenced without knowing it must not delete the work of its successor."""
    assert garbage([name(4, 1), name(4, 7), name(9, 0)], set(), epoch=3, id=7) == []


def test_other_files_stay() -> None:
    """What we did not write is not ours to delete."""
    others = ["d/Visits/README", "d/Visits/e1-c1-short.arrow", "d/Visits/ee1-c1-" + NONCE, "d/e1-c1-" + NONCE + "/x"]
    assert garbage(others, set(), epoch=9, id=9) == []


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_rule(epoch: int, id: int, my_epoch: int, my_id: int) -> None:
    """The rule that was model-checked, word for word."""
    expected = epoch < my_epoch or (epoch == my_epoch and id <= my_id)
    assert is_abandoned(name(epoch, id), my_epoch, my_id) == expected


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
