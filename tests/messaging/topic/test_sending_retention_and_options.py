"""What is retained: every minimum holds, the limit wins, the newest stays. And options that cannot be meant."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from persistent.errors import InvalidPipeline
from persistent.messaging.topic.messages import Sent
from persistent.messaging.topic.options import checked_address, checked_topic
from persistent.messaging.topic.sending import Retained, RetainedRow
from persistent.topic import JoinOptions, MessagesLost, Retain

SIZE = 100


def filled(retain: Retain | None, times: list[int], size: int = SIZE - 64) -> Retained:
    retained = Retained(retain)
    for number, time in enumerate(times):
        retained.add(Sent("s", number, time, bytes(size)), time)
    return retained


def kept(retained: Retained) -> list[int]:
    found = [message.number for message in retained.of(0, retained.next)]
    assert found == list(range(retained.low, retained.next))
    return found


def test_both_minimums_0_retain_the_newest() -> None:
    """Who joins is shown the last message at least; without it the first would come only with the next."""
    assert kept(filled(Retain(), [1, 2, 3])) == [2] == kept(filled(Retain(), [1, 1, 1]))


def test_without_a_policy_nothing_is_retained() -> None:
    """Late join is off at the sender by default: it costs no memory."""
    retained = filled(None, [1, 2, 3])
    assert (kept(retained), retained.next, retained.bytes) == ([], 3, 0)


def test_a_message_goes_when_it_is_older_than_the_age() -> None:
    """Never at the age itself: it is a minimum."""
    retained = filled(Retain(age=10), [0, 5, 6])
    retained.let_go(10)
    assert kept(retained) == [0, 1, 2]
    retained.let_go(11)
    assert kept(retained) == [1, 2]
    retained.let_go(1_000)
    assert kept(retained) == [2]


def test_so_many_bytes_stay_at_least() -> None:
    """A message goes only when what stays has the bytes; each counts 64 beside its payload."""
    assert kept(filled(Retain(bytes=2 * SIZE), [0] * 5)) == [3, 4]
    assert kept(filled(Retain(bytes=2 * SIZE), list(range(5)))) == [3, 4]
    assert kept(filled(Retain(bytes=2 * SIZE + 1), list(range(5)))) == [2, 3, 4]


@pytest.mark.parametrize(("age", "bytes_", "expected"), [(10, 2 * SIZE, 2), (10, 4 * SIZE, 4), (95, 2 * SIZE, 3)])
def test_all_minimums_must_hold(age: int, bytes_: int, expected: int) -> None:
    """Either alone would let go what the other promises."""
    retained = filled(Retain(age=age, bytes=bytes_), [0, 1, 5, 6, 7])
    retained.let_go(100)
    assert len(kept(retained)) == expected and retained.forced == 0


def test_the_limit_wins_over_both() -> None:
    """A sender whose receivers are slow must not run out of memory; what went before its time is counted."""
    limit = 64 << 10
    retained = filled(Retain(age="1 h", bytes=limit, bytes_max=limit), [0] * 5, limit // 2 - 64)
    assert (kept(retained), retained.forced, retained.bytes) == ([3, 4], 3, limit)
    assert kept(filled(Retain(age="1 h", bytes_max=limit), [0] * 3, 2 * limit)) == [2]


def test_a_range_is_answered_as_far_as_it_is_there() -> None:
    """Past its edges lies another message."""
    retained = filled(Retain(age=3), [0, 1, 2, 3, 4, 5])
    assert [message.number for message in retained.of(0, 4)] == [2, 3]
    assert [message.number for message in retained.of(4, 99)] == [4, 5] and retained.of(7, 9) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"age": -1}, "negative"),
        ({"age": "1 fortnight"}, "not a duration"),
        ({"bytes": 1.5}, "whole number"),
        ({"bytes": True}, "whole number"),
        ({"bytes_max": 65_535}, "at least 65,536"),
        ({"bytes": 1 << 20, "bytes_max": 1 << 19}, "raise bytes_max"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(given: dict[str, Any], why: str) -> None:
    """It would lose what the user believes is kept."""
    with pytest.raises(InvalidPipeline, match=why):
        Retain(**given)
    Retain(bytes=1 << 20, bytes_max=1 << 20)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"late": 1}, "True or False"),
        ({"recover": None}, "True or False"),
        ({"window": 0}, "window=0"),
        ({"window": 1_025}, "at most 1,024"),
        ({"last": -1}, "last=-1"),
        ({"cache": "5"}, "cache='5'"),
        ({"attempts": 0}, "attempts=0"),
        ({"retry": 0}, "at least 1 ms"),
        ({"timeout": "soon"}, "not a duration"),
        ({"gap_delay": -1}, "negative"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, Any], why: str) -> None:
    """A window of 0 would never ask, a retry of 0 ask without end."""
    with pytest.raises(InvalidPipeline, match=why):
        JoinOptions(**given)
    assert JoinOptions(window=1_024, gap_delay="2 s").ms("gap_delay") == 2_000


@pytest.mark.parametrize("address", ["", "7000", "host:", "host:http", "host:0", "host:65536", ":7000", 7000])
def test_an_address_is_host_and_port(address: Any) -> None:
    """Another text would be looked up somewhere."""
    with pytest.raises(InvalidPipeline, match="give host and port"):
        checked_address(address)
    assert checked_address("[::1]:65535") == ("::1", 65_535)


def test_a_topic_has_a_name() -> None:
    """The name is all that tells two senders apart."""
    assert checked_topic("t" * 512)
    for topic in ("", "t" * 513, None):
        with pytest.raises(InvalidPipeline, match="give a name"):
            checked_topic(topic)  # type: ignore[arg-type]


def test_a_burst_is_a_loss_of_more_than_so_many() -> None:
    """One that is reported message by message hides how bad it is."""
    options = JoinOptions(burst=10)
    assert [options.is_burst(MessagesLost("s", 5, stop, "")) for stop in (15, 16)] == [False, True]


def test_a_row_keeps_the_order_and_frees_what_has_gone() -> None:
    """Whatever is dropped meanwhile: another message would be sent under the number that was asked for."""
    row, kept = RetainedRow(), deque[tuple[int, Sent]]()
    for number in range(20_000):
        item = (number, Sent("s", number, 0, b""))
        row.append(item)
        kept.append(item)
        if number % 7:
            row.popleft()
            kept.popleft()
        assert len(row) == len(kept) and (not kept or (row[0], row[len(row) - 1]) == (kept[0], kept[-1]))
    assert [row[index] for index in range(len(row))] == list(kept)
    assert len(row._items) <= max(2 * len(kept), 2 * 1_024)
