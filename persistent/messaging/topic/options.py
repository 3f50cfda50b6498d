"""The options of a sender and a receiver, checked and in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from persistent.errors import InvalidPipeline
from persistent.messaging.topic.messages import ASK_MAX, MessagesLost
from persistent.messaging.topic.wire import TEXT_BYTES_MAX
from persistent.time.clock import Duration, duration_ms, option_ms

BYTES_MAX_MIN = 64 << 10


@dataclass(frozen=True)
class Retain:
    """What a sender retains for late joins and for gaps.

    ``age`` and ``bytes`` are minimums that both hold: a message is dropped once it is older than ``age`` *and* at least
    ``bytes`` remain without it. If both are 0, only the newest message is retained. ``bytes_max`` overrides both: no
    more is ever retained, except the newest message. Each message counts 64 bytes more than its payload.
    InvalidPipeline.
    """

    age: Duration = 0
    bytes: int = 0
    bytes_max: int = 24 << 20

    def __post_init__(self) -> None:
        option_ms(self.age, "age")
        _check_number("bytes", self.bytes, 0)
        _check_number("bytes_max", self.bytes_max, BYTES_MAX_MIN)
        if self.bytes > self.bytes_max:
            raise InvalidPipeline(
                f"{self!r}: bytes= is a minimum and bytes_max= a maximum: raise bytes_max, or lower bytes"
            )

    @property
    def age_ms(self) -> int:
        return duration_ms(self.age)


@dataclass(frozen=True)
class JoinOptions:
    """How a receiver joins, and how it recovers missing messages.

    ``late``: begin with the oldest message that the sender retains; False: with the next message. ``last``: begin with
    at most this many of the newest; 0: with all. ``recover``: request missing live messages; False: report them lost.
    ``window``: the most messages requested at a time, the oldest first. ``retry``: after this
    long without an answer a request is repeated; the delay doubles each time, up to ``retry_max``. ``timeout``: how
    long a message is requested before it is lost; only time in which the sender can be reached and no message arrives
    counts. ``gap_delay``: how long to wait before the first request, for
    networks that reorder. ``cache``: a live message waits for missing earlier ones if it is at most this many ahead;
    one further ahead is requested later. 0: none waits. ``burst``: a loss of more messages than this is called a burst.
    ``discovery``, ``attempts``: how often to look for the sender, and how many attempts to make before giving up.
    ``silence``: after this time without a word from the sender, look for it again. InvalidPipeline.
    """

    late: bool = True
    last: int = 0
    recover: bool = True
    window: int = 200
    retry: Duration = "500 ms"
    retry_max: Duration = "10 s"
    timeout: Duration = "1 min"
    gap_delay: Duration = 0
    cache: int = 5_000
    burst: int = 1_000
    discovery: Duration = "1 s"
    attempts: int = 60
    silence: Duration = "10 s"

    def __post_init__(self) -> None:
        for name, flag in (("late", self.late), ("recover", self.recover)):
            if not isinstance(flag, bool):
                raise InvalidPipeline(f"{name}={flag!r}: give True or False")
        for name, count in (("last", self.last), ("cache", self.cache), ("burst", self.burst)):
            _check_number(name, count, 0)
        for name, count in (("window", self.window), ("attempts", self.attempts)):
            _check_number(name, count, 1)
        if self.window > ASK_MAX:
            raise InvalidPipeline(f"window={self.window!r}: give at most {ASK_MAX:,} messages")
        durations = {"retry": self.retry, "retry_max": self.retry_max, "timeout": self.timeout}
        for name, duration in {**durations, "discovery": self.discovery, "silence": self.silence}.items():
            if option_ms(duration, name) < 1:
                raise InvalidPipeline(f"{name}={duration!r}: give at least 1 ms")
        option_ms(self.gap_delay, "gap_delay")

    def is_burst(self, lost: MessagesLost) -> bool:
        """Whether more messages are lost at once than ``burst``."""
        return len(lost) > self.burst

    def ms(self, name: str) -> int:
        """An option that is a duration, in milliseconds."""
        return duration_ms(getattr(self, name), name)


def _check_number(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidPipeline(f"{name}={value!r}: give a whole number, at least {least:,}")


def checked_topic(topic: str) -> str:
    """The name of a topic. InvalidPipeline."""
    if not isinstance(topic, str) or not topic or len(topic.encode()) > TEXT_BYTES_MAX // 2:
        raise InvalidPipeline(f"topic={topic!r}: give a name, of at most {TEXT_BYTES_MAX // 2} bytes")
    return topic


def checked_address(address: str) -> tuple[str, int]:
    """Host and port of ``"127.0.0.1:7000"``. InvalidPipeline.

    >>> checked_address("127.0.0.1:7000"), checked_address("[::1]:7000")
    (('127.0.0.1', 7000), ('::1', 7000))
    """
    if isinstance(address, str) and "@" in address:
        raise InvalidPipeline(
            "address= has a user or a password (it is not shown), which topics do not know: give host and port, such "
            'as "127.0.0.1:7000"'
        )
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not port.isdecimal() or not port.isascii() or not 0 < int(port) < 2**16:
        raise InvalidPipeline(f'address={address!r}: give host and port, such as "127.0.0.1:7000"')
    return host.removeprefix("[").removesuffix("]"), int(port)
