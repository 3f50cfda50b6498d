"""A time to live hides a key that has been silent for so long, by the clock; if it comes back, it begins at zero.

A *life* of a key is a session with the time to live as its gap: each message follows another after less than it. The
value of a key is that of its last life.

    ended up to W      last + ttl <= W              the key is hidden
    late               timestamp + ttl <= W         it would belong to a life that has ended, if to none else
    gone up to W       last + 2 ttl <= W            no message that counts can join the life: it leaves the disk

A message that counts has ``timestamp > W - ttl``. One that joins a life comes less than ttl after its last message, so
that ``last > timestamp - ttl > W - 2 ttl``: two times the time to live suffice. Until then it can bring back a life
that has ended, with its value: a life is a fact of event time, and no order of arrival changes it.

The largest time of a key, with a fold that drops what is older, would be no monoid: whether a message counts would
depend on the fold that sees it first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monoids import Monoid
from monoids.containers.intervals import Sessions
from monoids.groupby.cells import Integers
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.state.rows import OPEN_PANE
from persistent.text.fingerprints import part_text
from persistent.time.session_window import Gaps, SessionWindow, last_sessions
from persistent.time.window import AnyWindow


@dataclass(frozen=True)
class TimeToLive:
    """``ttl_ms``: how long a key lives after its last message."""

    ttl_ms: int

    def __str__(self) -> str:
        return f"ttl={part_text('ttl_ms', self.ttl_ms)}"

    def kept_as(self, monoid: Monoid[Any]) -> Monoid[Any]:
        """The monoid of the rows of a state: the lives of ``monoid``, kept as sessions."""
        return Sessions(self.ttl_ms, monoid) if isinstance(monoid, Monoid) else monoid

    # What sessions ask of their windows.

    def last_start(self, timestamps: Any) -> Any:
        """The pane of all times: a life has no border but its end."""
        return np.full(len(timestamps), OPEN_PANE)

    def session_ends(self, starts: Integers, lasts: Integers) -> Integers:
        """The end of each life."""
        return np.asarray(lasts + self.ttl_ms)

    # What a step asks of windows.

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """For each time, whether a life with this time alone has ended; no time is partly late."""
        return timestamps + self.ttl_ms <= watermark, np.zeros(len(timestamps), bool)

    def may_be_late(self, time: int, watermark: int) -> bool:
        return time + self.ttl_ms <= watermark

    def holds(self, timestamps: Integers) -> Mask:
        return np.ones(len(timestamps), bool)

    # Lives.

    def living(self, rows: GroupSums, clock: int) -> GroupSums:
        """The last life of each row where it has not ended at the clock; other rows are dropped."""
        return last_sessions(self, rows, clock)

    def ended(self, rows: GroupSums, closed: int, until: int) -> int:
        """How many lives of these rows end after ``closed``, up to ``until``."""
        (table,) = rows.columns
        ends = table.flat()[1] + self.ttl_ms
        return int(((ends > closed) & (ends <= until)).sum())

    def over(self, final: int, shown_at: int | None) -> int:
        """The clock up to which ended lives are over: no record can join them, where records are late by ``final``.
        ``shown_at``: the clock up to which the sinks know of ended lives, and no later life is over; None: no sink has
        to know."""
        over = max(final - self.ttl_ms, 0)
        return over if shown_at is None else min(over, shown_at)


Judge = AnyWindow | TimeToLive
"""What decides which records are late."""


def gaps_of(window: Any, ttl: TimeToLive | None) -> Gaps | None:
    """What decides which messages of a key belong together, in a state of sessions or of lives; else None."""
    return window if isinstance(window, SessionWindow) else ttl


def checked_ttl(ttl_ms: int | None, monoid: Any, history: Any = None) -> TimeToLive | None:
    """The time to live of these options of a state. ValueError, TypeError if they are not possible.

    >>> from monoids import Count
    >>> str(checked_ttl(604_800_000, Count()))
    'ttl="1 w"'
    """
    if ttl_ms is None:
        return None
    if ttl_ms < 1:
        raise ValueError(
            f'ttl={ttl_ms}: a key that lives for no time has no value: give a duration, such as ttl="7 days", or omit '
            "ttl, and keys live for ever"
        )
    ttl = TimeToLive(ttl_ms)
    if history is not None:
        raise ValueError(
            f"{ttl} keeps the lives of each key, and history={history!r} the panes of a grid of clocks: omit one of "
            "them. A WindowState keeps values by time, and lets them go"
        )
    if isinstance(monoid, Monoid) and not monoid.commutative:
        raise TypeError(
            f"{ttl} joins the messages of a key in the order of their times, and {monoid!r} is not declared "
            "commutative. If order does not matter to it, set commutative = True in its class; First, Last, MinBy and "
            "MaxBy keep an order, and commute. Or omit ttl"
        )
    return ttl
