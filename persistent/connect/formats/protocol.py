"""A format turns the bytes of one file into records at offsets. This is the protocol of every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import BytesIO
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers
from persistent.connect import remedies
from persistent.connect.files.layout import Layout
from persistent.connect.files.listing import EDGE_BYTES, Files, fingerprint
from persistent.connect.files.reader import Reader, Unreadable, Witness, changed, gone
from persistent.connect.files.walk import Listed
from persistent.connect.formats.schemas import empty_batch
from persistent.connect.formats.timestamps import milliseconds, why_none
from persistent.connect.source import DeadRecord, Records
from persistent.errors import SourceError, StorageError

TO_THE_END: Final = 2**63 - 1
"""The end offset of a file whose length in offsets is unknown until it is read."""

UNKNOWN: Final = -1
"""The smallest timestamp of data that may hold any timestamp."""

_READINGS = 4
NAMES: Final = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv"}
"""The format by each of its names, which are endings of files too."""

T = TypeVar("T")


@dataclass(frozen=True)
class InputFile:
    """One file of the index. ``rows``: the exact number, if known; ``estimate``: the approximate one; ``witness`` sees
    all reads; ``hint``: the store's attributes when the fingerprint was taken."""

    files: Files
    path: str
    size: int
    fingerprint: str = ""
    rows: int | None = None
    estimate: int = 0
    witness: Witness | None = None
    hint: str = ""

    @property
    def where(self) -> str:
        return self.files.where(self.path)

    @cached_property
    def edges(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the file, read once."""
        try:
            edges = self.files.edges(self.path, self.size)
        except FileNotFoundError as error:
            raise gone(self.where) from error
        if self.witness is not None:
            for part in edges:
                self.witness.see(-1, part)
        return edges

    def fingerprint_now(self) -> str:
        return fingerprint(self.size, *self.edges)

    def require_unchanged(self) -> None:
        """Raise ``SourceChanged`` unless the file is the one that was listed, as confirmed by two equal readings."""
        fingerprints = [self.fingerprint_now()]
        while fingerprints[-1] != self.fingerprint:
            if fingerprints[-1] in fingerprints[:-1]:
                raise changed(self.where, "its bytes are not those that were listed (same size, other fingerprint)")
            if len(fingerprints) == _READINGS:
                raise inconsistent(self.where)
            self.__dict__["edges"] = (again := self.fresh()).edges
            fingerprints.append(again.fingerprint_now())

    def is_small(self) -> bool:
        """Whether the fingerprint covers all its bytes."""
        return self.size <= EDGE_BYTES

    def hint_now(self) -> str:
        try:
            return self.files.stat(self.path).hint
        except FileNotFoundError as error:
            raise gone(self.where) from error

    def fresh(self) -> InputFile:
        """The same file without cached knowledge, on a new connection, with a witness of its own."""
        self.files.reconnect()
        return replace(self, witness=Witness())

    def open(self) -> Reader:
        reader = self.files.reader(self.path, self.size, self.witness)
        if self.is_small() and "edges" in self.__dict__:
            reader.serve(BytesIO(self.edges[0]))
        return reader


def inconsistent(where: str) -> StorageError:
    """The error for a store that sends different bytes at each reading."""
    return StorageError(
        f"{where}: the store sends different bytes at each reading, although the file's size and age are unchanged. "
        "Nothing of it was counted: check the store, then run again; the last checkpoint is good"
    )


def bad_file(file: InputFile, fault: str) -> SourceError:
    """The error for a file that no plan holds yet."""
    return SourceError(f"{file.where}: {fault}. {remedies.FILE}")


def bad_listed(file: InputFile, fault: str) -> SourceError:
    """The error for a file that a plan may already name: repairing it would change it, removing it would lose it."""
    return SourceError(f"{file.where}: {fault}. {remedies.LISTED}")


def skipped(fault: str) -> str:
    """The reason of a dead letter for a file, or the rest of one, that cannot be read."""
    return f"{fault}. {remedies.SKIPPED}"


def confirmed(file: InputFile, attempt: Callable[[InputFile], T]) -> T:
    """The result of ``attempt`` on a file.

    Raises ``Unreadable`` only after two complete readings, on new connections and with equal bytes, agree on it.
    """
    seen: set[str] = set()
    for _ in range(_READINGS):
        again = file.fresh()
        try:
            return attempt(again)
        except Unreadable:
            assert again.witness is not None
            digest = again.witness.sum()
            if digest in seen:
                raise
            seen.add(digest)
    raise inconsistent(file.where)


def attempted(file: InputFile, attempt: Callable[[InputFile], T]) -> T:
    """The result of ``attempt`` on a file; if that is ``Unreadable``, it is confirmed first."""
    try:
        return attempt(file)
    except Unreadable:
        return confirmed(file, attempt)


@dataclass(frozen=True)
class Facts:
    """What the edges of a file reveal, for the index.

    ``rows``: the exact number, or None; ``estimate``: the approximate one; ``smallest``: the smallest timestamp in ms,
    ``UNKNOWN``, or None if no record has one.
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
    """The part of a file that goes into a step. ``done``: nothing remains after the extents."""

    extents: tuple[Extent, ...]
    done: bool


@dataclass(frozen=True)
class OpenSpan:
    """A span of a file while its format reads it: offsets ``start <= offset < stop``, in the columns of ``schema``.

    It makes ``Records`` of decoded batches. Unless ``bad_file_raises``, a broken file is one dead letter. ``ignored``
    collects the fields that an inferred schema lacks; None if it is declared.
    """

    ordinal: int
    file: InputFile
    start: int
    stop: int
    layout: Layout
    bad_file_raises: bool
    ignored: set[str] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        return self.layout.file_schema

    def records(self, batch: pa.RecordBatch, offsets: Integers, dead: Sequence[DeadRecord] = ()) -> Records:
        """Consecutive records: row i of ``batch`` is at ``offsets[i]``; ``dead`` are between them."""
        layout = self.layout
        whole = layout.complete(batch, self.file.path)
        times = milliseconds(column := whole.column(layout.timestamp), layout.timestamp_unit)
        why = partial(why_none, column, layout.timestamp, layout.timestamp_unit)
        return Records(self.ordinal, whole, times, offsets, dead, why, ignored=frozenset(self.ignored or ()))

    def dead(self, offset: int, reason: str, data: bytes = b"") -> DeadRecord:
        """A record that cannot be decoded."""
        return DeadRecord(self.ordinal, offset, reason, data)

    def broken(self, offset: int, reason: str) -> DeadRecord:
        """A file that cannot be read from ``offset`` on."""
        if self.bad_file_raises:
            raise bad_listed(self.file, reason)
        return DeadRecord(self.ordinal, offset, skipped(reason))

    def unfit(self, fault: str) -> Records:
        """All of a file that lacks columns of ``schema=``, which was given or changed after the file was listed."""
        none = np.array([], np.int64)
        return Records(self.ordinal, empty_batch(self.layout.schema), none, none, (self.broken(self.start, fault),))


class Format(Protocol):
    """The same file and offsets give the same records, however a file is cut. Plans use all methods except ``read``."""

    def infer(self, file: InputFile) -> pa.Schema | None:
        """The schema of a file; None if it holds no record. ``Unreadable`` if it cannot be determined."""

    def require_schema(self, schema: pa.Schema) -> None:
        """Raise ``SourceError`` if the format cannot give columns of these types."""

    def inspect(self, file: InputFile, schema: pa.Schema) -> Facts:
        """What a quick inspection finds. ``Unreadable`` if the file is broken or does not fit the schema."""

    def fields(self, file: InputFile) -> Sequence[str]:
        """The names of the fields in the file itself, not of its folders: in its header, or in its first record."""

    def take(self, file: InputFile, start: int, rows: int, *, exact: bool, at_least_one: bool) -> Taken:
        """About ``rows`` records from ``start`` on; exactly that many if ``exact``.

        ``at_least_one``: take the first piece even if it is larger.
        """

    def split(self, file: InputFile, extent: Extent, parts: int, *, exact: bool) -> Sequence[Extent]:
        """The extent in about ``parts`` parts of about equal size, or unchanged."""

    def smallest_from(self, file: InputFile, start: int) -> int | None:
        """The smallest timestamp at offsets from ``start`` on: ``UNKNOWN``, or None if there is none."""

    def read(self, span: OpenSpan) -> Iterator[Records]:
        """The records of the span, in order; where the file is broken, a dead record that says so."""


def format_of(files: Files, listed: Listed) -> str:
    """The format that the file name implies."""
    name = listed.path.rpartition("/")[2]
    plain = name.removesuffix(".gz").removesuffix(".zst")
    kind = NAMES.get(plain.rpartition(".")[2].lower())
    if kind is None or (kind == "parquet" and plain != name):
        raise SourceError(
            f"{files.where(listed.path)}: its name does not show its format (.parquet, .json, .jsonl, "
            f".ndjson, .csv; the text ones also with .gz or .zst); {remedies.FORMAT}"
        )
    return kind
