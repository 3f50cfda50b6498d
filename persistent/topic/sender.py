"""A topic sender publishes messages over TCP to all that have joined, and retains them for late joiners.

The rules are in ``persistent.topic.sending``; these are its connections, in a thread of its own. A slow receiver
delays no other: messages beyond its backlog are not sent to it, and it requests them later.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from persistent.clock import Duration, duration_ms, monotonic_s, wall_ms
from persistent.errors import InvalidPipeline, Refused
from persistent.topic.messages import Refusal, Sent
from persistent.topic.options import Retain, checked_topic
from persistent.topic.retention import MESSAGE_BYTES
from persistent.topic.sending import HangUp, Say, SenderEffect, Sending
from persistent.topic.wire import PAYLOAD_BYTES_MAX, SENDER_HEARS_BYTES_MAX, TEXT_BYTES_MAX, Frames, Garbled, encode

_TICK_S = 0.1
_LINKS_MAX = 1_000
_UNSENT_BYTES_MAX = 4 << 20
"""The number of bytes that can wait for the connection thread before ``publish`` waits too."""


class TopicSender:
    """Publishes on ``topic`` at ``host`` and ``port`` (0: any free port). A session, which ends with this object.

    ``retain``: what is kept for late joins and for gaps; None: nothing, and late join is off. ``backlog_bytes``: how
    many bytes can wait for each receiver. InvalidPipeline if the port is in use.

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
        backlog_bytes: int = 8 << 20,
    ) -> None:
        if retain is not None and not isinstance(retain, Retain):
            raise InvalidPipeline(f'retain={retain!r}: give Retain(age="10 min"), or None')
        self._backlog_bytes = backlog_bytes
        self._sending = Sending(checked_topic(topic), uuid.uuid4().hex, retain)
        self._changed = threading.Condition()
        self._waiting: list[SenderEffect] = []
        self._waiting_bytes = 0
        self._is_due = False
        self._links: dict[int, asyncio.Transport] = {}
        self._link = 0
        self._closed = False
        self.dropped = 0
        self.refused = 0
        self._loop = asyncio.new_event_loop()
        try:
            self._server = self._loop.run_until_complete(
                self._loop.create_server(lambda: _SenderLink(self), host, port, reuse_address=True)
            )
        except (OSError, OverflowError) as error:
            self._loop.close()
            raise InvalidPipeline(
                f"TopicSender({topic!r}): cannot listen at {host}:{port}: {error}. Another sender may be "
                "running there: end it, or give another port; port=0 takes any free port"
            ) from error
        name = self._server.sockets[0].getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self._thread = threading.Thread(target=self._run, name=f"topic {topic}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        with self._changed:
            return self._sending.receivers

    @property
    def retained(self) -> range:
        """The numbers of the retained messages."""
        with self._changed:
            return range(self._sending.retained.low, self._sending.retained.next)

    @property
    def forced(self) -> int:
        """The number of messages that the hard limit has dropped before their time."""
        return self._sending.retained.forced

    def publish(self, payload: bytes, time: int | None = None) -> int:
        """Send a message to all receivers; returns its number. ``time``: ms since the epoch, by default the time of
        day.

        Refused if it is too large or the sender was closed. TypeError if it is not bytes.
        """
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"{self!r}: a message is bytes, not {type(payload).__name__}: encode it first")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise Refused(f"{self!r}: a message has at most {PAYLOAD_BYTES_MAX:,} bytes, this one {len(payload):,}")
        with self._changed:
            while self._waiting_bytes > _UNSENT_BYTES_MAX and not self._closed:
                self._changed.wait()
            if self._closed or self._sending.ended:
                raise Refused(f"{self!r}: the sender was closed. Open another one, which begins another session")
            number = self._sending.standing.next
            time_ms = wall_ms() if time is None else time
            self._waiting_bytes += len(payload) + MESSAGE_BYTES if self._sending.receivers else 0
            self._do(self._sending.publish(bytes(payload), time_ms, self._now()))
        return number

    def close(self, linger: Duration = "5 s") -> None:
        """End the session. ``linger``: how long to wait for receivers that have not received everything yet."""
        until = monotonic_s() + duration_ms(linger, "linger") / 1_000
        with self._changed:
            if self._closed:
                return
            self._do(self._sending.end())
            while not self._sending.is_received and (left := until - monotonic_s()) > 0:
                self._changed.wait(min(left, _TICK_S))
            self._closed = True
            self._changed.notify_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # -- in any thread, with the lock --------------------------------------------------------------------------------

    def _do(self, effects: Sequence[SenderEffect]) -> None:
        """Send in the order of the state machine, in the thread of the connections."""
        self._waiting += effects
        if self._waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon_threadsafe(self._say)

    def _now(self) -> int:
        return int(monotonic_s() * 1_000)

    # -- in the thread of the connections ----------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._tick)
        self._loop.run_forever()
        self._say()
        self._server.close()
        for transport in self._links.values():
            transport.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        for transport in self._links.values():
            transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _tick(self) -> None:
        with self._changed:
            self._do(self._sending.tick(self._now()))
        self._loop.call_later(_TICK_S, self._tick)

    def _say(self) -> None:
        with self._changed:
            effects, self._waiting, self._is_due = self._waiting, [], False
            self._waiting_bytes = 0
            self._changed.notify_all()
        parts: dict[int, list[bytes]] = {}
        sizes: dict[int, int] = {}
        ending: list[int] = []
        for effect in effects:
            if isinstance(effect, HangUp):
                ending.append(effect.link)
                continue
            frame = encode(effect.said)
            for link in effect.links:
                if self._has_room(link, sizes.get(link, 0), effect):
                    parts.setdefault(link, []).append(frame)
                    sizes[link] = sizes.get(link, 0) + len(frame)
        for link, frames in parts.items():
            self._links[link].write(b"".join(frames))
        for link in ending:
            if link in self._links:
                self._links[link].close()

    def _has_room(self, link: int, size: int, effect: Say) -> bool:
        transport = self._links.get(link)
        if transport is None or transport.is_closing():
            return False
        fits = transport.get_write_buffer_size() + size <= self._backlog_bytes
        self.dropped += not fits and isinstance(effect.said, Sent)
        return fits

    def _linked(self, transport: asyncio.Transport) -> int:
        self._link += 1
        if len(self._links) >= _LINKS_MAX:
            transport.abort()
            self.refused += 1
        else:
            self._links[self._link] = transport
        return self._link

    def _unlinked(self, link: int) -> None:
        self._links.pop(link, None)
        with self._changed:
            self._sending.unlinked(link)
            self._changed.notify_all()

    def _heard(self, link: int, said: Sequence[Any]) -> None:
        with self._changed:
            for one in said:
                self._do(self._sending.heard(link, one))
            self._changed.notify_all()

    def _garbled(self, link: int, error: Garbled) -> None:
        """Send the reason, which the other end may understand, and hang up."""
        self.refused += 1
        with self._changed:
            self._do([Say((link,), Refusal(str(error)[:TEXT_BYTES_MAX])), HangUp(link)])


class _SenderLink(asyncio.Protocol):
    """A connection to a receiver, or to whatever has dialled this port."""

    def __init__(self, sender: TopicSender) -> None:
        self._sender = sender
        self._frames = Frames(SENDER_HEARS_BYTES_MAX)
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = self._sender._linked(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            said = self._frames.feed(data)
        except Garbled as error:
            self._is_over = True
            self._sender._garbled(self._link, error)
            return
        self._sender._heard(self._link, said)

    def connection_lost(self, error: Exception | None) -> None:
        self._sender._unlinked(self._link)
