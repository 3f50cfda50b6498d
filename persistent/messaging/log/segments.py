"""A segment is a run of entries in one file: a HEAD, its entries, and finally a SEAL.

 HEAD | DATA ... NOTE ... | SEAL | the place of the SEAL, 8 bytes

A sealed segment never changes, and every byte of it is checked. An open one grows at its end, on a local disk only.
A broken end of it was never acknowledged, unless a frame behind it says that it was durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa

from persistent.codec.documents import canonical_json
from persistent.errors import CorruptLog
from persistent.messaging.log.frames import Frame, Kind, durable_beyond, encode, frame_at, frames, seed_of

_TRAILER_BYTES = 8
ENDS = (Kind.SEAL, Kind.LAST)


@dataclass(frozen=True)
class SoFar:
    """The contents of a log up to a place: the entries of the segment so far, the records of the log, their last time,
    the last mark, and the bytes of earlier segments."""

    entries: int = 0
    number: int = 0
    last: int = 0
    mark: bytes = b""
    bytes_before: int = 0

    def with_entry(self, frame: Frame, data: pa.Buffer) -> SoFar:
        mark = frame.mark(data) if frame.mark_bytes else self.mark
        return SoFar(frame.entry + 1, frame.number + frame.count, frame.last, mark, self.bytes_before)


def head(log: str, segment: int, epoch: int, so_far: SoFar, *, each: bool, writer: str = "") -> bytes:
    """The first frame of a segment. ``each``: every entry is synced before it is acknowledged; every
    acknowledgement is followed by a NOTE, synced or not."""
    facts = {
        "bytes": so_far.bytes_before,
        "each": each,
        "epoch": epoch,
        "log": log,
        "writer": writer,
    }
    mark = canonical_json(facts).encode()
    parts = encode(
        Kind.HEAD, seed_of(log, segment), entry=0, number=so_far.number, durable=0, last=so_far.last, mark=mark
    )
    return b"".join(parts)


def seal(log: str, segment: int, so_far: SoFar, size: int, *, last: bool, durable: int = 0) -> bytes:
    """The end of a segment of ``size`` bytes; if it is the ``last``, also the end of the log."""
    parts = encode(
        Kind.LAST if last else Kind.SEAL,
        seed_of(log, segment),
        entry=so_far.entries,
        number=so_far.number,
        durable=durable,
        last=so_far.last,
        mark=so_far.mark,
    )
    return b"".join([*parts, size.to_bytes(_TRAILER_BYTES, "little")])


@dataclass(frozen=True)
class Remains:
    """The whole part of an open segment after its writer: ``size`` bytes, and their contents. ``ended``: the writer has
    ended the log in it."""

    size: int
    so_far: SoFar
    ended: bool

    @property
    def is_worth(self) -> bool:
        """Whether there is anything to seal."""
        return self.ended or self.so_far.entries > 0


@dataclass(frozen=True)
class Segment:
    """A segment as it was when it was read. Each method raises CorruptLog for a wrong byte."""

    data: pa.Buffer
    log: str
    number: int
    sealed: bool
    place: str

    @cached_property
    def head(self) -> Frame:
        frame = frame_at(self.data, memoryview(self.data), self._seed, 0)
        if frame is None or frame.kind is not Kind.HEAD:
            raise self._corrupt(0)
        return frame

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the writer in the HEAD."""
        facts: Mapping[str, Any] = json.loads(self.head.mark(self.data))
        return facts

    @cached_property
    def seal(self) -> Frame:
        """The SEAL of a sealed segment."""
        size = self.data.size - _TRAILER_BYTES
        at = int.from_bytes(self.data[max(size, 0) :].to_pybytes(), "little")
        frame = frame_at(self.data, memoryview(self.data), self._seed, at) if 0 <= at < size else None
        if frame is None or frame.kind not in ENDS or frame.stop != size:
            raise self._corrupt(max(size, 0))
        return frame

    @property
    def begun(self) -> bool:
        """Whether an open segment has a HEAD. Without it no entry is there; CorruptLog if durable ones were there."""
        if frame_at(self.data, memoryview(self.data), self._seed, 0) is not None:
            return True
        if durable_beyond(self.data, self._seed, 0):
            raise self._corrupt(0)
        return False

    @property
    def before(self) -> SoFar:
        return SoFar(0, self.head.number, self.head.last, b"", self.facts["bytes"])

    def entries(self, start: int = 0, *, whole: bool = False) -> Iterator[Frame]:
        """The entries of the segment. ``start``: the byte where the first of them begins, or 0. Of an open segment, the
        entries that readers may see; with ``whole``, all whole entries."""
        start = start or self.head.stop
        if self.sealed:
            all_frames = self._sealed_frames(start)
        else:
            all_frames = iter(self._whole(start) if whole else self._visible(start))
        return (frame for frame in all_frames if frame.kind is Kind.DATA)

    def kept(self, mark: bytes) -> Remains:
        """The whole part of an open segment whose writer is gone. ``mark``: the last mark before it."""
        so_far, size = replace(self.before, mark=mark), self.head.stop
        for frame in self._whole(size):
            if frame.kind in ENDS:
                return Remains(size, so_far, frame.kind is Kind.LAST)
            size = frame.stop
            if frame.kind is Kind.DATA:
                so_far = so_far.with_entry(frame, self.data)
        return Remains(size, so_far, False)

    @property
    def _seed(self) -> int:
        return seed_of(self.log, self.number)

    def _sealed_frames(self, start: int) -> Iterator[Frame]:
        seal, seed, view, at = self.seal, self._seed, memoryview(self.data), start
        before: Frame | None = None
        while at < seal.start:
            frame = frame_at(self.data, view, seed, at)
            if frame is None or not _follows(frame, before):
                raise self._corrupt(at)
            yield frame
            before, at = frame, frame.stop

    def _visible(self, start: int) -> Sequence[Frame]:
        whole = self._whole(start)
        if not self.facts["each"]:
            noted = max((frame.entry for frame in whole if frame.kind is not Kind.DATA), default=0)
            return [frame for frame in whole if frame.entry < noted]
        durable = max(chain((frame.durable for frame in whole), [0]))
        return [frame for frame in whole if frame.stop <= durable]

    def _whole(self, start: int) -> list[Frame]:
        """The frames up to the first that is not whole. CorruptLog if that one was durable."""
        whole = list(frames(self.data, self._seed, start))
        for before, frame in pairwise(whole):
            if not _follows(frame, before):
                raise self._corrupt(frame.start)
        end = whole[-1].stop if whole else start
        sealed = bool(whole) and whole[-1].kind in ENDS
        if not sealed and end < self.data.size and durable_beyond(self.data, self._seed, end) > end:
            raise self._corrupt(end)
        return whole

    def _corrupt(self, at: int) -> CorruptLog:
        return CorruptLog(
            f"{self.place}: damaged at or after byte {at:,} of {self.data.size:,}: acknowledged entries there cannot "
            f"be read. Restore the file from a copy; or continue at segment {self.number + 1}, and count the loss"
        )


def _follows(frame: Frame, before: Frame | None) -> bool:
    """Whether a frame comes right after another one: two writers in one file would write the same entry twice."""
    if before is None:
        return True
    is_entry = before.kind is Kind.DATA
    return (
        before.kind not in ENDS
        and frame.entry == before.entry + is_entry
        and (frame.kind is not Kind.DATA or frame.number == before.number + (before.count if is_entry else 0))
    )
