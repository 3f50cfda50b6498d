"""A log reader resumes where the last reader with its id stopped, according to an offset store.

``mark="after"``: a batch is marked when the next one is requested, so a batch that was being processed at a crash is
read again: at-least-once. ``mark="before"``: it is marked, durably, before it is handed out, and never read again:
at-most-once. A lease admits one reader per id. A reader that has lost it raises Fenced and marks nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol, Self

from msgspec.structs import replace

from persistent.errors import CorruptLog, Fenced, Refused, StillRunning
from persistent.messaging.log.cursor import Cursor, LogBatch
from persistent.messaging.log.frames import LogPosition
from persistent.messaging.offsets import OffsetStore, load_state
from persistent.time.clock import monotonic_s, wall_ms


class ReaderPlaces(Protocol):
    """What a reader needs of its log."""

    @property
    def id(self) -> str:
        """The id of the log, "" before it exists."""

    def cursor_at(self, position: LogPosition | None, number: int | None) -> Cursor:
        """A cursor at a position, or where a new id begins. ``number``: how many records lie before it, if known."""

    def checksum(self, position: LogPosition) -> int | None:
        """The checksum of the entry that holds a position; None if it was cut off, 0 if it does not exist."""


class LogReader:
    """Reads a log under an id; made by ``SegmentedLog.reader``. ``position``: of the next record to hand out."""

    def __init__(
        self,
        reader: str,
        store: OffsetStore,
        log: ReaderPlaces,
        *,
        every_ms: int,
        lease_ms: int,
        before: bool,
    ) -> None:
        self._reader = reader
        self._store = store
        self._log = log
        self._every_ms = every_ms
        self._lease_ms = lease_ms
        self._before = before
        self._version, self._state = load_state(store, reader)
        self._refuse_another_log()
        self._cursor = self._opened()
        self._begin = self._cursor.position
        self._leased = False
        self._marked: LogBatch | None = None
        self._under_way: LogBatch | None = None
        """The batch that was handed out last, while nobody has asked for the next one or marked it."""
        self._flushed_s = monotonic_s()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"reader {self._reader!r} in {self._store!r}"

    @property
    def position(self) -> LogPosition:
        return self._cursor.position

    def read(self) -> Iterator[LogBatch]:
        """The batches that exist now. StillRunning if another reader has this id; Fenced if one has taken it over."""
        if not self._leased:
            self._refuse_another_log()
            # Nothing is stored before there is something to read.
            if next(self._cursor.take(), None) is None:
                return
            try:
                self._take_lease()
            except BaseException:
                # That was only a look: the next attempt must find the same.
                self._cursor = self._log.cursor_at(self._begin, None)
                raise
        if self._under_way is not None:
            # Its processing has raised, or the loop was left.
            again = self._under_way
            self._cursor, self._under_way = self._log.cursor_at(again.first, again.number), None
        for batch in self._cursor.take():
            if self._before:
                self.mark(batch)
                self.flush()
            else:
                self._under_way = batch
            yield batch
            if not self._before:
                self.mark(batch)
            self._flush_when_due()

    def follow(self, *, stop: threading.Event | None = None, poll_ms: int = 100) -> Iterator[LogBatch]:
        """As ``read``, then new batches, until the log ends or ``stop`` is set."""
        stop = stop or threading.Event()
        while not self._cursor.ended and not stop.is_set():
            for batch in self.read():
                yield batch
                if stop.is_set():
                    # It was processed: the caller stops when it asks for more.
                    self.mark(batch)
                    return
            if not self._cursor.ended:
                stop.wait(poll_ms / 1_000)
                self._flush_when_due()

    def mark(self, batch: LogBatch) -> None:
        """Mark a batch, and all before it, as processed. For callers that leave a loop early."""
        if self._marked is None or self._marked.next < batch.next:
            self._marked = batch
        if self._under_way is not None and self._under_way.next <= batch.next:
            self._under_way = None

    def flush(self) -> None:
        """Store the marked position, durably, and keep the lease. Fenced, StorageError."""
        if not self._leased:
            return
        self._flushed_s = monotonic_s()
        self._put(wall_ms() + self._lease_ms)

    def close(self) -> None:
        """Store the marked position, and release the id. Nothing is stored if nothing was read."""
        if self._leased:
            try:
                self._put(0)
            finally:
                self._leased = False

    def _flush_when_due(self) -> None:
        """Flush at intervals, and in time for the lease."""
        if 1_000 * (monotonic_s() - self._flushed_s) >= min(self._every_ms, self._lease_ms // 2):
            self.flush()

    def _opened(self) -> Cursor:
        """The cursor at the stored position. CorruptLog if the entry before it is not the entry that was read."""
        text, entry = self._state.position, self._state.entry
        position = LogPosition.from_text(text) if text else None
        checksum = self._log.checksum(position) if position is not None and entry else None
        if checksum is not None and f"{checksum:08x}" != entry:
            raise CorruptLog(
                f"{self!r} has read up to {position}, and another entry, or none, is there now: the log is an older "
                "copy, or has lost entries that were not synced. Restore it; or read it under another id, from where "
                "initial= says"
            )
        return self._log.cursor_at(position, self._state.number)

    def _refuse_another_log(self) -> str:
        """The id of the log, "" before it exists. Refused if the position is of another log, where it names other
        records or none."""
        log = self._log.id
        if "" not in (log, self._state.log) and self._state.log != log:
            raise Refused(f"{self!r} has read another log, {self._state.log}. Read this one, {log}, under another id")
        return log

    def _take_lease(self) -> None:
        while True:
            self._version, self._state = load_state(self._store, self._reader)
            log = self._refuse_another_log()
            now = wall_ms()
            if left := self._state.left(now):
                raise StillRunning(
                    f"{self!r}: another reader uses this id, for {left:,} ms from now unless it renews its lease. End "
                    "it; or, if it has died, wait that long; or read under another id, from where initial= says"
                )
            # The start is stored with the lease: after a crash "latest" would be another place.
            begin = self._state.position or str(self._begin)
            taken = replace(self._state.taken(log, now, self._lease_ms), position=begin)
            if self._store.swap(self._reader, self._version, taken.encoded()):
                self._version, self._state, self._leased = self._version + 1, taken, True
                self._flushed_s = monotonic_s()
                break
        self._cursor = self._opened()

    def _put(self, until: int) -> None:
        """Replace the stored document. The stored position never goes back."""
        new = replace(self._state, until=until)
        marked = self._marked
        if marked is not None and (not new.position or LogPosition.from_text(new.position) < marked.next):
            number, entry = marked.number + len(marked), f"{marked.checksum:08x}"
            new = replace(new, position=str(marked.next), number=number, entry=entry)
        if not self._store.swap(self._reader, self._version, new.encoded()):
            self._leased = False
            raise Fenced(
                f"{self!r}: another reader has taken over this id, because the lease of this one had expired, or "
                "their clocks differ by more than it. Records marked since the last flush are read again there. Take a "
                "longer lease=, or flush more often"
            )
        self._version, self._state = self._version + 1, new
