"""A time limit says which records are dead by their timestamps: without one, before 1970, or after the limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from monoids.groupby.sorting import Integers, Mask
from persistent.sources import remedies
from persistent.sources.protocol import NO_TIMESTAMP, Records
from persistent.text.figures import date_text
from persistent.window import AnyWindow


@dataclass(frozen=True)
class TimeLimit:
    """``ahead``: later timestamps are too far ahead of the time of day, and of the clock. ``not_after``: later ones are
    after the limit of a clock that was set back; None without that limit. ``of_windows``: ``ahead`` is the last time
    that the windows can hold.

    >>> limit = TimeLimit(90, not_after=70)
    >>> limit.last, limit.covers(0, 70), limit.covers(-1, 70), limit.covers(0, 71)
    (70, True, False, False)
    """

    ahead: int
    not_after: int | None = None
    of_windows: bool = field(default=False, compare=False)

    @property
    def last(self) -> int:
        """The largest timestamp that is not dead."""
        return self.ahead if self.not_after is None else min(self.ahead, self.not_after)

    def within(self, windows: Iterable[AnyWindow | None]) -> TimeLimit:
        """The same limit, for states with these windows: no timestamp is later than the last that each of them can
        hold."""
        held = min((one.time_max for one in windows if one is not None), default=self.ahead)
        return replace(self, ahead=held, of_windows=True) if held < self.ahead else self

    def covers(self, lowest: int, highest: int) -> bool:
        """Whether no timestamp from ``lowest`` to ``highest`` is dead."""
        return lowest >= 0 and highest <= self.last

    def dead(self, timestamps: Integers) -> Mask:
        """Whether each of these is dead."""
        return (timestamps < 0) | (timestamps > self.last)

    def reason(self, records: Records, row: int) -> str:
        """Why a record is a dead letter: by its timestamp, or by what its source says of it."""
        time = int(records.timestamps[row])
        if time == NO_TIMESTAMP:
            return records.unreadable(row)
        if time < 0:
            return "timestamp before 1970"
        if time > self.ahead:
            limit = "the last time that a window can hold" if self.of_windows else "the time of day plus max_future"
            return (
                f"timestamp too far ahead: {date_text(time)} is after {date_text(self.ahead)}, {limit}; "
                f"{remedies.UNIT_IS_WRONG}"
            )
        if time <= self.last:
            return records.unreadable(row)
        return (
            f"timestamp after the limit: {date_text(time)} is after {date_text(self.last)}, the limit of a clock that "
            "was set back ('persistent clock URL --not-after none' lifts it)"
        )

    def fault(self, records: Records, row: int) -> str:
        """The same without what to do about the source."""
        return remedies.fault_of(self.reason(records, row))
