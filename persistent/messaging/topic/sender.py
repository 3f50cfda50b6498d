"""A topic sender publishes messages over TCP to all that have joined, and retains them for late joiners.

The rules are in ``persistent.messaging.topic.sending``; these are its connections, in a thread of its own. Each takes
from its outbox what it has room for, so a slow receiver delays nobody.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Self, SupportsIndex, cast

from persistent.errors import InvalidPipeline, Refused
from persistent.messaging.topic.loop_thread import LoopThread, settled
from persistent.messaging.topic.messages import TIMES, HangUp, Spoken
from persistent.messaging.topic.options import Retain, checked_topic
from persistent.messaging.topic.sending import BACKLOG_BYTES, MESSAGE_BYTES, Sending
from persistent.messaging.topic.wire import (
    PAYLOAD_BYTES_MAX,
    SENDER_HEARS_BYTES_MAX,
    TEXT_BYTES_MAX,
    Frames,
    Garbled,
    encode,
)
from persistent.time.clock import Duration, duration_ms, monotonic_s, wall_ms

_TICK_S = 0.1
_UNSENT_BYTES_MAX = 4 << 20
"""The number of bytes after which ``publish`` waits until the receivers that keep up have taken them."""
_BEHIND_BYTES = 512 << 10
"""A receiver whose connection has room, and for which more waits, is served before more is published."""
_PART_BYTES = 256 << 10
"""How much a connection takes at a time, and when it has room again."""


class TopicSender:
    """Publishes on ``topic`` at ``host`` and ``port`` (0: any free port). A session, which ends with this object.

    ``retain``: what is kept for late joins and for gaps; None: nothing, and late join is off. ``backlog_bytes``: how
    many bytes of live messages can wait for each receiver. InvalidPipeline if the port is in use.

    >>> with TopicSender("clicks", retain=Retain(age="1 min")) as sender:
    ...     sender.publish(b"one"), sender.publish(b"two")
    (0, 1)
    """

    def __init__(
        self,
        topic: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        retain: Retain | None = None,
        backlog_bytes: int = BACKLOG_BYTES,
    ) -> None:
        if retain is not None and not isinstance(retain, Retain):
            raise InvalidPipeline(f'retain={retain!r}: give Retain(age="10 min"), or None')
        self._sending = Sending(checked_topic(topic), uuid.uuid4().hex, retain, backlog_bytes)
        self._changed = threading.Condition()
        self._unsent_bytes = 0
        self._is_due = self._is_closing = self._closed = False
        self._links: dict[int, _SenderLink] = {}
        self._link = 0
        self._thread = LoopThread(f"topic {topic}", self._sockets)
        try:
            self._server = self._thread.loop.run_until_complete(
                self._thread.loop.create_server(lambda: _SenderLink(self), host, port, reuse_address=True)
            )
        except (OSError, OverflowError) as error:
            self._thread.loop.close()
            raise InvalidPipeline(
                f"TopicSender({topic!r}): cannot listen at {host}:{port}: {error}. Another sender may be "
                "running there: end it, or give another port; port=0 takes any free port"
            ) from error
        name = self._server.sockets[0].getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self._thread.start(self._tick, self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TopicSender({self._sending.topic!r} at {self.address})"

    @property
    def session(self) -> str:
        """The id of this life of the sender."""
        return self._sending.session

    @property
    def receivers(self) -> int:
        """The number of receivers that have joined."""
        with self._mine():
            return self._sending.receivers

    @property
    def retained(self) -> range:
        """The numbers of the retained messages."""
        with self._mine():
            return range(self._sending.retained.low, self._sending.retained.next)

    @property
    def forced(self) -> int:
        """The number of messages that the hard limit has dropped before their time."""
        return self._sending.retained.forced

    @property
    def dropped(self) -> int:
        """The number of live messages that found no room in the backlog of a receiver."""
        return self._sending.dropped

    @property
    def refused(self) -> int:
        """The number of connections that were refused or ended."""
        return self._sending.refused

    def publish(self, payload: bytes, time: int | None = None) -> int:
        """Send a message to all receivers; returns its number. ``time``: ms since the epoch, by default the time of
        day.

        Refused if it is too large, or if the sender was closed or belongs to another process. TypeError if it is not
        bytes, or the time not whole; ValueError if the time has more than 64 bits.
        """
        data = self._checked(payload)
        time_ms = wall_ms() if time is None else self._checked_time(time)
        with self._mine():
            while self._unsent_bytes > _UNSENT_BYTES_MAX and not self._closed:
                self._changed.wait()
            if self._closed or self._sending.ended:
                raise Refused(f"{self!r}: the sender was closed. Open another one, which begins another session")
            number = self._sending.publish(data, time_ms, self._now())
            if self._sending.receivers:
                self._unsent_bytes += len(data) + MESSAGE_BYTES
                self._wake()
        return number

    def _checked(self, payload: bytes) -> bytes:
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"{self!r}: a message is bytes, not {type(payload).__name__}: encode it first")
        size = memoryview(payload).nbytes
        if size > PAYLOAD_BYTES_MAX:
            raise Refused(f"{self!r}: a message has at most {PAYLOAD_BYTES_MAX:,} bytes, this one {size:,}")
        return bytes(payload)

    def _checked_time(self, time: Any) -> int:
        if not isinstance(time, SupportsIndex) or isinstance(time, bool):
            raise TypeError(f"{self!r}: time={time!r}: give whole milliseconds since 1970, such as int(1000 * seconds)")
        if (ms := int(time)) not in TIMES:
            raise ValueError(f"{self!r}: time={time!r}: give milliseconds since 1970, of at most 64 bits")
        return ms

    def close(self, linger: Duration = "5 s") -> None:
        """End the session. ``linger``: how long to wait for receivers that have not received everything yet, or have
        lost their connection so shortly before. An interrupt ends the wait, not the closing. In a forked process:
        nothing happens."""
        linger_ms = duration_ms(linger, "linger")
        if self._thread.is_elsewhere:
            return
        try:
            self._linger(linger_ms)
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._thread.stop()

    def _linger(self, linger_ms: int) -> None:
        """End the session and wait for receivers; in a second thread: for the first one."""
        with self._changed:
            if self._is_closing:
                self._changed.wait_for(lambda: self._closed)
                return
            self._is_closing, until = True, self._now() + linger_ms
            self._sending.end()
            self._wake()
            while not self._sending.is_received(self._now(), linger_ms) and (left := until - self._now()) > 0:
                self._changed.wait(min(left / 1_000, _TICK_S))

    def _mine(self) -> threading.Condition:
        """The lock. Refused in a forked process: the copy of a lock that was held at the fork stays held."""
        if self._thread.is_elsewhere:
            raise Refused(
                f"{self!r}: this sender belongs to process {self._thread.process}, which this process was forked from, "
                "and has no connection here. Open a TopicSender after the fork, at a port of its own"
            )
        return self._changed

    def _now(self) -> int:
        return int(monotonic_s() * 1_000)

    def _wake(self) -> None:
        """Have the connections take what waits for them. With the lock."""
        if not self._is_due:
            self._is_due = True
            self._thread.call(self._pump)

    # -- in the thread of the connections ----------------------------------------------------------------------------

    def _tick(self) -> None:
        with self._changed:
            self._sending.tick(self._now())
            overdue = self._sending.overdue(self._now())
            self._wake()
        for link in overdue:
            self._links[link].transport.abort()
        self._thread.loop.call_later(_TICK_S, self._tick)

    def _pump(self) -> None:
        with self._changed:
            self._is_due = False
        for link in list(self._links.values()):
            link.pump_soon()
        self._go_on()

    def _go_on(self) -> None:
        """Let ``publish`` go on, unless much waits for a connection that has room. A connection without room belongs to
        a slow receiver, which delays nobody."""
        with self._changed:
            if self._unsent_bytes <= _UNSENT_BYTES_MAX:
                return
            if any(
                link.has_room and self._sending.waiting_bytes(at) > _BEHIND_BYTES for at, link in self._links.items()
            ):
                return
            self._unsent_bytes = 0
            self._changed.notify_all()

    async def _end(self) -> None:
        # What was accepted before is a connection by now, and was ended; a closed server would forget it, open.
        await settled()
        self._server.close()
        for link in list(self._links.values()):
            link.pump()
            link.transport.close()
        self._thread.loop.call_soon(self._abort)

    def _abort(self) -> None:
        for link in self._links.values():
            link.transport.abort()

    def _sockets(self) -> Iterator[Any]:
        yield from self._server.sockets
        for link in list(self._links.values()):
            yield link.transport.get_extra_info("socket")

    def _linked(self, link: _SenderLink) -> int:
        self._link += 1
        self._links[self._link] = link
        with self._changed:
            self._sending.linked(self._link, self._now())
            self._wake()
        return self._link

    def _unlinked(self, link: int) -> None:
        self._links.pop(link, None)
        with self._changed:
            self._sending.unlinked(link, self._now())
            self._changed.notify_all()
        self._go_on()

    def _heard(self, link: int, messages: Sequence[Any]) -> None:
        with self._changed:
            for message in messages:
                self._sending.heard(link, message)
            self._changed.notify_all()
            self._wake()

    def _garbled(self, link: int, error: Garbled) -> None:
        """Send the reason, which the other end may understand, and hang up."""
        with self._changed:
            self._sending.refuse(link, str(error)[:TEXT_BYTES_MAX])
            self._wake()

    def _next(self, link: int) -> Spoken | HangUp | None:
        with self._changed:
            return self._sending.next(link)


class _SenderLink(asyncio.Protocol):
    """A connection to a receiver, or to whatever has dialled this port."""

    def __init__(self, sender: TopicSender) -> None:
        self._sender = sender
        self._frames = Frames(SENDER_HEARS_BYTES_MAX)
        self.has_room, self._is_due, self._is_over = True, False, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_PART_BYTES)
        self._link = self._sender._linked(self)
        if self._sender._closed:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            messages = self._frames.feed(data)
        except Garbled as error:
            self._is_over = True
            self._sender._garbled(self._link, error)
            return
        self._sender._heard(self._link, messages)

    def pause_writing(self) -> None:
        self.has_room = False

    def resume_writing(self) -> None:
        self.has_room = True
        self.pump_soon()

    def connection_lost(self, error: Exception | None) -> None:
        self._sender._unlinked(self._link)

    def pump_soon(self) -> None:
        """Take the next part of what waits, in turn with the other connections."""
        if not self._is_due:
            self._is_due = True
            self._sender._thread.loop.call_soon(self.pump)

    def pump(self) -> None:
        """Send what waits, up to a part, if there is room. A message that cannot be encoded, by a defect, takes no
        other along."""
        self._is_due = False
        frames: list[bytes] = []
        size = 0
        try:
            while self.has_room and size < _PART_BYTES and (message := self._sender._next(self._link)) is not None:
                if isinstance(message, HangUp):
                    self._hang_up(frames)
                    return
                frames.append(encode(message))
                size += len(frames[-1])
        finally:
            if frames and not self.transport.is_closing():
                self.transport.write(b"".join(frames))
                self.pump_soon()
            self._sender._go_on()

    def _hang_up(self, frames: list[bytes]) -> None:
        self.transport.write(b"".join(frames))
        frames.clear()
        self.transport.close()
