"""A log writer is the only one that adds to a log. Threads that append at the same time share a sync.

An entry is acknowledged when its append returns; with ``sync="always"`` it is durable then. Times never go back. A
writer that raised Fenced or StorageError is finished: a new one finds what is in the log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from persistent.errors import Fenced, InvalidPipeline, Refused, StorageError
from persistent.messaging.log.frames import CONTENT_BYTES_MAX, LogPosition
from persistent.messaging.log.tails import Tail, damaged
from persistent.time.clock import duration_ms, monotonic_s, wall_ms

RECORD_BYTES_MAX = 16 << 20
_SLOT_BYTES = 12
_ROLLS_MAX = 100
"""The number of small segments to seal before retention runs again, which reads some of them."""


@dataclass
class _Waiting:
    """A pending entry. ``position``: of its first record, once the entry was written."""

    times: Any
    records: pa.BinaryArray
    mark: bytes
    position: LogPosition | None = None


class LogWriter:
    """Adds to a log; made by ``SegmentedLog.writer``. ``mark``: of the last entry that has one."""

    def __init__(
        self,
        place: str,
        tail: Tail,
        policy: SyncPolicy,
        segment_bytes: int,
        on_roll: Callable[[], object],
    ) -> None:
        self._place = place
        self._tail = tail
        self._policy = policy
        self._segment_bytes = segment_bytes
        self._on_roll = on_roll
        self._rolled = tail.segment, tail.so_far.bytes_before
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._busy = False
        self._ended_by = ""
        self._last_time = tail.so_far.last
        self._unsynced = 0
        self._unsynced_since = 0.0
        self._timer: threading.Timer | None = None
        self._process = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def mark(self) -> bytes:
        return self._tail.so_far.mark

    @property
    def number(self) -> int:
        """The number of records appended to the log so far."""
        return self._tail.so_far.number

    @property
    def time(self) -> int:
        """The time of the last record (ms)."""
        return self._last_time

    def is_current(self) -> bool:
        """Whether it can still write: it has not ended or failed, no other writer has claimed the log, and the log is
        where it was."""
        if self._ended_by or self._process != os.getpid():
            return False
        try:
            return not self._tail.is_fenced()
        except StorageError:
            return False

    def append(self, record: bytes, time: int | None = None) -> LogPosition:
        """Add a record; returns its position. ``time``: ms since the epoch, not before the previous record's; by
        default the time of day, or the previous record's time if the time of day is behind it."""
        return self.append_many([record], None if time is None else [time])

    def append_many(
        self, records: Sequence[bytes] | pa.BinaryArray, times: Sequence[int] | Any = None, *, mark: bytes = b""
    ) -> LogPosition:
        """Add records as one entry: after a crash all or none of them exist. Returns the position of the first.

        ``mark``: bytes for the writer that stay with the entry; the last one is found quickly. Only an entry with a
        mark can be without records. Refused for times that go back and for records that are too large.
        """
        column = _column(records, mark, self._place)
        self._refuse_fork()
        with self._changed:
            self._refuse_ended()
            entry = _Waiting(self._times(len(column), times), column, mark)
            self._waiting.append(entry)
            self._last_time = int(entry.times[-1]) if len(column) else self._last_time
            self._lead(lambda: entry.position is not None)
        assert entry.position is not None
        return entry.position

    def sync(self) -> None:
        """Make all acknowledged entries durable."""
        self._refuse_fork()
        with self._changed:
            self._refuse_ended()
            self._await_turn()
            self._work(lambda: self._flush([], sync=True))

    def end(self) -> None:
        """End the log: followers reach its end, and nothing can be added, by this writer or another."""
        self._refuse_fork()
        with self._changed:
            self._refuse_ended()
            self._await_turn()
            self._work(self._tail.end)
            self._ended_by = "it has ended the log"

    def close(self) -> None:
        """Make all acknowledged entries durable, and end this writer. Does nothing if it has ended before, or belongs
        to another process."""
        if self._process != os.getpid():
            return
        with self._changed:
            while self._busy:
                self._changed.wait()
            self._stop_timer()
            if self._ended_by:
                return
            self._ended_by = "it was closed"
            try:
                self._tail.close()
            except Fenced:
                # Every entry acknowledged here is in the log: the other writer has sealed it.
                if not self._policy.each and self._unsynced:
                    raise

    # -- group commit: one thread works for all that wait -----------------------------------------------------------

    def _lead(self, is_done: Callable[[], bool]) -> None:
        """Wait until it is done, or do the work of all waiting threads. Called with the lock."""
        while True:
            while self._busy:
                self._changed.wait()
            if is_done():
                # Even if the writer has ended since.
                return
            self._refuse_ended()
            group, self._waiting = self._waiting, []
            self._work(lambda group=group: self._flush(group))  # type: ignore[misc]

    def _await_turn(self) -> None:
        while self._busy:
            self._changed.wait()
        self._refuse_ended()

    def _work(self, work: Callable[[], None]) -> None:
        """Run ``work`` alone, without the lock."""
        self._busy = True
        self._changed.release()
        failure = "it did not finish"
        try:
            work()
            failure = ""
        except BaseException as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._changed.acquire()
            self._busy = False
            self._ended_by = self._ended_by or failure
            if failure:
                self._stop_timer()
            self._changed.notify_all()

    def _flush(self, group: Sequence[_Waiting], *, sync: bool = False) -> None:
        tail = self._tail
        added = [tail.add(entry.times, entry.records, entry.mark) for entry in group]
        if not self._unsynced:
            self._unsynced_since = monotonic_s()
        self._unsynced += len(group)
        due = sync or self._policy.is_due(self._unsynced, 1_000 * (monotonic_s() - self._unsynced_since))
        tail.flush(sync=due and self._unsynced > 0)
        self._unsynced = 0 if due else self._unsynced
        if tail.size >= self._segment_bytes:
            tail.roll()
            self._unsynced = 0
        for entry, position in zip(group, added):
            entry.position = position
        self._note_rolls()
        self._set_timer()

    def _note_rolls(self) -> None:
        """Call ``on_roll`` once ``segment_bytes`` bytes or ``_ROLLS_MAX`` segments were sealed since the last call."""
        now = self._tail.segment, self._tail.so_far.bytes_before
        if now[1] - self._rolled[1] >= self._segment_bytes or now[0] - self._rolled[0] >= _ROLLS_MAX:
            self._rolled = now
            self._on_roll()

    def _set_timer(self) -> None:
        """If the policy has a time, sync the last acknowledged entry in time, even if no entry follows it."""
        if self._policy.ms is not None and self._unsynced and self._timer is None:
            self._timer = threading.Timer(self._policy.ms / 1_000, self._sync_late)
            self._timer.daemon = True
            self._timer.start()

    def _sync_late(self) -> None:
        with self._changed:
            self._timer = None
            while self._busy:
                self._changed.wait()
            if not self._ended_by and self._unsynced:
                # The next append reports a failure.
                self._work(lambda: self._flush([], sync=True))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse_fork(self) -> None:
        """Refused in a forked process: it has the same file, and would write among the entries of the other process."""
        if self._process != os.getpid():
            raise Refused(f"{self._place}: this writer belongs to process {self._process}. Open one in this process")

    def _refuse_ended(self) -> None:
        if self._ended_by in ("it was closed", "it has ended the log"):
            raise Refused(f"{self._place}: this writer accepts nothing more: {self._ended_by}. Open another one")
        if self._ended_by:
            raise damaged(self._place, self._ended_by)

    def _times(self, count: int, times: Any) -> Any:
        if times is None:
            return np.full(count, max(wall_ms(), self._last_time), np.int64)
        stamps = _whole(times, self._place)
        if len(stamps) != count:
            raise Refused(f"{self._place}: {count} records have {len(stamps)} times: give one for each record, or none")
        earliest = np.append(np.int64(max(self._last_time, 0)), stamps)[:count]
        back = np.flatnonzero(stamps < earliest)
        if len(back):
            before = int(earliest[back[0]])
            raise Refused(
                f"{self._place}: time {int(stamps[back[0]])} of record {int(back[0])} comes after {before}: the "
                "times of a log never go back. Nothing of this entry was written. Omit times= for the time of "
                "day, and put the time of the event into the record"
            )
        return stamps


