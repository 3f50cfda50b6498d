"""Requests: a window, the oldest first, again after a time that doubles, lost after another. And how long it takes."""

from __future__ import annotations

import math

import pytest

from persistent.messaging.topic.ordering import Asks, ranges
from persistent.messaging.topic.receiving import Meter, seconds_to_catch_up
from persistent.topic import CatchUp, JoinOptions


def test_an_ask_is_repeated_and_each_wait_is_twice_as_long_up_to_the_most() -> None:
    """Asked again too soon, everything is sent many times; never again, one lost answer is a lost message."""
    asks = Asks(JoinOptions(retry=100, retry_max=300, timeout="1 h"))
    asks.add(5, 0)
    repeated = [now for now in range(2_000) if asks.due(now)]
    assert repeated == [100, 300, 600, 900, 1_200, 1_500, 1_800] and asks.repeated == 7


def test_a_message_is_asked_for_so_long() -> None:
    """Longer, and one message that never comes holds up all after it for ever."""
    asks = Asks(JoinOptions(timeout=1_000))
    asks.add(1, 0)
    asks.heard(100)
    asks.add(2, 100)
    for now in (500, 999):
        asks.heard(now)
    assert asks.over() == []
    asks.heard(1_000)
    assert asks.over() == [1] and 1 not in asks and 2 in asks


def test_as_long_as_answers_come_a_request_waits_in_line() -> None:
    """On a slow link a window of large messages takes longer than the timeout: those at its end would be lost, and
    until then be requested, and sent, again and again."""
    asks = Asks(JoinOptions(retry=100, timeout=1_000))
    for number in range(20):
        asks.add(number, 0)
    for number in range(19):
        now = 90 * (number + 1)
        asks.heard(now, moves=True, answers=True)
        asks.drop(number)
        assert asks.due(now) == [] and asks.over() == []
    assert now > 1_000 and asks.due(now + 99) == [] and asks.due(now + 100) == [19]


def test_a_live_message_is_no_answer_but_a_sign_of_life() -> None:
    """One answer may be lost while many live messages come: it is requested again, though its time is not over."""
    asks = Asks(JoinOptions(retry=100, timeout=1_000))
    asks.add(0, 0)
    for now in range(50, 5_000, 50):
        asks.heard(now, moves=True)
        assert (asks.due(now) == [0]) == (now in (100, 300, 700, 1_500, 3_100)) and asks.over() == []


@pytest.mark.parametrize("timeout", [1, 500, 1_000, 60_000])
def test_time_in_which_nothing_is_heard_is_not_waited(timeout: int) -> None:
    """A process that was stopped, or a sender that was, would lose all it had requested with the first word after."""
    asks = Asks(JoinOptions(timeout=timeout))
    asks.add(0, 0)
    asks.heard(3_600_000)
    assert asks.over() == ([0] if timeout == 1 else [])


def test_the_window_is_full_and_slides_on_receipt() -> None:
    """Without it a receiver that comes late asks for everything at once."""
    asks = Asks(JoinOptions(window=2))
    asks.add(1, 0)
    assert asks.has_room
    asks.add(2, 0)
    assert not asks.has_room
    asks.drop(1)
    asks.drop(7)
    assert asks.has_room and 2 in asks
    asks.drop_below(3)
    assert 2 not in asks


def test_numbers_are_asked_for_in_ranges() -> None:
    """A frame for each number would be as long as the message."""
    assert list(ranges([])) == [] and list(ranges([7])) == [(7, 8)]
    assert list(ranges([9, 1, 2, 3, 8])) == [(1, 4), (8, 10)]
    assert [stop - first for first, stop in ranges(range(2_500))] == [1_024, 1_024, 452]


@pytest.mark.parametrize(
    ("behind", "live", "rate", "expected"),
    [(0, 9, 0, 0.0), (900, 100, 1_000, 1.0), (900, 0, 900, 1.0), (1, 5, 5, math.inf), (1, 6, 5, math.inf)],
)
def test_the_time_to_catch_up(behind: int, live: float, rate: float, expected: float) -> None:
    """A live rate that is not below the rate of recovery never lets it catch up, and that is said."""
    assert seconds_to_catch_up(behind, live, rate) == expected


def test_an_estimate_is_of_some_seconds() -> None:
    """One sample says nothing; more than the last few say what was."""
    meter = Meter()
    meter.sample(0, 0, 0)
    assert meter.estimate(5) == CatchUp(5) and meter.estimate(0).seconds == 0.0
    meter.sample(999, 50, 50)
    meter.sample(1_000, 100, 300)
    assert meter.estimate(400) == CatchUp(400, 100.0, 300.0, 2.0) and not meter.estimate(400).never
    for second in range(2, 12):
        meter.sample(1_000 * second, 100 * second + 500, 10 * second)
    assert meter.estimate(400) == CatchUp(400, 100.0, 10.0, math.inf) and meter.estimate(400).never
