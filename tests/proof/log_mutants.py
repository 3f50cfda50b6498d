"""The mutants of the section "log": each leaves out one thing that keeps a segmented log, and must be found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from persistent.messaging.log import segments, tails
from persistent.messaging.log import tails as takeover
from persistent.messaging.log.cursor import Cursor
from persistent.messaging.log.folder import LogFolder
from persistent.messaging.log.frames import frame_at
from persistent.messaging.log.segments import Segment
from persistent.messaging.log.tails import OpenTail
from tests.proof.disk import SimulatedFiles
from tests.proof.log import Files, Sweep
from tests.proof.powercut_mutants import NoFileSync, NoFolderSync

_CASES_MAX = 4_000


@dataclass(frozen=True)
class LogMutant:
    """A defect: of the calls to the operating system, or of the log."""

    name: str
    files: Files = SimulatedFiles
    planted: Callable[[], AbstractContextManager[Any]] = nullcontext


def _noted_first(tail: OpenTail, *, sync: bool) -> None:
    tail._file.append(tail._parts)
    tail._parts = []
    if sync:
        tail._note()
        tail._file.sync()
    tail._refuse_fenced()


def _noted_unasked(tail: OpenTail, *, sync: bool) -> None:
    tail._file.append(tail._parts)
    tail._parts = []
    if sync:
        tail._file.sync()
        tail._note()


def _only_noted(segment: Segment, mark: bytes) -> segments.Remains:
    whole = [frame for frame in segment._visible(segment.head.stop) if frame.kind is segments.Kind.DATA]
    so_far = segments.replace(segment.before, mark=mark)
    for frame in whole:
        so_far = so_far.with_entry(frame, segment.data)
    return segments.Remains(whole[-1].stop if whole else segment.head.stop, so_far, False)


_real_begin, _real_seal, _real_entries, _real_visible = (
    takeover._begin_behind,
    segments.seal,
    Segment.entries,
    Segment._visible,
)


def _unasked(folder: LogFolder, *options: Any) -> Any:
    folder.is_fenced = lambda claim: False  # type: ignore[method-assign]
    try:
        return _real_begin(folder, *options)
    finally:
        del folder.is_fenced


def _passing(segment: Segment, start: int = 0, **options: Any) -> Any:
    return iter(()) if segment.sealed and start else _real_entries(segment, start, **options)


def _unchecked(data: Any, view: memoryview, seed: int, start: int) -> Any:
    with patch("persistent.messaging.log.frames.zlib.crc32", lambda part, value=0: 0):
        found = bytearray(view)
        found[start + 56 : start + 64] = bytes(8)
        return frame_at(data, memoryview(bytes(found)), seed, start)


def _all_durable(log: str, segment: int, so_far: Any, size: int, *, last: bool, durable: int = 0) -> bytes:
    return _real_seal(log, segment, so_far, size, last=last, durable=size)


def _cut_all(folder: LogFolder, cut: Any) -> None:
    folder.storage.put_if_absent(f"t/{cut.number:020d}-{cut.position}", b"")
    for number in folder.storage.list("s"):
        if int(number) < cut.position.segment:
            folder.storage.delete(f"s/{number}")


MUTANTS = (
    LogMutant("an entry is not synced", NoFileSync),
    LogMutant("the folder of a new segment is not synced", NoFolderSync),
    LogMutant(
        "a writer does not look for the claims of others",
        planted=lambda: patch.object(LogFolder, "is_fenced", lambda self, epoch: False),
    ),
    LogMutant(
        "what is acknowledged is noted before the sync",
        planted=lambda: patch.object(OpenTail, "flush", _noted_first),
    ),
    LogMutant(
        "what is acknowledged is noted before the claims are looked at",
        planted=lambda: patch.object(OpenTail, "flush", _noted_unasked),
    ),
    LogMutant(
        "a takeover forgets the open segment",
        planted=lambda: patch.object(LogFolder, "opened", lambda self, number: []),
    ),
    LogMutant(
        "a takeover that was fenced seals all the same",
        planted=lambda: patch.object(takeover, "_begin_behind", _unasked),
    ),
    LogMutant("a takeover keeps only what was noted", planted=lambda: patch.object(Segment, "kept", _only_noted)),
    LogMutant(
        "readers see what is not synced",
        planted=lambda: patch.object(Segment, "_visible", lambda self, start: self._whole(start)),
    ),
    LogMutant(
        "readers see what no note says",
        planted=lambda: patch.object(
            Segment,
            "_visible",
            lambda self, start: _real_visible(self, start) if self.facts["each"] else self._whole(start),
        ),
    ),
    LogMutant("a frame is believed", planted=lambda: patch.object(segments, "frame_at", _unchecked)),
    LogMutant(
        "damage at the end is taken for an interrupted write",
        planted=lambda: patch.object(segments, "durable_beyond", lambda data, seed, start: 0),
    ),
    LogMutant("a seal says that all before it is durable", planted=lambda: patch.object(tails, "seal", _all_durable)),
    LogMutant(
        "a follower passes over the rest of a segment that was sealed meanwhile",
        planted=lambda: patch.object(Segment, "entries", _passing),
    ),
    LogMutant(
        "a follower is not told what was cut off", planted=lambda: patch.object(Cursor, "_refuse_gone", lambda *_: None)
    ),
    LogMutant("a cut deletes the newest segment", planted=lambda: patch.object(LogFolder, "cut", _cut_all)),
)


def failure_of(mutant: LogMutant, seed: object = 0) -> str:
    """The first failure that the defect leads to; "" if it is not found."""
    with mutant.planted():
        sweep = Sweep(f"{mutant.name} {seed}", _CASES_MAX, failures_max=1, files=mutant.files).run()
    return sweep.failures[0] if sweep.failures else ""
