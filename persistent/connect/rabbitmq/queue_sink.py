"""A RabbitMQ sink publishes the outputs as messages and waits until the broker has confirmed each.

The broker returns a message that it cannot route, and confirms it all the same: this is an error. But if a connection
was lost before, the sink sends the message again for a while: a broker that starts can answer before it has its queues.
A message that is refused (nack) or not confirmed in time may or may not be stored: the sink sends it again, and waits
twice as long for its confirmation each time. It does the same with the messages in flight when a connection is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from persistent.connect.appending import MessageSink
from persistent.connect.promises import AT_LEAST_ONCE, Promise
from persistent.connect.rabbitmq.link import (
    Link,
    LinkLost,
    LinkPatience,
    LinkRefused,
    RabbitPlace,
    patience,
    pika,
    quieten,
)
from persistent.connect.rabbitmq.topology import Topology
from persistent.connect.sink import Claim, OutputBatch
from persistent.errors import InvalidPipeline, Stopped, StorageError
from persistent.text.figures import duration_text
from persistent.text.spelling import spelled
from persistent.time import clock
from persistent.time.clock import Duration, monotonic_s, option_ms

_ROW_BITS: Final = 32
_NUMBER_MAX: Final = (1 << 31) - 1
"""The number of a batch with the most digits: with it, a row has its largest message."""


class RabbitQueueSink(MessageSink):
    """Publishes a persistent message for each row, a JSON object with the number of its batch as ``revision``.

    ``url``: "amqp://user:password@host:5672/virtual-host". ``routing_key``: where messages go; in the default exchange
    "", the name of a queue. ``topology``: what to declare first. ``confirm_timeout``: how long to wait for a
    confirmation before a message is sent again; it doubles each time. ``connect_timeout``: how long to wait for a
    broker at the start of a run; ``server_away``: how long during it, with an attempt every ``recovery_interval``.
    ``max_message_bytes``: at most the ``max_message_size`` of the broker, which is 16 MiB since RabbitMQ 4.0. A larger
    row is found before its checkpoint is committed.

    The message id is "<job>-<batch>-<row>", and the headers are ``origin`` (the job) and ``sequence`` (batch and row in
    one growing integer). A message that is sent again has the same ones, so consumers can drop it.
    """

    _key_remedy = "; or raise max_message_size of the broker, and max_message_bytes= with it"

    @spelled
    def __init__(
        self,
        url: str,
        routing_key: str,
        *,
        exchange: str = "",
        topology: Topology | None = None,
        confirm_timeout: Duration = "5 s",
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        recovery_interval: Duration = "1 s",
        max_message_bytes: int = 16 << 20,
    ) -> None:
        if not isinstance(routing_key, str) or not isinstance(exchange, str) or not (routing_key or exchange):
            raise InvalidPipeline(
                f"RabbitQueueSink routing_key={routing_key!r}, exchange={exchange!r}: give the name of a queue, or a "
                "routing key and exchange="
            )
        if topology is not None and not isinstance(topology, Topology):
            raise InvalidPipeline(f"topology={topology!r}: give Topology(exchanges=..., queues=..., bindings=...)")
        confirm_ms = option_ms(confirm_timeout, "confirm_timeout")
        if not isinstance(max_message_bytes, int) or isinstance(max_message_bytes, bool) or max_message_bytes < 1:
            raise InvalidPipeline(f"max_message_bytes={max_message_bytes!r}: give the max_message_size of the broker")
        self.exchange, self.routing_key = exchange, routing_key
        self._max_bytes = max_message_bytes
        waits = patience(connect_timeout, server_away, recovery_interval)
        self._place = RabbitPlace(url)
        self._publisher = Publisher(self._place, exchange, routing_key, topology or Topology(), waits, confirm_ms)
        into = f"queue {routing_key!r}" if not exchange else f"exchange {exchange!r}, key {routing_key!r},"
        self.address = f"{into} at {self._place.said}"

    def __repr__(self) -> str:
        exchange = f", exchange={self.exchange!r}" if self.exchange else ""
        return f"RabbitQueueSink({self._place.said!r}, {self.routing_key!r}{exchange})"

    def guarantee(self) -> Promise:
        """At-least-once: a queue has no mark."""
        return Promise(
            AT_LEAST_ONCE,
            "a message whose confirmation is lost is sent again, with the same message id, by which consumers drop it",
        )

    def claim(self, claim: Claim) -> None:
        """Does nothing: a queue does not record its owner."""

    @property
    def _limit(self) -> str:
        return (
            f"and max_message_bytes={self._max_bytes}. Make the value smaller; or raise max_message_size of the "
            "broker, and this option with it"
        )

    def _sizes(self, table: pa.Table, key: tuple[str, ...]) -> Iterator[int]:
        return (len(body) for bodies in self._bodies(table, key, _NUMBER_MAX) for body in bodies)

    def deliver(self, batch: OutputBatch) -> None:
        """Publish the rows of a batch, and return when all are confirmed. StagedMissing, StorageError."""
        row = 0
        for rows in (rows for table in batch.tables() for rows in self._bodies(table, batch.key, batch.number)):
            messages = [_message(batch, row + at, body) for at, body in enumerate(rows)]
            row += len(rows)
            try:
                self._publisher.publish(messages)
            except Unroutable as error:
                raise self._failed(batch, f"{error}: no queue accepts it. Create the queue, or bind it") from error
            except LinkRefused as error:
                raise self._failed(batch, str(error)) from error
            except LinkLost as error:
                text = (
                    f"{error}: no broker confirms. Start it, or check whether it blocks publishers or a queue is full"
                )
                raise self._failed(batch, text) from error

    def _failed(self, batch: OutputBatch, text: str) -> StorageError:
        return StorageError(
            f"{self!r}: {text}. The outputs of checkpoint {batch.id} are kept, and the next run publishes them again"
        )


def _message(batch: OutputBatch, row: int, body: bytes) -> Outgoing:
    headers: dict[str, Any] = {"origin": batch.job, "sequence": batch.number << _ROW_BITS | row}
    return Outgoing(f"{batch.job}-{batch.number}-{row}", body, headers)


logger = logging.getLogger("persistent.clients")

_AT_ONCE: Final = 2_000
"""The maximum number of messages in flight."""
_WAIT_MIN_SECONDS: Final = 0.1
_WAIT_MAX_SECONDS: Final = 60.0
_STILL_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
"""How long to wait for the broker when a connection is closed: a broker that stands still never answers."""


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
            attempt = _Try(self, open_, max(_WAIT_MIN_SECONDS, min(wait_s, left_s)))
            try:
                self._declare(max(_WAIT_MIN_SECONDS, left_s))
                attempt.run()
            except LinkLost as error:
                attempt.error = error
            was_lost = was_lost or isinstance(attempt.error, LinkLost)
            comes_back = isinstance(attempt.error, LinkLost) or (was_lost and isinstance(attempt.error, Unroutable))
            if attempt.error is not None and not comes_back:
                raise attempt.error
            self._has_answered |= attempt.begun
            if len(attempt.left) < len(open_):
                since = monotonic_s()
            open_ = attempt.left
            if not open_:
                return
            failure = attempt.error or LinkLost(f"{len(open_):,} messages were refused, and none was confirmed")
            away_s, limit_s = monotonic_s() - since, self._limit_s
            if away_s >= limit_s:
                raise failure
            self.resent += attempt.unsure
            wait_s = min(2 * wait_s, _WAIT_MAX_SECONDS) if attempt.begun else wait_s
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
        clock.pause(seconds, why)

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
        open_ = {message.id for message in (*self._refused, *self._under_way.values())}
        return [message for message in self._messages[: self._sent] if message.id in open_] + list(
            self._messages[self._sent :]
        )

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
            message = self._messages[self._sent]
            header = properties(
                content_type="application/json", delivery_mode=2, message_id=message.id, headers=message.headers
            )
            self._channel.basic_publish(order.exchange, order.routing_key, message.body, header, mandatory=True)
            self._sent += 1
            self._under_way[self._sent] = message
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
            message = self._under_way.pop(tag)
            if method.NAME == "Basic.Nack":
                self._refused.append(message)
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
                clock.require_waiting(f"no confirmation arrives from {self._order.place.said}")
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
