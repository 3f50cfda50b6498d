"""The settings of a Kafka client: which of them users may set, and which texts must never be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from persistent.clients.secrets import without
from persistent.errors import InvalidPipeline

_FIXED: Final = {
    "enable.auto.commit": "the checkpoint holds the offsets",
    "enable.partition.eof": "a split needs to know the end of its partition",
    "isolation.level": "records of a transaction count once it is committed",
    "auto.offset.reset": "a gap must not be skipped silently; see on_gap",
    "bootstrap.servers": "servers= names them",
    "group.id": "nothing is committed to a group",
}
"""The settings of a client that users may not set, and why."""
_PUBLIC: Final = frozenset(
    {
        "PLAIN",
        "GSSAPI",
        "OAUTHBEARER",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "PLAINTEXT",
        "SSL",
        "SASL_PLAINTEXT",
        "SASL_SSL",
    }
)
"""Words of the protocol, which errors need. Anything else can be a password in the wrong place."""
_SECRET: Final = re.compile("pass|secret|token|jaas|oauth")
_HIDDEN_MIN: Final = 4
"""In characters: a shorter value of a setting without a secret name is a number or a flag."""


@dataclass(frozen=True)
class Connection:
    """How to reach a broker. It is pickled to the workers, and holds no connection. ``settings``: of librdkafka,
    including passwords, which never appear in a text."""

    servers: str
    settings: Mapping[str, Any]
    connect_timeout_ms: int
    server_away_ms: int

    def __repr__(self) -> str:
        return f"Connection({self.servers!r})"

    def redacted(self, text: str) -> str:
        """The text without the values of settings; short values are hidden only for secret names.

        >>> Connection("a:1", {"sasl.password": "hunter2"}, 1, 1).redacted("no login with hunter2 at a:1")
        'no login with *** at a:1'
        """
        hidden = {name.partition("=")[2] for name in self.settings}
        for name, value in self.settings.items():
            if _SECRET.search(name) or (str(value).upper() not in _PUBLIC and len(str(value)) >= _HIDDEN_MIN):
                hidden.add(str(value))
        return without(hidden, text, "***")


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_place(servers: Any, topic: Any, example: str) -> None:
    """Check the options ``servers=`` and ``topic=``. InvalidPipeline."""
    for name, value, such in (("servers", servers, "localhost:9092"), ("topic", topic, example)):
        if not isinstance(value, str) or not value:
            raise InvalidPipeline(f"{name}={value!r}: give a text, such as {such!r}")
    if "@" in servers:
        raise InvalidPipeline(
            "servers= has a user or a password (it is not shown): give 'host:port', several with commas; user and "
            "password belong to client=, as 'sasl.username' and 'sasl.password'"
        )
    if not _TOPIC.fullmatch(topic):
        hint = f": are servers={servers!r} and topic= the other way round?" if ":" in topic or "," in topic else ""
        raise InvalidPipeline(
            f"topic={topic!r} cannot be the name of a topic, which has letters, digits, '.', '_' and '-'{hint}"
        )


def checked_settings(client: Any, part: str = "source", fixed: Mapping[str, str] = _FIXED) -> dict[str, Any]:
    """The option ``client=``. InvalidPipeline if it sets one of the ``fixed`` settings, by name."""
    if not isinstance(client, Mapping) or not all(isinstance(name, str) for name in client):
        raise InvalidPipeline("client= is a mapping of librdkafka's settings, such as {'security.protocol': 'SSL'}")
    for name, why in fixed.items():
        if name in client:
            raise InvalidPipeline(f"client= sets {name!r}, which this {part} sets itself: {why}. Omit it")
    return dict(client)
