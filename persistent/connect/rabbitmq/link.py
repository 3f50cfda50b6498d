"""A link is a connection to RabbitMQ with one channel, used by one thread. Its failures are of two kinds.

lost      the connection is gone, and can return; the fate of unacknowledged and unconfirmed messages is open
refused   the broker rejects the user, the virtual host, a queue or an exchange; it will do so again
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from persistent.connect.rabbitmq.frames import read_frame
from persistent.connect.rabbitmq.topology import Queue, Topology
from persistent.connect.secrets import ESCAPED, is_cut, without
from persistent.errors import InvalidPipeline
from persistent.time.clock import Duration, option_ms

_DEFAULTS: Final = {
    "heartbeat": 30,
    "socket_timeout": 10,
    "stack_timeout": 10,
    "blocked_connection_timeout": 10,
}
"""Settings of the client, in seconds, unless the URL has others."""
_REMEDIES: Final = {
    403: "the user has no permission for this: give a valid user and password in url=, or the permissions it needs",
    404: "it does not exist: create it, or name it in topology=, which declares it",
    405: "another connection holds it exclusively: use a queue that is not exclusive",
    406: "it exists with other arguments: declare it with those, name it without declaring it, or delete it",
    530: "the virtual host does not exist, or this user has no access to it: create it, or name another in url=",
}
_CODE: Final = re.compile(r"\((\d{3})[,)]")
_MEANINGS: Final = (
    (
        403,
        "in exclusive use",
        "another consumer has the queue for itself: end that one, or let it consume without exclusive",
    ),
    (
        406,
        "timed out",
        "messages were not acknowledged for longer than its consumer_timeout: raise that of the broker, or make the "
        "steps shorter, with a smaller prefetch= or step_rows=",
    ),
    (406, "rabbit_stream_queue", "it is a stream, not a queue: read it with RabbitStreamSource"),
    (
        406,
        "larger than configured max size",
        "raise max_message_size of the broker; and give the sink that limit, max_message_bytes=, to hear of such a "
        "row before its checkpoint",
    ),
)
"""What a code means if the text of the broker has these words."""


class LinkLost(Exception):
    """The connection is gone, or cannot be made now."""


class LinkRefused(Exception):
    """The broker has refused. The text says what to do about it."""


@dataclass(frozen=True)
class LinkPatience:
    """How long to wait, in milliseconds: for a broker at the start of a run, during it, and between two attempts."""

    connect_ms: int
    away_ms: int
    recovery_ms: int


def patience(connect_timeout: Duration, server_away: Duration, recovery_interval: Duration) -> LinkPatience:
    """The options of these names, checked. InvalidPipeline."""
    options = {"connect_timeout": connect_timeout, "server_away": server_away, "recovery_interval": recovery_interval}
    return LinkPatience(*(option_ms(value, name) for name, value in options.items()))


def pika() -> Any:
    """The client of RabbitMQ. InvalidPipeline, with the extra to install, if it is missing."""
    try:
        import pika as client
    except ImportError as error:
        raise InvalidPipeline(
            f"queues of RabbitMQ need its client ({error}): pip install 'persistent-monoids[rabbitmq]'"
        ) from error
    return client


def _connecting() -> Any:
    """The module with the client's errors of a connection that cannot be made: ``exceptions`` lacks them."""
    from pika.adapters.utils import connection_workflow

    return connection_workflow


