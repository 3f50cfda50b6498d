"""What a sender and a receiver of a topic say to each other, and what a receiver hands out.

A *session* is one life of a sender: its messages are numbered from 0, without a hole. A sender that begins again has
another session. ``first`` and ``stop`` are a range of numbers: ``first <= number < stop``.
"""

from __future__ import annotations

from dataclasses import dataclass

ASK_MAX = 1_024
"""Of how many messages a receiver asks at once."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A receiver wants this topic, and asks where its sender stands. Said again until it is answered, with the
    ``token``."""

    topic: str
    token: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a sender stands: it retains the messages from ``low`` on, and will give the number ``next`` to the next.
    ``retains``: whether it sends again what is asked for. ``ended``: nothing comes after ``next``. ``token``: of the
    question that this answers, or 0."""

    session: str
    low: int
    next: int
    retains: bool
    ended: bool = False
    token: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """A message. ``time``: when it was published, ms; ``again``: it was asked for."""

    session: str
    number: int
    time: int
    payload: bytes
    again: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """What was asked for is no longer retained: nothing before ``stop``."""

    session: str
    stop: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A receiver asks for messages once more, for at most ``ASK_MAX``."""

    session: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Have:
    """A receiver needs nothing before ``next`` any more."""

    session: str
    next: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The sender will not serve this receiver, and why."""

    reason: str


Spoken = Hello | Standing | Sent | Gone | Ask | Have | Refusal


# -- what a receiver hands out, in order -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """From here on the messages are of this session, from number ``first`` on; ``next`` is the first that is live."""

    session: str
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message as a receiver hands it out. ``time``: when it was published, ms, by the clock of the sender.
    ``again``: it was sent once more, because it was asked for; ``gap``: it was missing among those that are live."""

    session: str
    number: int
    time: int
    payload: bytes
    again: bool = False
    gap: bool = False

    @property
    def delivery(self) -> str:
        """How it came: "retransmit", "late-join" or "live". What fills a gap was sent again too, so that is asked
        first.

        >>> TopicMessage("s", 4, 0, b"", again=True, gap=True).delivery, TopicMessage("s", 5, 0, b"").delivery
        ('retransmit', 'live')
        """
        if self.gap:
            return "retransmit"
        return "late-join" if self.again else "live"


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """The messages ``first <= number < stop`` will not come, and why."""

    session: str
    first: int
    stop: int
    reason: str

    def __len__(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Nothing more comes of this session. ``clean``: its sender said that ``next`` messages are all there were; else
    it is gone, and whether there were more than ``next`` is not known."""

    session: str
    next: int
    clean: bool


TopicEvent = SessionBegan | TopicMessage | MessagesLost | SessionEnded
