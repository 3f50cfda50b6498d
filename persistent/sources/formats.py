"""A format is how the bytes of one file become records at offsets: what every format must answer stands here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from persistent.sources.files import Files, Gone, changed, fingerprint

TO_THE_END: Final = 2**63 - 1
"""The offset where a file ends whose length in offsets is not known before it is read."""

UNKNOWN: Final = -1
"""The smallest timestamp of data that may hold any."""

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Unreadable(Exception):
    """A file as a whole, or from here on, cannot be read; the text says why."""


@dataclass(frozen=True)
class InputFile:
    """One file of the index. ``rows``: exactly, if known; ``estimate``: about how many."""

    files: Files
    path: str
    size: int
    fingerprint: str = ""
    rows: int | None = None
    estimate: int = 0

    @property
    def where(self) -> str:
        return self.files.where(self.path)

    @cached_property
    def edges(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the file, read once."""
        try:
            return self.files.edges(self.path, self.size)
        except FileNotFoundError as error:
            raise Gone(self.where) from error

    def fingerprint_now(self) -> str:
        return fingerprint(self.size, *self.edges)

    def require_unchanged(self) -> None:
        """Raise ``SourceChanged`` unless the file is the one that was listed."""
        if self.fingerprint_now() != self.fingerprint:
            raise changed(self.where, "its bytes are not those that were listed (same size, other fingerprint)")

    def open(self) -> pa.NativeFile:
        try:
            return self.files.open(self.path)
        except FileNotFoundError as error:
            raise Gone(self.where) from error


@dataclass(frozen=True)
class Facts:
    """What a look at a file's edges tells of it, for the index.

    ``rows``: exactly, or None; ``estimate``: about how many; ``smallest``: the smallest timestamp in ms, ``UNKNOWN``,
    or None if no record has one.
    """

    rows: int | None
    estimate: int
    smallest: int | None


@dataclass(frozen=True)
class Extent:
    """Offsets of a file, ``start <= offset < stop``, that hold about ``rows`` records."""

    start: int
    stop: int
    rows: int


@dataclass(frozen=True)
class Taken:
    """What of a file goes into a step; ``done``: nothing of it remains after the extents."""

    extents: tuple[Extent, ...]
    done: bool


@dataclass(frozen=True)
class Fault:
    """A record that cannot be decoded: its offset, why, and its bytes. ``broken``: it is the file, not one record."""

    offset: int
    reason: str
    data: bytes = b""
    broken: bool = False


@dataclass(frozen=True)
class Decoded:
    """Consecutive records of a file: row i of ``batch`` stands at ``offsets[i]``; ``faults`` stand between them."""

    batch: pa.RecordBatch
    offsets: Integers
    faults: Sequence[Fault] = ()


class Format(Protocol):
    """The same file and offsets give the same records, however a file is cut. All but ``read`` are for plans."""

    def infer(self, file: InputFile) -> pa.Schema | None:
        """The schema of a file; None if it holds no record. ``Unreadable`` if it cannot be told."""

    def require_schema(self, schema: pa.Schema) -> None:
        """Raise ``SourceError`` if the format cannot give columns of these types."""

    def inspect(self, file: InputFile, schema: pa.Schema) -> Facts:
        """What a quick look tells of a file. ``Unreadable`` if it is broken or does not fit the schema."""

    def take(self, file: InputFile, start: int, rows: int, *, exact: bool, at_least_one: bool) -> Taken:
        """About ``rows`` records from ``start`` on, or exactly that many.

        ``at_least_one``: take the first piece even if it is larger.
        """

    def split(self, file: InputFile, extent: Extent, parts: int, *, exact: bool) -> Sequence[Extent]:
        """The extent in about that many parts of about equal size, or as it is."""

    def smallest_from(self, file: InputFile, start: int) -> int | None:
        """The smallest timestamp at offsets from ``start`` on: ``UNKNOWN``, or None if there is none."""

    def read(self, file: InputFile, start: int, stop: int, schema: pa.Schema) -> Iterator[Decoded]:
        """The records at ``start <= offset < stop``, in order; where the file is broken, a fault that says so."""
