"""A segmented log is a sequence of records in a folder: written by one writer at a time, read by any number of readers.

position    (segment, entry, slot), by which records are ordered
number      how many records were written before: dense, from 0
time        of each record, ms: never goes back, so it is an index
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from persistent.errors import InvalidPipeline, PersistentError, RetentionGap
from persistent.messaging.log.cursor import Cursor, LogBatch, LogEnds, Lookup, settled
from persistent.messaging.log.folder import Cut, LogFolder
from persistent.messaging.log.frames import BEGINNING, CONTENT_BYTES_MAX, LogPosition
from persistent.messaging.log.reader import LogReader
from persistent.messaging.log.tails import last_mark, take_over
from persistent.messaging.log.writer import LogWriter, sync_policy
from persistent.messaging.offsets import OffsetStore, checked_id, open_offsets
from persistent.storage.opening import open_storage
from persistent.storage.places import Reach
from persistent.storage.protocol import Storage
from persistent.time.clock import Duration, duration_ms, wall_ms

logger = logging.getLogger("persistent.log")

_ON_GAP = ("fail", "earliest", "latest")
_SEGMENT_BYTES_MIN = 1 << 10
_WAIT_MS = 100


class SegmentedLog:
    """A log in a folder: a path, or the URL of any store that can hold a checkpoint.

    ``segment_bytes``: the size at which a segment is sealed. ``sync``: when an acknowledged entry is durable: "always";
    after at most a number of entries; after at most a time, such as "1 s"; "never", which means when its segment is
    sealed. On stores other than a local disk it is always "always". ``keep_age``, ``keep_bytes``: retention: segments
    that are older, or lie before that many bytes, are cut off when a segment is sealed, or after many small ones.
    Without them all is kept.

    >>> log = SegmentedLog("memory://doctest-log")
    >>> with log.writer() as writer:
    ...     print(writer.append(b"one", time=7), writer.append_many([b"two", b"three"], [8, 9]))
    1-0-0 2-0-0
    >>> [record.as_py() for batch in log.read(log.position_at(8)) for record in batch.records]
    [b'two', b'three']
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Storage,
        *,
        segment_bytes: int = 64 << 20,
        sync: str | int = "always",
        keep_age: Duration | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        if not isinstance(segment_bytes, int) or not _SEGMENT_BYTES_MIN <= segment_bytes <= CONTENT_BYTES_MAX:
            raise InvalidPipeline(
                f"segment_bytes={segment_bytes!r}: give {_SEGMENT_BYTES_MIN:,} to {CONTENT_BYTES_MAX:,} bytes"
            )
        if keep_bytes is not None and (not isinstance(keep_bytes, int) or keep_bytes < 1):
            raise InvalidPipeline(f"keep_bytes={keep_bytes!r}: give a number of bytes, or omit it to keep all")
        self._segment_bytes = segment_bytes
        self._policy = sync_policy(sync)
        self._keep_age = None if keep_age is None else duration_ms(keep_age, "keep_age")
        self._keep_bytes = keep_bytes
        self._folder = LogFolder(open_storage(url))
        self._lookup = Lookup(self._folder)

    def __repr__(self) -> str:
        return f"SegmentedLog({str(self._folder)!r})"

    @property
    def storage(self) -> Storage:
        """The storage of the log."""
        return self._folder.storage

    @property
    def address(self) -> str:
        """Equal for two logs at one place. On a disk, symbolic links are followed."""
        storage = self._folder.storage
        return f"log {os.path.realpath(storage.url) if storage.local and storage.shared else storage.url}"

    @property
    def reach(self) -> Reach:
        """Which machines can read it."""
        storage = self._folder.storage
        return Reach.NETWORK if not storage.local else Reach.MACHINE if storage.shared else Reach.PROCESS

    @property
    def durable(self) -> bool:
        """Whether an entry is durable when it is acknowledged: sync="always"."""
        return self._policy.each

    @property
    def keeps_all(self) -> bool:
        """Whether only ``truncate`` cuts records off: it has neither keep_age nor keep_bytes."""
        return self._keep_age is None and self._keep_bytes is None

    @property
    def id(self) -> str:
        """The unique id of the log; "" before anything was written."""
        return self._folder.id if self._folder.find() else ""

    def writer(self) -> LogWriter:
        """A new writer, which fences every earlier one. The log is created if absent."""
        tail = take_over(self._folder, each=self._policy.each)
        self._retain()
        return LogWriter(repr(self), tail, self._policy, self._segment_bytes, self._retain)

    def truncate(self, before: LogPosition) -> LogPosition:
        """Cut off everything before a position, for good; returns the first position that remains.

        Readers that reach a removed record raise RetentionGap. A position behind the end cuts off everything, and a
        position before an earlier cut nothing. If the writer does not sync each entry, only sealed segments are cut.
        """
        # A segment that is missing before the position is no reason to refuse.
        start = before.segment
        ends = self._lookup.ends(start) if self._folder.find() else LogEnds()
        position = min(before, self._lookup.safe_end(start) if ends.next_number else ends.next)
        if position <= ends.first:
            return ends.first
        self._folder.cut(Cut(self._lookup.number(position), position))
        return position

    def _retain(self) -> None:
        """Cut off the segments beyond the retention. A failure is logged: it is no failure of what was appended, and
        the next sealed segment repeats the attempt."""
        if self._keep_age is None and self._keep_bytes is None:
            return
        try:
            self._cut_off()
        except PersistentError as error:
            logger.warning("%r: retention has failed, so the log keeps more than it should: %s", self, error)

    @settled
    def _cut_off(self) -> None:
        layout = self._folder.layout()
        if not layout.sealed:
            return
        newest = self._folder.segment(layout, layout.sealed[-1])
        end = newest.before.bytes_before + newest.data.size
        cut: Cut | None = None
        for number in layout.sealed[1:]:
            before = self._folder.segment(layout, number).before
            if not self._is_enough(end - before.bytes_before, before.last):
                break
            cut = Cut(before.number, LogPosition(number, 0, 0))
        if cut is not None:
            self._folder.cut(cut)

    def _is_enough(self, kept_bytes: int, last_before: int) -> bool:
        """Whether retention no longer keeps the records before a segment."""
        by_bytes = self._keep_bytes is not None and kept_bytes >= self._keep_bytes
        return by_bytes or (self._keep_age is not None and last_before < wall_ms() - self._keep_age)

    def read(
        self, start: LogPosition | None = None, *, on_gap: str = "fail", whole: bool = False
    ) -> Iterator[LogBatch]:
        """The entries from ``start`` on that exist now, by default from the first; one batch for each entry.

        ``on_gap``: if the start was cut off, "fail" with RetentionGap, or continue at the "earliest" or "latest"
        position. ``whole``: also acknowledged entries that a power loss hides until the next writer begins, and entries
        that are being added. CorruptLog if an acknowledged byte is wrong.
        """
        yield from self._cursor(start, on_gap, whole=whole).take()

    def follow(
        self,
        start: LogPosition | None = None,
        *,
        on_gap: str = "fail",
        poll: Duration = _WAIT_MS,
        stop: threading.Event | None = None,
    ) -> Iterator[LogBatch]:
        """As ``read``, then new entries, until the log ends or ``stop`` is set. ``poll``: how long to wait before
        looking again. ``on_gap``: applies also when the next entry is cut off meanwhile."""
        cursor = self._cursor(start, on_gap)
        stop, wait_s = stop or threading.Event(), duration_ms(poll, "poll") / 1_000
        while not cursor.ended and not stop.is_set():
            yield from cursor.take()
            if not cursor.ended:
                stop.wait(wait_s)

    def reader(
        self,
        id: str,
        store: str | os.PathLike[str] | OffsetStore,
        *,
        initial: str | int = "earliest",
        every: Duration = "10 s",
        mark: str = "after",
        lease: Duration = "1 min",
        on_gap: str = "fail",
    ) -> LogReader:
        """A reader that resumes where the last reader with this ``id`` stopped.

        ``store``: a path is a SQLite file, a URL a folder of that store; or an ``OffsetStore``. ``initial``: where a
        new id begins: "earliest", "latest" or a time of the log. ``every``: how often the position is stored. ``mark``:
        "after" a batch was processed (at-least-once), or "before" it is handed out (at-most-once). ``lease``: how long
        after its last store another reader is refused the id.
        """
        if mark not in ("after", "before"):
            raise InvalidPipeline(f"mark={mark!r} is not known; it is one of 'after', 'before'")
        if initial not in ("earliest", "latest") and (isinstance(initial, bool) or not isinstance(initial, int)):
            raise InvalidPipeline(f'initial={initial!r}: give "earliest", "latest", or a time of the log in ms')

        places = _ReaderPlaces(self, initial, on_gap)
        times = {"every_ms": duration_ms(every, "every"), "lease_ms": duration_ms(lease, "lease")}
        return LogReader(checked_id(id), open_offsets(store), places, before=mark == "before", **times)

    def ends(self) -> LogEnds:
        """Where the log begins and ends now, as readers see it."""
        return self._lookup.ends() if self._folder.find() else LogEnds()

    def position_at(self, time: int, *, on_gap: str = "fail") -> LogPosition:
        """The position of the first record with this time or a later one; if there is none, of the next record.

        RetentionGap if such records may have been cut off, unless ``on_gap`` is "earliest".
        """
        position, _ = self._lookup.at(time) if self._folder.find() else (BEGINNING, 0)
        ends = self.ends()
        if on_gap == "fail" and position == ends.first and ends.first_number:
            last = self._lookup.time_before(position)
            if last >= time:
                raise RetentionGap(
                    f"{self!r}: records of time {time} or later were cut off: those before {ends.first}, the last of "
                    f'time {last}. on_gap="earliest" continues without them'
                )
        return position

    def number_at(self, time: int) -> int:
        """The number of the first remaining record with this time or a later one."""
        return self._lookup.at(time)[1] if self._folder.find() else 0

    def position_of(self, number: int, *, whole: bool = False) -> LogPosition:
        """The position of the record with this number, or of the next record. RetentionGap if it was cut off;
        ValueError if it does not exist yet. ``whole``: as for ``read``."""
        ends = self.ends()
        stop = ends.whole_number if whole else ends.next_number
        if number < ends.first_number:
            raise RetentionGap(
                f"{self!r}: record {number:,} was cut off: the first that remains is {ends.first_number:,}"
            )
        if number > stop:
            raise ValueError(f"{self!r}: record {number:,} does not exist yet: the next is {stop:,}")
        return self._lookup.position(number, whole)

    def fingerprint_of(self, number: int) -> str | None:
        """A text that identifies the record under a number: its place, and the checksum of its entry.

        A number is reused where an entry that was not synced was lost, or the log is an older copy. None if the record
        was cut off, "" if it does not exist.
        """
        return self._lookup.fingerprint(number) if self._folder.find() else ""

    def mark(self) -> bytes:
        """The mark of the last entry that has one; b"" without one."""
        return last_mark(self._folder)

    def _cursor(
        self, start: LogPosition | None, on_gap: str, *, whole: bool = False, number: int | None = None
    ) -> Cursor:
        """``number``: how many records lie before ``start``, if that is known."""
        if on_gap not in _ON_GAP:
            raise InvalidPipeline(f"on_gap={on_gap!r} is not known; it is one of {', '.join(_ON_GAP)}")
        beyond = None if on_gap == "fail" else lambda: self._start(BEGINNING, on_gap)
        begin = start if start is not None and number is not None else self._start(start, on_gap)
        return Cursor(self._folder, begin, number, whole=whole, beyond=beyond)

    def _start(self, start: LogPosition | None, on_gap: str) -> LogPosition:
        if start is None or on_gap != "fail":
            ends = self.ends()
            if start is None or start < ends.first:
                return ends.next if on_gap == "latest" and start is not None else ends.first
        return start


@dataclass(frozen=True)
class _ReaderPlaces:
    """The log as a reader that begins at ``initial`` sees it."""

    log: SegmentedLog
    initial: str | int
    on_gap: str

    @property
    def id(self) -> str:
        return self.log.id

    def cursor_at(self, position: LogPosition | None, number: int | None) -> Cursor:
        if position is None and self.initial == "latest":
            position = self.log.ends().next
        elif position is None and isinstance(self.initial, int):
            position = self.log.position_at(self.initial, on_gap="fail" if self.on_gap == "fail" else "earliest")
        return self.log._cursor(position, self.on_gap, number=number)

    def checksum(self, position: LogPosition) -> int | None:
        return self.log._lookup.checksum(position) if self.id else None
