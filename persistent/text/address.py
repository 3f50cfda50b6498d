"""An address is where a server of ours listens: a host and a port, as one text."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

_NAMES = frozenset({"localhost"})
_PORT_MAX = 65_535


@dataclass(frozen=True)
class Endpoint:
    """``port``: 0 asks for a free one.

    >>> str(Endpoint("::1", 9464)), str(Endpoint("127.0.0.1", 0))
    ('[::1]:9464', '127.0.0.1:0')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Endpoint:
    """The address in ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which means loopback. ValueError for another text.

    >>> address_of("127.0.0.1:9464"), address_of("[::1]:9464"), address_of("9464")
    (Endpoint(host='127.0.0.1', port=9464), Endpoint(host='::1', port=9464), Endpoint(host='127.0.0.1', port=9464))
    """
    host, colon, port = text.strip().rpartition(":")
    host = host if colon else "127.0.0.1"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT: give for example 127.0.0.1:9464, [::1]:9464, or 9464")
    return Endpoint(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host in _NAMES or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
