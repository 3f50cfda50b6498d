"""A tail is where a writer appends to a log: an open file on a local disk, or whole segments on any other store."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from persistent.errors import Fenced, StorageError
from persistent.messaging.log.folder import LogFolder, WriterClaim, open_name, sealed_name
from persistent.messaging.log.frames import Kind, LogPosition, encode, seed_of
from persistent.messaging.log.segments import SoFar, head, seal
from persistent.storage.local import Appendable
from persistent.storage.protocol import put_or_read

Parts = list[bytes | memoryview | pa.Buffer]


class Tail(Protocol):
    """``so_far``: including every added entry. ``size``: bytes of the segment. ``flush``, ``roll`` and ``end`` raise
    Fenced and StorageError; after that, only ``close`` may be called."""

    so_far: SoFar
    size: int

    @property
    def segment(self) -> int: ...

    def add(self, times: Any, records: pa.BinaryArray, mark: bytes) -> LogPosition:
        """Encode an entry; returns the position of its first record."""

    def flush(self, *, sync: bool) -> None:
        """Write the added entries, so that they can be acknowledged; with ``sync`` they are durable."""

    def is_fenced(self) -> bool:
        """Whether another writer has claimed since."""

    def roll(self) -> None:
        """Seal the segment, and begin a new one."""

    def end(self) -> None:
        """Seal the segment, and the log with it."""

    def close(self) -> None:
        """Seal what was flushed and leave the tail; after a failure, only leave it."""


class _Adding:
    """What tails of both kinds have in common: entries that were added and not yet written."""

    def __init__(self, folder: LogFolder, claim: WriterClaim, segment: int, so_far: SoFar) -> None:
        self._folder = folder
        self._claim = claim
        self._parts: Parts = []
        self._failed = False
        self.segment = segment
        self.so_far = so_far
        self.size = 0
        self.durable = 0

    def add(self, times: Any, records: pa.BinaryArray, mark: bytes) -> LogPosition:
        so_far = self.so_far
        last = int(times[-1]) if len(times) else so_far.last
        parts = encode(
            Kind.DATA,
            self._seed,
            entry=so_far.entries,
            number=so_far.number,
            durable=self.durable,
            times=times,
            records=records,
            last=last,
            mark=mark,
        )
        self._parts += parts
        self.size += _bytes(parts)
        self.so_far = SoFar(
            so_far.entries + 1, so_far.number + len(records), last, mark or so_far.mark, so_far.bytes_before
        )
        return LogPosition(self.segment, so_far.entries, 0)

    @property
    def _seed(self) -> int:
        return seed_of(self._folder.id, self.segment)

    def is_fenced(self) -> bool:
        return self._folder.is_fenced(self._claim)

    def _refuse_fenced(self) -> None:
        if self.is_fenced():
            raise fenced(self._folder)

    def _next(self) -> SoFar:
        """The contents at the beginning of the next segment."""
        return replace(self.so_far, entries=0, bytes_before=self.so_far.bytes_before + self.size)


class OpenTail(_Adding):
    """An open segment on a local disk. An entry is written, and synced if a sync is due. Then the claims are checked,
    and a NOTE records the entry. In this order no noted entry is lost, even if another writer claims meanwhile."""

    def __init__(self, folder: LogFolder, claim: WriterClaim, segment: int, so_far: SoFar, *, each: bool) -> None:
        super().__init__(folder, claim, segment, so_far)
        self._each = each
        self._begin(segment, so_far)

    def flush(self, *, sync: bool) -> None:
        self._failed = True
        added, self._parts = self._parts, []
        self._file.append(added)
        if sync:
            self._file.sync()
        self._refuse_fenced()
        if sync or added:
            self._note(sync=sync)
        self._failed = False

    def roll(self) -> None:
        self._complete(last=False)
        self._begin(self.segment + 1, self._next())

    def end(self) -> None:
        self._complete(last=True)

    def close(self) -> None:
        if self._failed:
            self._file.close()
        elif self.so_far.entries:
            self._complete(last=False)
        else:
            # An empty segment is useless, and costs every reader a lookup.
            self._file.close()
            self._folder.storage.delete(self._name)

    def _begin(self, segment: int, so_far: SoFar) -> None:
        self.segment, self.so_far = segment, so_far
        self._name = open_name(segment, self._claim.epoch)
        assert isinstance(self._folder.storage, Appendable)
        self._file = self._folder.storage.append(self._name)
        begun = head(self._folder.id, segment, self._claim.epoch, so_far, each=self._each)
        self._file.append([begun])
        self._file.sync()
        self.size = self.durable = len(begun)
        self._failed = False

    def _note(self, *, sync: bool = True) -> None:
        """Record what is acknowledged, and after a ``sync`` that it is durable."""
        self.durable = self.size if sync else self.durable
        so_far = self.so_far
        number, durable = so_far.number, self.durable
        note = encode(Kind.NOTE, self._seed, entry=so_far.entries, number=number, durable=durable, last=so_far.last)
        self._file.append(note)
        self.size += _bytes(note)

    def _complete(self, *, last: bool) -> None:
        self._failed = True
        self._refuse_fenced()
        end = seal(self._folder.id, self.segment, self.so_far, self.size, last=last, durable=self.durable)
        self._file.append([end])
        self._file.sync()
        self._file.close()
        try:
            self._folder.storage.rename(self._name, sealed_name(self.segment))
        except FileNotFoundError as error:
            raise fenced(self._folder) from error
        except FileExistsError as error:
            raise fenced(self._folder) from error


class PutTail(_Adding):
    """Whole segments, each put if absent. Entries are collected, then put and acknowledged together."""

    def __init__(self, folder: LogFolder, claim: WriterClaim, segment: int, so_far: SoFar) -> None:
        super().__init__(folder, claim, segment, so_far)
        self._writer = uuid.uuid4().hex
        self._begin(segment, so_far)

    def flush(self, *, sync: bool) -> None:
        # Entries that are not put would be lost with the process.
        if self.so_far.entries:
            self.roll()

    def roll(self) -> None:
        self._put(last=False)
        self._begin(self.segment + 1, self._next())

    def end(self) -> None:
        self._put(last=True)

    def close(self) -> None:
        if not self._failed:
            self.flush(sync=True)

    def _begin(self, segment: int, so_far: SoFar) -> None:
        self.segment, self.so_far = segment, so_far
        begun = head(self._folder.id, segment, self._claim.epoch, so_far, each=True, writer=self._writer)
        self._parts = [begun]
        self.size = self.durable = len(begun)

    def _put(self, *, last: bool) -> None:
        self._failed = True
        so_far = self.so_far
        data = b"".join([*self._parts, seal(self._folder.id, self.segment, so_far, self.size, last=last)])
        stored = put_or_read(self._folder.storage, sealed_name(self.segment), data)
        if stored is not None and not stored.equals(pa.py_buffer(data)):
            raise fenced(self._folder)
        # A segment that was cut off meanwhile could be put again.
        self._refuse_fenced()
        self._failed = False


def fenced(folder: LogFolder) -> Fenced:
    """The error of a writer that another one has overtaken."""
    return Fenced(
        f"{folder}: another writer has taken over this log. Every entry acknowledged here is in the log; an entry that "
        "was being added may or may not be. One writer at a time: end the other one, or send it your records"
    )


def damaged(place: str, what: str) -> StorageError:
    """The error of a writer that has failed before."""
    return StorageError(
        f"{place}: this writer has failed before ({what}): the fate of what it was adding is unknown. Open a new one: "
        "it finds what is in the log"
    )


def _bytes(parts: Parts) -> int:
    return sum(memoryview(part).nbytes for part in parts)