def _whole(times: Any, place: str) -> Any:
    """Times as int64. Refused for values that are no whole numbers of 64 bits, such as floats and NaT."""
    stamps = np.asarray(times)
    if not len(stamps):
        return stamps.astype(np.int64)
    if stamps.dtype.kind not in "iu" or stamps.max() > np.iinfo(np.int64).max:
        raise Refused(
            f"{place}: {times!r:.100} are no times: give whole milliseconds since the epoch. Nothing of this entry was "
            "written"
        )
    return np.ascontiguousarray(stamps, np.int64)


def is_entry(records: int, size: int) -> bool:
    """Whether ``records`` records fit one entry. ``size``: the bytes of the records and of their mark."""
    return size + _SLOT_BYTES * records + 16 <= CONTENT_BYTES_MAX


def _column(records: Any, mark: bytes, place: str) -> pa.BinaryArray:
    column = records if isinstance(records, pa.BinaryArray) else pa.array(records, pa.binary())
    if not len(column) and not mark:
        raise Refused(f"{place}: an entry has at least one record")
    if column.null_count:
        raise Refused(f"{place}: record {column.is_null().to_pylist().index(True)} is None: give bytes")
    if not len(column):
        return column
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    sizes = np.diff(offsets)
    if int(sizes.max()) > RECORD_BYTES_MAX:
        raise Refused(
            f"{place}: record {int(sizes.argmax())} has {int(sizes.max()):,} bytes, and a log accepts at most "
            f"{RECORD_BYTES_MAX:,}: put it into a file, and its name into the log"
        )
    if not is_entry(len(column), int(offsets[-1]) - int(offsets[0]) + len(mark)):
        raise Refused(
            f"{place}: an entry holds at most {CONTENT_BYTES_MAX:,} bytes: append these records in several entries"
        )
    return column


@dataclass(frozen=True)
class SyncPolicy:
    """``entries``: after at most this many; ``ms``: at most this long after the first unsynced one. None: no bound."""

    entries: int | None = None
    ms: int | None = None

    @property
    def each(self) -> bool:
        """Whether an entry is durable when it is acknowledged."""
        return self.entries == 1

    def is_due(self, entries: int, ms: float) -> bool:
        """Whether a sync is due with this many unsynced entries, the first of them this old."""
        return (self.entries is not None and entries >= self.entries) or (self.ms is not None and ms >= self.ms)


def sync_policy(value: Any) -> SyncPolicy:
    """The policy of an option: "always", "never", a number of entries, or a duration.

    >>> sync_policy("always").each, sync_policy(100).is_due(99, 0), sync_policy("1 s").is_due(1, 1_000)
    (True, False, True)
    """
    if value == "always":
        return SyncPolicy(entries=1)
    if value == "never":
        return SyncPolicy()
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return SyncPolicy(entries=value)
    if isinstance(value, str):
        try:
            return SyncPolicy(ms=duration_ms(value, "sync"))
        except ValueError as error:
            raise InvalidPipeline(f'{error}; or give "always", "never", or a number of entries') from error
    raise InvalidPipeline(f'sync={value!r}: give "always", "never", a number of entries such as 100, or a time: "1 s"')
