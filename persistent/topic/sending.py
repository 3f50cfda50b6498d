"""The sender as a state machine: what it says, when something is published, heard, or time passes. No I/O.

- Every message has the next number, and goes to everyone who has joined.
- Who says Hello is told where the sender stands, and has joined.
- Who asks is sent again what is retained, and told what is gone.
- Everyone is told again and again where it stands: so a message lost at the end is missed too.

What it says may be lost, come twice or late: it keeps nothing of what a receiver has, but whether it has everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from persistent.topic.messages import Ask, Gone, Have, Hello, Refusal, Sent, Spoken, Standing
from persistent.topic.options import Retain
from persistent.topic.retention import Retained

BEAT_MS = 1_000


@dataclass(frozen=True, slots=True)
class Say:
    """Say this to receivers, by the numbers of their connections."""

    links: tuple[int, ...]
    said: Spoken


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a connection, after what was said on it."""

    link: int


SenderEffect = Say | HangUp


class Sending:
    """A session of a sender on ``topic``. Times are milliseconds of a clock that never goes back."""

    def __init__(self, topic: str, session: str, retain: Retain | None, beat_ms: int = BEAT_MS) -> None:
        self.topic = topic
        self.session = session
        self.retained = Retained(retain)
        self.ended = False
        self.resent = 0
        self._retains = retain is not None
        self._beat_ms = beat_ms
        self._beat_at = 0
        self._joined: dict[int, int] = {}
        """By connection: what its receiver needs nothing before of."""

    @property
    def standing(self) -> Standing:
        return Standing(self.session, self.retained.low, self.retained.next, self._retains, self.ended)

    @property
    def receivers(self) -> int:
        """How many have joined."""
        return len(self._joined)

    @property
    def is_received(self) -> bool:
        """Whether everyone who has joined has said to need nothing more."""
        return all(have >= self.retained.next for have in self._joined.values())

    def publish(self, payload: bytes, time: int, now: int) -> list[SenderEffect]:
        """A new message for everyone."""
        assert not self.ended
        message = Sent(self.session, self.retained.next, time, payload)
        self.retained.add(message, now)
        return self._to(self._joined, message)

    def end(self) -> list[SenderEffect]:
        """Nothing comes any more; what is retained is still sent again."""
        self.ended = True
        return self._to(self._joined, self.standing)

    def heard(self, link: int, said: Spoken) -> list[SenderEffect]:
        match said:
            case Hello(topic) if topic != self.topic:
                reason = f"this sender has the topic {self.topic!r}, and was asked for {topic!r}"
                return [*self._to([link], Refusal(reason)), HangUp(link)]
            case Hello(_, token):
                self._joined.setdefault(link, 0)
                return self._to([link], replace(self.standing, token=token))
            case Ask(session, first, stop) if session == self.session and link in self._joined:
                return self._answer(link, first, stop)
            case Have(session, next_) if session == self.session and link in self._joined:
                self._joined[link] = max(self._joined[link], next_)
        return []

    def unlinked(self, link: int) -> None:
        """A connection is gone."""
        self._joined.pop(link, None)

    def tick(self, now: int) -> list[SenderEffect]:
        """Time has passed."""
        self.retained.let_go(now)
        if now < self._beat_at:
            return []
        self._beat_at = now + self._beat_ms
        return self._to(self._joined, self.standing)

    def _answer(self, link: int, first: int, stop: int) -> list[SenderEffect]:
        found = self.retained.of(first, stop)
        self.resent += len(found)
        gone = self._to([link], Gone(self.session, self.retained.low)) if first < self.retained.low else []
        again = (Sent(one.session, one.number, one.time, one.payload, True) for one in found)
        return [*gone, *(effect for one in again for effect in self._to([link], one))]

    def _to(self, links: Iterable[int], said: Spoken) -> list[SenderEffect]:
        found = tuple(links)
        return [Say(found, said)] if found else []
