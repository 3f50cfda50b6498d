"""The messages of the protocol between sender and receiver, and the events that a receiver hands out.

A *session* is one life of a sender: its messages are numbered from 0, without a hole. A restarted sender has another
session. ``first`` and ``stop`` are a range of numbers: ``first <= number < stop``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ASK_MAX = 1_024
"""The most messages that one ``Ask`` requests."""
NUMBER_MAX = 2**63 - 1
"""Of a message."""
TIMES = range(-(2**63), 2**63)
"""The times that a message can have, in ms since the epoch."""
BEAT_MS = 1_000
"""How often a sender reports its standing."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A receiver joins this topic and asks for the standing of its sender. It is repeated until an answer with the
    ``token`` arrives. ``receiver``: the same over all its connections, so that the sender recognizes it when it
    returns. Both have 32 bits."""

    topic: str
    token: int = 0
    receiver: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of a sender: it retains the messages from ``low`` on, and ``next`` is the number of the next
    message. ``retains``: whether it sends requested messages again. ``ended``: nothing follows ``next``. ``token``: of
    the ``Hello`` that this answers, or 0."""

    session: str
    low: int
    next: int
    retains: bool
    ended: bool = False
    token: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """A message. ``time``: when it was published, ms; ``again``: it was requested."""

    session: str
    number: int
    time: int
    payload: bytes
    again: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Requested messages are no longer retained: none before ``stop``."""

    session: str
    stop: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A receiver requests messages again, at most ``ASK_MAX``."""

    session: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Have:
    """A receiver no longer needs anything before ``next``."""

    session: str
    next: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A receiver needs nothing more, even if it does not know the session yet. The sender hangs up, not the receiver:
    if the receiver hung up while the sender was writing, this message could be lost with the connection."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The sender will not serve this receiver, and why."""

    reason: str


Spoken = Hello | Standing | Sent | Gone | Ask | Have | Refusal | Leave


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a connection once everything that waits before this was sent."""

    link: int


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """The following messages are of this session, from number ``first`` on; ``next`` is the first live one."""

    session: str
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message as a receiver hands it out. ``time``: when it was published, ms, by the clock of the sender.
    ``again``: it was requested and sent again; ``gap``: it was missing among the live messages."""

    session: str
    number: int
    time: int
    payload: bytes
    again: bool = False
    gap: bool = False

    @property
    def delivery(self) -> str:
        """How it arrived: "retransmit", "late-join" or "live". A message that fills a gap is a retransmission, although
        it was requested like the messages of a late join.

        >>> TopicMessage("s", 4, 0, b"", again=True, gap=True).delivery, TopicMessage("s", 5, 0, b"").delivery
        ('retransmit', 'live')
        """
        if self.gap:
            return "retransmit"
        return "late-join" if self.again else "live"


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """The messages ``first <= number < stop`` are lost. ``reason``: why."""

    session: str
    first: int
    stop: int
    reason: str

    def __len__(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is over. ``clean``: its sender said that it had ``next`` messages; otherwise the sender is gone, and
    it is unknown whether it had published more than ``next``."""

    session: str
    next: int
    clean: bool


TopicEvent = SessionBegan | TopicMessage | MessagesLost | SessionEnded


LEFT_MAX = 64


@dataclass(frozen=True)
class TopicPlace:
    """How far a receiver has come: of ``session``, it needs no message before ``next``. ``ended``: it needs nothing
    more of this session. ``left``: the ``next`` of earlier sessions, the oldest first. A receiver that meets an earlier
    session again, as behind a proxy, resumes there."""

    session: str = ""
    next: int = 0
    ended: bool = False
    left: Mapping[str, int] = field(default_factory=dict)

    def after(self, event: TopicEvent) -> TopicPlace:
        """The place after one more event.

        >>> TopicPlace().after(SessionBegan("s", 4, 9)).after(MessagesLost("s", 4, 7, "")).next
        7
        """
        match event:
            case SessionBegan(session, first, _) if session != self.session:
                left = {name: next_ for name, next_ in self.left.items() if name != session}
                left.update({self.session: self.next} if self.session else {})
                return TopicPlace(session, first, False, dict(list(left.items())[-LEFT_MAX:]))
            case SessionBegan():
                return self
            case TopicMessage(session, number):
                return TopicPlace(session, number + 1, False, self.left)
            case MessagesLost(session, _, stop):
                return TopicPlace(session, stop, False, self.left)
            case SessionEnded(session, next_, _):
                return TopicPlace(session, next_, True, self.left)

    def known(self, session: str) -> int | None:
        """The first number that the receiver needs of a session; None for a session that it has not seen."""
        return self.next if session == self.session else self.left.get(session)

    def encoded(self) -> bytes:
        """The place as bytes, for the mark of a log."""
        fields = {"session": self.session, "next": self.next, "ended": self.ended, "left": [*self.left.items()]}
        return json.dumps(fields, separators=(",", ":")).encode()

    @staticmethod
    def decoded(data: bytes) -> TopicPlace:
        """The place of such bytes, or the beginning if there are none. ValueError, KeyError, TypeError for other
        bytes."""
        if not data:
            return TopicPlace()
        fields: dict[str, Any] = json.loads(data)
        left = {str(session): int(next_) for session, next_ in fields["left"]}
        return TopicPlace(str(fields["session"]), int(fields["next"]), bool(fields["ended"]), left)
