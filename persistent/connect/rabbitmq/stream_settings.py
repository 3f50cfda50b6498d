"""The settings of a RabbitMQ stream connection: which of them users may set, and which texts must never be shown."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from persistent.connect.secrets import without
from persistent.errors import InvalidPipeline
from persistent.time.clock import Duration, option_ms

Address: TypeAlias = tuple[str, int]

PORT: Final = 5552
_TLS_PORT: Final = 5551
_NAME_MAX: Final = 255
_TEXTS: Final = ("username", "password", "vhost", "ca", "certificate", "key")
_SETTINGS: Final = (*_TEXTS, "tls", "heartbeat")
_HEARTBEAT_SECONDS: Final = 60


@dataclass(frozen=True)
class StreamAccess:
    """How to reach a broker. It is pickled to the workers, and holds no connection. ``settings``: as the user gave
    them, including a password, which never appears in a text."""

    servers: tuple[Address, ...]
    settings: Mapping[str, Any] = field(repr=False)
    connect_timeout_ms: int
    server_away_ms: int

    @property
    def text(self) -> str:
        """The servers as given."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    @property
    def username(self) -> str:
        return str(self.settings.get("username", "guest"))

    @property
    def password(self) -> str:
        return str(self.settings.get("password", "guest"))

    @property
    def vhost(self) -> str:
        return str(self.settings.get("vhost", "/"))

    @property
    def heartbeat_seconds(self) -> int:
        return int(self.settings.get("heartbeat", _HEARTBEAT_SECONDS))

    def tls(self) -> ssl.SSLContext | None:
        """The context of a TLS connection, None without TLS. InvalidPipeline for files that cannot be read."""
        if not self.settings.get("tls"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.settings.get("ca"))
            if "certificate" in self.settings:
                context.load_cert_chain(self.settings["certificate"], self.settings.get("key"))
        except (OSError, ssl.SSLError) as error:
            reason = str(error)
        else:
            return context
        raise InvalidPipeline(f"client=: the certificates of 'ca', 'certificate' or 'key' cannot be used: {reason}")

    def redacted(self, text: str) -> str:
        """The text without the password.

        >>> StreamAccess((("a", 1),), {"password": "hunter2"}, 1, 1).redacted("no login with hunter2 at a:1")
        'no login with *** at a:1'
        """
        return without([self.settings.get("password", "")], text, "***")


def stream_access(servers: Any, client: Any, connect_timeout: Duration, server_away: Duration) -> StreamAccess:
    """The options ``servers=``, ``client=``, ``connect_timeout=`` and ``server_away=``, checked. InvalidPipeline."""
    if client is not None and not isinstance(client, Mapping):
        raise InvalidPipeline("client= is a mapping of settings, such as {'username': 'app', 'password': ...}")
    settings = dict(client or {})
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise InvalidPipeline(f"client= has no setting {name!r}. It can have {', '.join(_SETTINGS)}")
        if name in _TEXTS and not isinstance(value, str):
            raise InvalidPipeline(f"client={{{name!r}: ...}} is a text")
    if not isinstance(settings.get("tls", False), bool):
        raise InvalidPipeline("client={'tls': ...} is True or False; the certificates to trust are {'ca': 'ca.pem'}")
    heartbeat = settings.get("heartbeat", _HEARTBEAT_SECONDS)
    if not isinstance(heartbeat, int) or isinstance(heartbeat, bool) or heartbeat < 1:
        raise InvalidPipeline(f"client={{'heartbeat': {heartbeat!r}}}: give whole seconds, at least 1")
    if not settings.get("tls") and settings.keys() & {"ca", "certificate", "key"}:
        raise InvalidPipeline("client= names certificates, but lacks 'tls': True")
    waits = (option_ms(connect_timeout, "connect_timeout"), option_ms(server_away, "server_away"))
    return StreamAccess(_addresses(servers, _TLS_PORT if settings.get("tls") else PORT), settings, *waits)


def check_stream(name: Any, option: str = "stream") -> None:
    """Check the name of a stream. InvalidPipeline."""
    if not isinstance(name, str) or not name:
        raise InvalidPipeline(f"{option}={name!r}: give the name of a stream, such as 'clicks'")
    if len(name.encode()) > _NAME_MAX:
        raise InvalidPipeline(f"{option}={name[:40]!r}...: a name has at most {_NAME_MAX} bytes")


def _addresses(servers: Any, port: int) -> tuple[Address, ...]:
    if not isinstance(servers, str) or not servers.strip():
        raise InvalidPipeline(f"servers={servers!r}: give a text, such as 'localhost:{PORT}'")
    if "://" in servers or "@" in servers:
        raise InvalidPipeline(
            "servers= is a URL: give 'host:port', several with commas; user and password belong to client="
        )
    addresses = []
    for server in servers.split(","):
        host, colon, number = server.strip().rpartition(":")
        if not colon:
            host, number = server.strip(), str(port)
        if not host or not number.isdecimal() or not 0 < int(number) < 1 << 16:
            raise InvalidPipeline(
                f"servers={servers!r}: {server.strip()!r} is not 'host:port', such as 'localhost:{PORT}'"
            )
        addresses.append((host, int(number)))
    return tuple(addresses)
