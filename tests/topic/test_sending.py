"""The sender: who joined gets every message, who asks gets it again, and everyone is told where it stands."""

from __future__ import annotations

from typing import Any

from persistent.topic import Retain
from persistent.topic.messages import Ask, Gone, Have, Hello, Refusal, Sent, Standing
from persistent.topic.sending import HangUp, Say, Sending

ALL = Retain("1 h")


def sending(retain: Retain | None = ALL) -> Sending:
    machine = Sending("t", "s", retain)
    machine.tick(0)
    return machine


def test_a_message_goes_to_everyone_who_has_joined() -> None:
    """And to nobody else: a connection that has not said which topic it wants may be anyone's."""
    machine = sending()
    assert machine.publish(b"0", 7, 0) == []
    machine.heard(1, Hello("t"))
    machine.heard(2, Hello("t"))
    assert machine.publish(b"1", 8, 0) == [Say((1, 2), Sent("s", 1, 8, b"1"))]
    machine.unlinked(1)
    assert machine.publish(b"2", 9, 0) == [Say((2,), Sent("s", 2, 9, b"2"))] and machine.receivers == 1


def test_who_joins_is_told_where_the_sender_stands_though_nothing_was_sent() -> None:
    """A receiver that is there before the first message must know that the first is number 0."""
    machine = sending()
    assert machine.heard(1, Hello("t")) == [Say((1,), Standing("s", 0, 0, True))]
    machine.publish(b"0", 0, 0)
    assert machine.heard(1, Hello("t")) == [Say((1,), Standing("s", 0, 1, True))], "asked twice, answered twice"


def test_another_topic_is_refused_in_words() -> None:
    """A receiver of another topic would count what it never asked for."""
    said, hung_up = sending().heard(3, Hello("other"))
    assert hung_up == HangUp(3) and isinstance(said, Say) and isinstance(said.said, Refusal)
    assert "'t'" in said.said.reason and "'other'" in said.said.reason


def answers(machine: Sending, first: int, stop: int, link: int = 1) -> list[Any]:
    return [effect.said for effect in machine.heard(link, Ask("s", first, stop)) if isinstance(effect, Say)]


def test_what_is_asked_for_is_sent_again_oldest_first() -> None:
    """The receiver orders what comes: from the oldest on it can hand out at once."""
    machine = sending()
    machine.heard(1, Hello("t"))
    for number in range(4):
        machine.publish(b"%d" % number, number, 0)
    assert answers(machine, 1, 3) == [Sent("s", 1, 1, b"1", True), Sent("s", 2, 2, b"2", True)]
    assert answers(machine, 3, 9)[0].number == 3 and machine.resent == 3


def test_what_is_gone_is_said_to_be_gone() -> None:
    """A receiver that is not told would ask until its time is over."""
    machine = sending(Retain())
    machine.heard(1, Hello("t"))
    for number in range(3):
        machine.publish(b"%d" % number, number, number)
    assert answers(machine, 0, 3) == [Gone("s", 2), Sent("s", 2, 2, b"2", True)]
    nothing = sending(None)
    nothing.heard(1, Hello("t"))
    nothing.publish(b"0", 0, 0)
    assert answers(nothing, 0, 1) == [Gone("s", 1)] and not nothing.standing.retains


def test_nobody_else_is_answered() -> None:
    """What is said of another session, or by who has not joined, is not meant for this one."""
    machine = sending()
    machine.publish(b"0", 0, 0)
    assert answers(machine, 0, 1) == []
    machine.heard(1, Hello("t"))
    assert machine.heard(1, Ask("other", 0, 1)) == [] and answers(machine, 0, 1)
    machine.heard(1, Have("other", 9))
    assert not machine.is_received


def test_it_tells_where_it_stands_again_and_again() -> None:
    """The last message may be lost, and nothing comes after it that would show it."""
    machine = sending()
    machine.heard(1, Hello("t"))
    assert machine.tick(999) == []
    machine.publish(b"0", 0, 999)
    assert machine.tick(1_000) == [Say((1,), Standing("s", 0, 1, True))] and machine.tick(1_001) == []


def test_the_end_is_told_and_waits_for_all() -> None:
    """A sender that ends at once takes with it what its receivers still need."""
    machine = sending()
    machine.heard(1, Hello("t"))
    machine.heard(2, Hello("t"))
    machine.publish(b"0", 0, 0)
    assert machine.end() == [Say((1, 2), Standing("s", 0, 1, True, True))]
    machine.heard(1, Have("s", 1))
    machine.heard(1, Have("s", 0))
    assert not machine.is_received
    machine.unlinked(2)
    assert machine.is_received and answers(machine, 0, 1), "what is retained is still there for who comes"


def test_time_lets_go() -> None:
    """Without a message in between what is old would stay for ever."""
    machine = sending(Retain(age=10))
    machine.publish(b"0", 0, 0)
    machine.publish(b"1", 0, 5)
    machine.tick(20)
    assert machine.retained.low == 1
