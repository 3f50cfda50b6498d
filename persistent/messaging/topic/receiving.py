"""The receiver as a state machine: it finds a sender, joins, and orders messages, session after session. No I/O.

A connection has a number and belongs to one sender. Messages over an older connection are ignored, so a message in
flight when a sender died cannot be taken for one of its successor.

seeking     dial and say Hello until the sender has reported its standing; after ``attempts``, give up
joined      order messages, request missing ones; after silence, seek again

To catch up takes the backlog divided by the difference of two rates. With ``behind`` messages missing, ``live``
published and ``rate`` handed out per second, it takes behind / (rate - live) seconds. If the live rate is not below the
recovery rate, it never catches up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from persistent.messaging.topic.messages import (
    Gone,
    HangUp,
    Have,
    Hello,
    Leave,
    MessagesLost,
    Refusal,
    Sent,
    SessionBegan,
    SessionEnded,
    Spoken,
    Standing,
    TopicEvent,
    TopicPlace,
)
from persistent.messaging.topic.options import JoinOptions
from persistent.messaging.topic.ordering import GONE, NOT_RETAINED, Ordering

_ANSWER_DISCOVERIES = 3
_ANSWER_MS = 1_000
"""How long an answer to Hello may take, at least, until a connection is given up."""
NOT_LATE = "they were published in the absence of this receiver, and it does not join late"


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to the sender under this number, and forget every other connection."""

    link: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Send this to the sender."""

    said: Spoken


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The receiver has ended. ``reason``: the fault; "" if its last session has ended and no other began."""

    reason: str


ReceiverEffect = Dial | HangUp | Tell | GiveUp | TopicEvent


