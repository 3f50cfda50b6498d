"""A link is a connection to RabbitMQ with one channel, used by one thread. Its failures are of two kinds.

lost      the connection is gone, and can return; the fate of unacknowledged and unconfirmed messages is open
refused   the broker rejects the user, the virtual host, a queue or an exchange; it will do so again
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from persistent.clients.rabbit_headers import read_frame
from persistent.clients.secrets import without
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline

_SOCKET_SECONDS: Final = 10
_HEARTBEAT_SECONDS: Final = 30
_REMEDIES: Final = {
    403: "the user has no permission for this: give a valid user and password in url=, or the permissions it needs",
    404: "it does not exist: create it, or name it in topology=, which declares it",
    405: "another connection holds it exclusively: use a queue that is not exclusive",
    406: "it exists with other arguments: declare it with those, name it without declaring it, or delete it",
    530: "the virtual host does not exist, or this user has no access to it: create it, or name another in url=",
}
_STREAM: Final = "it is a stream, not a queue: read it with RabbitStreamSource"
_CODE: Final = re.compile(r"\((\d{3})[,)]")
_TIMED_OUT: Final = (
    "messages were not acknowledged for longer than its consumer_timeout: raise that of the broker, or make the steps "
    "shorter, with a smaller prefetch= or step_rows="
)


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
    given = {"connect_timeout": connect_timeout, "server_away": server_away, "recovery_interval": recovery_interval}
    try:
        return LinkPatience(*(duration_ms(value, name) for name, value in given.items()))
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error


def pika() -> Any:
    """The client of RabbitMQ. InvalidPipeline, with the extra to install, if it is missing."""
    try:
        import pika as client
    except ImportError as error:
        raise InvalidPipeline(
            f"queues of RabbitMQ need its client ({error}): pip install 'persistent-monoids[rabbitmq]'"
        ) from error
    return client


class RabbitPlace:
    """The address of a broker: its URL, whose password is never shown."""

    def __init__(self, url: Any) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise InvalidPipeline(
                "url= cannot be parsed (it is not shown, as it can hold a password): give "
                "'amqp://user:password@host:5672/virtual-host', with special characters escaped, such as %2F"
            )
        self._url = url
        self._secrets = {parts.password or "", unquote(parts.password or "")}
        port = f":{parts.port}" if parts.port else ""
        self.said = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def __repr__(self) -> str:
        return f"RabbitPlace({self.said!r})"

    def parameters(self) -> Any:
        """The connection parameters for pika."""
        found = pika().URLParameters(self._url)
        query = urlsplit(self._url).query
        found.heartbeat = found.heartbeat if "heartbeat" in query else _HEARTBEAT_SECONDS
        found.socket_timeout = found.stack_timeout = found.blocked_connection_timeout = _SOCKET_SECONDS
        return found

    def scrubbed(self, text: str) -> str:
        """A text of the client without the password."""
        return without(self._secrets, text, "...")

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn the errors of the client into LinkLost and LinkRefused."""
        errors = pika().exceptions
        try:
            yield
        except (errors.AMQPError, OSError) as error:
            raise self.failure(error) from error

    def failure(self, error: BaseException) -> Exception:
        """The meaning of an error of the client."""
        said = getattr(error, "reply_text", "") or "; ".join(map(_said, error.args)) or type(error).__name__
        text = self.scrubbed(said.partition("\n")[0]).strip()
        found = _CODE.search(said)
        code = getattr(error, "reply_code", None) or (int(found[1]) if found else 0)
        if code == 406 and "timed out" in said:
            return LinkRefused(f"{text}: {_TIMED_OUT}")
        if code == 406 and "rabbit_stream_queue" in said:
            return LinkRefused(_STREAM)
        if code in _REMEDIES:
            return LinkRefused(f"{text}: {_REMEDIES[code]}")
        if isinstance(error, pika().exceptions.AMQPChannelError):
            return LinkRefused(f"{text}: the broker has closed the channel")
        return LinkLost(text)


class Link:
    """A blocking connection with one channel. LinkLost, LinkRefused."""

    def __init__(self, place: RabbitPlace) -> None:
        quieten()
        self._place = place
        with place.failures():
            self.connection = pika().BlockingConnection(place.parameters(), _impl_class=_connection_class())
            self.channel = self.connection.channel()

    @property
    def version(self) -> str:
        """The version of the broker, such as "3.13.7"."""
        said = self.connection._impl.server_properties or {}
        return str(said.get("version", ""))

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queue."""
        with suppress(Exception):
            self.connection.close()


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
