"""What the connections of a client of Kafka report: they are tried again for ever, so this says when that is of no use.

refused   the broker does not take our password or certificate, or we do not take its certificate
cut       a connection ended, as those of a broker that is ended do: it may be back
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_LOGIN: Final = "_AUTHENTICATION"
_REFUSED: Final = (_LOGIN, "_SSL")
"""Errors of a connection that another try does not mend; unless it was only cut off."""
_ALERT: Final = "SSL alert number"
"""What the broker says of our certificate, once the connection stands."""
_CUT: Final = ("Disconnected", "Connection reset", "Connection refused", "Broken pipe", "timed out")
_PERMANENT: Final = ("AUTHORIZATION_FAILED", "UNSUPPORTED", "INVALID", "SASL")
"""Parts of the names of answers that another try does not change. All others may come from a broker that has just been
started, which knows no leaders and no topics yet."""


class Reports:
    """The last error of each kind since the broker answered. ``redacted``: a text without secrets."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._texts: dict[str, str] = {}

    def hear(self, error: Any) -> None:
        """Remember an error of a connection."""
        if self._texts and error.name() == "_ALL_BROKERS_DOWN":
            # It follows from what was heard before.
            return
        self._texts.pop(error.name(), None)
        self._texts[error.name()] = self._redacted(f"{error.name()}: {error.str()}")

    def clear(self) -> None:
        """Forget them: the broker has answered."""
        self._texts.clear()

    @property
    def refused(self) -> str:
        """Why a connection was refused for good; "" if none was."""
        return "; ".join(text for text in self._refusals().values())

    @property
    def remedy(self) -> str:
        """What to do about what was heard."""
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
    """Whether another try does not change an answer of the broker."""
    return any(part in error_name(error) for part in _PERMANENT)


def error_name(error: Any) -> str:
    """The name of an error of Kafka, "" of any other."""
    found = error.args[0] if error.args else None
    return str(found.name()) if found is not None and hasattr(found, "name") else ""
