"""Lateness says how long a closed window still takes records, and how its result is revised.

    closed      end <= close_at                       its result is published
    final       end + allowed lateness <= close_at    its panes leave the state, and it takes nothing more
    late        all windows of a record are final     it is set aside, and counted

A record is judged by the clock of what came before it, never by the one that is committed with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from persistent.clock import Duration, duration_ms

ACCUMULATE: Final = "accumulate"
RETRACT: Final = "retract"
DELTA: Final = "delta"
ANSWERS: Final = (ACCUMULATE, RETRACT, DELTA)
"""How a late record revises a published result: by the new value, by a retraction and a new row, by what it adds."""
CLOSE: Final = "close"
CHANGE: Final = "change"
FINAL: Final = "final"
EMISSIONS: Final = (CLOSE, FINAL, CHANGE)
"""When a result is published: when its window closes, whenever a step has changed it, or once, when it is final."""
CHANGES: Final = {"update": ACCUMULATE, "retract": RETRACT}
"""How a change is published, in the words of the option."""
EARLY: Final = "early"
"""Not each step publishes what it has changed, but one now and then, and each that closes a window."""
EVENT: Final = "event"
PROCESSING: Final = "processing"
CLOCKS: Final = (EVENT, PROCESSING)
"""What says when results are published early: the clock of the job, or the time of day of the plan."""


@dataclass(frozen=True)
class Lateness:
    """``allowed_ms``: how long after its end a window still takes records. ``answer``: how it is then revised, one of
    ``ANSWERS``; None for a state that neither allows lateness nor names an answer: its rows carry no revision.
    ``emit``: when a result is published, one of ``EMISSIONS``. ``early_ms``: the time between two early publications of
    what has changed, by ``early_by``, one of ``CLOCKS``; None without them."""

    allowed_ms: int = 0
    answer: str | None = None
    emit: str = CLOSE
    early_ms: int | None = None
    early_by: str = EVENT

    @property
    def of_changes(self) -> str | None:
        """``CHANGE`` if each step publishes what it has changed, ``EARLY`` if one now and then publishes what was
        changed since; None if a step publishes what closes or is final."""
        if self.early_ms is not None:
            return EARLY
        return CHANGE if self.emit == CHANGE else None

    def planned(
        self, passed: Mapping[str, int] | None, watermark: int, wall_ms: int
    ) -> tuple[str | None, Mapping[str, int] | None]:
        """What a plan says of changes: ``CHANGE`` if its step publishes them, ``EARLY`` if only where it must; and
        where the clock of early results stands then. ``passed``: where it stood at the step before. The time of day,
        ``wall_ms``, never goes back.

        >>> Lateness(early_ms=10).planned({"event": 19}, 21, 0), Lateness(early_ms=10).planned({"event": 11}, 19, 0)
        (('change', {'event': 21}), ('early', {'event': 19}))
        """
        if self.early_ms is None:
            return self.of_changes, None
        before = (passed or {}).get(self.early_by)
        now = watermark if self.early_by == EVENT else max(wall_ms, before or 0)
        has_passed = before is not None and now // self.early_ms != before // self.early_ms
        return CHANGE if has_passed else EARLY, {self.early_by: now}

    def is_early_at(self, passed: Mapping[str, int] | None, watermark: int) -> bool:
        """Whether a step that begins with this clock publishes early, because it is past a multiple."""
        return self.early_by == EVENT and self.early_ms is not None and self.planned(passed, watermark, 0)[0] == CHANGE

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


def set_back(passed: Mapping[str, int] | None, clock: int) -> Mapping[str, int] | None:
    """Where the clock of early results stands in the state as of a clock; the time of day never goes back.

    >>> set_back({"event": 19}, 15), set_back({"processing": 19}, 15)
    ({'event': 15}, {'processing': 19})
    """
    return passed and {name: min(at, clock) if name == EVENT else at for name, at in passed.items()}


def checked_lateness(
    allowed_lateness: Duration,
    late: Any,
    emit: Any,
    changes: Any = None,
    early: Duration | None = None,
    early_by: Any = EVENT,
) -> Lateness:
    """The lateness of these options of a state; ``changes`` is "update" if it is not given. ValueError, TypeError if
    they are not possible.

    >>> checked_lateness("1 h", None, "close")
    Lateness(allowed_ms=3600000, answer='accumulate', emit='close', early_ms=None, early_by='event')
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
    return _with_early(lateness, early, early_by)


def checked_totals(emit: Any, changes: Any, early: Duration | None = None, early_by: Any = EVENT) -> Lateness:
    """How totals are published with these options of a state without windows. Nothing is late for it. Early totals are
    changes, published now and then. ValueError, TypeError if the options are not possible.

    >>> checked_totals("close", "retract", early="1 min").answer, checked_totals("close", "update").answer
    ('retract', None)
    """
    is_early = early is not None and emit == CLOSE
    answer = checked_changes(CHANGE if is_early else emit, changes, (CLOSE, CHANGE))
    return _with_early(Lateness(0, answer, emit), early, early_by)


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


def _with_early(lateness: Lateness, early: Duration | None, early_by: Any) -> Lateness:
    """The lateness with these options of early results, whose rows carry a revision."""
    if early_by not in CLOCKS:
        raise ValueError(f"early_by={early_by!r}: choose one of {', '.join(CLOCKS)}")
    if early is None:
        if early_by != EVENT:
            raise ValueError(
                f"early_by={early_by!r} says which clock early results follow, and there are none: add early=, such as "
                'early="10 s", or omit early_by'
            )
        return lateness
    early_ms = duration_ms(early, "early")
    if early_ms < 1:
        raise ValueError(f"early={early!r}: the time between two early results is at least 1 ms")
    if lateness.emit != CLOSE:
        other = "publishes each change in its step" if lateness.emit == CHANGE else "publishes each window once"
        raise ValueError(
            f"early={early!r} publishes what has changed now and then, and emit={lateness.emit!r} {other}: omit one of "
            "them"
        )
    return replace(lateness, answer=lateness.answer or ACCUMULATE, early_ms=early_ms, early_by=early_by)
