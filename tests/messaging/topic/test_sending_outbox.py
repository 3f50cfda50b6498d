"""What waits for a receiver: live messages in a bounded queue, requested ones by number, and both in turn."""

from __future__ import annotations

from typing import Any

from persistent.messaging.topic.messages import Gone, HangUp, Refusal, Sent, Standing
from persistent.messaging.topic.sending import ASKED_MAX, Outbox, Retained
from persistent.topic import Retain


def sent(number: int, size: int = 36) -> Sent:
    """With the header that is counted, 100 bytes."""
    return Sent("s", number, 0, bytes(size))


def outbox(retained: int = 0, bytes_max: int = 1_000, size: int = 36) -> tuple[Outbox, Retained]:
    kept = Retained(Retain("1 h"))
    for number in range(retained):
        kept.add(sent(number, size), 0)
    return Outbox("s", kept, bytes_max), kept


def out(box: Outbox, most: int = 10_000) -> list[Any]:
    found: list[Any] = []
    while len(found) < most and (said := box.next()) is not None:
        found.append((said.number, said.again) if isinstance(said, Sent) else said)
    return found


def test_live_messages_have_room_up_to_a_limit() -> None:
    """One receiver that does not read must not fill the memory of the sender; one large message fits nevertheless."""
    box, _ = outbox(bytes_max=250)
    assert [box.put(sent(number)) for number in range(3)] == [True, True, False]
    assert out(box) == [(0, False), (1, False)]
    assert box.put(sent(3, 1_000)) and not box.put(sent(4))


def test_requested_messages_have_room_however_many_they_are() -> None:
    """Dropped, they would be requested again and again until their time is over: on a slow link they would be lost."""
    box, _ = outbox(300, bytes_max=1)
    box.ask(0, 200)
    box.ask(100, 300)
    box.ask(0, 50)
    assert out(box) == [(number, True) for number in range(300)]


def test_how_many_requests_are_remembered_is_bounded() -> None:
    """Who asks for everything all the time would fill the memory."""
    box, _ = outbox(ASKED_MAX + 9)
    box.ask(0, ASKED_MAX + 9)
    assert len(out(box)) == ASKED_MAX


def test_what_was_let_go_before_its_turn_is_gone() -> None:
    """It was there when it was requested; without a word the receiver would ask until its time is over."""
    box, kept = outbox(4)
    box.ask(0, 4)
    assert out(box, 1) == [(0, True)]
    for _ in range(2):
        kept._messages.popleft()
    assert out(box) == [Gone("s", 2), (2, True), (3, True)]
    box.ask(1, 3)
    assert out(box) == [Gone("s", 2), (2, True)]


def test_requested_and_live_messages_take_turns_by_their_bytes() -> None:
    """A long late join must not hold up what is live, nor the other way round: the timeout of either would pass."""
    box, _ = outbox(8, size=236)
    box.ask(0, 8)
    for number in range(8, 14):
        assert box.put(sent(number))
    found = out(box)
    assert [number for number, _ in found] == [0, 8, 9, 10, 1, 11, 12, 13, 2, 3, 4, 5, 6, 7]
    box.ask(0, 1)
    box.put(sent(14))
    assert out(box) == [(0, True), (14, False)], "what one was ahead is forgotten with the other"


def test_a_standing_replaces_the_one_before_it_but_not_the_messages() -> None:
    """A receiver that does not read would collect one each second; and an answer keeps its token."""
    box, _ = outbox()
    box.report(Standing("s", 0, 0, True, token=5))
    box.report(Standing("s", 0, 1, True))
    box.put(sent(1))
    box.report(Standing("s", 0, 2, True))
    assert out(box) == [Standing("s", 0, 1, True, token=5), (1, False), Standing("s", 0, 2, True)]


def test_after_a_refusal_nothing_is_sent() -> None:
    """The receiver would take messages of a topic that it did not join."""
    box, _ = outbox(3)
    box.put(sent(3))
    box.ask(0, 3)
    box.refuse(9, "no")
    box.report(Standing("s", 0, 4, True))
    assert not box.put(sent(4)) and out(box) == [Refusal("no"), HangUp(9)]
    box.ask(0, 3)
    assert out(box) == []
