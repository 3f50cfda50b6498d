"""Lateness says how long a closed window still takes records, and how its result is corrected.

    closed      end <= close_at                       its result is published
    final       end + allowed lateness <= close_at    its panes leave the state, and it takes nothing more
    late        all windows of a record are final     it is set aside, and counted

A record is judged by the clock of what came before it, never by the one that is committed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from persistent.clock import Duration, duration_ms

ACCUMULATE: Final = "accumulate"
RETRACT: Final = "retract"
DELTA: Final = "delta"
ANSWERS: Final = (ACCUMULATE, RETRACT, DELTA)
"""How a late record corrects a published result: by the new value, by a taken back and a new row, by what it adds."""
CLOSE: Final = "close"
CHANGE: Final = "change"
FINAL: Final = "final"
EMISSIONS: Final = (CLOSE, FINAL, CHANGE)
"""When a result is published: when its window closes, whenever a step has changed it, or once, when it is final."""
CHANGES: Final = {"update": ACCUMULATE, "retract": RETRACT}
"""How a change is published, in the words of the option."""


@dataclass(frozen=True)
class Lateness:
    """``allowed_ms``: how long after its end a window still takes records. ``answer``: how it is then corrected, one of
    ``ANSWERS``; None for a state that neither allows lateness nor names an answer: its rows carry no revision.
    ``emit``: when a result is published, one of ``EMISSIONS``."""

    allowed_ms: int = 0
    answer: str | None = None
    emit: str = CLOSE

    @property
    def of_changes(self) -> str | None:
        """``CHANGE`` if each step publishes what it has changed; None if it publishes what closes or is final."""
        return CHANGE if self.emit == CHANGE else None

    def closes(self, closed: int, watermark: int) -> int:
        """The clock up to which a step closes windows that had closed up to ``closed``."""
        return max(closed, watermark - self.allowed_ms) if self.emit == FINAL else watermark

    def published_at(self, end: int) -> int:
        """The clock at which a window with this end is published."""
        return end + self.allowed_ms if self.emit == "final" else end

    def final(self, was_final: int, close_at: int) -> int | None:
        """The clock up to which the windows are final in a step that closes up to ``close_at``; None if all that are
        closed are final."""
        if self.emit == FINAL or not self.allowed_ms:
            return None
        return max(was_final, close_at - self.allowed_ms)


ALLOWS_NONE: Final = Lateness()


def checked_lateness(allowed_lateness: Duration, late: Any, emit: Any, changes: Any = "update") -> Lateness:
    """The lateness of these options of a state. ValueError, TypeError if they are not possible.

    >>> checked_lateness("1 h", None, "close")
    Lateness(allowed_ms=3600000, answer='accumulate', emit='close')
    """
    allowed = duration_ms(allowed_lateness, "allowed_lateness")
    answer = checked_changes(emit, changes, EMISSIONS)
    if late is not None and late not in ANSWERS:
        raise ValueError(f"late={late!r}: choose one of {', '.join(ANSWERS)}")
    if late is not None and emit == CHANGE:
        raise ValueError(
            f'late={late!r} says how a late record corrects a result, and with emit="change" it is a change like any '
            'other: omit late, and choose changes="update" or "retract"'
        )
    if late is not None and emit == FINAL:
        raise ValueError(
            f'late={late!r} says how a published result is corrected, and emit="final" publishes each once, when '
            "nothing can change it: omit one of them"
        )
    return Lateness(allowed, answer or late or (ACCUMULATE if allowed else None), emit)


def checked_changes(emit: Any, changes: Any, emissions: Sequence[str]) -> str | None:
    """The answer to a change, one of ``ANSWERS``; None if changes are not published. ValueError if the options are not
    possible.

    >>> checked_changes("change", "retract", EMISSIONS), checked_changes("close", "update", EMISSIONS)
    ('retract', None)
    """
    if emit not in emissions:
        raise ValueError(f"emit={emit!r}: choose one of {', '.join(emissions)}")
    if changes not in CHANGES:
        raise ValueError(f"changes={changes!r}: choose one of {', '.join(CHANGES)}")
    if emit == CHANGE:
        return CHANGES[changes]
    if changes != "update":
        raise ValueError(
            f"changes={changes!r} says how a change is published, and emit={emit!r} publishes none: add "
            'emit="change", or omit changes'
        )
    return None
