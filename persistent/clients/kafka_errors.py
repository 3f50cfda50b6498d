"""The errors that Kafka connections report. The client reconnects for ever, so this says when that is useless.

refused   the broker rejects our password or certificate, or we reject its certificate
cut       a connection ended, as when a broker stops: it can return
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
        own = [self._redacted(f"{error_name(error)}: {error.args[0].str()}")] if error and error_name(error) else []
        return "; ".join([*own, *list(self._texts.values())[-1:]]) or "it does not answer"

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
    found = error.args[0] if error.args else None
    return str(found.name()) if found is not None and hasattr(found, "name") else ""
