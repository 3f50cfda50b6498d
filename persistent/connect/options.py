"""Options of sources are checked when the source is created; errors say what to write instead.

An option that several sources and sinks share is one row of ``SHARED``: its default, its check, what happens when a
later run gives another value, and why a checkpoint refuses that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from persistent.connect.formats.timestamps import UNITS
from persistent.errors import InvalidPipeline
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage.places import holds_secret
from persistent.storage.protocol import Storage
from persistent.time.clock import instant_ms, option_ms

P = TypeVar("P")


class OnChange(Enum):
    """The consequence of another value for a job that has begun."""

    NONE = "no effect on results"
    PLAN = "from the next plan"
    STEP = "from the next step"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Option:
    """``effect``, ``says``: the consequence of another value, and what exactly changes; "" if the effect says it all,
    or the remedy is the usual one: restore it, or read the source again. ``check``: makes the value of what the user
    gives, with the name of the option; InvalidPipeline. ``refusal``: why a checkpoint that has recorded a value refuses
    another one; "" for an option that is not recorded."""

    effect: OnChange
    says: str
    default: Any = None
    check: Callable[[Any, str], Any] = lambda value, name: value
    refusal: str = ""


def start_of(value: Any) -> str | int:
    """The option ``start``: "earliest", "latest", or a point in time, in milliseconds. InvalidPipeline."""
    if value in ("earliest", "latest"):
        return str(value)
    try:
        return instant_ms(value, "start")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f'{error}; or give start="earliest" or "latest"') from error


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """These shared options as their checks make them, and the defaults of all others. InvalidPipeline."""
    return {name: option.check(values.get(name, option.default), name) for name, option in SHARED.items()}


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


def require_recorded(
    recorded: Mapping[str, Any], options: Mapping[str, Any], reasons: Mapping[str, str] | None = None
) -> None:
    """Raise if an option contradicts the recorded one; an option that is not recorded can have any value. ``reasons``:
    why it cannot change, by option; by default those of the shared options."""
    for name, reason in (REFUSALS if reasons is None else reasons).items():
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


def _text(value: Any, name: str) -> str:
    require_type(name, value, str, "'ts'")
    return str(value)


def _duration(value: Any, name: str) -> int | None:
    return None if value is None and SHARED[name].default is None else option_ms(value, name)


def _on_gap(value: Any, name: str) -> str:
    require_choice(name, value, ("fail", "earliest", "latest"))
    return str(value)


CLOCK: Final = "when the clock moves, and so which records are late"
_COUNTED: Final = "its state was counted by that time"
SHARED: Final[Mapping[str, Option]] = {
    "servers": Option(OnChange.NONE, ""),
    "format": Option(OnChange.RECORDED, "", "json", refusal="its state was decoded by that format"),
    "encoding": Option(OnChange.RECORDED, "", "amqp", refusal="its state was decoded by that"),
    "schema": Option(OnChange.STEP, "which fields of a value are read"),
    "timestamp": Option(OnChange.RECORDED, "", "_timestamp", _text, _COUNTED),
    "timestamp_unit": Option(OnChange.RECORDED, "", refusal=_COUNTED),
    "start": Option(OnChange.NONE, "where a new checkpoint begins", "earliest", lambda value, name: start_of(value)),
    "on_gap": Option(OnChange.PLAN, "whether a gap stops the run or is skipped and counted", "fail", _on_gap),
    "idle_timeout": Option(OnChange.PLAN, CLOCK, None, _duration),
    "max_out_of_orderness": Option(OnChange.STEP, CLOCK, 0, _duration),
    "max_skew": Option(OnChange.NONE, "how far a restart from a clock looks back", "1 min", _duration),
    "connect_timeout": Option(OnChange.NONE, "", "30 s", _duration),
    "server_away": Option(OnChange.NONE, "", "5 min", _duration),
    "recovery_interval": Option(OnChange.NONE, "", "5 s", _duration),
    "client": Option(OnChange.NONE, ""),
}
REFUSALS: Final = {name: option.refusal for name, option in SHARED.items() if option.refusal}
"""Why an option with a recorded value cannot change."""
