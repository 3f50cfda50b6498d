"""One session as received: in order, each once, what is missing asked for or told to be lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from persistent.messaging.topic.messages import Sent, Standing
from persistent.messaging.topic.ordering import (
    GONE,
    NOT_RECOVERED,
    NOT_RETAINED,
    OVER,
    TIMEOUT,
    WAITING_BYTES_MAX,
    Ordering,
)
from persistent.topic import JoinOptions, MessagesLost, SessionEnded, TopicMessage


def sent(number: int, *, again: bool = False) -> Sent:
    return Sent("s", number, 10 * number, b"%d" % number, again)


def standing(next_: int, low: int = 0, *, retains: bool = True, ended: bool = False) -> Standing:
    return Standing("s", low, next_, retains, ended)


def said(events: Any) -> list[Any]:
    """Messages as number and delivery, losses as range and reason."""
    found: list[Any] = []
    for event in events:
        match event:
            case TopicMessage(_, number, time, payload):
                assert (time, payload) == (10 * number, b"%d" % number)
                found.append((number, event.delivery))
            case MessagesLost(_, first, stop, reason):
                assert len(event) == stop - first
                found.append((first, stop, reason))
            case SessionEnded(_, next_, clean):
                found.append(("end", next_, clean))
    return found


def asked(order: Ordering, now: int = 0, *, again: bool = False) -> list[tuple[int, int]]:
    return [(ask.first, ask.stop) for ask in order.wanted(now, again=again)]


def ordering(first: int = 0, seam: int = 0, **options: Any) -> Ordering:
    return Ordering("s", first, seam, JoinOptions(**{"retry": 100, "timeout": 1_000, **options}))


def test_live_messages_are_handed_out_as_they_come() -> None:
    """From the first on, though the receiver was there before it."""
    order = ordering()
    assert said(order.stands(standing(0), 0)) == []
    assert said(order.comes(sent(0), 0)) == [(0, "live")] and said(order.comes(sent(1), 0)) == [(1, "live")]
    assert asked(order) == [] and order.behind == 0


@pytest.mark.parametrize("cache", [0, 1, 5_000])
def test_retained_first_then_live_without_a_gap_or_a_copy_at_the_seam(cache: int) -> None:
    """Whether live messages wait or are asked for later, each is there once, and in order."""
    order = ordering(0, 3, cache=cache)
    order.stands(standing(3), 0)
    found = order.comes(sent(3), 0)
    assert asked(order)[0] == (0, 4 if cache < 3 else 3)
    for number in (0, 1, 2):
        found += order.comes(sent(number, again=True), 0)
    found += order.comes(sent(4), 0)
    for first, stop in asked(order, 200, again=True):
        for number in range(first, stop):
            found += order.comes(sent(number, again=True), 200)
    passed = {0: 2, 1: 1, 5_000: 0}[cache]
    assert [number for number, _ in said(found)] == [0, 1, 2, 3, 4]
    # Published after the receiver joined: sent again, but no late join.
    assert [how for _, how in said(found)] == ["late-join"] * 3 + ["retransmit"] * passed + ["live"] * (2 - passed)
    assert order.passed == passed


@pytest.mark.parametrize(("number", "waits"), [(4, True), (5, False)])
def test_a_live_message_waits_if_it_is_at_most_so_many_ahead(number: int, waits: bool) -> None:
    """At the bound itself it waits."""
    order = ordering(1, 4, cache=3)
    order.stands(standing(number), 0)
    assert order.comes(sent(number), 0) == [] and order.passed == (not waits)
    assert asked(order)[0] == (1, 4 if waits else 6)


def test_what_waits_is_bounded() -> None:
    """An answer that is missing must not let everything after it pile up in memory."""
    order = ordering(0, 100_000, window=10, cache=50, timeout="1 h")
    order.stands(standing(100_000), 0)
    for now in range(0, 100_000, 100):
        for first, stop in asked(order, now, again=True):
            for number in range(first, stop):
                assert number == 0 or order.comes(sent(number, again=True), now) == []
    assert len(order._waiting) == 59


def test_a_gap_is_asked_for_and_told_apart_from_late_join() -> None:
    """Both are sent again; one was missing among what is live."""
    order = ordering(0, 1)
    order.stands(standing(1), 0)
    found = order.comes(sent(0, again=True), 0)
    found += order.comes(sent(1), 0) + order.comes(sent(4), 0)
    assert asked(order) == [(2, 4)]
    found += order.comes(sent(3, again=True), 0) + order.comes(sent(2, again=True), 0)
    assert said(found) == [(0, "late-join"), (1, "live"), (2, "retransmit"), (3, "retransmit"), (4, "live")]


def test_the_end_of_a_gap_need_not_come() -> None:
    """The sender says where it stands: so the last one is missed too."""
    order = ordering()
    order.stands(standing(0), 0)
    order.stands(standing(2), 5)
    assert asked(order) == [(0, 2)]


def test_a_copy_is_dropped() -> None:
    """Every answer may cross with a second request."""
    order = ordering()
    order.stands(standing(0), 0)
    found = [order.comes(sent(number), 0) for number in (0, 0, 2, 2, 1, 1, 2)]
    assert [len(one) for one in found] == [1, 0, 0, 0, 2, 0, 0] and order.duplicates == 4


def test_what_the_sender_no_longer_has_is_lost_in_one_range() -> None:
    """Each message alone would be a flood; and what is there still comes."""
    order = ordering(0, 10)
    order.stands(standing(10), 0)
    found = order.comes(sent(4, again=True), 0) + order.gone(7, 0)
    assert said(found) == [(0, 4, GONE), (4, "late-join"), (5, 7, GONE)]
    assert asked(order) == [(7, 10)]
    assert said(order.stands(standing(10, low=9), 0)) == [(7, 9, GONE)]


def test_what_is_asked_for_too_long_is_lost_when_its_turn_comes() -> None:
    """In order, with its range; and what comes after all, before its turn, is handed out."""
    order = ordering(0, 5)
    order.stands(standing(5), 0)
    asked(order, 0)
    order.comes(sent(3, again=True), 0)
    order.comes(sent(0, again=True), 500)
    for now in (1_000, 1_499):
        order.stands(standing(5), now)
    assert order.tick(1_499) == []
    order.stands(standing(5), 1_500)
    assert said(order.tick(1_500)) == [(1, 3, TIMEOUT), (3, "late-join"), (4, 5, TIMEOUT)]
    assert order.comes(sent(2, again=True), 1_501) == [] and order.duplicates == 1
    late = ordering(0, 2, window=1)
    late.stands(standing(2), 0)
    asked(late, 0)
    late._waiting[1] = TIMEOUT
    late.comes(sent(1, again=True), 0)
    assert said(late.comes(sent(0, again=True), 0)) == [(0, "late-join"), (1, "late-join")]


def test_without_recovery_a_gap_is_told_at_once() -> None:
    """What was published before it joined is still asked for: that is late join, and has its own option."""
    order = ordering(0, 2, recover=False)
    found = order.stands(standing(2), 0) + order.comes(sent(4), 0)
    assert asked(order) == [(0, 2)]
    found += order.comes(sent(0, again=True), 0) + order.comes(sent(1, again=True), 0)
    assert said(found) == [(0, "late-join"), (1, "late-join"), (2, 4, NOT_RECOVERED), (4, "live")]


@pytest.mark.parametrize("cache", [0, 3, 5_000])
def test_without_recovery_no_gap_is_asked_for_however_far_ahead_a_message_is(cache: int) -> None:
    """A message that may not wait was requested, held back what came after it, and was called late join."""
    order = ordering(recover=False, cache=cache)
    found = order.stands(standing(0), 0) + order.comes(sent(0), 0) + order.comes(sent(9), 0)
    assert asked(order, 200, again=True) == [] and order.passed == 0
    assert said(found) == [(0, "live"), (1, 9, NOT_RECOVERED), (9, "live")]


def test_large_live_messages_wait_up_to_a_limit_of_bytes() -> None:
    """5,000 messages may wait, and each may have 16 MB: they would fill the memory. What cannot wait is requested."""
    order = ordering()
    order.stands(standing(0), 0)
    large = [Sent("s", number, 0, bytes(WAITING_BYTES_MAX // 3)) for number in range(5)]
    assert [order.comes(large[number], 0) for number in (1, 2, 3, 4)] == [[], [], [], []]
    assert sorted(order._waiting) == [1, 2, 3] and order.passed == 1
    assert [event.number for event in order.comes(large[0], 0)] == [0, 1, 2, 3] and order._waiting_bytes == 0
    assert asked(order) == [(4, 5)]


def test_a_sender_that_retains_nothing_is_not_asked() -> None:
    """Its receivers are told what is missing, with that reason; what is far ahead is not dropped too."""
    order = ordering(cache=0)
    found = order.stands(standing(0, retains=False), 0) + order.comes(sent(3), 0)
    assert said(found) == [(0, 3, NOT_RETAINED), (3, "live")] and asked(order) == []


def test_a_gap_may_close_by_itself() -> None:
    """Where the network changes the order, what is missing comes a moment later: it is not asked for, or lost."""
    for options in ({}, {"recover": False}):
        order = ordering(gap_delay=100, **options)
        order.stands(standing(0), 0)
        order.comes(sent(1), 10)
        assert order.tick(109) == [] and asked(order, 109) == []
        assert said(order.comes(sent(0), 109)) == [(0, "live"), (1, "live")]
        order.comes(sent(3), 200)
        found = order.tick(300)
        assert asked(order, 300) == ([(2, 3)] if not options else [])
        assert said(found) == ([] if not options else [(2, 3, NOT_RECOVERED), (3, "live")])


def test_no_more_than_the_window_is_asked_for_and_the_oldest_first() -> None:
    """It slides on receipt."""
    order = ordering(0, 9, window=3)
    order.stands(standing(9), 0)
    assert asked(order) == [(0, 3)] and asked(order) == []
    order.comes(sent(1, again=True), 0)
    assert asked(order) == [(3, 4)]
    assert asked(order, 100, again=True) == [(0, 1), (2, 4)]


def test_after_a_new_connection_it_asks_anew() -> None:
    """What was asked for over the old one does not come, and its time does not count."""
    order = ordering(0, 3)
    order.stands(standing(3), 0)
    asked(order)
    order.unlinked()
    assert order.tick(5_000) == [] and asked(order, 5_000) == [(0, 3)] and order.tick(5_999) == []


def test_the_end_is_told_once_everything_was_handed_out() -> None:
    """Told before, a reader would leave with messages missing."""
    order = ordering()
    order.stands(standing(0), 0)
    assert order.stands(standing(2, ended=True), 0) == [] and asked(order) == [(0, 2)]
    found = order.comes(sent(0, again=True), 0) + order.comes(sent(1, again=True), 0)
    assert said(found) == [(0, "retransmit"), (1, "retransmit"), ("end", 2, True)]
    assert order.stands(standing(2, ended=True), 0) == [] and order.close() == []
    empty = ordering()
    assert said(empty.stands(standing(0, ended=True), 0)) == [("end", 0, True)]


@pytest.mark.parametrize("ended", [False, True])
def test_a_session_that_is_over_hands_out_what_waits_and_tells_the_rest(ended: bool) -> None:
    """Nothing of it is silent: neither what came and waited, nor that there may have been more."""
    order = ordering()
    order.stands(standing(5, ended=ended), 0)
    order.comes(sent(2), 0)
    assert said(order.close()) == [(0, 2, OVER), (2, "live"), (3, 5, OVER), ("end", 5, ended)]


def test_any_order_gives_the_same_messages() -> None:
    """Against a plain list, over permutations, copies and losses that are asked for."""
    drawn = random.Random(7)
    for _ in range(300):
        count = drawn.randrange(1, 30)
        order = ordering(
            0, drawn.randrange(count + 1), window=drawn.choice((1, 4, 100)), cache=drawn.choice((0, 2, 99))
        )
        events = order.stands(standing(order.seam), 0)
        coming = [sent(number) for number in range(order.seam, count) for _ in range(drawn.randrange(3))]
        drawn.shuffle(coming)
        now = 0
        for message in coming:
            events += order.comes(message, now)
        events += order.stands(standing(count), now)
        while order.behind:
            now += 100
            for first, stop in asked(order, now, again=True):
                for number in drawn.sample(range(first, stop), drawn.randrange(stop - first + 1)):
                    events += order.comes(sent(number, again=True), now)
            order.asks._timeout = 10**9
        assert [number for number, _ in said(events)] == list(range(count))
