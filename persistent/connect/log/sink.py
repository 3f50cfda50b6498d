"""A log sink appends the outputs to a segmented log: the rows of a batch and its mark in one entry."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from persistent.codec.documents import canonical_json
from persistent.connect.appending import AppendingSink
from persistent.connect.formats.json_rows import json_rows
from persistent.connect.marked import SinkMark, T, claimed
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import Claim, Known, Looked, OutputBatch
from persistent.errors import InvalidPipeline, PersistentError, SinkMismatch, StorageError
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import RECORD_BYTES_MAX, LogWriter, is_entry
from persistent.storage.protocol import Storage
from persistent.text.spelling import spelled

_TAKEOVERS_MAX: Final = 10
_ESCAPED_MAX: Final = 12
_MARK_BYTES: Final = 256
_REVISION_BYTES: Final = 100


class LogSink(AppendingSink[LogWriter, SinkMark]):
    """Appends to the log at ``url`` (a path, the URL of a store, or a ``SegmentedLog``) a JSON object for each row,
    with the number of its batch as ``revision``.

    The rows of a batch are one entry, so a reader sees all or none of them; a batch of more than 1 GB is several
    entries in order. Drivers fence each other; nothing else may write to this log.
    """

    abilities = frozenset({"look", "newest", "undo"})
    _message = "record"
    _loss = "the log was deleted during the run. Restore it"

    @spelled
    def __init__(self, url: str | os.PathLike[str] | Storage | SegmentedLog) -> None:
        self.log = url if isinstance(url, SegmentedLog) else SegmentedLog(url)
        if not self.log.durable:
            raise InvalidPipeline(
                f"{self.log!r} does not sync each entry, but a checkpoint counts its outputs as published: a power "
                "loss would lose them for good. Omit its sync=: a checkpoint is one entry, and costs one sync"
            )
        self.address = self.log.address

    def __repr__(self) -> str:
        return f"LogSink({self.log.storage.url!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "the rows of a batch and its mark are one entry of the log")

    def claim(self, claim: Claim) -> None:
        """Claim the log for a job. SinkMismatch, StorageError."""
        mark = self._seen()
        if claimed(mark, claim, repr(self)) != mark:
            super().claim(claim)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest record."""
        if _ESCAPED_MAX * outputs.nbytes > RECORD_BYTES_MAX or outputs.num_columns >= 1_000:
            super().check(outputs, ())

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Read every entry that the log still has, and its checksum. CorruptLog, StorageError."""
        ends = self.log.ends()
        total = ends.next_number - ends.first_number
        done = 0
        for batch in self.log.read(on_gap="earliest"):
            done += len(batch)
            on_progress(min(done, total), total)
            yield Looked(f"{self.address} {batch.first}", bytes=batch.records.nbytes, rows=len(batch))

    @property
    def _max_bytes(self) -> int:  # type: ignore[override]
        return RECORD_BYTES_MAX - _REVISION_BYTES

    @property
    def _limit(self) -> str:
        return f"and a log accepts at most {RECORD_BYTES_MAX:,}: make the value smaller"

    def _sizes(self, table: pa.Table, key: tuple[str, ...]) -> Iterator[int]:
        """The bytes of each row as a record, without its revision."""
        return map(len, chain.from_iterable(json_rows(table)))

    def _opened(self) -> LogWriter:
        return self.log.writer()

    def _transact(self, what: str, act: Callable[[LogWriter], T]) -> T:
        """``act`` with the only writer of the log, which knows the last mark. If another writer fences it, ``act``
        again with a new writer: the entry that was being added may or may not be in the log."""
        for _ in range(_TAKEOVERS_MAX):
            if self._own_place is not None and not self._own_place.is_current():
                self._own_place = None
            writer = self._place
            try:
                return act(writer)
            except PersistentError:
                if writer.is_current():
                    raise
        raise StorageError(f"{self!r}: other writers keep taking over the log. Only one job may write to it")

    def _seen(self) -> SinkMark | None:
        return self._decoded(self.log.mark())

    def _mark(self, place: LogWriter, batch: OutputBatch | None = None) -> SinkMark | None:
        return self._decoded(place.mark)

    def _move(self, place: LogWriter, prior: SinkMark | None, mark: SinkMark) -> None:
        self._append(place, [], mark)

    def _write(self, place: LogWriter, prior: SinkMark | None, batch: OutputBatch) -> None:
        """Write the rows of a batch, and its mark with the last of them. Earlier entries carry the previous mark and
        the number of rows so far, so that a restart after a crash skips those rows."""
        before, done = self._required(prior, batch.url), _begun(place.mark, batch)
        rows: list[bytes] = []
        size = _MARK_BYTES
        pieces = (bodies for table in self._checked(batch) for bodies in self._bodies(table, batch.key, batch.number))
        for text in islice(chain.from_iterable(pieces), done, None):
            if rows and not is_entry(len(rows) + 1, size + len(text)):
                done += len(rows)
                self._append(place, rows, before, part=[batch.number, done])
                rows, size = [], _MARK_BYTES
            rows.append(text)
            size += len(text)
        self._append(place, rows, SinkMark(batch.job, batch.number))

    def _append(self, writer: LogWriter, rows: list[bytes], mark: SinkMark, **more: Any) -> None:
        writer.append_many(rows, mark=canonical_json({**mark.__dict__, **more}).encode())

    def _decoded(self, data: bytes) -> SinkMark | None:
        if not data:
            return None
        try:
            body = json.loads(data)
            return SinkMark(body["job"], body["number"])
        except (ValueError, KeyError, TypeError) as error:
            raise SinkMismatch(
                f"{self!r}: the mark of this log is not that of a job: another program writes there. Give the sink a "
                "log of its own"
            ) from error


def _begun(mark: bytes, batch: OutputBatch) -> int:
    """The number of rows of this batch that the log already has."""
    number, rows = json.loads(mark).get("part", (None, 0))
    return int(rows) if number == batch.number else 0
