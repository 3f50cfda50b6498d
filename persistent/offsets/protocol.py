"""An offset store keeps one document for each reader, and replaces it only by compare-and-swap.

The document is sealed. It holds the ``position``, the ``log`` that it belongs to, and the lease: the ``token`` of the
reader that holds it, when it ends (``until``, ms), for how long it was taken (``lease``, ms), and the ``process`` of
that reader. An absent document means the beginning; a corrupt one is an error.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

from msgspec import Meta
from msgspec.structs import replace

from persistent.codec import declared
from persistent.errors import CorruptCheckpoint, CorruptLog, InvalidPipeline, NewerFormat
from persistent.fields import Natural, Part, ShortText, Whole
from persistent.process import Process, this_process

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class OffsetStore(Protocol):
    """``swap`` is atomic among all processes that use the store, and durable when it returns True."""

    def load(self, reader: str) -> tuple[int, bytes]:
        """The version of the document of a reader, and the document; (0, b"") if there is none."""

    def swap(self, reader: str, version: int, data: bytes) -> bool:
        """Replace the document if it still has this version. True if it was replaced, and no other writer has replaced
        it since."""

    def close(self) -> None:
        """End the connection."""


class ReaderState(Part, frozen=True):
    """The contents of the document of a reader. ``position``: the text of the position of the next record, "" if there
    is none; ``number``: the number of the next record, None if unknown; ``entry``: the checksum, in hexadecimal digits,
    of the entry with the last record before it, "" if unknown. ``lease``, ``process``: None before the first lease."""

    log: ShortText = ""
    position: ShortText = ""
    token: Natural = 0
    until: Whole = 0
    lease: Natural | None = None
    number: Natural | None = None
    entry: Annotated[str, Meta(max_length=8)] = ""
    process: Process | None = None

    def taken(self, log: str, now: int, lease: int) -> ReaderState:
        """The state with the lease of a new reader."""
        return replace(self, log=log, token=self.token + 1, until=now + lease, lease=lease, process=this_process())

    def left(self, now: int) -> int:
        """For how long the lease is still held, in milliseconds. The lease of a process that certainly ended is over.

        A lease that has more than twice its length left was taken by a clock that differs from ours by more than the
        lease. It counts as over: the reader that took it is fenced before it stores anything.
        """
        left = max(0, self.until - now)
        is_over = self.lease is not None and left > 2 * self.lease
        is_over = is_over or (self.process is not None and self.process.lives is False)
        return 0 if is_over else left

    def encoded(self) -> bytes:
        return declared.write(self, "the position of a reader", declared.no_laws)


def load_state(store: OffsetStore, reader: str) -> tuple[int, ReaderState]:
    """The version and the state of a reader. CorruptLog, NewerFormat."""
    version, data = store.load(reader)
    if (version, data) == (0, b""):
        return 0, ReaderState()
    place = f"{store!r}, reader {reader!r}"
    checked_document(place, version, data)
    try:
        return version, declared.read(ReaderState, data, place, "a position", declared.no_laws)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        raise unreadable(place, str(error)) from error


def checked_document(place: str, version: Any, data: Any) -> tuple[int, bytes]:
    """A stored document. CorruptLog if it has no version or no bytes: only an absent one means the beginning."""
    if not isinstance(version, int) or version < 1 or not isinstance(data, bytes):
        raise unreadable(place, f"its version is {version!r}, its data {type(data).__name__}")
    return version, data


def unreadable(place: str, fault: str) -> CorruptLog:
    """The error for a document that exists and cannot be read."""
    return CorruptLog(
        f"{place}: the position of the reader is unreadable ({fault}). Restore the store from a copy; or read under "
        "another id, from where initial= says"
    )


def checked_id(reader: str) -> str:
    """``reader``, if it can be an id in every store; otherwise InvalidPipeline."""
    if not isinstance(reader, str) or not _ID.fullmatch(reader):
        raise InvalidPipeline(
            f"reader id {reader!r}: give 1 to 100 letters, digits, '.', '_' and '-', the first not '.' or '-'"
        )
    return reader
