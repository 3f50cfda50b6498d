"""A pump takes messages from a queue, appends them to a journal and acknowledges them. It is one thread, with a
connection and a channel of its own.

journal       acknowledge once the journal is durable
checkpoint    acknowledge once a checkpoint has counted them; until then both the journal and the queue have them
at-most-once  acknowledge first, and drop redelivered messages

A lost connection is made again as often as needed: exchanges, queues, bindings, and the consumer last. Unacknowledged
messages are redelivered, and tags of the previous channel are void. A broker that refuses ends the pump.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from persistent.clients.rabbit_link import Link, LinkLost, LinkPatience, LinkRefused, RabbitPlace
from persistent.clients.rabbit_topology import Queue, Topology
from persistent.clients.unacknowledged import Unacknowledged
from persistent.clock import monotonic_s
from persistent.errors import PersistentError, SourceError
from persistent.log.writer import RECORD_BYTES_MAX, LogWriter
from persistent.sources.rabbit_frames import framed

JOURNAL: Final = "journal"
CHECKPOINT: Final = "checkpoint"
AT_MOST_ONCE: Final = "at-most-once"
# Queues ignore this argument with the value 0, and a stream refuses it. Consumed as a queue, a stream would begin at
# its end, and its records would never be delivered.
_NO_STREAM: Final = {"x-priority": 0}
_WAIT_SECONDS: Final = 0.05
_STALLED_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 30.0
_DELIVERIES_WARNED: Final = 3


@dataclass(frozen=True)
class QueueEvent:
    """An event of a source's connection. ``kind``: "connected", "lost", "recovered" or "renamed" (the broker has given
    its queue another name); ``text``: details."""

    kind: str
    text: str


@dataclass(frozen=True)
class PumpOrder:
    """The settings of a pump. ``declared``: whether to declare the queue, or require it to exist."""

    place: RabbitPlace
    queue: Queue
    declared: bool
    topology: Topology
    acknowledge: str
    prefetch: int
    patience: LinkPatience
    consumer_timeout_ms: int
    on_event: Callable[[QueueEvent], None] | None

    def __repr__(self) -> str:
        return f"queue {self.queue.name!r} at {self.place.said}"


class Pump:
    """Appends to ``writer`` until ``stop``. ``warnings``: for the user, each under a key. ``dropped``: how many
    redelivered messages were dropped (at-most-once)."""

    def __init__(self, order: PumpOrder, writer: LogWriter) -> None:
        self._order, self._writer = order, writer
        self.warnings: dict[str, str] = {}
        self.dropped = 0
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._journaled = writer.number
        self._committed = 0
        self._asked = self._drained = 0
        self._is_ready = False
        # Of the thread alone:
        self._held = Unacknowledged()
        self._inbox: list[tuple[Any, Any, bytes]] = []
        self._oldest_s = self._moved_s = 0.0
        self._name = order.queue.name
        self._thread = threading.Thread(target=self._run, name=f"pump of {order!r}", daemon=True)

    # -- for the thread that plans -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Unacknowledged messages return to the queue."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS)

    def committed(self, number: int) -> None:
        """A checkpoint has counted the records before this number."""
        with self._changed:
            self._committed = max(self._committed, number)

    def wait_until_ready(self) -> None:
        """Return once it consumes. Raises the error of a failed pump."""
        self._wait(lambda: self._is_ready)

    def wait_until_drained(self, enough: int) -> None:
        """Return once the journal has ``enough`` records, or all messages of the queue, or as many as may be
        unacknowledged. Raises the error of a failed pump."""
        with self._changed:
            self._asked += 1
            asked = self._asked
        self._wait(lambda: self._drained >= asked or self._journaled >= enough)

    def check(self) -> None:
        """Raise the error of a failed pump."""
        with self._changed:
            if self._error is not None:
                raise self._error

    def _wait(self, is_done: Callable[[], bool]) -> None:
        with self._changed:
            while not is_done() and self._error is None:
                self._changed.wait()
        self.check()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._pump()
        except BaseException as error:
            with self._changed:
                self._error = error if isinstance(error, PersistentError) else self._failed(error)
                self._changed.notify_all()

    def _failed(self, error: BaseException) -> SourceError:
        found = SourceError(
            f"{self._order!r}: {type(error).__name__}: {error}. Unacknowledged messages stay in the queue"
        )
        found.__cause__ = error
        return found

    def _pump(self) -> None:
        patience = self._order.patience
        since, limit_ms, connections = monotonic_s(), patience.connect_ms, 0
        while not self._stopped.is_set():
            try:
                link = Link(self._order.place)
                try:
                    self._declare(link)
                    connections += 1
                    self._tell("recovered" if connections > 1 else "connected", repr(self._order))
                    self._consume(link)
                finally:
                    link.close()
            except LinkRefused as error:
                raise SourceError(f"{self._order!r}: {error}. Unacknowledged messages stay in the queue") from error
            except LinkLost as error:
                if self._is_ready:
                    since, limit_ms = monotonic_s(), patience.away_ms
                    self._ready(False)
                    self._tell("lost", str(error))
                if (monotonic_s() - since) * 1_000 >= limit_ms:
                    raise SourceError(
                        f"{self._order!r}: no broker has answered for {limit_ms / 1_000:g} s: {error}. Start it, or "
                        "correct url=, and run again: unacknowledged messages stay in the queue"
                    ) from error
                self._stopped.wait(min(patience.recovery_ms, limit_ms) / 1_000)

    def _declare(self, link: Link) -> None:
        """Declare the topology, and collect its warnings."""
        order = self._order
        if order.declared and order.queue.drops_from(link.version):
            self.warnings["limit"] = (
                f"{order!r}: this broker deletes a message that a quorum queue has delivered 20 times: declare "
                "Queue(dead_letter_exchange=...), or delivery_limit=-1"
            )
        with order.place.failures():
            names = order.topology.declare(link.channel, order.queue if order.declared else None)
            name = names.get(order.queue.name, order.queue.name)
            if not order.declared:
                link.channel.queue_declare(name, passive=True)
        if self._held.generation and name != self._name:
            self._tell("renamed", f"{self._name} is now {name}; its messages are gone")
        self._name = name

    def _consume(self, link: Link) -> None:
        order, channel = self._order, link.channel
        self._held.begin()
        self._inbox.clear()
        cancelled: list[bool] = []
        with order.place.failures():
            channel.basic_qos(prefetch_count=order.prefetch)
            channel.add_on_cancel_callback(cancelled.append)
            channel.basic_consume(self._name, self._received, arguments=_NO_STREAM)
        self._moved_s = monotonic_s()
        self._ready(True)
        while not self._stopped.is_set():
            with order.place.failures():
                link.connection.process_data_events(time_limit=_WAIT_SECONDS)
            if cancelled:
                raise LinkRefused("the broker has cancelled the consumer: the queue was deleted. Create it again")
            with order.place.failures():
                self._take(channel)
                self._acknowledge_committed(channel)
            self._look_whether_drained(link)
        # Process the received messages as usual; the others return to the queue.
        with order.place.failures():
            self._take(channel)
            self._acknowledge_committed(channel)

    def _received(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._inbox.append((method, properties, body))

    def _take(self, channel: Any) -> None:
        """Journal the received messages, and acknowledge them in the order of ``acknowledge``."""
        received, self._inbox = self._inbox, []
        if not received:
            return
        self._moved_s = monotonic_s()
        self._watch(received)
        tags = [method.delivery_tag for method, _, _ in received]
        if self._order.acknowledge == AT_MOST_ONCE:
            channel.basic_ack(tags[-1], multiple=True)
            first = [one for one in received if not one[0].redelivered]
            self.dropped += len(received) - len(first)
            received = first
        self._append([framed(properties, method.routing_key, body) for method, properties, body in received])
        if self._order.acknowledge == JOURNAL:
            channel.basic_ack(tags[-1], multiple=True)
        elif self._order.acknowledge == CHECKPOINT:
            if not len(self._held):
                self._oldest_s = self._moved_s
            self._held.add(list(range(self._journaled - len(tags) + 1, self._journaled + 1)), tags)

    def _append(self, frames: Sequence[bytes]) -> None:
        if not frames:
            return
        largest = max(map(len, frames))
        if largest > RECORD_BYTES_MAX:
            raise SourceError(
                f"{self._order!r}: a message has {largest:,} bytes, and a journal accepts at most "
                f"{RECORD_BYTES_MAX:,}. It stays in the queue, and so do those after it: remove it, put it into a "
                "file, and put its name into a message"
            )
        self._writer.append_many(frames)
        with self._changed:
            self._journaled = self._writer.number
            self._changed.notify_all()

    def _acknowledge_committed(self, channel: Any) -> None:
        with self._changed:
            committed = self._committed
        tag = self._held.up_to(committed)
        if tag is not None:
            channel.basic_ack(tag, multiple=True)
            self._oldest_s = monotonic_s()
        elif len(self._held) and (monotonic_s() - self._oldest_s) * 2_000 > self._order.consumer_timeout_ms:
            self.warnings["timeout"] = (
                f"{self._order!r}: messages have waited for their checkpoint for more than half of consumer_timeout, "
                f"{self._order.consumer_timeout_ms / 1_000:g} s, after which the broker closes the channel: make the "
                "steps shorter with step_rows= or a smaller prefetch="
            )

    def _look_whether_drained(self, link: Link) -> None:
        """Notify the waiting thread: twice in a row the queue has no message, and none is in flight."""
        with self._changed:
            asked = self._asked
        if asked == self._drained:
            return
        is_full = len(self._held) >= self._order.prefetch
        if not (is_full or self._is_empty(link) or self._is_stalled()):
            return
        with self._changed:
            self._drained = asked
            self._changed.notify_all()

    def _is_empty(self, link: Link) -> bool:
        for _ in range(2):
            with self._order.place.failures():
                found = link.channel.queue_declare(self._name, passive=True).method
                link.connection.process_data_events(time_limit=0)
            # A quorum queue without a leader reports 0 messages and 0 consumers, although we consume.
            if self._inbox or found.message_count or not found.consumer_count:
                return False
        return True

    def _is_stalled(self) -> bool:
        if monotonic_s() - self._moved_s < _STALLED_SECONDS:
            return False
        self.warnings["stalled"] = (
            f"{self._order!r} has messages, but none was delivered for {_STALLED_SECONDS:g} s: another consumer holds "
            "them, or is the single active one"
        )
        return True

    def _watch(self, received: Sequence[tuple[Any, Any, bytes]]) -> None:
        counts = [(properties.headers or {}).get("x-delivery-count") for _, properties, _ in received]
        most = max((count for count in counts if isinstance(count, int)), default=0)
        if most >= _DELIVERIES_WARNED:
            self.warnings["deliveries"] = (
                f"{self._order!r} has delivered a message {most + 1} times: at its delivery limit, a quorum queue "
                "deletes it, unless it has a dead-letter exchange"
            )

    def _ready(self, is_ready: bool) -> None:
        with self._changed:
            self._is_ready = is_ready
            self._changed.notify_all()

    def _tell(self, kind: str, text: str) -> None:
        if self._order.on_event is not None:
            self._order.on_event(QueueEvent(kind, text))
