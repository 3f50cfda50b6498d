"""A lookup finds places in a log: its ends, a record by number or by time, and what lies before a position.

A segment may be sealed or cut off during a lookup. Then the lookup begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from persistent.messaging.log.cursor import Cursor, find_segment
from persistent.messaging.log.folder import LogFolder, LogLayout
from persistent.messaging.log.frames import BEGINNING, Frame, Kind, LogPosition
from persistent.messaging.log.segments import Segment

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class LogEnds:
    """The ends of a log. ``first`` has the number ``first_number``, and ``next`` is the position of the next record.
    ``time``: of the last record, 0 without one. ``ended``: nothing follows. ``whole_number``: ``next_number`` plus the
    whole records that readers do not see yet, because a writer is adding them or the power was lost."""

    first: LogPosition = BEGINNING
    first_number: int = 0
    next: LogPosition = BEGINNING
    next_number: int = 0
    time: int = 0
    ended: bool = False
    whole_number: int = 0


def settled(look: Callable[P, T]) -> Callable[P, T]:
    """``look``, repeated while segments move in the meantime."""

    @wraps(look)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return look(*args, **kwargs)
            except FileNotFoundError:
                continue

    return repeated


class Lookup:
    """Finds places in the log in ``folder``, which exists."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder

    @settled
    def ends(self, start: int = 0) -> LogEnds:
        """As readers see them. ``start``: CorruptLog if a segment from this one on is missing."""
        return self._ends(self._folder.layout(start))

    @settled
    def safe_end(self, start: int = 0) -> LogPosition:
        """The position before which a power loss loses no record."""
        layout = self._folder.layout(start)
        if layout.open is not None:
            segment = self._folder.segment(layout, layout.open[0])
            if segment.begun and not segment.facts["each"]:
                return LogPosition(segment.number, 0, 0)
        return self._ends(layout).next

    @settled
    def at(self, time: int) -> tuple[LogPosition, int]:
        """The position and the number of the first remaining record with this time or a later one, or of the next."""
        layout = self._folder.layout()
        segment = find_segment(self._folder, layout, lambda head: head.last < time)
        if segment is not None:
            for frame in segment.entries():
                if frame.count and frame.last >= time:
                    slot = int(np.searchsorted(frame.times(segment.data), time))
                    place = LogPosition(segment.number, frame.entry, slot), frame.number + slot
                    return max(place, (layout.cut.position, layout.cut.number))
        ends = self._ends(layout)
        return ends.next, ends.next_number

    @settled
    def time_before(self, position: LogPosition) -> int:
        """The time of the last record before a position, cut off or not; 0 if there was none."""
        layout = self._folder.layout(position.segment)
        there = position.segment in layout.segments
        segment = self._folder.segment(layout, position.segment) if there else None
        if segment is None or not (segment.sealed or segment.begun):
            return self._ends(layout).time
        last = segment.head.last
        for frame in segment.entries():
            if frame.entry >= position.entry:
                is_within = frame.entry == position.entry and position.slot > 0
                return int(frame.times(segment.data)[position.slot - 1]) if is_within else last
            last = frame.last
        return last

    @settled
    def position(self, number: int, whole: bool) -> LogPosition:
        """The position of the record with this number, or of the next record."""
        layout, after = self._folder.layout(), BEGINNING
        for segment, frame in self._entries_to(layout, number, whole):
            if number < frame.number + frame.count:
                return LogPosition(segment.number, frame.entry, number - frame.number)
            after = LogPosition(segment.number, frame.entry + 1, 0)
        return max(after, self._ends(layout).next)

    @settled
    def fingerprint(self, number: int) -> str | None:
        """The place of the record with this number, and the checksum of its entry. None if the record was cut off, ""
        if it does not exist."""
        layout = self._folder.layout()
        if number < layout.cut.number:
            return None
        for segment, frame in self._entries_to(layout, number, whole=True):
            if number < frame.number + frame.count:
                return f"{LogPosition(segment.number, frame.entry, 0)}-{frame.checksum(segment.data):08x}"
        return ""

    @settled
    def checksum(self, position: LogPosition) -> int | None:
        """The checksum of the entry that holds a position; None if it was cut off, 0 if it does not exist."""
        layout = self._folder.layout(position.segment)
        if position < layout.cut.position:
            return None
        there = position.segment in layout.segments
        segment = self._folder.segment(layout, position.segment) if there else None
        for frame in segment.entries(whole=True) if segment is not None and (segment.sealed or segment.begun) else ():
            if frame.entry == position.entry:
                return frame.checksum(segment.data) if segment is not None else 0
        return 0

    def number(self, position: LogPosition) -> int:
        """How many records lie before a position."""
        cursor = Cursor(self._folder, position)
        batch = next(cursor.take(), None)
        number = cursor.number if batch is None else batch.number
        return self.ends(position.segment).next_number if number is None else number

    def _ends(self, layout: LogLayout) -> LogEnds:
        cut = layout.cut
        for number in (*(layout.open or ())[:1], layout.newest):
            segment = self._folder.segment(layout, number) if number else None
            if segment is not None and (segment.sealed or segment.begun):
                entries, total, time, ended = _end_of(segment)
                whole = total if segment.sealed else segment.kept(b"").so_far.number
                end = max(LogPosition(number, entries, 0), cut.position)
                return LogEnds(cut.position, cut.number, end, total, time, ended, whole)
        return LogEnds()

    def _entries_to(self, layout: LogLayout, number: int, whole: bool) -> Iterator[tuple[Segment, Frame]]:
        """The entries, up to that record, of the segment that holds the record with this number."""
        segment = find_segment(self._folder, layout, lambda head: head.number <= number)
        if segment is not None:
            for frame in segment.entries(whole=whole):
                if frame.number <= number:
                    yield segment, frame


def _end_of(segment: Segment) -> tuple[int, int, int, bool]:
    """The entries of a segment, the records of the log at its end, the last time, and whether the log ends there."""
    if segment.sealed:
        end = segment.seal
        return end.entry, end.number, end.last, end.kind is Kind.LAST
    before = segment.before
    entries = list(segment.entries())
    if not entries:
        return 0, before.number, before.last, False
    last = entries[-1]
    return last.entry + 1, last.number + last.count, last.last, False
