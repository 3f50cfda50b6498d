"""A takeover makes a writer the only one: it claims, seals what the previous writer left, and begins a segment.

No acknowledged entry is lost. Others are kept if they are whole. If the previous writer is alive, it raises Fenced.
"""

from __future__ import annotations

from persistent.errors import Fenced, InvalidPipeline, Refused
from persistent.log.folder import LogFolder, sealed_name
from persistent.log.frames import Kind
from persistent.log.segments import Segment, SoFar, seal
from persistent.log.tails import OpenTail, PutTail, Tail
from persistent.storage.protocol import put_or_read


def take_over(folder: LogFolder, *, each: bool) -> Tail:
    """The tail of a new writer. ``each``: it syncs every entry. Refused if the log has ended; InvalidPipeline if files
    cannot grow here and it does not sync every entry; CorruptLog."""
    folder.make()
    if not folder.appends and not each:
        raise InvalidPipeline(
            f"{folder}: on this store an entry exists only once it is put, so an entry acknowledged before that "
            "would be lost with the process. Omit sync=, and append many records at a time"
        )
    _refuse_ended(folder, _ends(folder)[0])
    epoch = folder.claim()
    last, left = _ends(folder)
    while left is not None:
        _seal(folder, last, left)
        last, left = _ends(folder)
    _refuse_ended(folder, last)
    if not folder.appends:
        return _fence(folder, epoch)
    tail = OpenTail(folder, epoch, *_next(last), each=each)
    for name in folder.leftovers(tail.segment, epoch):
        folder.storage.delete(name)
    return tail


def last_mark(folder: LogFolder) -> bytes:
    """The mark of the last entry that has one, b"" without one. Changes nothing."""
    if not folder.find():
        return b""
    last, left = _ends(folder)
    mark = last.seal.mark(last.data) if last is not None else b""
    return mark if left is None else left.kept(mark).so_far.mark


def _ends(folder: LogFolder) -> tuple[Segment | None, Segment | None]:
    """The last sealed segment, and the open one behind it if a writer left something in it."""
    while True:
        layout = folder.layout()
        try:
            last = folder.segment(layout, layout.newest) if layout.newest else None
            left = folder.segment(layout, layout.open[0]) if layout.open else None
        except FileNotFoundError:
            # It was sealed or cut off in the meantime.
            continue
        return last, left if left is not None and left.begun and left.kept(b"").is_worth else None


def _refuse_ended(folder: LogFolder, last: Segment | None) -> None:
    if last is not None and last.seal.kind is Kind.LAST:
        raise Refused(f"{folder}: the log has ended: nothing can be added. Write to another log")


def _seal(folder: LogFolder, last: Segment | None, left: Segment) -> None:
    """Put the whole part of the open segment under its final name. Another writer may have done so: the same."""
    kept = left.kept(last.seal.mark(last.data) if last is not None else b"")
    whole: bytes = left.data.slice(0, kept.size).to_pybytes()
    sealed = seal(folder.id, left.number, kept.so_far, kept.size, last=kept.ended)
    put_or_read(folder.storage, sealed_name(left.number), whole + sealed)


def _next(last: Segment | None) -> tuple[int, SoFar]:
    """The number of the next segment, and the contents before it."""
    if last is None:
        return 1, SoFar()
    end = last.seal
    return last.number + 1, SoFar(0, end.number, end.last, end.mark(last.data), last.before.bytes_before + end.start)


def _fence(folder: LogFolder, epoch: int) -> Tail:
    """The tail where files cannot grow: an empty segment takes the place where the previous writer would put its
    next."""
    while True:
        last, _ = _ends(folder)
        _refuse_ended(folder, last)
        tail = PutTail(folder, epoch, *_next(last))
        if epoch == 1:
            return tail
        try:
            tail.roll()
        except Fenced:
            if folder.is_fenced(epoch):
                raise
            # The previous writer has put that segment in the meantime.
            continue
        return tail
