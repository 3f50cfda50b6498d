"""The sender as a state machine: its reaction to a publication, a message or the passing of time. No I/O.

- Every message has the next number, and goes to all receivers that have joined.
- A receiver joins with Hello, and the answer is the standing of the sender. A connection without one is ended.
- The sender answers a request with the messages that it retains, and reports that the others are gone.
- The standing is repeated to all at intervals, so a receiver notices even the loss of the last message.

Each connection has an outbox, and ``next`` takes from it while the connection has room. The sender remembers up to
which number each receiver has everything. It also remembers receivers that lost their connection: they may return.

An outbox holds what waits for one receiver.

Live messages and standings wait in their order, up to a limit of bytes. A live message beyond the limit is dropped; the
receiver notices, and requests it. Requested messages are remembered by number alone, so they take no room, are never
dropped, and a repeated request changes nothing. They are sent oldest first. Live and requested messages take turns, by
bytes: while both wait, each kind gets half of the connection.

The sender retains the newest messages of its session, without a hole. It drops a message when both minimums allow it,
or when the hard limit is exceeded. It always keeps the newest.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, replace

from persistent.messaging.topic.messages import (
    ASK_MAX,
    BEAT_MS,
    NUMBER_MAX,
    Ask,
    Gone,
    HangUp,
    Have,
    Hello,
    Leave,
    Refusal,
    Sent,
    Spoken,
    Standing,
)
from persistent.messaging.topic.options import Retain

BACKLOG_BYTES = 8 << 20
LINKS_MAX = 1_000
HELLO_MS = 10_000
"""How long a connection may last without a Hello."""
FAREWELL_MS = 5_000
"""How long a connection that is to end stays open, so that what was sent before arrives."""


@dataclass
class _Joined:
    """A receiver that has joined. ``have``: it needs no message before this number; -1 until it reports one."""

    receiver: int
    have: int = -1


class Sending:
    """A session of a sender on ``topic``. Times are milliseconds of a clock that never goes back.

    ``backlog_bytes``: how much may wait for each receiver. ``dropped``: how many live messages found no room;
    ``resent``: how many were sent again on request; ``refused``: how many connections were hung up on.
    """

    def __init__(self, topic: str, session: str, retain: Retain | None, backlog_bytes: int = BACKLOG_BYTES) -> None:
        self.topic = topic
        self.session = session
        self.retained = Retained(retain)
        self.ended = False
        self.dropped = self.resent = self.refused = 0
        self._retains = retain is not None
        self._backlog_bytes = backlog_bytes
        self._beat_at = 0
        self._outboxes: dict[int, Outbox] = {}
        self._silent: dict[int, int] = {}
        """For each connection without a Hello so far: when it was made."""
        self._joined: dict[int, _Joined] = {}
        self._ending: dict[int, int | None] = {}
        """For each connection that was refused, or whose receiver leaves: since when; None until the next tick."""
        self._away: dict[int, int] = {}
        """For each receiver that still needs messages, and has lost its connection: when it lost it."""

    @property
    def standing(self) -> Standing:
        return Standing(self.session, self.retained.low, self.retained.next, self._retains, self.ended)

    @property
    def receivers(self) -> int:
        """The number of receivers that have joined."""
        return len(self._joined)

    def is_received(self, now: int, linger: int = 0) -> bool:
        """Whether every receiver has confirmed that it has everything. A receiver that lost its connection less than
        ``linger`` ms ago counts as one that has not: it may return."""
        some_return = any(now - since < linger for since in self._away.values())
        return not some_return and all(joined.have >= self.retained.next for joined in self._joined.values())

    def publish(self, payload: bytes, time: int, now: int) -> int:
        """Send a new message to all receivers; returns its number."""
        assert not self.ended
        message = Sent(self.session, self.retained.next, time, payload)
        self.retained.add(message, now)
        for link in self._joined:
            self.dropped += not self._outboxes[link].put(message)
        return message.number

    def end(self) -> None:
        """End the session. Retained messages are still sent again on request."""
        self.ended = True
        self._report()

    def tick(self, now: int) -> None:
        """Time has passed."""
        self.retained.let_go(now)
        self._ending = {link: now if since is None else since for link, since in self._ending.items()}
        for link in [link for link, since in self._silent.items() if now - since >= HELLO_MS]:
            self.refuse(link)
        if now >= self._beat_at:
            self._beat_at = now + BEAT_MS
            self._report()

    def _report(self) -> None:
        for link in self._joined:
            self._outboxes[link].report(self.standing)

    def linked(self, link: int, now: int) -> None:
        """A connection was made. If there are too many, a connection without a Hello gives way."""
        is_full = len(self._silent) + len(self._joined) >= LINKS_MAX
        self._outboxes[link] = Outbox(self.session, self.retained, self._backlog_bytes)
        if is_full and not self._silent:
            text = f"this sender has {LINKS_MAX:,} receivers, the most that it serves"
            self.refuse(link, f"{text}: end some of them, or start another sender")
            return
        if is_full:
            first, *_ = self._silent
            self.refuse(first)
        self._silent[link] = now

    def unlinked(self, link: int, now: int) -> None:
        """A connection is gone."""
        self._outboxes.pop(link, None)
        self._ending.pop(link, None)
        self._silent.pop(link, None)
        gone = self._joined.pop(link, None)
        needed = self.retained.next if self.ended else NUMBER_MAX
        if gone is not None and gone.have < needed:
            self._away.pop(gone.receiver, None)
            self._away[gone.receiver] = now
            if len(self._away) > LINKS_MAX:
                first, *_ = self._away
                del self._away[first]

    def refuse(self, link: int, reason: str = "") -> None:
        """Hang up on a connection. ``reason``: sent to the receiver, which then does not return; "" sends none."""
        if link in self._outboxes:
            self.refused += 1
            self._hang_up(link, reason)

    def _hang_up(self, link: int, reason: str = "") -> None:
        self._ending.setdefault(link, None)
        self._silent.pop(link, None)
        self._joined.pop(link, None)
        self._outboxes[link].refuse(link, reason)

    def overdue(self, now: int) -> list[int]:
        """The connections that still exist ``FAREWELL_MS`` after they were to end: the other end does not read."""
        return [link for link, since in self._ending.items() if since is not None and now - since >= FAREWELL_MS]

    def heard(self, link: int, message: Spoken) -> None:
        match message:
            case Hello(topic) if topic != self.topic:
                self.refuse(link, f"this sender publishes the topic {self.topic!r}, not {topic!r}")
            case Hello(_, token, receiver) if link in self._silent or link in self._joined:
                self._silent.pop(link, None)
                self._away.pop(receiver, None)
                self._joined.setdefault(link, _Joined(receiver))
                self._outboxes[link].report(replace(self.standing, token=token))
            case Ask(session, first, stop) if session == self.session and link in self._joined:
                self._outboxes[link].ask(first, stop)
            case Have(session, next_) if session == self.session and link in self._joined:
                self._joined[link].have = max(self._joined[link].have, next_)
            case Leave() if link in self._outboxes:
                self._hang_up(link)

    def waiting_bytes(self, link: int) -> int:
        """How many bytes of live messages wait for a connection."""
        return self._outboxes[link].bytes if link in self._outboxes else 0

    def next(self, link: int) -> Spoken | HangUp | None:
        """What to send next over a connection, or None."""
        message = self._outboxes[link].next() if link in self._outboxes else None
        self.resent += isinstance(message, Sent) and message.again
        return message


ASKED_MAX = 4 * ASK_MAX
"""How many requested messages are remembered. A receiver has at most ``ASK_MAX`` pending, and repeats the others."""


class Outbox:
    """What waits for one receiver of ``session``. ``bytes_max``: of live messages; one alone may have more."""

    def __init__(self, session: str, retained: Retained, bytes_max: int) -> None:
        self._session, self._retained, self._bytes_max = session, retained, bytes_max
        self._queue: deque[Spoken | HangUp] = deque()
        self._bytes = 0
        self._asked: list[int] = []
        """A heap of the numbers in ``_is_asked``."""
        self._is_asked: set[int] = set()
        self._is_gone = self._is_over = False
        self._lead = 0
        """By how many bytes the requested messages are ahead of the others, while both wait."""

    @property
    def bytes(self) -> int:
        """How many bytes of live messages wait."""
        return self._bytes

    def put(self, message: Sent) -> bool:
        """Whether a live message has room. Otherwise it is dropped."""
        if self._is_over or (self._bytes and self._bytes + _size(message) > self._bytes_max):
            return False
        self._queue.append(message)
        self._bytes += _size(message)
        return True

    def report(self, standing: Standing) -> None:
        """Send the standing, after the messages before it. The last one in the queue is replaced."""
        if self._is_over:
            return
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Standing):
            self._queue.pop()
            standing = replace(standing, token=max(standing.token, last.token))
        self._queue.append(standing)

    def ask(self, first: int, stop: int) -> None:
        """Send these messages again as room comes, or that they are gone."""
        low = self._retained.low
        self._is_gone = self._is_gone or first < low
        for number in range(max(first, low), min(stop, self._retained.next)):
            if number not in self._is_asked and len(self._asked) < ASKED_MAX:
                self._is_asked.add(number)
                heapq.heappush(self._asked, number)

    def refuse(self, link: int, reason: str = "") -> None:
        """Say why, if there is a reason, and hang up. Nothing else is sent."""
        self._queue.clear()
        self._bytes = 0
        self._queue.extend([*([Refusal(reason)] if reason else []), HangUp(link)])
        self._asked, self._is_over = [], True

    def next(self) -> Spoken | HangUp | None:
        """The next thing to send, or None."""
        while self._asked and self._asked[0] < self._retained.low:
            self._pop_asked()
            self._is_gone = True
        if self._is_gone and not self._is_over:
            self._is_gone = False
            return Gone(self._session, self._retained.low)
        if not self._asked or not self._queue:
            self._lead = 0
        if self._asked and (self._lead <= 0 or not self._queue):
            (message,) = self._retained.of(self._asked[0], self._asked[0] + 1)
            self._pop_asked()
            self._lead += _size(message)
            return replace(message, again=True)
        return self._next_live() if self._queue else None

    def _next_live(self) -> Spoken | HangUp:
        message = self._queue.popleft()
        if isinstance(message, Sent):
            self._bytes -= _size(message)
            self._lead -= _size(message)
        return message

    def _pop_asked(self) -> None:
        self._is_asked.discard(heapq.heappop(self._asked))


def _size(message: Sent) -> int:
    return len(message.payload) + MESSAGE_BYTES


MESSAGE_BYTES = 64
"""The bytes that a message counts in addition to its payload."""
_COMPACT_MIN = 1_024


class RetainedRow:
    """The retained messages with their times, oldest first. Any message is reached at once; a deque would go step by
    step to a message in the middle of millions."""

    def __init__(self) -> None:
        self._items: list[tuple[int, Sent] | None] = []
        self._gone = 0
        """How many places at the beginning are empty."""

    def __len__(self) -> int:
        return len(self._items) - self._gone

    def __getitem__(self, index: int) -> tuple[int, Sent]:
        item = self._items[self._gone + index]
        assert item is not None
        return item

    def append(self, item: tuple[int, Sent]) -> None:
        self._items.append(item)

    def popleft(self) -> None:
        """Drop the oldest."""
        self._items[self._gone] = None
        self._gone += 1
        if self._gone >= _COMPACT_MIN and 2 * self._gone > len(self._items):
            del self._items[: self._gone]
            self._gone = 0


class Retained:
    """The messages ``low <= number < next``. ``forced``: how many were dropped by the hard limit alone, before their
    time. Without ``retain`` no message is kept."""

    def __init__(self, retain: Retain | None) -> None:
        self._retain = retain
        self._messages = RetainedRow()
        self.bytes = 0
        self.next = 0
        self.forced = 0

    @property
    def low(self) -> int:
        return self.next - len(self._messages)

    def add(self, message: Sent, now: int) -> None:
        """Retain one more message, and drop the expired ones. ``now``: ms, never back."""
        assert message.number == self.next
        self.next += 1
        if self._retain is not None:
            self._messages.append((now, message))
            self.bytes += _size(message)
            self.let_go(now)

    def let_go(self, now: int) -> None:
        """Drop the messages that have expired or exceed the limit."""
        while self._retain is not None and len(self._messages) > 1:
            added, oldest = self._messages[0]
            is_old = not self._retain.age_ms or now - added > self._retain.age_ms
            may = is_old and self.bytes - _size(oldest) >= self._retain.bytes
            if not may and self.bytes <= self._retain.bytes_max:
                return
            self.forced += not may
            self.bytes -= _size(oldest)
            self._messages.popleft()

    def of(self, first: int, stop: int) -> list[Sent]:
        """The retained messages of a range."""
        low = self.low
        return [self._messages[number - low][1] for number in range(max(first, low), min(stop, self.next))]
