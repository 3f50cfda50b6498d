"""A topic receiver hands out the messages of a topic in order, received over TCP, and reports lost ones.

The rules are in ``persistent.messaging.topic.receiving``; this is its connection, in a thread of its own. A slow
consumer receives less: while many messages wait for it, the connection is not read and time stands still.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self, cast

from persistent.errors import SourceError
from persistent.messaging.topic.loop_thread import LoopThread
from persistent.messaging.topic.messages import HangUp, SessionEnded, TopicEvent, TopicMessage, TopicPlace
from persistent.messaging.topic.options import JoinOptions, checked_address, checked_topic
from persistent.messaging.topic.receiving import CatchUp, Dial, GiveUp, ReceiverEffect, Receiving, Tell
from persistent.messaging.topic.wire import RECEIVER_HEARS_BYTES_MAX, Frames, Garbled, encode
from persistent.time.clock import Duration, duration_ms, monotonic_s

_TICK_S = 0.05
_WAITING_MAX = 20_000
_WAITING_BYTES_MAX = 64 << 20
_LEAP_S = 1.0
_FAREWELL_S = 2.0
"""How long a receiver that leaves waits for the sender to hang up."""
_RESET = struct.pack("ii", 1, 0)
"""An option of a socket: it leaves nothing behind that holds its port."""


class TopicReceiver:
    """Receives ``topic`` from the sender at ``address``, such as "127.0.0.1:7000", which can start later.

    ``options``: how to join. ``place``: the ``place`` of an earlier receiver, to resume from; without it, join anew.
    ``follow``: after the end of a session, look for the next one until it appears or ``close`` is called.

    >>> from persistent.topic import Retain, TopicSender
    >>> sender = TopicSender("clicks", retain=Retain(age="1 min"))
    >>> number = sender.publish(b"one")
    >>> with TopicReceiver(sender.address, "clicks") as receiver:
    ...     events = receiver.until_end()
    ...     began, message = next(events), next(events)
    ...     sender.close()
    ...     message.payload, message.delivery, len(list(events))
    (b'one', 'late-join', 1)
    """

    def __init__(
        self,
        address: str,
        topic: str,
        options: JoinOptions | None = None,
        *,
        place: TopicPlace | None = None,
        follow: bool = False,
    ) -> None:
        self._host, self._port = checked_address(address)
        self.address, self.topic = address, checked_topic(topic)
        options, receiver = options or JoinOptions(), 1 + uuid.uuid4().int % (2**32 - 1)
        self._receiving = Receiving(topic, options, place, follow=follow, receiver=receiver)
        self._changed = threading.Condition()
        self._events: deque[TopicEvent] = deque()
        self._fetched: deque[TopicEvent] = deque()
        """Events that a loop has taken and not yet handed out. They come before ``_events``."""
        self._events_bytes = 0
        self._end: str | None = None
        self._closed = self._is_paused = self._has_raised = False
        self._link = self._token = 0
        self._transport: asyncio.Transport | None = None
        self._hung_up = asyncio.Event()
        """Set when the connection in use has ended."""
        self._dialling: asyncio.Task[None] | None = None
        self._now_s, self._looked_s = 0.0, monotonic_s()
        self._thread = LoopThread(f"topic {topic}", self._sockets)
        self._thread.start(self._tick, self._leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TopicReceiver({self.topic!r} from {self.address})"

    def __iter__(self) -> Iterator[TopicEvent]:
        """All events in order, until no sender is found. SourceError, unless the last session has ended by then."""
        while True:
            self._mine()
            try:
                event = self._fetched.popleft()
            except IndexError:
                if not self._fetch() and self.has_ended:
                    return
                continue
            yield event

    def _fetch(self) -> bool:
        """Take many events at once, for a loop. They stay in the receiver: a loop that is left loses none of them."""
        with self._mine():
            self._fetched.extend(self.take())
            return bool(self._fetched)

    def until_end(self) -> Iterator[TopicEvent]:
        """Events up to the end of a session."""
        for event in self:
            yield event
            if isinstance(event, SessionEnded):
                return

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will arrive and everything was taken. A receiver that has given up has not ended until
        ``take`` has raised the reason."""
        with self._mine():
            is_taken = not self._events and not self._fetched
            return is_taken and (self._closed or self._end == "" or self._has_raised)

    def take(self, wait: Duration = "1 s", most: int = 10_000) -> list[TopicEvent]:
        """At most ``most`` events; none if nothing arrives within ``wait``. SourceError if the receiver has given up
        and everything was taken, or belongs to another process."""
        with self._mine():
            wait_s = duration_ms(wait, "wait") / 1_000
            if fetched := _popped(self._fetched, most):
                return fetched
            self._changed.wait_for(lambda: self._events or self._end is not None or self._closed, wait_s)
            events = _popped(self._events, most)
            self._events_bytes -= sum(map(_size, events))
            if not events and self._end:
                self._has_raised = True
                raise SourceError(f"{self!r}: {self._end}")
            if self._is_paused and self._has_room and not self._closed:
                self._thread.call(self._pause_or_go_on)
        return events

    def _mine(self) -> threading.Condition:
        """The lock. SourceError in a forked process: the copy of a lock that was held at the fork stays held."""
        if self._thread.is_elsewhere:
            raise SourceError(
                f"{self!r}: this receiver belongs to process {self._thread.process}, which this process was forked "
                "from, and has no connection here. Open a TopicReceiver after the fork"
            )
        return self._changed

    def catching_up(self) -> CatchUp:
        """How far the receiver is behind, and how long it needs to catch up."""
        with self._mine():
            return self._receiving.catching_up()

    def look(self) -> int:
        """Ask for the standing of the sender; returns the token of the answer."""
        with self._mine():
            self._token += 1
            token = self._token
            if not self._closed:
                self._thread.call(self._do, lambda now: self._receiving.look(token))
        return token

    @property
    def answered(self) -> tuple[int, str, int]:
        """The last answer: its token, the session, and the number of the next message at that time."""
        with self._mine():
            return self._receiving.answered

    @property
    def tries(self) -> int:
        """The number of failed attempts to find a sender since the last answer."""
        with self._mine():
            return self._receiving.tries

    def close(self) -> None:
        """Stop receiving. In a forked process: nothing happens."""
        if self._thread.is_elsewhere:
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.stop()

    # -- in the thread of the connection -----------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Tell the sender, which would wait for this receiver to return, and read until the sender has hung up."""
        if (transport := self._transport) is None:
            return
        messages = [effect.said for effect in self._receiving.leave() if isinstance(effect, Tell)]
        transport.write(b"".join(map(encode, messages)))
        if self._is_paused and not transport.is_closing():
            transport.resume_reading()
        self._hung_up.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hung_up.wait(), _FAREWELL_S)
        transport.abort()

    def _sockets(self) -> list[Any]:
        transport = self._transport
        return [] if transport is None else [transport.get_extra_info("socket")]

    def _now(self) -> int:
        """Milliseconds for timeouts. The time in which the process was suspended does not count."""
        looked = monotonic_s()
        self._now_s += min(looked - self._looked_s, _LEAP_S)
        self._looked_s = looked
        return int(self._now_s * 1_000)

    def _tick(self) -> None:
        if not self._is_paused:
            self._do(lambda now: self._receiving.tick(now))
        self._thread.loop.call_later(_TICK_S, self._tick)

    def _do(self, step: Callable[[int], Sequence[ReceiverEffect]]) -> None:
        """Take a step of the state machine and perform its effects."""
        frames = []
        with self._changed:
            if self._closed:
                return
            for effect in step(self._now()):
                match effect:
                    case Tell(message):
                        frames.append(encode(message))
                    case Dial(link):
                        self._dial(link)
                    case HangUp(link):
                        if link == self._link:
                            self._hang_up()
                    case GiveUp(reason):
                        self._end = reason
                        self._hang_up()
                    case _:
                        self._events.append(effect)
                        self._events_bytes += _size(effect)
            self._changed.notify_all()
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))
        self._pause_or_go_on()

    @property
    def _has_room(self) -> bool:
        return len(self._events) < _WAITING_MAX // 2 and self._events_bytes < _WAITING_BYTES_MAX // 2

    def _pause_or_go_on(self) -> None:
        transport, is_full = (
            self._transport,
            len(self._events) > _WAITING_MAX or self._events_bytes > _WAITING_BYTES_MAX,
        )
        if not self._is_paused and is_full:
            self._is_paused = True
            if transport is not None and not transport.is_closing():
                transport.pause_reading()
        elif self._is_paused and self._has_room:
            self._is_paused = False
            self._looked_s = monotonic_s()
            if transport is not None and not transport.is_closing():
                transport.resume_reading()

    def _dial(self, link: int) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
        self._hang_up()
        self._link = link
        self._dialling = self._thread.loop.create_task(self._connect(link))

    async def _connect(self, link: int) -> None:
        try:
            await self._thread.loop.create_connection(lambda: _ReceiverLink(self, link), self._host, self._port)
        except OSError:
            self._do(lambda now: self._receiving.unlinked(link, now))

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _linked(self, link: int, transport: asyncio.Transport) -> None:
        if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
            # Nobody listens there, and the port of this end happened to be the same. The sender needs it.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
            return
        if link != self._link or self._closed:
            transport.abort()
            return
        self._transport = transport
        self._do(lambda now: self._receiving.linked(link, now))

    def _unlinked(self, link: int, transport: asyncio.Transport) -> None:
        if transport is self._transport:
            self._transport = None
            self._hung_up.set()
        self._do(lambda now: self._receiving.unlinked(link, now))


class _ReceiverLink(asyncio.Protocol):
    """A connection to a sender, or to whatever listens there."""

    def __init__(self, receiver: TopicReceiver, link: int) -> None:
        self._receiver, self._link = receiver, link
        self._frames = Frames(RECEIVER_HEARS_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._receiver._linked(self._link, self._transport)

    def data_received(self, data: bytes) -> None:
        receiver, link = self._receiver, self._link
        try:
            messages = self._frames.feed(data)
        except Garbled as error:
            reason = f"the program there is not a sender of this release: {error}"
            receiver._do(lambda now: receiver._receiving.refused(link, reason))
            return
        receiver._do(lambda now: receiver._receiving.heard(link, messages, now))

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver._unlinked(self._link, self._transport)


def _size(event: TopicEvent) -> int:
    return len(event.payload) if isinstance(event, TopicMessage) else 0


def _popped(queue: deque[TopicEvent], count_max: int) -> list[TopicEvent]:
    """The first events of a queue, at most ``count_max``. Another thread may take some of them meanwhile."""
    events: list[TopicEvent] = []
    with suppress(IndexError):
        while len(events) < count_max:
            events.append(queue.popleft())
    return events
