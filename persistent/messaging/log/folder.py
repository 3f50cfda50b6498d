"""The folder of a log and its layout. Every name in it is written and parsed here.

    c/<epoch>              a claim: the writer of this epoch began; c/0 made the log   put if absent
    s/<segment>            a sealed segment                                            put if absent or renamed from o/
    o/<segment>-<epoch>    the open segment of a writer, on a local disk alone         appended to
    t/<number>-<position>  a cut: records before it are gone                           put if absent: the highest counts

A claim fences all earlier writers. Of two open segments with one number, the one with the higher epoch counts: the
writer of the other was fenced before it acknowledged anything there. Files with other names do not count.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from persistent.codec.documents import decode_document, encode_document
from persistent.errors import CorruptCheckpoint, CorruptLog, InvalidPipeline, NewerFormat, StorageError
from persistent.messaging.log.frames import BEGINNING, LogPosition
from persistent.messaging.log.segments import Segment
from persistent.storage.local import Appendable
from persistent.storage.protocol import Storage, put_or_read

FORMAT = 1
_DIGITS: Final = 20
_NUMBER: Final = rf"\d{{{_DIGITS}}}"
_NAMES: Final = {
    "c": re.compile(_NUMBER),
    "s": re.compile(_NUMBER),
    "o": re.compile(f"{_NUMBER}-{_NUMBER}"),
    "t": re.compile(rf"{_NUMBER}-\d+-\d+-\d+"),
}


@dataclass(frozen=True)
class WriterClaim:
    """The claim of a writer: its epoch, and the bytes that distinguish it from every other claim."""

    epoch: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """Everything before it is gone: ``number`` records, up to ``position``."""

    number: int = 0
    position: LogPosition = BEGINNING


@dataclass(frozen=True)
class LogLayout:
    """The segments that exist. ``sealed``: the numbers of the sealed segments behind the cut; ``newest``: the number of
    the newest sealed segment, 0 if there is none; ``open``: the number and the epoch of the open segment."""

    cut: Cut
    sealed: range
    newest: int
    open: tuple[int, int] | None

    @property
    def segments(self) -> range:
        """The numbers of all segments."""
        return range(self.sealed.start, self.sealed.stop + (self.open is not None))


class LogFolder:
    """The folder of one log in a storage. ``id``: of the log; "" before it exists."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.id = ""
        self.appends = False
        self._sealed_known: int | None = None

    def __repr__(self) -> str:
        return self.storage.url

    def find(self) -> bool:
        """Whether a log exists here now. If so, ``id`` is its id: the log can have taken the place of another one.
        CorruptLog, NewerFormat; InvalidPipeline if something else is here."""
        data = self._first_claim()
        if data is not None:
            self._found(data)
        elif self.id:
            self._take(log="", appends=False)
        return bool(self.id)

    def _first_claim(self) -> Any:
        """The claim that made the log; None if there is no log."""
        try:
            return self.storage.read(_claim(0))
        except FileNotFoundError:
            others = self._names("c") + self.storage.list("") + self._names("s")
        try:
            # These files can be of a log that was made just now.
            return self.storage.read(_claim(0)) if others else None
        except FileNotFoundError as error:
            if self._names("c"):
                return b""
            raise InvalidPipeline(
                f"{self}: this folder holds files that are not of a log. Give the log a folder of its own"
            ) from error

    def make(self) -> None:
        """Find the log, or create it."""
        if self.find():
            return
        facts = {"appends": isinstance(self.storage, Appendable), "format": FORMAT, "log": uuid.uuid4().hex}
        data = encode_document(facts)
        self._found(put_or_read(self.storage, _claim(0), data) or data)

    def _found(self, data: Any) -> None:
        try:
            facts = decode_document(data, f"{self}/{_claim(0)}")
        except CorruptCheckpoint as error:
            raise CorruptLog(f"{error}: it names the log. Restore it from a copy") from error
        if facts["format"] != FORMAT:
            raise NewerFormat(
                f"{self}: the log has format {facts['format']}, and this release reads {FORMAT}: update the release"
            )
        self._take(facts["log"], facts["appends"])
        if self.appends and not isinstance(self.storage, Appendable):
            raise InvalidPipeline(f"{self}: this log was made on a local disk: give its path on that machine")

    def _take(self, log: str, appends: bool) -> None:
        if self.id not in ("", log):
            # What is known of segments was known of another log.
            self._sealed_known = None
        self.id, self.appends = log, appends

    def _names(self, folder: str) -> list[str]:
        """The names that we have written in a folder, sorted."""
        return [name for name in self.storage.list(folder) if _NAMES[folder].fullmatch(name)]

    def claim(self) -> WriterClaim:
        """Fence every earlier writer. The claim records the newest sealed segment, whose loss is then noticed."""
        data = encode_document({"log": self.id, "newest": self.layout().newest, "writer": uuid.uuid4().hex})
        epoch = self.epoch() + 1
        while (stored := put_or_read(self.storage, _claim(epoch), data)) is not None and bytes(stored) != data:
            epoch += 1
        return WriterClaim(epoch, data)

    def epoch(self) -> int:
        """The epoch of the last writer; 0 if there was none."""
        return int(self._names("c")[-1])

    def is_fenced(self, claim: WriterClaim) -> bool:
        """Whether another writer has claimed since. Claims leave no gap, so a claim of the next epoch proves it.
        StorageError if the claim itself is gone: no reader would find what this writer adds."""
        try:
            is_ours = bytes(self.storage.read(_claim(claim.epoch))) == claim.data
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise StorageError(
                f"{self}: the log is no longer there: its folder was moved, deleted or replaced while this writer was "
                "open. What was acknowledged went with the folder. Put it back, or open a writer where it is now"
            )
        try:
            self.storage.read(_claim(claim.epoch + 1))
        except FileNotFoundError:
            return False
        return True

    def layout(self, start: int = 0) -> LogLayout:
        """The present layout. CorruptLog if a segment from number ``start`` on is missing."""
        missing: list[int] = []
        while True:
            # This order sees a segment that is sealed meanwhile, and what is behind an open one.
            opened = [_open_parts(name) for name in self._names("o")]
            sealed = [int(name) for name in self._names("s")]
            cut = self._cut()
            first, newest, known = cut.position.segment, sealed[-1] if sealed else 0, self._known()
            last = max((parts for parts in opened if parts[0] > newest), default=None)
            stop = max(newest + 1, first, known + 1, last[0] if last else 0)
            # Retention keeps the segment before the cut if it is the newest.
            lost = sorted(set(range(max(start, first - (newest < first)), stop)) - {0, *sealed})
            if not lost:
                self._sealed_known = max(newest, known)
                return LogLayout(cut, range(first, stop), newest, last)
            if lost == missing:
                behind = max(newest, last[0] if last else 0)
                there = f"segment {behind} exists" if behind > lost[0] else "it existed before"
                after = LogPosition(lost[-1] + 1, 0, 0)
                raise CorruptLog(
                    f"{self}: segment {lost[0]} is missing, but {there}. Restore {sealed_name(lost[0])} from a "
                    f"copy; or read on from position {after}, and count what is lost. To write on without it, cut "
                    f'off what is before: log.truncate(LogPosition.from_text("{after}"))'
                )
            # It may have been sealed and cut off during the lookup.
            missing = lost

    def _known(self) -> int:
        """The newest segment known to be sealed: seen here, or recorded by the newest claim."""
        if self._sealed_known is None:
            name = f"c/{self._names('c')[-1]}"
            facts = _claim_facts(self.storage.read(name), f"{self}/{name}")
            self._sealed_known = int(facts.get("newest", 0))
        return self._sealed_known

    def segment(self, layout: LogLayout, number: int) -> Segment:
        """A segment of a layout. FileNotFoundError if it was sealed or cut off since."""
        opened = layout.open
        sealed = opened is None or number != opened[0]
        name = sealed_name(number) if sealed or opened is None else open_name(*opened)
        return Segment(self.storage.read(name), self.id, number, sealed, f"{self}/{name}")

    def opened(self, number: int) -> list[Segment]:
        """The open segments with this number, the highest epoch first. FileNotFoundError if one was sealed or deleted
        in the meantime."""
        names = [f"o/{name}" for name in reversed(self._names("o")) if _open_parts(name)[0] == number]
        return [Segment(self.storage.read(name), self.id, number, False, f"{self}/{name}") for name in names]

    def leftovers(self, segment: int, epoch: int) -> Sequence[str]:
        """The open segments left by writers before this epoch, below this number: all of them are sealed."""
        parts = [(_open_parts(name), f"o/{name}") for name in self._names("o")]
        return [name for (number, of), name in parts if of < epoch and number < segment]

    def cut(self, cut: Cut) -> None:
        """Put a cut, then delete the segments before it, oldest first. A cut below the highest changes nothing.

        The newest segment stays: it informs the next writer about earlier ones.
        """
        name = f"t/{cut.number:0{_DIGITS}d}-{cut.position}"
        self.storage.put_if_absent(name, b"")
        first = self._cut().position.segment
        for number in self._names("s")[:-1]:
            if int(number) < first:
                self.storage.delete(f"s/{number}")
        cuts = self._cuts()
        for old_name in sorted(cuts, key=lambda name: _order(cuts[name]))[:-1]:
            self.storage.delete(f"t/{old_name}")

    def _cut(self) -> Cut:
        return max(self._cuts().values(), key=_order, default=Cut())

    def _cuts(self) -> dict[str, Cut]:
        cuts = {}
        for name in self._names("t"):
            number, _, position = name.partition("-")
            cuts[name] = Cut(int(number), LogPosition.from_text(position))
        return cuts


def _order(cut: Cut) -> tuple[LogPosition, int]:
    return cut.position, cut.number


def _claim_facts(data: Any, place: str) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = decode_document(data, place)
        return facts
    except CorruptCheckpoint as error:
        raise CorruptLog(
            f"{error}: it records the content of the log when its writer began. Restore it from a copy"
        ) from error


def sealed_name(segment: int) -> str:
    return f"s/{segment:0{_DIGITS}d}"


def open_name(segment: int, epoch: int) -> str:
    return f"o/{segment:0{_DIGITS}d}-{epoch:0{_DIGITS}d}"


def _claim(epoch: int) -> str:
    return f"c/{epoch:0{_DIGITS}d}"


def _open_parts(name: str) -> tuple[int, int]:
    segment, _, epoch = name.partition("-")
    return int(segment), int(epoch)
