"""The topology of a broker: its exchanges, its queues and their bindings. It is declared again whenever a connection
begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from persistent.errors import InvalidPipeline

_KINDS: Final = ("classic", "quorum")
_BYTES_MAX: Final = 255


@dataclass(frozen=True)
class Exchange:
    """An exchange to declare. ``kind``: "direct", "fanout", "topic" or "headers"."""

    name: str
    kind: str = "direct"
    durable: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_name("Exchange", self.name)


@dataclass(frozen=True)
class Queue:
    """A queue to declare. ``kind``: "classic" or "quorum".

    ``single_active_consumer``: only one consumer at a time receives messages, the next one when it is gone.
    ``delivery_limit``: a quorum queue drops a message that was returned this many times; ``dead_letter_exchange``:
    where it goes then. ``name`` "": the broker names the queue, anew for each connection, and deletes it when that
    ends.
    """

    name: str
    kind: str = "classic"
    durable: bool = True
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name:
            _require_name("Queue", self.name)
        if self.kind not in _KINDS:
            raise InvalidPipeline(f"Queue kind={self.kind!r} is not known; it is one of {', '.join(_KINDS)}")
        if self.kind == "quorum" and not (self.name and self.durable):
            raise InvalidPipeline(f"{self!r}: a quorum queue has a name, and is durable")

    @property
    def said(self) -> dict[str, Any]:
        """The arguments of its declaration.

        >>> Queue("orders", kind="quorum", single_active_consumer=True).said
        {'x-queue-type': 'quorum', 'x-single-active-consumer': True}
        """
        named = {
            "x-queue-type": self.kind,
            "x-single-active-consumer": self.single_active_consumer or None,
            "x-delivery-limit": self.delivery_limit,
            "x-dead-letter-exchange": self.dead_letter_exchange,
        }
        return {**{name: value for name, value in named.items() if value is not None}, **self.arguments}

    @property
    def drops(self) -> bool:
        """Whether it deletes, for good, messages that were returned too often."""
        limit = self.said.get("x-delivery-limit")
        return limit is not None and limit >= 0 and "x-dead-letter-exchange" not in self.said

    def drops_from(self, version: str) -> bool:
        """Whether a broker of this version drops such messages by default.

        >>> Queue("orders", kind="quorum").drops_from("4.1.0"), Queue("orders", kind="quorum").drops_from("3.13.7")
        (True, False)
        """
        is_quorum = self.kind == "quorum" and not {"x-delivery-limit", "x-dead-letter-exchange"} & self.said.keys()
        return is_quorum and version.partition(".")[0].isdigit() and int(version.partition(".")[0]) >= 4


@dataclass(frozen=True)
class Binding:
    """Messages of ``exchange`` with this ``routing_key`` go to ``queue``."""

    exchange: str
    queue: str
    routing_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_name("Binding", self.exchange)


@dataclass(frozen=True)
class Topology:
    """The declarations at the start of a connection: exchanges, then queues, then bindings; consumers come last.

    An object that exists with the same arguments stays as it is; with others, the broker refuses.
    """

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("exchanges", Exchange), ("queues", Queue), ("bindings", Binding)):
            parts = getattr(self, name)
            if not isinstance(parts, list | tuple) or not all(isinstance(part, kind) for part in parts):
                raise InvalidPipeline(f"Topology {name}={parts!r}: give a list of {kind.__name__}(...)")
            object.__setattr__(self, name, tuple(parts))

    def declare(self, channel: Any, also: Queue | None = None) -> dict[str, str]:
        """Declare all, and the queue ``also``; returns the names given by the broker, by those in the topology."""
        for exchange in self.exchanges:
            channel.exchange_declare(
                exchange.name, exchange.kind, durable=exchange.durable, arguments=dict(exchange.arguments)
            )
        queues = self.queues if also is None or also in self.queues else (*self.queues, also)
        names = {queue.name: _declare(channel, queue) for queue in queues}
        for binding in self.bindings:
            queue = names.get(binding.queue, binding.queue)
            arguments = dict(binding.arguments)
            channel.queue_bind(queue, binding.exchange, binding.routing_key, arguments=arguments)
        return names


def _declare(channel: Any, queue: Queue) -> str:
    """Declare a queue; returns its name according to the broker."""
    exclusive = not queue.name
    durable = queue.durable and not exclusive
    declared = channel.queue_declare(queue.name, durable=durable, exclusive=exclusive, arguments=queue.said)
    name: str = declared.method.queue
    return name


def _require_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _BYTES_MAX:
        raise InvalidPipeline(f"{what} {name!r}: the name is a text of 1 to {_BYTES_MAX} bytes")


def checked_queue(queue: Any, *, may_drop: bool) -> Queue:
    """The option ``queue``. InvalidPipeline if messages would be lost, unless they ``may_drop``."""
    if isinstance(queue, str) and queue:
        return Queue(queue)
    if not isinstance(queue, Queue):
        raise InvalidPipeline(f"queue={queue!r}: give the name of an existing queue, or Queue(...) to declare one")
    if not queue.name and not may_drop:
        raise InvalidPipeline(
            f"{queue!r} is deleted with its connection, and its messages are lost: give it a name; or give "
            'acknowledge="at-most-once"'
        )
    if queue.drops and not may_drop:
        raise InvalidPipeline(
            f"queue {queue.name!r}: delivery_limit={queue.said['x-delivery-limit']} deletes messages for good when "
            "runs die that often: give it a dead_letter_exchange=, or omit the limit"
        )
    return queue


def checked_topology(topology: Any) -> Topology:
    """The option ``topology``. InvalidPipeline."""
    if topology is not None and not isinstance(topology, Topology):
        raise InvalidPipeline(f"topology={topology!r}: give Topology(exchanges=..., queues=..., bindings=...)")
    return topology or Topology()
