"""A publisher sends messages to RabbitMQ, many at a time, and returns when the broker has confirmed each.

A message that the broker cannot route is returned, yet confirmed: an error. After a connection was lost it is sent
again for a while: a broker that starts can answer before it has its queues. A message that is refused (nack) or not
confirmed in time may or may not be stored: it is sent again, and each time its confirmation is awaited twice as long.
So are the messages in flight when the connection was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from persistent import stopping
from persistent.clients.rabbit_link import Link, LinkLost, LinkPatience, RabbitPlace, pika, quieten
from persistent.clients.rabbit_topology import Topology
from persistent.clock import duration_text, monotonic_s
from persistent.errors import Stopped

logger = logging.getLogger("persistent.clients")

_AT_ONCE: Final = 2_000
"""The maximum number of messages in flight."""
_WAIT_MIN_SECONDS: Final = 0.1
_WAIT_MAX_SECONDS: Final = 60.0
_STILL_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
"""How long to wait for the broker when a connection is closed: one that stands still never answers."""


@dataclass(frozen=True)
class Outgoing:
    """A message to be sent."""

    id: str
    body: bytes
    headers: dict[str, Any]


class Unroutable(Exception):
    """The broker has no queue for a message. Its id, and the broker's text."""


@dataclass
class Publisher:
    """Sends to ``exchange`` with ``routing_key``. ``confirm_ms``: how long to wait for the first confirmation."""

    place: RabbitPlace
    exchange: str
    routing_key: str
    topology: Topology
    patience: LinkPatience
    confirm_ms: int
    confirmed: int = field(default=0, init=False)
    resent: int = field(default=0, init=False)
    """The numbers of messages that the broker has confirmed, and that were sent again."""
    _has_answered: bool = field(default=False, init=False)
    _noted_s: float = field(default=-_NOTE_SECONDS, init=False)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send all messages. Unroutable, LinkRefused; LinkLost once the broker has been away for too long; Stopped."""
        open_ = list(messages)
        wait_s, since, was_lost = self.confirm_ms / 1_000, monotonic_s(), False
        while open_:
            left_s = since + self._limit_s - monotonic_s()
            # Each attempt has a connection of its own, so a late confirmation is not taken for another.
            one = _Try(self, open_, max(_WAIT_MIN_SECONDS, min(wait_s, left_s)))
            try:
                self._declare(max(_WAIT_MIN_SECONDS, left_s))
                one.run()
            except LinkLost as error:
                one.error = error
            was_lost = was_lost or isinstance(one.error, LinkLost)
            comes_back = isinstance(one.error, LinkLost) or (was_lost and isinstance(one.error, Unroutable))
            if one.error is not None and not comes_back:
                raise one.error
            self._has_answered |= one.begun
            if len(one.left) < len(open_):
                since = monotonic_s()
            open_ = one.left
            if not open_:
                return
            failure = one.error or LinkLost(f"{len(open_):,} messages were refused, and none was confirmed")
            away_s, limit_s = monotonic_s() - since, self._limit_s
            if away_s >= limit_s:
                raise failure
            self.resent += one.unsure
            wait_s = min(2 * wait_s, _WAIT_MAX_SECONDS) if one.begun else wait_s
            self._pause(failure, min(self.patience.recovery_ms / 1_000, wait_s, limit_s), away_s)

    @property
    def _limit_s(self) -> float:
        return (self.patience.away_ms if self._has_answered else self.patience.connect_ms) / 1_000

    def _pause(self, failure: Exception, seconds: float, away_s: float) -> None:
        why = f"cannot publish to {self.place.said} yet: {failure}"
        if monotonic_s() - self._noted_s >= _NOTE_SECONDS:
            self._noted_s = monotonic_s()
            limit = duration_text(int(1_000 * self._limit_s))
            logger.warning("%s; nothing was confirmed for %.0f s of %s", why, away_s, limit)
        stopping.pause(seconds, why)

    def _declare(self, seconds: float) -> None:
        """Declare the topology again, which the broker may have lost."""
        if self.topology != Topology():
            link = Link(self.place, seconds)
            with link.limited(seconds):
                try:
                    with self.place.failures():
                        self.topology.declare(link.channel)
                finally:
                    link.close()


class _Try:
    """One connection. ``left``: the messages without a confirmation. ``begun``: whether anything could be sent."""

    def __init__(self, order: Publisher, messages: Sequence[Outgoing], wait_s: float) -> None:
        self._order, self._wait_s = order, wait_s
        self._messages = messages
        self._sent = 0
        self._under_way: dict[int, Outgoing] = {}
        self._refused: list[Outgoing] = []
        self._moved_s = monotonic_s()
        self._connection: Any = None
        self._channel: Any = None
        self._is_over = False
        self.begun = False
        self.error: Exception | None = None

    @property
    def unsure(self) -> int:
        """The number of sent messages whose fate is unknown."""
        return len(self._refused) + len(self._under_way)

    @property
    def left(self) -> list[Outgoing]:
        """The messages that were refused, not confirmed or not sent, in order."""
        open_ = {one.id for one in (*self._refused, *self._under_way.values())}
        return [one for one in self._messages[: self._sent] if one.id in open_] + list(self._messages[self._sent :])

    def run(self) -> None:
        """Send until all is confirmed or nothing moves."""
        quieten()
        client = pika()
        self._connection = client.SelectConnection(
            self._order.place.parameters(),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda connection, error: self._fail(error),
            on_close_callback=lambda connection, error: self._fail(error),
        )
        self._moved_s = monotonic_s()
        self._watch()
        try:
            self._connection.ioloop.start()
        finally:
            self._connection.ioloop.close()

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda channel, error: self._fail(error))
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda frame: self._begin())

    def _begin(self) -> None:
        self.begun = True
        self._moved_s = monotonic_s()
        self._send()

    def _send(self) -> None:
        properties = pika().BasicProperties
        order = self._order
        while self._sent < len(self._messages) and len(self._under_way) < _AT_ONCE and not self.error:
            one = self._messages[self._sent]
            said = properties(content_type="application/json", delivery_mode=2, message_id=one.id, headers=one.headers)
            self._channel.basic_publish(order.exchange, order.routing_key, one.body, said, mandatory=True)
            self._sent += 1
            self._under_way[self._sent] = one
        if self._sent == len(self._messages) and not self._under_way:
            self._stop()

    def _answered(self, frame: Any) -> None:
        """The broker has confirmed or refused a message, or all up to one. After a failure nothing counts: what was
        returned is confirmed too."""
        if self.error is not None:
            return
        method = frame.method
        self._moved_s = monotonic_s()
        last = method.delivery_tag
        for tag in [tag for tag in self._under_way if tag <= last] if method.multiple else [last]:
            one = self._under_way.pop(tag)
            if method.NAME == "Basic.Nack":
                self._refused.append(one)
            else:
                self._order.confirmed += 1
        self._send()

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._give_up(Unroutable(f"message {properties.message_id}: {method.reply_text}"))

    def _watch(self) -> None:
        """Give up after too long without progress."""
        still_s = monotonic_s() - self._moved_s
        if still_s > self._wait_s:
            self._give_up(LinkLost(f"no confirmation arrived for {self._wait_s:.3g} s"))
            return
        if still_s > _STILL_SECONDS:
            try:
                stopping.require_waiting(f"no confirmation arrives from {self._order.place.said}")
            except Stopped as error:
                self._give_up(error)
                return
        self._connection.ioloop.call_later(min(0.2, self._wait_s / 4), self._watch)

    def _fail(self, error: BaseException) -> None:
        if self.error is None and not self._is_over:
            self.error = self._order.place.failure(error)
        self._connection.ioloop.stop()

    def _give_up(self, error: Exception) -> None:
        self.error = self.error or error
        self._stop()

    def _stop(self) -> None:
        self._is_over = True
        if self._connection.is_open:
            self._connection.ioloop.call_later(_CLOSE_SECONDS, self._connection.ioloop.stop)
            self._connection.close()
        else:
            self._connection.ioloop.stop()
