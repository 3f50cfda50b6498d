"""A pump order says from which queue to take messages, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from persistent.clients.rabbit_link import LinkPatience, RabbitPlace
from persistent.clients.rabbit_topology import Queue, Topology


@dataclass(frozen=True)
class QueueEvent:
    """An event of a source's connection. ``kind``: "connected", "lost", "recovered" or "renamed" (the broker has given
    its queue another name); ``text``: details."""

    kind: str
    text: str


@dataclass(frozen=True)
class PumpOrder:
    """The settings of a pump. ``declared``: whether to declare the queue, or require it to exist. ``cuts``: whether a
    message that no journal accepts becomes a dead letter."""

    place: RabbitPlace
    queue: Queue
    declared: bool
    topology: Topology
    acknowledge: str
    prefetch: int
    patience: LinkPatience
    consumer_timeout_ms: int
    on_event: Callable[[QueueEvent], None] | None
    cuts: bool = False

    def __repr__(self) -> str:
        return f"queue {self.queue.name!r} at {self.place.said}"
