"""A log sink appends the outputs to a segmented log: the rows of a batch and its mark in one entry."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from persistent.codec.documents import canonical_json
from persistent.connect.formats.json_rows import json_rows, large_keys_refused, with_revision
from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import BatchSink, Claim, Known, Looked, OutputBatch, RefusedKeys, Retreat
from persistent.errors import InvalidPipeline, PersistentError, SinkMismatch, StorageError
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import RECORD_BYTES_MAX, LogWriter, is_entry
from persistent.storage import Storage
from persistent.text.spelling import spelled

_TAKEOVERS_MAX: Final = 10
_ESCAPED_MAX: Final = 12
_MARK_BYTES: Final = 256
_REVISION_BYTES: Final = 100


class LogSink(BatchSink):
    """Appends to the log at ``url`` (a path, the URL of a store, or a ``SegmentedLog``) a JSON object for each row,
    with the number of its batch as ``revision``.

    The rows of a batch are one entry, so a reader sees all or none of them; a batch of more than 1 GB is several
    entries in order. Drivers fence each other; nothing else may write to this log.
    """

    limits_keys = True
    abilities = frozenset({"look", "newest", "undo"})

    @spelled
    def __init__(self, url: str | os.PathLike[str] | Storage | SegmentedLog) -> None:
        self.log = url if isinstance(url, SegmentedLog) else SegmentedLog(url)
        if not self.log.durable:
            raise InvalidPipeline(
                f"{self.log!r} does not sync each entry, but a checkpoint counts its outputs as published: a power "
                "loss would lose them for good. Omit its sync=: a checkpoint is one entry, and costs one sync"
            )
        self.address = self.log.address
        self._writer: LogWriter | None = None

    def __repr__(self) -> str:
        return f"LogSink({self.log.storage.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "the rows of a batch and its mark are one entry of the log")

    def claim(self, claim: Claim) -> None:
        """Claim the log for a job. SinkMismatch, StorageError."""
        mark = _mark(self.log.mark(), self)
        if claimed(mark, claim, repr(self)) != mark:
            self._change(lambda writer: self._claim(writer, claim))

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest record."""
        if _ESCAPED_MAX * outputs.nbytes <= RECORD_BYTES_MAX and outputs.num_columns < 1_000:
            return
        for row, size in enumerate(_sizes(outputs)):
            if size > RECORD_BYTES_MAX - _REVISION_BYTES:
                raise InvalidPipeline(
                    f"{self!r}: row {row} is a record of {size:,} bytes, and a log accepts at most "
                    f"{RECORD_BYTES_MAX:,}: make the value smaller"
                )

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A key that is larger than the largest record."""
        yield from large_keys_refused(keys, RECORD_BYTES_MAX - _REVISION_BYTES, lambda: _sizes(keys), repr(self))

    def deliver(self, batch: OutputBatch) -> None:
        """Append the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""
        self._change(lambda writer: self._deliver(writer, batch))

    def undo(self, retreat: Retreat) -> None:
        """Append rows that take back those appended since the target of a rollback; none if the outputs stay. Fenced,
        StagedMissing, StorageError."""
        self._change(lambda writer: self._undo(writer, retreat))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        mark = _mark(self.log.mark(), self)
        return mark.number if mark is not None and mark.job == job else -1

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Read every entry that the log still has, and its checksum. CorruptLog, StorageError."""
        ends = self.log.ends()
        total = ends.next_number - ends.first_number
        done = 0
        for batch in self.log.read(on_gap="earliest"):
            done += len(batch)
            on_progress(min(done, total), total)
            yield Looked(f"{self.address} {batch.first}", bytes=batch.records.nbytes, rows=len(batch))

    def close(self) -> None:
        """End the writer."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _change(self, change: Callable[[LogWriter], None]) -> None:
        """Run ``change`` with the only writer of the log, which knows the last mark. If another writer fences it, run
        ``change`` again with a new writer: the entry that was being added may or may not be in the log."""
        for _ in range(_TAKEOVERS_MAX):
            if self._writer is None or not self._writer.is_current():
                self._writer = self.log.writer()
            writer = self._writer
            try:
                change(writer)
                return
            except PersistentError:
                if writer.is_current():
                    raise
                self._writer = None
        raise StorageError(f"{self!r}: other writers keep taking over the log. Only one job may write to it")

    def _claim(self, writer: LogWriter, claim: Claim) -> None:
        old_mark = _mark(writer.mark, self)
        mark = claimed(old_mark, claim, repr(self))
        if mark != old_mark:
            self._append(writer, [], mark)

    def _deliver(self, writer: LogWriter, batch: OutputBatch) -> None:
        mark = self._there(writer, batch.url)
        if not is_published(mark, batch, repr(self)):
            self._write(writer, batch)

    def _undo(self, writer: LogWriter, retreat: Retreat) -> None:
        for batch in retreat.staged:
            if not is_settled(self._there(writer, retreat.url), batch, repr(self)):
                self._write(writer, batch)
        mark = self._there(writer, retreat.url)
        if has_retreated(mark, retreat, repr(self)):
            return
        if retreat.undoing is None:
            self._append(writer, [], SinkMark(retreat.job, retreat.number))
        else:
            self._write(writer, retreat.undoing(mark.number))

    def _there(self, writer: LogWriter, url: str) -> SinkMark:
        mark = _mark(writer.mark, self)
        if mark is None:
            raise SinkMismatch(
                f"{self!r}: the mark of this job is gone: the log was deleted during the run. Restore it; or begin a "
                f"new checkpoint, with start_from={url!r}"
            )
        return mark

    def _write(self, writer: LogWriter, batch: OutputBatch) -> None:
        """Write the rows of a batch, and its mark with the last of them. Earlier entries carry the previous mark and
        the number of rows so far, so that a restart after a crash skips those rows."""
        before, done = self._there(writer, batch.url), _begun(writer.mark, batch)
        rows: list[bytes] = []
        size = _MARK_BYTES
        for text in islice(self._texts(batch), done, None):
            if rows and not is_entry(len(rows) + 1, size + len(text)):
                done += len(rows)
                self._append(writer, rows, before, part=[batch.number, done])
                rows, size = [], _MARK_BYTES
            rows.append(text)
            size += len(text)
        self._append(writer, rows, SinkMark(batch.job, batch.number))

    def _texts(self, batch: OutputBatch) -> Iterator[bytes]:
        for table in batch.tables():
            self.check(table, batch.key)
            for texts in json_rows(with_revision(table, batch.number)):
                yield from texts

    def _append(self, writer: LogWriter, rows: list[bytes], mark: SinkMark, **more: Any) -> None:
        writer.append_many(rows, mark=canonical_json({**mark.__dict__, **more}).encode())


def _sizes(table: pa.Table) -> Iterator[int]:
    """The bytes of each row as a record, without its revision."""
    return map(len, chain.from_iterable(json_rows(table)))


def _begun(mark: bytes, batch: OutputBatch) -> int:
    """The number of rows of this batch that the log already has."""
    number, rows = json.loads(mark).get("part", (None, 0))
    return int(rows) if number == batch.number else 0


def _mark(data: bytes, sink: LogSink) -> SinkMark | None:
    if not data:
        return None
    try:
        body = json.loads(data)
        return SinkMark(body["job"], body["number"])
    except (ValueError, KeyError, TypeError) as error:
        raise SinkMismatch(
            f"{sink!r}: the mark of this log is not that of a job: another program writes there. Give the sink a log "
            "of its own"
        ) from error