class RabbitPlace:
    """The address of a broker: its URL, whose password is never shown."""

    def __init__(self, url: Any) -> None:
        parts = _parts(url)
        if parts is None:
            raise InvalidPipeline(
                "url= cannot be parsed (it is not shown, as it can hold a password): give "
                f"'amqp://user:password@host:5672/virtual-host', with {ESCAPED}"
            )
        self._url = url
        self._secrets = {parts.password or "", unquote(parts.password or "")}
        port = f":{parts.port}" if parts.port else ""
        self.said = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        _check_query(parts)
        self.virtual_host: str = self.parameters().virtual_host

    def __repr__(self) -> str:
        return f"RabbitPlace({self.said!r})"

    def parameters(self) -> Any:
        """The connection parameters for pika."""
        parameters, query = pika().URLParameters(self._url), parse_qs(urlsplit(self._url).query)
        for name, value in _DEFAULTS.items():
            if name not in query:
                setattr(parameters, name, value)
        return parameters

    def scrubbed(self, text: str) -> str:
        """A text of the client without the password."""
        return without(self._secrets, text, "...")

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn the errors of the client into LinkLost and LinkRefused."""
        try:
            yield
        except (pika().exceptions.AMQPError, _connecting().AMQPConnectorException, OSError) as error:
            raise self.failure(error) from error

    def failure(self, error: BaseException) -> Exception:
        """The meaning of an error of the client."""
        if isinstance(error, _connecting().AMQPConnectorStackTimeout):
            return LinkLost("it accepts connections, and does not answer")
        report = getattr(error, "reply_text", "") or "; ".join(map(_said, error.args)) or type(error).__name__
        text = self.scrubbed(report.partition("\n")[0]).strip()
        match = _CODE.search(report)
        code = getattr(error, "reply_code", None) or (int(match[1]) if match else 0)
        for meant, words, meaning in _MEANINGS:
            if code == meant and words in report:
                return LinkRefused(f"{text}: {meaning}")
        if code in _REMEDIES:
            return LinkRefused(f"{text}: {_REMEDIES[code]}")
        if isinstance(error, pika().exceptions.AMQPChannelError):
            return LinkRefused(f"{text}: the broker has closed the channel")
        return LinkLost(text)


class Link:
    """A blocking connection with one channel, made within ``seconds``. LinkLost, LinkRefused."""

    def __init__(self, place: RabbitPlace, seconds: float = inf) -> None:
        quieten()
        parameters = place.parameters()
        parameters.stack_timeout = min(parameters.stack_timeout, seconds)
        with place.failures():
            self.connection = pika().BlockingConnection(parameters, _impl_class=_connection_class())
            self.channel = self.connection.channel()

    @property
    def version(self) -> str:
        """The version of the broker, such as "3.13.7"."""
        properties = self.connection._impl.server_properties or {}
        return str(properties.get("version", ""))

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Within, the connection is cut after ``seconds``: a broker that stands still is otherwise noticed only by its
        missing heartbeats."""
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        with suppress(Exception), socket.socket(fileno=os.dup(self.connection._impl._transport._sock.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queue."""
        with suppress(Exception):
            self.connection.close()


def _parts(url: Any) -> SplitResult | None:
    """The parts of a URL; None if it is not one, or if a special character may have cut the password off."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port
    except ValueError:
        return None
    is_url = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and port != 0
    cut = bool(parts.fragment) or "@" in parts.query or is_cut("", parts.path)
    is_half = parts.username is not None and parts.password is None
    return parts if is_url and not cut and not is_half else None


def _check_query(parts: SplitResult) -> None:
    """InvalidPipeline for a setting that the client does not know, or whose value it refuses."""
    client = pika()
    for name, values in parse_qs(parts.query).items():
        try:
            parameters = client.URLParameters(f"{parts.scheme}://host/?{urlencode({name: values}, doseq=True)}")
            refused = ""
        except Exception as error:
            refused = type(error).__name__
        # Raised outside the except clause, and without the value: it can hold a password.
        if refused:
            raise InvalidPipeline(
                f"url=: the client refuses {name}= in the query ({refused}): correct it, or omit it. It takes "
                "heartbeat, socket_timeout, ssl_options and other settings of pika.URLParameters, each once"
            )
        if name == "heartbeat" and not parameters.heartbeat:
            raise InvalidPipeline(
                "url=: without heartbeats a broker that is gone is never noticed: give ?heartbeat= some seconds, or "
                f"omit it for {_DEFAULTS['heartbeat']}"
            )


@cache
def _connection_class() -> Any:
    """The connection of the client, with our decoding of headers."""
    client = pika()

    class Connection(client.SelectConnection):  # type: ignore[misc, name-defined]
        def _read_frame(self) -> tuple[int, Any]:
            return read_frame(client.frame.decode_frame, self._frame_buffer)

    return Connection


def _said(cause: Any) -> str:
    """The text of the innermost error that has one."""
    several = getattr(cause, "exceptions", None) or [None]
    inner = several[-1] or getattr(cause, "exception", None) or getattr(cause, "__cause__", None)
    if isinstance(cause, BaseException):
        return _said(inner) if inner is not None else str(cause) or type(cause).__name__
    return str(cause)


def quieten() -> None:
    """Silence the client's log: it repeats, several times, every failure that we raise."""
    client = logging.getLogger("pika")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)


@dataclass
class Unacknowledged:
    """The received but unacknowledged messages of a consumer: the tag of each, by the record of the journal.

    A tag is valid only on the channel that delivered it. Tags of a closed channel are forgotten, because the broker
    delivers their messages again. ``generation``: how many channels have been opened.

    >>> held = Unacknowledged()
    >>> held.begin(); held.add([7, 8], [1, 2]); held.up_to(7), len(held)
    (1, 1)
    >>> held.begin(); held.up_to(100), len(held)
    (None, 0)
    """

    generation: int = 0
    _held: deque[tuple[int, int, int]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._held)

    def begin(self) -> None:
        """A new channel was opened."""
        self.generation += 1
        self._held.clear()

    def add(self, numbers: list[int], tags: list[int], time: int = 0) -> None:
        """Records of these numbers are journaled, at this time (ms). Both lists ascend."""
        self._held.extend((number, tag, time) for number, tag in zip(numbers, tags, strict=True))

    def first(self, number: int, time: int) -> tuple[int, int]:
        """The number and the time of the first unacknowledged record; ``number`` and ``time`` if there is none."""
        return self._held[0][::2] if self._held else (number, time)

    def up_to(self, number: int) -> int | None:
        """Remove the records up to this number; returns the tag of the last one, None if there is none. The caller
        acknowledges this tag and all before it."""
        tag = None
        while self._held and self._held[0][0] <= number:
            tag = self._held.popleft()[1]
        return tag


@dataclass(frozen=True)
class QueueEvent:
    """An event of a source's connection. ``kind``: "connected", "lost", "recovered" or "renamed" (the broker has given
    its queue another name); ``text``: details."""

    kind: str
    text: str


@dataclass(frozen=True)
class PumpOrder:
    """From which queue a pump takes messages, and how. ``declared``: whether to declare the queue, or require it to
    exist. ``cuts``: whether a message that no journal accepts becomes a dead letter."""

    place: RabbitPlace
    queue: Queue
    declared: bool
    topology: Topology
    acknowledge: str
    prefetch: int
    patience: LinkPatience
    consumer_timeout_ms: int
    on_event: Callable[[QueueEvent], None] | None
    cuts: bool = False

    def __repr__(self) -> str:
        return f"queue {self.queue.name!r} at {self.place.said}"
