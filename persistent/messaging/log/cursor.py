"""A cursor reads a log entry by entry from a position, as far as readers may see, and can continue later.

A lookup finds places in a log: its ends, a record by number or by time, and what lies before a position.

A segment may be sealed or cut off during a lookup. Then the lookup begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from persistent.errors import CorruptLog, RetentionGap
from persistent.messaging.log.folder import Cut, LogFolder, LogLayout
from persistent.messaging.log.frames import BEGINNING, Frame, Kind, LogPosition
from persistent.messaging.log.segments import Segment

_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class LogBatch:
    """Records of one entry. ``first``: the position of the first; ``number``: how many records the log has before it;
    ``records``: binary; ``times``: int64, ms; ``mark``: what the writer stored beside the entry."""

    first: LogPosition
    number: int
    times: Any
    records: pa.BinaryArray
    mark: bytes = b""
    checksum: int = 0
    """Of the whole entry, and of its place."""

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, part: slice) -> LogBatch:
        """A batch of consecutive records; ValueError for a slice with a step."""
        start, _, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"{part} leaves out records, but a batch has consecutive ones: give no step")
        first = self.first._replace(slot=self.first.slot + start)
        records, times = self.records[part], self.times[part]
        return replace(self, first=first, number=self.number + start, times=times, records=records)

    @property
    def next(self) -> LogPosition:
        """The position after the last record."""
        return self.first._replace(slot=self.first.slot + len(self.records))


class Cursor:
    """Reads from ``position`` on. ``number``: how many records the log has before it, None while unknown. ``ended``:
    the log has ended and everything was read. ``whole``: also read whole entries of an open segment that readers do not
    see yet, for callers that know them to be acknowledged. ``beyond``: where to continue if the next entry was cut
    off."""

    def __init__(
        self,
        folder: LogFolder,
        position: LogPosition,
        number: int | None = None,
        *,
        whole: bool = False,
        beyond: Callable[[], LogPosition] | None = None,
    ) -> None:
        self._whole = whole
        self._beyond = beyond
        self._folder = folder
        self._log = ""
        self._is_given = True
        self._offset = 0
        self.position = position
        self.number = number
        self.ended = False

    def take(self) -> Iterator[LogBatch]:
        """The entries that exist now. RetentionGap if the next one was cut off and ``beyond`` is None; CorruptLog, also
        if the log ends before the position, or another log has taken the place of this one."""
        if not self._is_there():
            return
        layout = self._layout()
        while self.position.segment in layout.segments and not self.ended:
            try:
                segment = self._folder.segment(layout, self.position.segment)
            except FileNotFoundError:
                # It was sealed or cut off in the meantime.
                layout = self._layout()
                continue
            if not segment.sealed and not segment.begun:
                break
            if self._is_given:
                self._refuse_beyond(segment)
            yield from self._entries(segment)
            if not segment.sealed:
                return
            self.ended = segment.seal.kind is Kind.LAST
            self.number = segment.seal.number
            self._go(LogPosition(self.position.segment + 1, 0, 0), 0)
            if self.position.segment not in layout.segments:
                layout = self._layout()
        if not self.ended and self.position > (layout.segments.stop, 0, 0):
            self._raise_beyond(layout.newest)

    def _is_there(self) -> bool:
        """Whether the log exists. CorruptLog if the log that was read is gone, or another log is in its place."""
        log = self._folder.id if self._folder.find() else ""
        if self._log not in ("", log):
            there = f"the log {log} is in its place" if log else "it is gone"
            raise CorruptLog(
                f"{self._folder}: the log {self._log} was read up to {self.position}, and now {there}: the position "
                "names other records there, or none. Restore the log, or read the other one from its beginning"
            )
        self._log = log
        return bool(log)

    def _entries(self, segment: Segment) -> Iterator[LogBatch]:
        if self.number is None:
            self.number = segment.head.number
        for frame in segment.entries(self._offset, whole=self._whole):
            start = self.position
            if frame.entry < start.entry:
                self.number = frame.number + frame.count
                continue
            skipped = start.slot if frame.entry == start.entry else 0
            self._go(LogPosition(segment.number, frame.entry + 1, 0), frame.stop)
            self.number = frame.number + frame.count
            if skipped < frame.count or (frame.count == 0 and frame.mark_bytes):
                yield batch_of(segment, frame, skipped)

    def _refuse_beyond(self, segment: Segment) -> None:
        """CorruptLog if the segment ends before the given position. Later positions are not checked: they follow from
        entries that were read."""
        at, self._is_given = self.position, False
        stop = segment.seal.entry if segment.sealed else segment.kept(b"").so_far.entries
        if at.entry > stop or (at.entry == stop and at.slot):
            self._raise_beyond(segment.number)

    def _raise_beyond(self, segment: int) -> NoReturn:
        raise CorruptLog(
            f"{self._folder}: there is no position {self.position}: the log ends before it, in segment {segment}. "
            "It is an older copy, or has lost entries that were not synced. Restore it; or read from a position that "
            "exists (log.ends()), and count what is lost"
        )

    def _go(self, position: LogPosition, offset: int) -> None:
        self.position, self._offset = position, offset

    def _layout(self) -> LogLayout:
        layout = self._folder.layout(self.position.segment)
        self._refuse_gone(layout.cut)
        return layout

    def _refuse_gone(self, cut: Cut) -> None:
        if self.position < cut.position and self.number == cut.number:
            # The same place: only what was read was cut off.
            self._go(cut.position, 0)
        elif self.position < cut.position and self._beyond is not None:
            self._go(self._beyond(), 0)
            self.number = None
        elif self.position < cut.position:
            raise RetentionGap(
                f"{self._folder}: the next position to read is {self.position}, but the first that remains is "
                f"{cut.position}: the records between were cut off before they were read. "
                'on_gap="earliest" continues with the first record, on_gap="latest" with the next to come'
            )


def batch_of(segment: Segment, frame: Frame, skipped: int = 0) -> LogBatch:
    """The records of an entry, without the first ``skipped``."""
    position = LogPosition(segment.number, frame.entry, skipped)
    times, records = frame.times(segment.data)[skipped:], frame.records(segment.data)[skipped:]
    checksum = frame.checksum(segment.data)
    return LogBatch(position, frame.number + skipped, times, records, frame.mark(segment.data), checksum)


def grouped(batches: Iterable[LogBatch]) -> Iterator[list[LogBatch]]:
    """The batches in groups that each fit one array: an Arrow array holds 2 GiB, and an entry at most 1 GiB."""
    group: list[LogBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + len(batch), size + batch.records.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def find_segment(folder: LogFolder, layout: LogLayout, is_before: Any) -> Segment | None:
    """The last segment for which ``is_before(head)`` holds, otherwise the first; None if there is none.

    FileNotFoundError if the layout has changed.
    """
    low, high = layout.segments.start, layout.segments.stop
    last: Segment | None = None
    while low < high:
        # The first segment is taken unchecked: earlier ones are gone.
        middle = (low + high) // 2
        segment = folder.segment(layout, middle)
        if not segment.sealed and not segment.begun:
            high = middle
        elif is_before(segment.head) or middle == layout.segments.start:
            last, low = segment, middle + 1
        else:
            high = middle
    return last


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