class Receiving:
    """A receiver of ``topic`` that resumes from ``place``. Times are milliseconds of a clock that never goes back.

    ``follow``: after the end of a session, look for the next one until it appears. ``receiver``: by which a sender
    recognizes it over another connection.
    """

    def __init__(
        self,
        topic: str,
        options: JoinOptions,
        place: TopicPlace | None = None,
        *,
        follow: bool = False,
        receiver: int = 0,
    ) -> None:
        self.topic = topic
        self.place = place or TopicPlace()
        self.joined = False
        self.given_up = False
        self.ordering: Ordering | None = None
        self._options, self._follows, self._receiver = options, follow, receiver
        self._link = 0
        self._is_linked = False
        self._unanswered = 0
        """How many connections in a row were given up without an answer: a slow sender gets more time each time."""
        self._attempts = 0
        self._due = 0
        self._heard_at = 0
        self._meter = Meter()
        self._token = 0
        self.answered = (0, "", 0)
        """The token of the last answer, its session, and the number of the next message."""

    @property
    def tries(self) -> int:
        """The number of failed attempts to find a sender since the last answer."""
        return max(self._attempts - 1, 0)

    def look(self, token: int) -> list[ReceiverEffect]:
        """Ask for the standing of the sender. ``token``: higher than any before."""
        self._token = token
        return [self._hello()] if self._is_linked and not self.given_up else []

    def _hello(self) -> Tell:
        return Tell(Hello(self.topic, self._token, self._receiver))

    def leave(self) -> list[ReceiverEffect]:
        """Say that nothing more is needed, so that the sender does not wait for a return."""
        return [Tell(Leave())] if self._is_linked else []

    def catching_up(self) -> CatchUp:
        """How far the receiver is behind, and how long it needs to catch up."""
        return self._meter.estimate(self.ordering.behind if self.ordering is not None else 0)

    def linked(self, link: int, now: int) -> list[ReceiverEffect]:
        """A connection was made."""
        if link != self._link or self._is_linked or self.given_up:
            return [HangUp(link)]
        self._is_linked, self._heard_at, self._due = True, now, now + self._options.ms("discovery")
        return [self._hello()]

    def unlinked(self, link: int, now: int) -> list[ReceiverEffect]:
        """A connection is gone, or could not be made."""
        if link != self._link or self.given_up:
            return []
        if self.joined:
            self._due = now
        self._forget()
        return []

    def _forget(self) -> None:
        self._is_linked = self.joined = False
        self._meter = Meter()
        if self.ordering is not None:
            self.ordering.unlinked()

    def tick(self, now: int) -> list[ReceiverEffect]:
        """Time has passed."""
        if self.given_up:
            return []
        if self._is_linked and now - self._heard_at >= self._patience:
            # The other end can be gone without a word.
            link = self._link
            self._unanswered += not self.joined
            self._forget()
            self._due = now
            return [HangUp(link), *self.tick(now)]
        if self.joined and self.ordering is not None:
            effects = self._out(self.ordering.tick(now))
            self._meter.sample(now, self.ordering.stop, self.ordering.next)
            return [*effects, *self._asks(now, again=True)]
        if now < self._due:
            return []
        return self._seek(now)

    @property
    def _patience(self) -> int:
        """How long a connection may be silent: less without an answer to Hello, as probably no sender is there."""
        silence = self._options.ms("silence")
        if self.joined:
            return silence
        least = max(_ANSWER_DISCOVERIES * self._options.ms("discovery"), _ANSWER_MS)
        return min(silence, least << min(self._unanswered, 16))

    def _seek(self, now: int) -> list[ReceiverEffect]:
        self._attempts += 1
        if self._attempts > self._options.attempts and not (self._follows and self.place.ended):
            return [self._give_up(self._why_given_up())]
        self._due = now + self._options.ms("discovery")
        if self._is_linked:
            return [self._hello()]
        self._link += 1
        return [Dial(self._link)]

    def _give_up(self, reason: str) -> GiveUp:
        self.given_up = True
        return GiveUp(reason)

    def _why_given_up(self) -> str:
        if self.place.ended:
            return ""
        tries = f"no sender of the topic {self.topic!r} answered in {self._options.attempts} attempts"
        if self.ordering is None or not self.ordering.behind:
            return f"{tries}. Start the sender, or allow more attempts (attempts=)"
        return (
            f"{tries}; {self.ordering.behind:,} messages of its session {self.ordering.session} were not handed out, "
            f"from number {self.ordering.next} on. A receiver that resumes from this place requests them again"
        )

    def refused(self, link: int, reason: str) -> list[ReceiverEffect]:
        """The peer is not a sender of this release."""
        return [self._give_up(reason)] if link == self._link and not self.given_up else []

    def heard(self, link: int, messages: Sequence[Spoken], now: int) -> list[ReceiverEffect]:
        """These messages arrived over a connection, in this order. Without any, a part of a message arrived."""
        effects: list[ReceiverEffect] = []
        if not self._listens(link):
            return effects
        self._heard_at = now
        if not messages and self.joined and self.ordering is not None:
            self.ordering.moves(now)
        for message in messages:
            effects += self._hears(message, now)
            if not self._listens(link):
                return effects
        effects += self._asks(now, again=False)
        order = self.ordering
        if self.joined and order is not None and order.ended and not order.behind:
            effects.append(Tell(Have(order.session, order.next)))
        return effects

    def _listens(self, link: int) -> bool:
        return link == self._link and self._is_linked and not self.given_up

    def _hears(self, message: Spoken, now: int) -> list[ReceiverEffect]:
        order = self.ordering
        if isinstance(message, Refusal):
            return [self._give_up(message.reason)]
        if isinstance(message, Standing) and message.token:
            self.answered = (message.token, message.session, message.next)
        if isinstance(message, Standing) and not self.joined:
            return self._meets(message, now)
        if not self.joined or order is None:
            return []
        match message:
            case Standing(session=order.session):
                return self._out(order.stands(message, now))
            case Sent(session=order.session):
                return self._out(order.comes(message, now))
            case Gone(order.session, stop):
                return self._out(order.gone(stop, now))
        return []

    def _asks(self, now: int, *, again: bool) -> list[ReceiverEffect]:
        if not self.joined or self.ordering is None:
            return []
        return [Tell(ask) for ask in self.ordering.wanted(now, again=again)]

    def _out(self, events: Sequence[TopicEvent]) -> list[ReceiverEffect]:
        for event in events:
            self.place = self.place.after(event)
        return list(events)

    def _meets(self, standing: Standing, now: int) -> list[ReceiverEffect]:
        """A sender has answered for the first time on this connection."""
        known = self.place.known(standing.session)
        if known is not None and known > standing.next:
            reason = f"the sender is at {standing.next:,} in a session of which this receiver has {known:,} messages"
            return [self._give_up(f"{reason}: two senders share a session, or the place belongs to another one")]
        self.joined, self._attempts, self._unanswered = True, 0, 0
        events: list[TopicEvent] = []
        if self.ordering is None or self.ordering.session != standing.session:
            events += self._leave(standing.session)
            events += self._begin(standing, known)
        assert self.ordering is not None
        events += self.ordering.stands(standing, now)
        return self._out(events)

    def _leave(self, session: str) -> list[TopicEvent]:
        """End the previous session, if there was one."""
        place = self.place
        if not place.session or place.session == session or place.ended:
            return []
        return [SessionEnded(place.session, place.next, False)] if self.ordering is None else self.ordering.close()

    def _begin(self, standing: Standing, known: int | None) -> list[TopicEvent]:
        late, followed = self._options.late and standing.retains, bool(self.place.session)
        if known is not None:
            first, seam = known, standing.next if late else known
        else:
            first, seam = standing.low if late else standing.next, standing.next
            if not followed and self._options.last:
                first = max(first, standing.next - self._options.last)
        self.ordering = Ordering(standing.session, first, seam, self._options)
        if known is not None or not followed or not first:
            return [SessionBegan(standing.session, first, seam)]
        # A receiver that outlived its sender learns what it has missed since.
        reason = GONE if late else NOT_RETAINED if not standing.retains else NOT_LATE
        session = standing.session
        return [SessionBegan(session, 0, seam), MessagesLost(session, 0, first, reason)]


