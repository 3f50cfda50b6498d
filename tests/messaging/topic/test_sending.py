"""The sender: who joined gets every message, who asks gets it again, and everyone is told where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.messaging.topic.messages import Ask, Gone, HangUp, Have, Hello, Leave, Refusal, Sent, Standing
from persistent.messaging.topic.sending import HELLO_MS, LINKS_MAX, Sending
from persistent.topic import Retain

ALL = Retain("1 h")


def sending(retain: Retain | None = ALL, *, links: int = 3, joined: int = 0) -> Sending:
    """A sender with so many connections, the first of which have joined and were told so."""
    machine = Sending("t", "s", retain)
    machine.tick(0)
    for link in range(1, links + 1):
        machine.linked(link, 0)
    for link in range(1, joined + 1):
        machine.heard(link, Hello("t", receiver=link))
        assert len(out(machine, link)) == 1
    return machine


def out(machine: Sending, link: int = 1) -> list[Any]:
    """Everything that it sends over a connection with room."""
    found = []
    while (said := machine.next(link)) is not None:
        found.append(said)
    return found


def answers(machine: Sending, first: int, stop: int, link: int = 1) -> list[Any]:
    machine.heard(link, Ask("s", first, stop))
    return out(machine, link)


def publish(machine: Sending, count: int) -> None:
    for _ in range(count):
        number = machine.retained.next
        assert machine.publish(b"%d" % number, number, 0) == number


def test_a_message_goes_to_everyone_who_has_joined() -> None:
    """And to nobody else: a connection that has not said which topic it wants may be anyone's."""
    machine = sending()
    publish(machine, 1)
    for link in (1, 2):
        machine.heard(link, Hello("t"))
        assert out(machine, link) == [Standing("s", 0, 1, True)]
    publish(machine, 1)
    assert out(machine, 1) == out(machine, 2) == [Sent("s", 1, 1, b"1")] and out(machine, 3) == []
    machine.unlinked(1, 0)
    publish(machine, 1)
    assert out(machine, 1) == [] and out(machine, 2) == [Sent("s", 2, 2, b"2")] and machine.receivers == 1


def test_who_joins_is_told_where_the_sender_stands_though_nothing_was_sent() -> None:
    """A receiver that is there before the first message must know that the first is number 0."""
    machine = sending()
    machine.heard(1, Hello("t"))
    assert out(machine) == [Standing("s", 0, 0, True)]
    publish(machine, 1)
    machine.heard(1, Hello("t", 7))
    said = [Sent("s", 0, 0, b"0"), Standing("s", 0, 1, True, token=7)]
    assert out(machine) == said, "asked twice, answered twice"


def test_another_topic_is_refused_in_words() -> None:
    """A receiver of another topic would count what it never asked for."""
    machine = sending()
    machine.heard(3, Hello("other"))
    said, hung_up = out(machine, 3)
    assert hung_up == HangUp(3) and isinstance(said, Refusal) and machine.refused == 1
    assert "'t'" in said.reason and "'other'" in said.reason
    machine.heard(3, Hello("t"))
    assert out(machine, 3) == [] and machine.receivers == 0, "it was hung up on"


def test_what_is_asked_for_is_sent_again_oldest_first() -> None:
    """The receiver orders what comes: from the oldest on it can hand out at once."""
    machine = sending(joined=1)
    publish(machine, 4)
    assert len(out(machine)) == 4
    assert answers(machine, 1, 3) == [Sent("s", 1, 1, b"1", True), Sent("s", 2, 2, b"2", True)]
    assert answers(machine, 3, 9)[0].number == 3 and machine.resent == 3


def test_what_is_gone_is_said_to_be_gone() -> None:
    """A receiver that is not told would ask until its time is over."""
    machine = sending(Retain(), joined=1)
    for number in range(3):
        machine.publish(b"%d" % number, number, number)
    out(machine)
    assert answers(machine, 0, 3) == [Gone("s", 2), Sent("s", 2, 2, b"2", True)]
    nothing = sending(None, joined=1)
    publish(nothing, 1)
    out(nothing)
    assert answers(nothing, 0, 1) == [Gone("s", 1)] and not nothing.standing.retains


