"""Lateness says how long a closed window still takes records, and how its result is revised.

    closed      end <= close_at                       its result is published
    final       end + allowed lateness <= close_at    its panes leave the state, and it takes nothing more
    late        all windows of a record are final     it is set aside, and counted

A record is judged by the clock of what came before it, never by the one that is committed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from persistent.time.clock import Duration, duration_ms

Answer = Literal["accumulate", "retract"]
ACCUMULATE: Final = "accumulate"
RETRACT: Final = "retract"
ANSWERS: Final[tuple[Answer, ...]] = get_args(Answer)
"""How a late record revises a published result: by the new value, or by a retraction and a new row."""
CLOSE: Final = "close"
CHANGE: Final = "change"
FINAL: Final = "final"
EMISSIONS: Final = (CLOSE, FINAL, CHANGE)
"""When a result is published: when its window closes, whenever a step has changed it, or once, when it is final."""
CHANGES: Final[dict[str, Answer]] = {"update": ACCUMULATE, "retract": RETRACT}
"""How a change is published, in the words of the option."""
EARLY: Final = "early"
"""Not each step publishes what it has changed, but one now and then, and each that closes a window."""


Emission = Literal["change", "early"]
"""Which of its changes a step publishes, if any: all, or those of now and then."""


@dataclass(frozen=True)
class Lateness:
    """``allowed_ms``: how long after its end a window still takes records. ``answer``: how it is then revised, one of
    ``ANSWERS``; None for a state that neither allows lateness nor names an answer: its rows carry no revision.
    ``emit``: when a result is published, one of ``EMISSIONS``. ``early_ms``: the time, by the clock, between two early
    publications of what has changed; None without them."""

    allowed_ms: int = 0
    answer: Answer | None = None
    emit: str = CLOSE
    early_ms: int | None = None

    @property
    def of_changes(self) -> Emission | None:
        """``CHANGE`` if each step publishes what it has changed; ``EARLY`` if a step now and then publishes all changes
        since the last such step; None if a step publishes what closes or is final."""
        if self.early_ms is not None:
            return EARLY
        return CHANGE if self.emit == CHANGE else None

    def planned(self, passed: int | None, watermark: int) -> tuple[Emission | None, int | None]:
        """What a plan says of changes: ``CHANGE`` if its step publishes them, ``EARLY`` if only where it must; and the
        clock of early results at this step, None without early results. ``passed``: that clock at the step before.

        >>> Lateness(early_ms=10).planned(19, 21), Lateness(early_ms=10).planned(11, 19)
        (('change', 21), ('early', 19))
        """
        if self.early_ms is None:
            return self.of_changes, None
        has_passed = passed is not None and watermark // self.early_ms != passed // self.early_ms
        return CHANGE if has_passed else EARLY, watermark

    def is_early_at(self, passed: int | None, watermark: int) -> bool:
        """Whether a step that begins with this clock publishes early, because it is past a multiple."""
        return self.early_ms is not None and self.planned(passed, watermark)[0] == CHANGE

    def closes(self, closed: int, watermark: int) -> int:
        """The clock up to which a step closes windows, if earlier steps have closed them up to ``closed``."""
        return max(closed, watermark - self.allowed_ms) if self.emit == FINAL else watermark

    def published_at(self, end: int) -> int:
        """The clock at which a window with this end is published."""
        return end + self.allowed_ms if self.emit == "final" else end

    def final(self, was_final: int, close_at: int) -> int | None:
        """The clock up to which the windows are final in a step that closes up to ``close_at``; None if every closed
        window is final."""
        if self.emit == FINAL or not self.allowed_ms:
            return None
        return max(was_final, close_at - self.allowed_ms)


ALLOWS_NONE: Final = Lateness()


def checked_lateness(
    allowed_lateness: Duration,
    late: Any,
    emit: Any,
    changes: Any = None,
    early: Duration | None = None,
) -> Lateness:
    """The lateness of these options of a state; ``changes`` is "update" if it is not given. ValueError, TypeError if
    they are not possible.

    >>> checked_lateness("1 h", None, "close")
    Lateness(allowed_ms=3600000, answer='accumulate', emit='close', early_ms=None)
    """
    allowed = duration_ms(allowed_lateness, "allowed_lateness")
    answer = checked_changes(emit, "update" if changes is None else changes, EMISSIONS)
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
    lateness = Lateness(allowed, answer or late or (ACCUMULATE if allowed else None), emit)
    return _with_early(lateness, early)


def checked_totals(emit: Any, changes: Any, early: Duration | None = None) -> Lateness:
    """How totals are published with these options of a state without windows. Nothing is late for it. Early totals are
    changes, published now and then. ValueError, TypeError if the options are not possible.

    >>> checked_totals("close", "retract", early="1 min").answer, checked_totals("close", "update").answer
    ('retract', None)
    """
    is_early = early is not None and emit == CLOSE
    answer = checked_changes(CHANGE if is_early else emit, changes, (CLOSE, CHANGE))
    return _with_early(Lateness(0, answer, emit), early)


def checked_changes(emit: Any, changes: Any, emissions: Sequence[str]) -> Answer | None:
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


def _with_early(lateness: Lateness, early: Duration | None) -> Lateness:
    """The lateness with these options of early results, whose rows carry a revision."""
    if early is None:
        return lateness
    early_ms = duration_ms(early, "early")
    if early_ms < 1:
        raise ValueError(f"early={early!r}: the time between two early results is at least 1 ms")
    if lateness.emit != CLOSE:
        rule = "publishes each change in its step" if lateness.emit == CHANGE else "publishes each window once"
        raise ValueError(
            f"early={early!r} publishes what has changed now and then, and emit={lateness.emit!r} {rule}: omit one of "
            "them"
        )
    return replace(lateness, answer=lateness.answer or ACCUMULATE, early_ms=early_ms)
