"""The sender as a state machine: its reaction to a publication, a message or the passing of time. No I/O.

- Every message has the next number, and goes to all receivers that have joined.
- A receiver joins with Hello, and the answer is the standing of the sender. Who says no Hello is hung up on.
- A request is answered with the retained messages; for others the answer is that they are gone.
- The standing is repeated to all at intervals, so a receiver notices even the loss of the last message.

Each connection has an outbox, and ``next`` takes from it while the connection has room. The sender remembers how far
each receiver has everything, and for a while those that have lost their connection: they may return.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from persistent.topic.messages import BEAT_MS, NUMBER_MAX, Ask, HangUp, Have, Hello, Leave, Sent, Spoken, Standing
from persistent.topic.options import Retain
from persistent.topic.outbox import Outbox
from persistent.topic.retention import Retained

BACKLOG_BYTES = 8 << 20
LINKS_MAX = 1_000
HELLO_MS = 10_000
"""How long a connection may say no Hello."""
FAREWELL_MS = 5_000
"""How long a connection stays open for what was sent before, once it is to end."""


@dataclass
class _Joined:
    """A receiver that has joined. ``have``: nothing before it is needed; -1 before its first word about it."""

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
        """By connection that has said no Hello: since when it stands."""
        self._joined: dict[int, _Joined] = {}
        self._ending: dict[int, int | None] = {}
        """By connection that was refused, or whose receiver leaves: since when; None until the next tick."""
        self._away: dict[int, int] = {}
        """By receiver that has lost its connection and still needs something: when that was."""

    @property
    def standing(self) -> Standing:
        return Standing(self.session, self.retained.low, self.retained.next, self._retains, self.ended)

    @property
    def receivers(self) -> int:
        """The number of receivers that have joined."""
        return len(self._joined)

    def is_received(self, now: int, linger: int = 0) -> bool:
        """Whether every receiver has confirmed that it has everything. One that has lost its connection is waited for
        as long as ``linger``: it may return."""
        some_return = any(now - since < linger for since in self._away.values())
        return not some_return and all(one.have >= self.retained.next for one in self._joined.values())

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

    # -- connections ---------------------------------------------------------------------------------------------

    def linked(self, link: int, now: int) -> None:
        """A connection was made. If there are too many, one that has said no Hello gives way."""
        is_full = len(self._silent) + len(self._joined) >= LINKS_MAX
        self._outboxes[link] = Outbox(self.session, self.retained, self._backlog_bytes)
        if is_full and not self._silent:
            most = f"this sender has {LINKS_MAX:,} receivers, the most that it serves"
            self.refuse(link, f"{most}: end some of them, or start another sender")
            return
        if is_full:
            self.refuse(next(iter(self._silent)))
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
                self._away.pop(next(iter(self._away)))

    def refuse(self, link: int, reason: str = "") -> None:
        """Hang up on a connection. ``reason``: what a receiver needs to know; one that is told does not return."""
        if link in self._outboxes:
            self.refused += 1
            self._hang_up(link, reason)

    def _hang_up(self, link: int, reason: str = "") -> None:
        self._ending.setdefault(link, None)
        self._silent.pop(link, None)
        self._joined.pop(link, None)
        self._outboxes[link].refuse(link, reason)

    def overdue(self, now: int) -> list[int]:
        """The connections to end that stand although their time is over: the other end does not read."""
        return [link for link, since in self._ending.items() if since is not None and now - since >= FAREWELL_MS]

    def heard(self, link: int, said: Spoken) -> None:
        match said:
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
        found = self._outboxes[link].next() if link in self._outboxes else None
        self.resent += isinstance(found, Sent) and found.again
        return found
