"""A takeover makes a writer the only one: it claims, seals what earlier writers left, and begins a segment behind it.

No acknowledged entry is lost. Unacknowledged entries are kept if they are whole. An earlier writer that is still alive
raises Fenced.

A segment is put under its final name if that name is free, and several writers may try: a takeover that sleeps may wake
up after a later one, and so may a writer that is about to complete its segment. So the new writer itself puts a
segment, even an empty one, and begins behind it. No earlier writer has seen the number of the segment that it begins,
so none can seal that segment.
"""

from __future__ import annotations

from persistent.errors import Fenced, InvalidPipeline, Refused
from persistent.messaging.log.folder import LogFolder, WriterClaim, sealed_name
from persistent.messaging.log.frames import Kind
from persistent.messaging.log.segments import Segment, SoFar, head, seal
from persistent.messaging.log.tails import OpenTail, PutTail, Tail, fenced
from persistent.storage.protocol import put_or_read


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
