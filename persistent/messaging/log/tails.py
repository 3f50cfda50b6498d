"""A tail is where a writer appends to a log: an open file on a local disk, or whole segments on any other store.

A takeover makes a writer the only one: it claims, seals what earlier writers left, and begins a segment behind it.

No acknowledged entry is lost. Unacknowledged entries are kept if they are whole. An earlier writer that is still alive
raises Fenced.

A segment is put under its final name if that name is free, and several writers may try: a takeover that sleeps may wake
up after a later one, and so may a writer that is about to complete its segment. So the new writer itself puts a
segment, even an empty one, and begins behind it. No earlier writer has seen the number of the segment that it begins,
so none can seal that segment.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from persistent.errors import Fenced, InvalidPipeline, Refused, StorageError
from persistent.messaging.log.folder import LogFolder, WriterClaim, open_name, sealed_name
from persistent.messaging.log.frames import Kind, LogPosition, encode, seed_of
from persistent.messaging.log.segments import Segment, SoFar, head, seal
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


def take_over(folder: LogFolder, *, each: bool) -> Tail:
    """The tail of a new writer. ``each``: it syncs every entry. Refused if the log has ended; InvalidPipeline if files
    cannot grow here and it does not sync every entry; Fenced if another writer takes over in the meantime; CorruptLog.
    """
    folder.make()
    if not folder.appends and not each:
        raise InvalidPipeline(
            f"{folder}: on this store an entry exists only once it is put, so an entry acknowledged before that "
            "would be lost with the process. Omit sync=, and append many records at a time"
        )
    _refuse_ended(folder, _last_sealed(folder))
    claim = folder.claim()
    return _begin_behind(folder, claim, each) if folder.appends else _fence(folder, claim)


def _begin_behind(folder: LogFolder, claim: WriterClaim, each: bool) -> Tail:
    """The tail on a local disk, behind a segment that this takeover, or the writer right before it, has completed."""
    while True:
        last, opened = _ends(folder)
        _refuse_ended(folder, last)
        number, so_far = _next(last)
        if _is_free(last, opened, claim):
            break
        data, ended = _whole_of(folder, claim, number, so_far, opened)
        # After a later takeover, the entries that were read here may be those that its writer is adding.
        if folder.is_fenced(claim):
            raise fenced(folder)
        if put_or_read(folder.storage, sealed_name(number), data) is None and not ended:
            number, so_far = _next(_last_sealed(folder))
            break
    for name in folder.leftovers(number, claim.epoch):
        folder.storage.delete(name)
    return OpenTail(folder, claim, number, so_far, each=each)


def _is_free(last: Segment | None, opened: list[Segment], claim: WriterClaim) -> bool:
    """Whether no earlier writer has seen the number behind the last segment: the writer right before this one has
    completed that segment, and nothing is open behind it."""
    return not opened and claim.epoch == (1 if last is None else last.facts["epoch"] + 1)


def _whole_of(
    folder: LogFolder, claim: WriterClaim, number: int, so_far: SoFar, opened: list[Segment]
) -> tuple[bytes, bool]:
    """The bytes of the segment to seal, and whether its writer has ended the log with it. It has all whole entries of
    the first of the ``opened`` segments that has any, or that ends the log; without such a segment, it is empty."""
    for segment in opened:
        kept = segment.kept(so_far.mark) if segment.begun else None
        if kept is not None and kept.is_worth:
            whole: bytes = segment.data.slice(0, kept.size).to_pybytes()
            return whole + seal(folder.id, number, kept.so_far, kept.size, last=kept.ended), kept.ended
    begun = head(folder.id, number, claim.epoch, so_far, each=True)
    return begun + seal(folder.id, number, so_far, len(begun), last=False), False


def last_mark(folder: LogFolder) -> bytes:
    """The mark of the last entry that has one, b"" without one. Changes nothing."""
    if not folder.find():
        return b""
    last, opened = _ends(folder)
    mark = _next(last)[1].mark
    return next((segment.kept(mark).so_far.mark for segment in opened if segment.begun), mark)


def _ends(folder: LogFolder) -> tuple[Segment | None, list[Segment]]:
    """The last sealed segment, and the open ones right behind it, as they are at one moment."""
    while True:
        last = _last_sealed(folder)
        number, _ = _next(last)
        try:
            opened = folder.opened(number)
        except FileNotFoundError:
            continue
        # Sealed after the first look and before the second, a segment would be in neither.
        if folder.layout().newest < number:
            return last, opened


def _last_sealed(folder: LogFolder) -> Segment | None:
    while True:
        layout = folder.layout()
        try:
            return folder.segment(layout, layout.newest) if layout.newest else None
        except FileNotFoundError:
            # It was cut off in the meantime.
            continue


def _refuse_ended(folder: LogFolder, last: Segment | None) -> None:
    if last is not None and last.seal.kind is Kind.LAST:
        raise Refused(f"{folder}: the log has ended: nothing can be added. Write to another log")


def _next(last: Segment | None) -> tuple[int, SoFar]:
    """The number of the next segment, and the contents before it."""
    if last is None:
        return 1, SoFar()
    end = last.seal
    return last.number + 1, SoFar(0, end.number, end.last, end.mark(last.data), last.before.bytes_before + end.start)


def _fence(folder: LogFolder, claim: WriterClaim) -> Tail:
    """The tail where files cannot grow: an empty segment takes the place where the previous writer would put its
    next."""
    while True:
        last = _last_sealed(folder)
        _refuse_ended(folder, last)
        tail = PutTail(folder, claim, *_next(last))
        if claim.epoch == 1:
            return tail
        try:
            tail.roll()
        except Fenced:
            if folder.is_fenced(claim):
                raise
            # The previous writer has put that segment in the meantime.
            continue
        return tail
