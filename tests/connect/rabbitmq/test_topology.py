"""A topology is declared in the one order that works, and queues that would lose messages are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from persistent.connect.rabbitmq.topology import Binding, Exchange, Queue, Topology
from persistent.errors import InvalidPipeline


class Channel:
    """Notes what is declared; the broker gives the name "amq.gen-1" to a queue without one."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def exchange_declare(self, name: str, kind: str, **options: Any) -> None:
        self.calls.append(("exchange", name, kind, options))

    def queue_declare(self, name: str, **options: Any) -> Any:
        self.calls.append(("queue", name, options))
        return SimpleNamespace(method=SimpleNamespace(queue=name or "amq.gen-1"))

    def queue_bind(self, queue: str, exchange: str, key: str, **options: Any) -> None:
        self.calls.append(("binding", queue, exchange, key, options))


def test_exchanges_then_queues_then_bindings() -> None:
    """A binding between what is not there yet is refused by the broker, and ends the channel."""
    channel = Channel()
    topology = Topology(
        exchanges=[Exchange("views", "topic", arguments={"alternate-exchange": "rest"})],
        queues=[Queue("views", kind="quorum", delivery_limit=5, dead_letter_exchange="dead")],
        bindings=[Binding("views", "views", "view.*"), Binding("views", "", "view.a")],
    )
    names = topology.declare(channel, Queue(""))
    assert channel.calls == [
        ("exchange", "views", "topic", {"durable": True, "arguments": {"alternate-exchange": "rest"}}),
        (
            "queue",
            "views",
            {
                "durable": True,
                "exclusive": False,
                "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "dead"},
            },
        ),
        ("queue", "", {"durable": False, "exclusive": True, "arguments": {"x-queue-type": "classic"}}),
        ("binding", "views", "views", "view.*", {"arguments": {}}),
        ("binding", "amq.gen-1", "views", "view.a", {"arguments": {}}),
    ]
    assert names == {"views": "views", "": "amq.gen-1"}


def test_a_queue_of_the_topology_is_declared_once() -> None:
    """Declared twice it would be another queue each time, if the broker names it."""
    channel, queue = Channel(), Queue("")
    Topology(queues=(queue,)).declare(channel, queue)
    assert [call[0] for call in channel.calls] == ["queue"]


def test_queues_that_delete_messages_are_known() -> None:
    """Runs that die would be counted by the broker, and their messages gone for good."""
    quorum = {"name": "q", "kind": "quorum"}
    assert Queue(**quorum, delivery_limit=3).drops
    assert Queue(**quorum, arguments={"x-delivery-limit": 3}).drops
    assert not Queue(**quorum, delivery_limit=3, dead_letter_exchange="dead").drops
    assert not Queue(**quorum, delivery_limit=-1).drops
    assert not Queue(**quorum).drops
    assert Queue(**quorum).drops_from("4.0.1") and Queue(**quorum).drops_from("10.0")
    for said in ("3.13.7", "", "unknown"):
        assert not Queue(**quorum).drops_from(said)
    assert not Queue("q").drops_from("4.0.1")
    assert not Queue(**quorum, delivery_limit=-1).drops_from("4.0.1")
    assert not Queue(**quorum, dead_letter_exchange="dead").drops_from("4.0.1")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Queue("q", kind="stream"), r"kind='stream' is not known; it is one of classic, quorum"),
        (lambda: Queue("", kind="quorum"), "a quorum queue has a name"),
        (lambda: Queue("q", kind="quorum", durable=False), "and is durable"),
        (lambda: Queue("q" * 256), "1 to 255 bytes"),
        (lambda: Exchange(""), "Exchange '': the name"),
        (lambda: Binding("", "q"), "Binding '': the name"),
        (lambda: Topology(queues=["q"]), r"Topology queues=\['q'\]: give a list of Queue"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, match: str) -> None:
    """The broker would say so later, by closing the channel."""
    with pytest.raises(InvalidPipeline, match=match):
        make()
