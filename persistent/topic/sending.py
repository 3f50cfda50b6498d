"""The sender as a state machine: its reaction to a publication, a message or the passing of time. No I/O.

- Every message has the next number, and goes to all receivers that have joined.
- A receiver joins with Hello, and the answer is the standing of the sender.
- A request is answered with the retained messages; for others the answer is that they are gone.
- The standing is repeated to all at intervals, so a receiver notices even the loss of the last message.

Its replies can be lost, repeated or delayed. The sender remembers only how far each receiver has everything.
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
    """Send this over these connections."""

    links: tuple[int, ...]
    said: Spoken


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a connection once everything before was sent."""

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
        """By connection: the number before which its receiver needs nothing."""

    @property
    def standing(self) -> Standing:
        return Standing(self.session, self.retained.low, self.retained.next, self._retains, self.ended)

    @property
    def receivers(self) -> int:
        """The number of receivers that have joined."""
        return len(self._joined)

    @property
    def is_received(self) -> bool:
        """Whether every receiver has confirmed that it has everything."""
        return all(have >= self.retained.next for have in self._joined.values())

    def publish(self, payload: bytes, time: int, now: int) -> list[SenderEffect]:
        """Send a new message to all receivers."""
        assert not self.ended
        message = Sent(self.session, self.retained.next, time, payload)
        self.retained.add(message, now)
        return self._to(self._joined, message)

    def end(self) -> list[SenderEffect]:
        """End the session. Retained messages are still sent again on request."""
        self.ended = True
        return self._to(self._joined, self.standing)

    def heard(self, link: int, said: Spoken) -> list[SenderEffect]:
        match said:
            case Hello(topic) if topic != self.topic:
                reason = f"this sender publishes the topic {self.topic!r}, not {topic!r}"
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
