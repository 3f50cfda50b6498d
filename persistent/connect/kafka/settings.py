"""A Kafka client as users meet it: which settings they may give, which texts must never be shown, and what it reports.

The client reconnects for ever, so the errors that it reports say when that is useless:

refused   the broker rejects our password or certificate, or we reject its certificate
cut       a connection ended, as when a broker stops: it can return
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from persistent.connect.secrets import without
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


_LOGIN: Final = "_AUTHENTICATION"
_REFUSED: Final = (_LOGIN, "_SSL")
"""Connection errors that a retry does not fix, unless the connection was only cut."""
_ALERT: Final = "SSL alert number"
"""The words of a broker that rejects our certificate after connecting."""
_CUT: Final = ("Disconnected", "Connection reset", "Connection refused", "Broken pipe", "timed out")
_PERMANENT: Final = ("AUTHORIZATION_FAILED", "UNSUPPORTED", "INVALID", "SASL")
"""Parts of the names of answers that a retry does not change. All others can come from a broker that was just started,
which knows no leaders and no topics yet."""


class Reports:
    """The last error of each kind since the broker answered. ``redacted``: a text without secrets."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._texts: dict[str, str] = {}

    def hear(self, error: Any) -> None:
        """Remember an error of a connection."""
        if self._texts and error.name() == "_ALL_BROKERS_DOWN":
            # It follows from errors heard before.
            return
        self._texts.pop(error.name(), None)
        self._texts[error.name()] = self._redacted(f"{error.name()}: {error.str()}")

    def clear(self) -> None:
        """Forget all errors: the broker has answered."""
        self._texts.clear()

    @property
    def refused(self) -> str:
        """Why a connection was refused for good; "" if none was."""
        return "; ".join(text for text in self._refusals().values())

    @property
    def remedy(self) -> str:
        """What to do about the reported errors."""
        if _LOGIN in self._refusals():
            return "correct sasl.username, sasl.password or sasl.mechanism in client=, and run again"
        return (
            "check servers= and client= (does the broker want TLS or a password?), or start the broker, and run again"
        )

    def cause(self, error: Any = None) -> str:
        """Why the broker does not answer."""
        if self.refused:
            return self.refused
        causes = [self._redacted(f"{error_name(error)}: {error.args[0].str()}")] if error and error_name(error) else []
        return "; ".join([*causes, *list(self._texts.values())[-1:]]) or "it does not answer"

    def _refusals(self) -> dict[str, str]:
        return {
            name: text
            for name, text in self._texts.items()
            if (name in _REFUSED or _ALERT in text) and not any(cut in text for cut in _CUT)
        }


def is_final(error: BaseException) -> bool:
    """Whether a retry cannot change this answer of the broker."""
    return any(part in error_name(error) for part in _PERMANENT)


def error_name(error: Any) -> str:
    """The name of a Kafka error, "" for any other error."""
    kafka_error = error.args[0] if error.args else None
    return str(kafka_error.name()) if kafka_error is not None and hasattr(kafka_error, "name") else ""