def test_nobody_else_is_answered() -> None:
    """What is said of another session, or by who has not joined, is not meant for this one."""
    machine = sending()
    publish(machine, 1)
    assert answers(machine, 0, 1) == []
    machine.heard(1, Hello("t"))
    out(machine)
    machine.heard(1, Ask("other", 0, 1))
    assert out(machine) == [] and answers(machine, 0, 1)
    machine.heard(1, Have("other", 9))
    assert not machine.is_received(0)


def test_it_tells_where_it_stands_again_and_again() -> None:
    """The last message may be lost, and nothing comes after it that would show it."""
    machine = sending(joined=1)
    machine.tick(999)
    assert out(machine) == []
    publish(machine, 1)
    machine.tick(1_000)
    assert out(machine) == [Sent("s", 0, 0, b"0"), Standing("s", 0, 1, True)]
    machine.tick(1_001)
    assert out(machine) == []


def test_the_end_is_told_and_waits_for_all() -> None:
    """A sender that ends at once takes with it what its receivers still need."""
    machine = sending(joined=2)
    publish(machine, 1)
    machine.end()
    assert out(machine, 1) == out(machine, 2) == [Sent("s", 0, 0, b"0"), Standing("s", 0, 1, True, True)]
    machine.heard(1, Have("s", 1))
    machine.heard(1, Have("s", 0))
    assert not machine.is_received(0)
    machine.heard(2, Have("s", 1))
    assert machine.is_received(0) and answers(machine, 0, 1), "what is retained is still there for who comes"


def test_who_has_lost_its_connection_is_waited_for_until_it_returns() -> None:
    """Its connection broke a moment before the end: what it lacks would be gone, though it is about to ask."""
    machine = sending(links=3, joined=2)
    publish(machine, 1)
    machine.heard(2, Leave())
    for link in (1, 2):
        machine.unlinked(link, 1_000)
    machine.end()
    assert not machine.is_received(1_999, 1_000)
    assert machine.is_received(2_000, 1_000), "longer than that nobody is waited for"
    machine.heard(3, Hello("t", receiver=1))
    assert not machine.is_received(2_000, 1_000)
    machine.heard(3, Have("s", 1))
    machine.unlinked(3, 2_000)
    assert machine.is_received(2_000, 1_000), "it has everything, and so it does not return"


def test_who_leaves_is_hung_up_on_and_not_waited_for() -> None:
    """It leaves before it has heard the standing, and so the session: the sender waited for its return."""
    machine = sending(links=2, joined=1)
    publish(machine, 1)
    machine.heard(1, Leave())
    machine.heard(2, Leave())
    assert out(machine, 1) == [HangUp(1)] and out(machine, 2) == [HangUp(2)], "nothing is sent before that"
    assert (machine.receivers, machine.refused) == (0, 0)
    machine.tick(1_000)
    machine.tick(6_000)
    assert machine.overdue(6_000) == [1, 2], "one that does not hang up either is not kept"
    machine.unlinked(1, 6_000)
    machine.end()
    assert machine.is_received(6_000, 1_000)


def test_time_lets_go() -> None:
    """Without a message in between what is old would stay for ever."""
    machine = sending(Retain(age=10))
    machine.publish(b"0", 0, 0)
    machine.publish(b"1", 0, 5)
    machine.tick(20)
    assert machine.retained.low == 1


def test_who_says_nothing_is_hung_up_on() -> None:
    """Connections that were opened and forgotten would keep every receiver out, for good."""
    machine = sending(links=2, joined=1)
    machine.tick(HELLO_MS - 1)
    assert machine.refused == 0
    machine.tick(HELLO_MS)
    assert out(machine, 2) == [HangUp(2)] and machine.refused == 1
    assert HangUp(1) not in out(machine, 1) and machine.receivers == 1


@pytest.mark.parametrize("joined", [LINKS_MAX - 1, LINKS_MAX])
def test_who_says_nothing_gives_way_to_another(joined: int) -> None:
    """At the most connections, one that has joined stays, and the new one is told why there is no room for it."""
    machine = sending(links=LINKS_MAX, joined=joined)
    machine.linked(LINKS_MAX + 1, 0)
    if joined < LINKS_MAX:
        assert out(machine, LINKS_MAX) == [HangUp(LINKS_MAX)] and out(machine, LINKS_MAX + 1) == []
    else:
        said, hung_up = out(machine, LINKS_MAX + 1)
        assert "1,000 receivers" in said.reason and hung_up == HangUp(LINKS_MAX + 1)
    assert machine.receivers == joined and machine.refused == 1
