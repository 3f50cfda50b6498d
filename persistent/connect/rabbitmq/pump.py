"""A pump takes messages from a queue, appends them to a journal and acknowledges them. It is one thread, with a
connection and a channel of its own.

journal       acknowledge once the journal is durable
checkpoint    acknowledge once a checkpoint has counted them; until then both the journal and the queue have them
at-most-once  acknowledge first, and drop redelivered messages

A lost connection is made again as often as needed: exchanges, queues, bindings, and the consumer last. Unacknowledged
messages are redelivered, and tags of the previous channel are void. A broker that refuses ends the pump.

A channel is settled once each message that an earlier channel has left unacknowledged is journaled again. After that,
only messages that this channel has not acknowledged can come again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from persistent.connect.rabbitmq.frames import fitted, in_entries
from persistent.connect.rabbitmq.link import Link, LinkLost, LinkRefused, PumpOrder, QueueEvent, Unacknowledged
from persistent.errors import PersistentError, SourceError
from persistent.messaging.log.writer import LogWriter
from persistent.text.figures import duration_text
from persistent.time import clock
from persistent.time.clock import monotonic_s

logger = logging.getLogger("persistent.sources")

JOURNAL: Final = "journal"
CHECKPOINT: Final = "checkpoint"
AT_MOST_ONCE: Final = "at-most-once"
# Queues ignore this argument with the value 0, and a stream refuses it. Consumed as a queue, a stream would begin at
# its end, and its records would never be delivered.
_NO_STREAM: Final = {"x-priority": 0}
_WAIT_SECONDS: Final = 0.05
_STALLED_LOOKS: Final = 200
"""The queue is stalled after so many looks in a row, about 10 s, at which it has messages and delivers none. A limit in
seconds would also run while the broker or this machine stands still."""
_LASTING_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_NOTE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 30.0
_CONFIRM_SECONDS: Final = 1.0
_DELIVERIES_WARNED: Final = 3


class Pump:
    """Appends to ``writer`` until ``stop``. ``warnings``: for the user, each under a key. ``dropped``: how many
    redelivered messages were dropped (at-most-once). ``is_held_back``: whether the queue has messages that another
    consumer keeps from this one, as found by the last look. ``confirmed``: a record number and a time (ms): all
    copies of messages journaled before that time are records before that number, and no more come; None until the
    channel is settled. ``is_first``: whether no message of the queue was ever journaled."""

    def __init__(self, order: PumpOrder, writer: LogWriter, *, is_first: bool = False) -> None:
        self._order, self._writer = order, writer
        self.warnings: dict[str, str] = {}
        self.dropped = 0
        self.is_held_back = False
        self.confirmed: tuple[int, int] | None = None
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._journaled = writer.number
        self._committed = 0
        self._asked = self._drained = 0
        self._is_ready = False
        self._away = ""
        # Of the thread alone:
        self._noted_s = self._confirmed_s = 0.0
        self._settled_at = 0 if is_first else None
        self._repeated_to = 0
        self._held = Unacknowledged()
        self._inbox: list[tuple[Any, Any, bytes]] = []
        self._oldest_s = 0.0
        self._looks = 0
        self._has_moved = False
        self._name = order.queue.name
        self._consumer = ""
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

    def wait_until_ready(self, committed: int) -> None:
        """Return once it consumes. ``committed``: a checkpoint has counted the records before this number. Raises the
        error of a failed pump."""
        with self._changed:
            self._committed = max(self._committed, committed)
        self._wait(lambda: self._is_ready)

    def wait_until_drained(self, committed: int, enough: int) -> None:
        """Return once the journal has ``enough`` records, or all messages of the queue, or as many as may be
        unacknowledged. Raises the error of a failed pump."""
        asked = self.ask(committed)
        self._wait(lambda: self._drained >= asked or self._journaled >= enough)

    def ask(self, committed: int) -> int:
        """The number of a new question: is the queue drained, once the counted records are acknowledged?"""
        with self._changed:
            self._committed = max(self._committed, committed)
            self._asked += 1
            return self._asked

    def check(self) -> None:
        """Raise the error of a failed pump."""
        with self._changed:
            if self._error is not None:
                raise self._error

    def _wait(self, is_done: Callable[[], bool]) -> None:
        with self._changed:
            while not is_done() and self._error is None:
                clock.require_waiting(f"{self._order!r}: {self._away or 'it is not read to its end yet'}")
                self._changed.wait(_LOOK_SECONDS)
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
        failure = SourceError(
            f"{self._order!r}: {type(error).__name__}: {error}. Unacknowledged messages stay in the queue"
        )
        failure.__cause__ = error
        return failure

    def _pump(self) -> None:
        patience = self._order.patience
        since, limit_ms, connections = monotonic_s(), patience.connect_ms, 0
        while not self._stopped.is_set():
            began = monotonic_s()
            try:
                link = Link(self._order.place)
                try:
                    self._declare(link)
                    connections += 1
                    self._tell("recovered" if connections > 1 else "connected", repr(self._order))
                    self._note_back()
                    self._consume(link)
                finally:
                    link.close()
            except LinkRefused as error:
                raise SourceError(f"{self._order!r}: {error}. Unacknowledged messages stay in the queue") from error
            except LinkLost as error:
                now = monotonic_s()
                if self._is_ready:
                    limit_ms = patience.away_ms
                    # A connection that is lost again at once is no better than none.
                    since = now if self._has_moved or now - began > _LASTING_SECONDS else since
                    self._ready(False)
                    self._tell("lost", str(error))
                self._note_away(str(error), now - since, limit_ms)
                if (now - since) * 1_000 >= limit_ms:
                    raise SourceError(
                        f"{self._order!r}: no broker has answered for {limit_ms / 1_000:g} s: {error}. Start it, or "
                        "correct url=, and run again: unacknowledged messages stay in the queue"
                    ) from error
                self._stopped.wait(min(patience.recovery_ms, limit_ms) / 1_000)

    def _note_away(self, why: str, seconds: float, limit_ms: int) -> None:
        is_known, self._away = bool(self._away), why
        if is_known and monotonic_s() - self._noted_s < _NOTE_SECONDS:
            return
        self._noted_s = monotonic_s()
        text = "%r: no broker answers, for %.0f s of %s: %s"
        logger.warning(text, self._order, seconds, duration_text(limit_ms), why)

    def _note_back(self) -> None:
        if self._away:
            logger.warning("%r: the broker answers again", self._order)
        self._away = ""

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
        cancelled: list[Any] = []
        self._begin(link, cancelled.append)
        while not self._stopped.is_set():
            with self._order.place.failures():
                link.connection.process_data_events(time_limit=_WAIT_SECONDS)
            if cancelled:
                raise LinkRefused("the broker has cancelled the consumer: the queue was deleted. Create it again")
            self._turn(link)
        self._end(link)

    def _begin(self, link: Link, on_cancel: Callable[[Any], None]) -> None:
        """Begin to consume. What the previous channel delivered comes again."""
        if self._held.generation:
            self._settled_at = self.confirmed = None
        self._repeated_to = 0
        self._held.begin()
        self._inbox.clear()
        self._looks, self._has_moved = 0, False
        with self._order.place.failures():
            link.channel.basic_qos(prefetch_count=self._order.prefetch)
            link.channel.add_on_cancel_callback(on_cancel)
            self._consumer = link.channel.basic_consume(self._name, self._received, arguments=_NO_STREAM)
        self._ready(True)

    def _turn(self, link: Link) -> None:
        """Journal the received messages, acknowledge the counted ones, then answer whether the queue is drained."""
        with self._changed:
            # Both at once: what was counted before the question is acknowledged before the answer.
            committed, asked = self._committed, self._asked
        self._take(link.channel)
        self._acknowledge_committed(link.channel, committed)
        is_drained = asked != self._drained and self._is_drained(link)
        if is_drained or monotonic_s() - self._confirmed_s >= _CONFIRM_SECONDS:
            self._confirm(link)
        if is_drained:
            with self._changed:
                self._drained = asked
                self._changed.notify_all()

    def _confirm(self, link: Link) -> None:
        """Learn which messages cannot come again: the broker answers after it has processed what was acknowledged.

        A message that comes again is journaled again, at a later time. While this channel holds one, the time of its
        first record is not known.
        """
        self._confirmed_s = monotonic_s()
        first, since = self._held.first(self._writer.number + 1, self._writer.time)
        queue = self._look(link)
        if self._settled_at is None and queue.message_count == 0 and self._is_alone(queue.consumer_count):
            # All messages are delivered: those under way then have arrived before the second answer.
            self._look(link)
            self._take(link.channel)
            self._settled_at = self._writer.number
        if self._settled_at is not None and first > self._repeated_to:
            self.confirmed = self._settled_at, since

    def _is_alone(self, consumers: int) -> bool:
        """Whether no other consumer can hold messages, such as a driver that died and that the broker does not miss
        yet."""
        return consumers == 1 or (consumers > 1 and bool(self._order.queue.said.get("x-single-active-consumer")))

    def _look(self, link: Link) -> Any:
        """The broker's counts of the queue. Messages that it has delivered before its answer are received."""
        with self._order.place.failures():
            queue = link.channel.queue_declare(self._name, passive=True).method
            link.connection.process_data_events(time_limit=0)
        return queue

    def _end(self, link: Link) -> None:
        """End the deliveries, and journal the delivered messages; but where only a checkpoint acknowledges them, they
        return to the queue."""
        if self._order.acknowledge != CHECKPOINT:
            with self._order.place.failures():
                link.connection.process_data_events(time_limit=0)
                link.channel.basic_cancel(self._consumer)
            self._take(link.channel)
        self._acknowledge_committed(link.channel, self._committed)

    def _received(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._inbox.append((method, properties, body))

    def _take(self, channel: Any) -> None:
        """Journal the received messages, and acknowledge them in the order of ``acknowledge``."""
        received, self._inbox = self._inbox, []
        if not received:
            return
        self._move()
        self._watch(received)
        tags = [method.delivery_tag for method, _, _ in received]
        first = [item for item in received if self._order.acknowledge != AT_MOST_ONCE or not item[0].redelivered]
        place, cuts = repr(self._order), self._order.cuts
        frames = [fitted(properties, method.routing_key, body, place, cuts=cuts) for method, properties, body in first]
        if self._order.acknowledge == AT_MOST_ONCE:
            self._acknowledge(channel, tags[-1])
            self.dropped += len(received) - len(first)
        for entry in in_entries(frames):
            self._writer.append_many(entry)
            with self._changed:
                self._journaled = self._writer.number
                self._changed.notify_all()
            done, tags = tags[: len(entry)], tags[len(entry) :]
            if self._order.acknowledge == JOURNAL:
                self._acknowledge(channel, done[-1])
            elif self._order.acknowledge == CHECKPOINT:
                self._hold(done)
                if tags:
                    # Else the broker misses heartbeats, and delivers all of them again.
                    with self._order.place.failures():
                        channel.connection.process_data_events(time_limit=0)
        if any(method.redelivered for method, _, _ in received):
            self._repeated_to = self._journaled

    def _hold(self, tags: list[int]) -> None:
        """Remember the messages of the entry that was just journaled."""
        if not len(self._held):
            self._oldest_s = monotonic_s()
        end = self._writer.number + 1
        self._held.add(list(range(end - len(tags), end)), tags, self._writer.time)

    def _acknowledge_committed(self, channel: Any, committed: int) -> None:
        tag = self._held.up_to(committed)
        if tag is not None:
            self._acknowledge(channel, tag)
            self._oldest_s = monotonic_s()
            self._move()
        elif len(self._held) and (monotonic_s() - self._oldest_s) * 2_000 > self._order.consumer_timeout_ms:
            self.warnings["timeout"] = (
                f"{self._order!r}: messages have waited for their checkpoint for more than half of consumer_timeout, "
                f"{self._order.consumer_timeout_ms / 1_000:g} s, after which the broker closes the channel: make the "
                "steps shorter with step_rows= or a smaller prefetch="
            )

    def _acknowledge(self, channel: Any, tag: int) -> None:
        """All messages up to this tag. A failure of the journal is none of the connection."""
        with self._order.place.failures():
            channel.basic_ack(tag, multiple=True)

    def _move(self) -> None:
        """Note that messages were received, or may follow because others were acknowledged."""
        self._looks, self._has_moved = 0, True

    def _is_drained(self, link: Link) -> bool:
        """Whether no message follows for now: ``prefetch`` messages are unacknowledged; or, twice in a row, the queue
        has none, and none is in flight; or another consumer holds them."""
        self.is_held_back = False
        if len(self._held) >= self._order.prefetch:
            return True
        for _ in range(2):
            queue = self._look(link)
            if self._inbox:
                return False
            # A quorum queue without a leader reports 0 messages and 0 consumers, although we consume.
            if queue.message_count or not queue.consumer_count:
                return self._is_stalled()
        if queue.consumer_count > 1:
            self.warnings["others"] = (
                f"{self._order!r} has {queue.consumer_count - 1:,} other consumers. What they hold, or a driver that "
                "died and that the broker does not miss yet, is not counted now: it returns to the queue later"
            )
        return True

    def _is_stalled(self) -> bool:
        self._looks += 1
        self.is_held_back = self._looks >= _STALLED_LOOKS
        if self.is_held_back:
            self.warnings["stalled"] = (
                f"{self._order!r} has messages, but none was delivered for {_STALLED_LOOKS * _WAIT_SECONDS:g} s: "
                "another consumer holds them, or is the single active one"
            )
        return self.is_held_back

    def _watch(self, received: Sequence[tuple[Any, Any, bytes]]) -> None:
        counts = [(properties.headers or {}).get("x-delivery-count") for _, properties, _ in received]
        count_max = max((count for count in counts if isinstance(count, int)), default=0)
        if count_max >= _DELIVERIES_WARNED:
            self.warnings["deliveries"] = (
                f"{self._order!r} has delivered a message {count_max + 1} times: at its delivery limit, a quorum queue "
                "deletes it, unless it has a dead-letter exchange"
            )

    def _ready(self, is_ready: bool) -> None:
        with self._changed:
            self._is_ready = is_ready
            self._changed.notify_all()

    def _tell(self, kind: str, text: str) -> None:
        if self._order.on_event is not None:
            self._order.on_event(QueueEvent(kind, text))
