"""Options of sources are checked when the source is created; errors say what to write instead."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from persistent.connect.formats.timestamps import UNITS
from persistent.errors import InvalidPipeline
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage import Storage
from persistent.storage.places import holds_secret
from persistent.time.clock import instant_ms

P = TypeVar("P")

_COUNTED: Final = "its state was counted by that time"
TIMES: Final = {"timestamp": _COUNTED, "timestamp_unit": _COUNTED}
"""Why the options that define a record's time cannot change."""


def start_of(value: Any) -> str | int:
    """The option ``start``: "earliest", "latest", or a point in time, in milliseconds. InvalidPipeline."""
    if value in ("earliest", "latest"):
        return str(value)
    try:
        return instant_ms(value, "start")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f'{error}; or give start="earliest" or "latest"') from error


def require_unit(unit: Any) -> None:
    """Raise unless ``timestamp_unit`` is a known unit."""
    require_choice("timestamp_unit", unit, (None, *UNITS))


def without_secret(path: P) -> P:
    """The ``path`` of a source. InvalidPipeline if it is a URL that holds a password."""
    if isinstance(path, str) and holds_secret(path):
        scheme = path.partition("://")[0]
        raise InvalidPipeline(
            f"path= is a URL of {scheme} with a password or parameters, which end up in logs (it is not shown). Put "
            "them into the environment or the configuration file of the store, where fsspec finds them, such as "
            f"FSSPEC_{scheme.upper()}_PASSWORD, and give the URL without them"
        )
    return path


def require_listed(names: Sequence[str], timestamp: str, unit: str | None) -> None:
    """Raise unless ``schema`` lists the ``timestamp``."""
    if timestamp not in names:
        kind = "int64" if unit else "string"
        raise InvalidPipeline(
            f"schema= lists {', '.join(names)}, but not the timestamp column {timestamp!r}. It names every column that "
            f"is read: add that one with its type, for example schema={{{timestamp!r}: {kind!r}, ...}}; or give "
            "another timestamp="
        )


def require_recorded(recorded: Mapping[str, Any], options: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Raise if an option contradicts the recorded one; an option that is not recorded can have any value."""
    for name, reason in reasons.items():
        if name in recorded and name in options and recorded[name] != options[name]:
            raise InvalidPipeline(
                f"{name}={options[name]!r}: the checkpoint was made with {name}={recorded[name]!r}, and {reason}. Give "
                f"{name}={recorded[name]!r} again, or read the source anew into a fresh checkpoint and sink"
            )


def checked_journal(journal: str | os.PathLike[str] | Storage | SegmentedLog) -> SegmentedLog:
    """The log that ``journal`` names. InvalidPipeline if it can lose messages that nobody else has any more."""
    log = journal if isinstance(journal, SegmentedLog) else SegmentedLog(journal)
    if not log.durable:
        raise InvalidPipeline(
            f"journal={log!r} does not sync each entry, but once a message is journaled, the journal alone can have "
            "it: a power loss would lose it for good. Omit its sync=: many messages are one entry, and cost one sync"
        )
    if not log.keeps_all:
        raise InvalidPipeline(
            f"journal={log!r} cuts records off by its retention, read or not: messages would be lost for good. Omit "
            "its keep_age= and keep_bytes=: a journal is cut off behind the checkpoints that are kept"
        )
    return log


def require_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidPipeline(f"{name}={value!r} is not known; it is one of {', '.join(map(repr, choices))}")


def require_type(name: str, value: Any, kind: type, example: str) -> None:
    """Raise unless ``value`` is a ``kind``."""
    if not isinstance(value, kind):
        raise InvalidPipeline(f"{name}={value!r} is not a {kind.__name__}; give for example {name}={example}")