_SAMPLES = 6
_SAMPLE_MS = 1_000


@dataclass(frozen=True)
class CatchUp:
    """``behind``: messages known but not handed out. ``live``, ``rate``: messages published and handed out per second.
    ``seconds``: until it has caught up; 0 if it has, None while unknown, ``inf`` if it never will."""

    behind: int
    live: float = 0.0
    rate: float = 0.0
    seconds: float | None = None

    @property
    def never(self) -> bool:
        """Whether it falls behind for ever at the present rates."""
        return self.seconds == math.inf


def seconds_to_catch_up(behind: int, live: float, rate: float) -> float:
    """Seconds until no message is missing.

    >>> seconds_to_catch_up(9_000, live=100, rate=1_000), seconds_to_catch_up(1, live=50, rate=50)
    (10.0, inf)
    """
    if behind <= 0:
        return 0.0
    return behind / (rate - live) if rate > live else math.inf


class Meter:
    """Samples, over some seconds, of the end of a session and of how far it was handed out."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SAMPLES)

    def sample(self, now: int, stop: int, next_: int) -> None:
        """Record both numbers, at most once a second. ``now``: ms, never back."""
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now, stop, next_))

    def estimate(self, behind: int) -> CatchUp:
        """Estimate the time to catch up from the samples."""
        if len(self._samples) < 2:
            return CatchUp(behind, seconds=None if behind else 0.0)
        (began, stop0, next0), (ended, stop1, next1) = self._samples[0], self._samples[-1]
        seconds = (ended - began) / 1_000
        live, rate = (stop1 - stop0) / seconds, (next1 - next0) / seconds
        return CatchUp(behind, live, rate, seconds_to_catch_up(behind, live, rate))
