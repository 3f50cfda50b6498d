"""A log source reads a segmented log: one partition, whose positions are the numbers of its records.

The source recognises the last record that it has read. Where the log is an older copy, or a power loss has removed
unsynced records, a writer uses numbers again, and another record has the number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect.formats.message_columns import MessageColumns, WholeColumns, first_records
from persistent.connect.formats.values import MessageValue, RawValues, value_format
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import Kept, reached
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.source import Budget, Reached, Records, SourcePlan, SourceState, Split
from persistent.errors import RetentionGap, SourceChanged, SourceError
from persistent.messaging.log.cursor import LogBatch, grouped
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage.opening import open_storage
from persistent.storage.protocol import Storage
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant

_PARTITION: Final = "log"
_TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))


class LogSource(OffsetSource):
    """The records of the log at ``url``: a path, the URL of a store, or a ``SegmentedLog``.

    ``format``: "json", one object per record; or "bytes", one column ``value``. ``schema``: the columns to read of a
    JSON object, as in ``FileSource``; by default those of the first records. The source adds ``_timestamp``, the time
    of the record in the log.

    ``timestamp``, ``timestamp_unit``, ``start`` (a time of the log), ``on_gap``, ``max_out_of_orderness``,
    ``max_skew``: as in ``KafkaSource``, where the log is the broker.
    """

    finds_times = True

    kind: str = "LogSource"

    @spelled
    def __init__(
        self,
        url: str | os.PathLike[str] | Storage | SegmentedLog,
        *,
        format: str = "json",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        timestamp: str = _TIME.name,
        timestamp_unit: str | None = None,
        start: str | Instant = "earliest",
        on_gap: str = "fail",
        max_out_of_orderness: Duration = 0,
        max_skew: Duration = "1 min",
    ) -> None:
        storage = url.storage if isinstance(url, SegmentedLog) else open_storage(url)
        self.log = SegmentedLog(storage)
        self.address = self.log.address
        self.reach = self.log.reach
        values = value_format(format, infers=schema is None)
        super().__init__(
            MessageColumns(repr(self), values, schema, [_TIME], (timestamp, timestamp_unit), noun="record"),
            timestamp=timestamp,
            start=start,
            on_gap=on_gap,
            max_out_of_orderness=max_out_of_orderness,
            max_skew=max_skew,
        )
        remedy = "'persistent restart' continues from a clock; a fresh checkpoint and sink begin anew"
        self._last = LastRecord(repr(self), self.log, remedy)
        self._is_missing = False
        self.until: int | None = None
        """A number from which on nothing is planned, for a source whose run has a goal."""

    def __repr__(self) -> str:
        return f"LogSource({self.log.storage.url!r})"

    # -- the log -------------------------------------------------------------------------------------------------

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next. SourceError if no log exists, unless the run follows."""
        self.require_recorded(state.recorded)
        self._is_missing = not self.log.id and not state.recorded.get("log")
        if self._is_missing and not follow:
            raise SourceError(
                f"{self!r}: no log exists; check the path, start its writer (a LogSink creates it with its first "
                "outputs), or run with follow=True to wait for it"
            )
        return super().plan(state, budget, follow=follow)

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        self._require_same(recorded)
        at = read.get(_PARTITION, 0)
        self._last.require_same(recorded, at)
        ends = self.log.ends()
        # Records that were read were acknowledged, although a power loss can hide them until the next writer begins.
        hidden = ends.next_number < at <= ends.whole_number
        stop = ends.next_number if self.until is None else min(ends.next_number, max(self.until, at))
        return {_PARTITION: Kept(ends.first_number, at if hidden else stop)}

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        return {"log": self.log.id, **self._last.recorded(recorded, end.get(_PARTITION, 0))}

    def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
        return {_PARTITION: self.log.number_at(ms)}

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same records, decoded by the present options. None if they are of another log."""
        self.require_recorded(state.recorded)
        return super().corrected(state, put) if put.recorded["log"] == self.log.id else None

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the log that was read is not the one that was planned, or has other records."""
        self._require_same(recorded)
        self._last.require_same(recorded, recorded.get("last", (-1,))[0] + 1)

    def reached(self, state: SourceState) -> Reached:
        """How many of the existing records have been read."""
        ends = self.log.ends()
        return reached(state, {_PARTITION: Kept(ends.first_number, ends.next_number)})

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "positions are in the checkpoint, and acknowledged entries stay")

    def warnings(self) -> tuple[str, ...]:
        """A warning while a following run waits for the log to appear."""
        return (f"{self!r}: no log exists yet: check the path, or start its writer",) if self._is_missing else ()

    def _require_same(self, recorded: Mapping[str, Any]) -> None:
        log_id = self.log.id
        if recorded.get("log") not in (None, "", log_id):
            raise SourceChanged(
                f"{self!r}: the checkpoint has read another log there, {recorded['log']}; this one is "
                f"{log_id or 'missing'}. Give the source that log; 'persistent restart' continues from a clock"
            )

    # -- reading -------------------------------------------------------------------------------------------------

    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        return first_records(self.log, start)

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self._require_same(recorded)
        for span in split.spans:
            for batches in grouped(self._batches(span.start, span.stop)):
                yield self._records(batches, recorded)

    def _batches(self, start: int, stop: int) -> Iterator[LogBatch]:
        try:
            yield from planned_batches(self.log, start, stop, repr(self), "and the log ends at")
        except RetentionGap as error:
            raise RetentionGap(f"{error}. The next run plans the step again, according to on_gap=") from error

    def _records(self, batches: Sequence[LogBatch], recorded: Mapping[str, Any]) -> Records:
        records = pa.concat_arrays([batch.records for batch in batches])
        times = pa.array(np.concatenate([batch.times for batch in batches]), pa.int64()).cast(_TIME.type)
        values = records if isinstance(self._columns.format, RawValues) else records.to_pylist()
        numbers = batches[0].number + np.arange(len(records))
        return self._columns.records(WholeColumns(values, numbers, {_TIME.name: times}), recorded)


