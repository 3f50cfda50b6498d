"""A log source reads a segmented log: one partition, whose positions are the numbers of its records.

The source recognises the last record that it has read. Where the log is an older copy, or a power loss has removed
unsynced records, a writer uses numbers again, and another record has the number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.connect import options
from persistent.connect.formats.message_columns import MessageColumns, WholeColumns, first_records
from persistent.connect.formats.values import MessageValue, RawValues, value_format
from persistent.connect.offsets import ON_GAP, Kept, OffsetPlans, require_skew
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.source import (
    Budget,
    Positions,
    Reached,
    Records,
    Source,
    SourcePlan,
    SourceState,
    Split,
)
from persistent.errors import RetentionGap, SourceChanged, SourceError
from persistent.messaging.log.cursor import LogBatch, grouped
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage import Storage, open_storage
from persistent.storage.places import Reach
from persistent.text.figures import utc_text
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant, bare, option_ms

_PARTITION: Final = "log"
_TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))


class LogSource(Source):
    """The records of the log at ``url``: a path, the URL of a store, or a ``SegmentedLog``.

    ``format``: "json", one object per record; or "bytes", one column ``value``. ``schema``: the columns to read of a
    JSON object, as in ``FileSource``; by default those of the first records. The source adds ``_timestamp``, the time
    of the record in the log. ``timestamp``: the column with the event time; ``timestamp_unit``, as in ``FileSource``.

    ``start``: where a new checkpoint begins: "earliest", "latest", or a time of the log. ``on_gap``: if records were
    cut off before they were read: "fail" with RetentionGap, or continue with the "earliest" or "latest" and count the
    skipped ones as ``skipped``. ``max_out_of_orderness``: how far, in event time, a record can come behind a later one.
    ``max_skew``: how far the event time of a record can be ahead of its time in the log, which is how far back
    ``persistent restart`` looks. Without meaning for ``_timestamp`` itself.
    """

    finds_times = True
    forgets = True

    kind: str = "LogSource"
    codec: str = "offset/1"

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
        options.require_choice("on_gap", on_gap, ON_GAP)
        storage = url.storage if isinstance(url, SegmentedLog) else open_storage(url)
        self.log = SegmentedLog(storage)
        self.address = self.log.address
        self.timestamp = timestamp
        self.reach = Reach.NETWORK if not storage.local else Reach.MACHINE if storage.shared else Reach.PROCESS
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        values = value_format(format, infers=schema is None)
        time = timestamp, timestamp_unit
        self._columns = MessageColumns(repr(self), values, schema, [_TIME], time, noun="record")
        self._start = options.start_of(start)
        self._skew_ms = 0 if timestamp == _TIME.name else option_ms(max_skew, "max_skew")
        self._plans = OffsetPlans(repr(self), on_gap=on_gap, idle_timeout_ms=None)
        remedy = "'persistent restart' continues from a clock; a fresh checkpoint and sink begin anew"
        self._last = LastRecord(repr(self), self.log, remedy)
        self._is_missing = False
        self.until: int | None = None
        """A number from which on nothing is planned, for a source whose run has a goal."""

    def __repr__(self) -> str:
        return f"LogSource({self.log.storage.url!r})"

    # -- plans ---------------------------------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        """Empty: the only partition joins with the first plan, at ``start``."""
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next."""
        self._columns.require_recorded(state.recorded)
        self._require_there(state.recorded, follow)
        kept = self._kept(state.recorded, state.positions.get(_PARTITION, 0))
        plan = self._plans.plan(state, budget, {_PARTITION: kept}, partial(self._begins, kept))
        self._last.require_same(state.recorded, state.positions.get(_PARTITION, 0))
        last = self._last.recorded(state.recorded, plan.end.get(_PARTITION, 0))
        recorded = {**plan.recorded, "log": self.log.id, **last}
        return replace(plan, recorded=recorded | self._described(state.recorded, plan))

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same records, decoded by the present options. None if they are of another log."""
        self._columns.require_recorded(state.recorded)
        if put.recorded["log"] != self.log.id:
            return None
        return replace(put, recorded={**put.recorded, **self._described(state.recorded, put)})

    def _described(self, recorded: Mapping[str, Any], plan: SourcePlan) -> dict[str, Any]:
        """What a plan records about the fields. ``recorded``: what the checkpoint has recorded."""
        return self._columns.described(recorded, bool(plan.splits), partial(self._samples, plan.splits))

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the log that was read is not the one that was planned, or has other records."""
        self._require_same(recorded)
        self._last.require_same(recorded, recorded.get("last", (-1,))[0] + 1)

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan are gone, and may be skipped."""
        return self._plans.has_forgotten(splits, {_PARTITION: self._kept(recorded, 0)})

    def position_at(self, partition: str, clock: int) -> int:
        """A number before which no record has an event time of ``clock`` or later, provided ``max_skew`` is right."""
        return self.log.number_at(clock - self._skew_ms)

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        """The position of a clock in the present log, which can be another one; fields and times stay."""
        at = {_PARTITION: self.position_at(_PARTITION, clock)}
        ends = self.log.ends()
        kept = {_PARTITION: Kept(ends.first_number, ends.next_number)}
        carried = {name: recorded[name] for name in (*self._columns.times(), "schema") if name in recorded}
        if "schema" in recorded:
            here = {**recorded, "log": self.log.id}
            require_skew(repr(self), at, kept, (clock, self._skew_ms), lambda split: self.read(split, here))
        begins = self._plans.from_clock(kept, at, utc_text(clock - self._skew_ms))
        return SourceState(at, {**carried, **begins, "log": self.log.id})

    def reached(self, state: SourceState) -> Reached:
        """How many of the existing records have been read."""
        begun = state.recorded.get("begins", {}).get(_PARTITION, 0)
        done = state.positions.get(_PARTITION, begun) - begun
        return Reached(done, max(done, self.log.ends().next_number - begun), "rows")

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "positions are in the checkpoint, and acknowledged entries stay")

    def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the writer of a log decides what is kept."""

    def warnings(self) -> tuple[str, ...]:
        """A warning while a following run waits for the log to appear."""
        return (f"{self!r}: no log exists yet: check the path, or start its writer",) if self._is_missing else ()

    def _require_there(self, recorded: Mapping[str, Any], follow: bool) -> None:
        """Raise SourceError if no log exists, unless the run follows."""
        self._is_missing = not self.log.id and not recorded.get("log")
        if self._is_missing and not follow:
            raise SourceError(
                f"{self!r}: no log exists; check the path, start its writer (a LogSink creates it with its first "
                "outputs), or run with follow=True to wait for it"
            )

    def _kept(self, recorded: Mapping[str, Any], read: int) -> Kept:
        self._require_same(recorded)
        ends = self.log.ends()
        # Records that were read were acknowledged, although a power loss can hide them until the next writer begins.
        hidden = ends.next_number < read <= ends.whole_number
        stop = ends.next_number if self.until is None else min(ends.next_number, max(self.until, read))
        return Kept(ends.first_number, read if hidden else stop)

    def _begins(self, kept: Kept, partitions: Sequence[str]) -> Mapping[str, int]:
        if isinstance(self._start, int):
            return dict.fromkeys(partitions, max(self.log.number_at(self._start), kept.first))
        return dict.fromkeys(partitions, kept.first if self._start == "earliest" else kept.stop)

    def _require_same(self, recorded: Mapping[str, Any]) -> None:
        log_id = self.log.id
        if recorded.get("log") not in (None, "", log_id):
            raise SourceChanged(
                f"{self!r}: the checkpoint has read another log there, {recorded['log']}; this one is "
                f"{log_id or 'missing'}. Give the source that log; 'persistent restart' continues from a clock"
            )

    # -- columns -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self._columns.require_recorded(recorded)
        return self._columns.schema(recorded)

    def _samples(self, splits: Sequence[Split]) -> Iterator[list[MessageValue]]:
        """The first records, however large the step and however many its workers."""
        yield first_records(self.log, splits[0].spans[0].start)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self._require_same(recorded)
        for span in split.spans:
            for batches in grouped(self._batches(span.start, span.stop)):
                yield self._records(batches, recorded)

    def _batches(self, start: int, stop: int) -> Iterator[LogBatch]:
        """The records ``start <= number < stop``, cut from their entries."""
        try:
            there = start < stop and start < self.log.ends().whole_number
            for batch in self.log.read(self.log.position_of(start, whole=True), whole=True) if there else ():
                yield batch[: stop - batch.number]
                start = batch.number + len(batch)
                if start >= stop:
                    return
        except RetentionGap as error:
            raise RetentionGap(f"{error}. The next run plans the step again, according to on_gap=") from error
        if start < stop:
            raise SourceChanged(f"{self!r}: a step was planned up to record {stop:,}, and the log ends at {start:,}")

    def _records(self, batches: Sequence[LogBatch], recorded: Mapping[str, Any]) -> Records:
        records = pa.concat_arrays([batch.records for batch in batches])
        times = pa.array(np.concatenate([batch.times for batch in batches]), pa.int64()).cast(_TIME.type)
        values = records if isinstance(self._columns.format, RawValues) else records.to_pylist()
        numbers = batches[0].number + np.arange(len(records))
        return self._columns.records(WholeColumns(values, numbers, {_TIME.name: times}), recorded)


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