def planned_batches(log: SegmentedLog, start: int, stop: int, place: str, ends: str) -> Iterator[LogBatch]:
    """The records ``start <= number < stop`` of a plan, cut from their entries. SourceChanged if the log ends before.
    ``place``, ``ends``: the source, and the words for the end of its log, in the error."""
    there = start < stop and start < log.ends().whole_number
    for batch in log.read(log.position_of(start, whole=True), whole=True) if there else ():
        if len(batch):
            yield batch[: stop - batch.number]
            start = batch.number + len(batch)
        if start >= stop:
            return
    if start < stop:
        raise SourceChanged(f"{place}: a step was planned up to record {stop:,}, {ends} {start:,}")


class LastRecord:
    """The last record of ``log`` that was read, by its fingerprint. ``place``: names the source in errors. ``remedy``:
    what to do if another record has its number."""

    def __init__(self, place: str, log: SegmentedLog, remedy: str) -> None:
        self._place, self._log, self._remedy = place, log, remedy
        self._seen: list[Any] = []

    def recorded(self, recorded: Mapping[str, Any], end: int) -> dict[str, Any]:
        """What a plan records about the last record before its end. ``recorded``: the record of the previous plan."""
        number = end - 1
        if number < 0 or recorded.get("last", (-1,))[0] == number:
            return {}
        self._seen = [number, self._log.fingerprint_of(number)]
        return {"last": self._seen}

    def require_same(self, recorded: Mapping[str, Any], read: int) -> None:
        """Raise SourceChanged if the last record before ``read`` is not the recorded one. Checked once per process:
        only a power loss or other files can change it."""
        number, known = last = list(recorded.get("last", (-1, None)))
        if not known or number != read - 1 or last == self._seen:
            return
        fingerprint, self._seen = self._log.fingerprint_of(number), last
        if fingerprint is not None and fingerprint != known:
            self._seen = []
            raise SourceChanged(
                f"{self._place}: record {number:,} is no longer the one that was read. A power loss removed unsynced "
                "records, or the log is an older copy, and others were written under the same numbers since. "
                f"{self._remedy}"
            )
