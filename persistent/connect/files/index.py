"""The index of a file source lists every file it ever saw, in order of listing; a file's ordinal is its place here.

An index is an Arrow table: ordinal, path (relative to the root), size, fingerprint, rows (null: unknown), estimate (of
rows), smallest (timestamp in ms; null: no record has one; -1: unknown), fault (null, or why the file as a whole
cannot be read) and hint (the store's attributes at listing).

A file is listed once it has content. Indexed files must not change: if a file's hint differs from before, its
fingerprint is taken again, once for each hint and run.

Splits are made of pieces, the parts of listed files that a plan takes: about equal in size, one span a piece.

``at`` of a span holds the path, size and fingerprint of the listed file. If it also holds ``fault`` or ``lost``, no
record of the span is read: it is one dead letter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from monoids.groupby.sorting import Integers
from persistent.connect.files.layout import Layout
from persistent.connect.files.listing import Files
from persistent.connect.files.reader import Unreadable
from persistent.connect.files.roots import FoundAt
from persistent.connect.files.walk import Listed
from persistent.connect.formats.protocol import (
    UNKNOWN,
    Extent,
    Facts,
    Format,
    InputFile,
    OpenSpan,
    attempted,
    bad_listed,
    skipped,
)
from persistent.connect.formats.schemas import empty_batch
from persistent.connect.source import Budget, DeadRecord, Reached, Records, Span, Split
from persistent.errors import InputGone, SourceChanged

SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("estimate", pa.int64(), nullable=False),
        pa.field("smallest", pa.int64()),
        pa.field("fault", pa.string()),
        pa.field("hint", pa.string()),
    ]
)
_ENTRIES_AT_ONCE = 256
_NO_SUMS: Integers = np.zeros(1, np.int64)


@dataclass(frozen=True)
class ListedFile:
    """One row of the index, and the file it describes. ``lost``: the file is certainly gone."""

    ordinal: int
    file: InputFile
    fault: str | None
    lost: bool = False


class Index:
    """The files listed before, and those this plan appends."""

    def __init__(self, files: Files, table: pa.Table | None) -> None:
        self._files = files
        self._known = SCHEMA.empty_table() if table is None else table
        self.appended: pa.Table | None = None

    def __len__(self) -> int:
        return int(self._known.num_rows) + (0 if self.appended is None else int(self.appended.num_rows))

    @property
    def _all(self) -> pa.Table:
        return self._known if self.appended is None else pa.concat_tables([self._known, self.appended])

    def entry(self, ordinal: int) -> ListedFile:
        row = self._all.slice(ordinal, 1).to_pylist()[0]
        return self._entry(row)

    def entries(self, ordinal: int) -> Iterator[ListedFile]:
        """The entries from ``ordinal`` on."""
        table = self._all
        for start in range(ordinal, table.num_rows, _ENTRIES_AT_ONCE):
            for row in table.slice(start, _ENTRIES_AT_ONCE).to_pylist():
                yield self._entry(row)

    def smallest_from(self, ordinal: int) -> int | None:
        """The smallest timestamp in files from ``ordinal`` on; None if there is none."""
        least: int | None = pc.min(self._all.column("smallest").slice(ordinal)).as_py()
        return least

    def new(self, listing: Sequence[Listed]) -> list[Listed]:
        """The files of a listing that are not in the index. ``SourceChanged`` if an indexed one has changed."""
        table = self._all
        known = table.filter(pc.greater(table.column("size"), 0))
        columns = (known.column(name).to_pylist() for name in ("path", "size", "hint", "fingerprint"))
        by_path = {path: facts for path, *facts in zip(*columns)}
        doubtful = []
        for listed in listing:
            if listed.path not in by_path:
                continue
            size, hint, _ = by_path[listed.path]
            where = self._files.where(listed.path)
            believed = self._files.believed.setdefault(where, hint)
            if size != listed.size or believed != listed.hint:
                doubtful.append(listed)

        def require_unchanged(listed: Listed) -> None:
            size, _, mark = by_path[listed.path]
            try:
                InputFile(self._files, listed.path, size, mark).require_unchanged()
            except InputGone:
                return
            self._files.believed[self._files.where(listed.path)] = listed.hint

        self._files.each(require_unchanged, doubtful)
        return [listed for listed in listing if listed.size and listed.path not in by_path]

    def append(self, listing: Sequence[Listed], inspect: Callable[[InputFile], Facts]) -> None:
        """Inspect these files and append them to the index; files that no longer exist are skipped."""

        def row_of(listed: Listed) -> dict[str, Any] | None:
            try:
                return _described(InputFile(self._files, listed.path, listed.size), listed.hint, inspect)
            except InputGone:
                if listed.path in self._files.gone([listed.path]):
                    return None
                raise

        there = [row for row in self._files.each(row_of, listing) if row is not None]
        rows = [{"ordinal": ordinal, **row} for ordinal, row in enumerate(there, len(self))]
        added = pa.Table.from_pylist(rows, SCHEMA)
        self.appended = added if self.appended is None else pa.concat_tables([self.appended, added])

    def _entry(self, row: dict[str, Any]) -> ListedFile:
        file = InputFile(self._files, row["path"], row["size"], row["fingerprint"], row["rows"], row["estimate"])
        return ListedFile(row["ordinal"], file, row["fault"])


class IndexMeasure:
    """Measures how far an index has been read: within a file in rows, or else in bytes. The sums over all files are
    computed once an index, and not at every step."""

    def __init__(self) -> None:
        self._of: Any = None
        self._sums = _NO_SUMS, _NO_SUMS

    def reached(self, table: pa.Table | None, ordinal: int, offset: int) -> Reached:
        if table is None or not table.num_rows:
            return Reached(0, 0, "bytes")
        if self._of is not table:
            is_empty = table.column("rows").to_numpy() == 0
            sizes = np.where(is_empty, 0, table.column("size").to_numpy())
            self._of = table
            self._sums = np.append(_NO_SUMS, sizes.cumsum()), np.append(_NO_SUMS, is_empty.cumsum())
        (sizes_before, empty_before), files = self._sums, min(ordinal, table.num_rows)
        done = int(sizes_before[files])
        if offset and ordinal < table.num_rows:
            size, known = int(table.column("size")[ordinal].as_py()), table.column("rows")[ordinal].as_py()
            done += size * min(offset, known) // known if known else min(offset, size)
        passed = int(empty_before[-1] - empty_before[files])
        return Reached(done, int(sizes_before[-1]), "bytes", ordinal + passed, table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker has no use for the index."""
        return IndexMeasure, ()


def _described(file: InputFile, hint: str, inspect: Callable[[InputFile], Facts]) -> dict[str, Any]:
    """A row of the index; facts and fingerprint come from the same reading."""

    mark, fault = "", None

    def fingerprint_and_inspect(file: InputFile) -> Facts:
        nonlocal mark
        mark = file.fingerprint_now()
        return inspect(file)

    try:
        facts = attempted(file, fingerprint_and_inspect)
    except Unreadable as error:
        facts, fault = Facts(1, 1, None), str(error)
    return {
        "path": file.path,
        "size": file.size,
        "fingerprint": mark,
        "rows": facts.rows,
        "estimate": facts.estimate,
        "smallest": None if facts.smallest is None else max(facts.smallest, UNKNOWN),
        "fault": fault,
        "hint": hint,
    }


@dataclass(frozen=True)
class Piece:
    """An extent of a file of the index."""

    entry: ListedFile
    extent: Extent


def splits_of(partition: str, format: Format, pieces: Sequence[Piece], budget: Budget) -> tuple[Split, ...]:
    """The pieces as splits of about equal size, about as many as the budget says. Pieces that are too large are cut."""
    rows = sum(piece.extent.rows for piece in pieces)
    splits = budget.splits_of(rows)
    aim = max(rows / splits, 1)
    runs: list[list[Piece]] = []
    passed, last = 0.0, -1
    for piece in _cut(format, pieces, aim, budget.exact):
        place = min(int((passed + piece.extent.rows / 2) / aim), splits - 1)
        passed += piece.extent.rows
        if place != last:
            runs.append([])
            last = place
        runs[-1].append(piece)
    return tuple(Split(partition, tuple(_spans(run))) for run in runs)


def _cut(format: Format, pieces: Iterable[Piece], aim: float, exact: bool) -> Iterator[Piece]:
    for piece in pieces:
        parts = round(piece.extent.rows / aim)
        if parts < 2 or piece.entry.fault is not None or piece.entry.lost:
            yield piece
        else:
            for extent in format.split(piece.entry.file, piece.extent, parts, exact=exact):
                yield Piece(piece.entry, extent)


def _spans(pieces: Sequence[Piece]) -> Iterator[Span]:
    """A span for each piece; adjacent pieces of one file share a span."""
    start = 0
    for place, piece in enumerate(pieces):
        following = pieces[place + 1] if place + 1 < len(pieces) else None
        if following is not None and following.entry.ordinal == piece.entry.ordinal:
            continue
        file = piece.entry.file
        at = {"path": file.path, "size": file.size, "fingerprint": file.fingerprint}
        if piece.entry.fault is not None:
            at["fault"] = piece.entry.fault
        if piece.entry.lost:
            at["lost"] = True
        yield Span(piece.entry.ordinal, pieces[start].extent.start, piece.extent.stop, at)
        start = place + 1


def is_read(span: Span) -> bool:
    """Whether the records of a span are read; otherwise the span is known to be one dead letter."""
    return "fault" not in span.at and "lost" not in span.at


def without_gone(splits: Sequence[Split], gone: Collection[int]) -> tuple[Split, ...]:
    """The splits with each of these files, given by ordinal, as one dead letter."""
    spans = sorted((span for split in splits for span in split.spans), key=lambda span: (span.ordinal, span.start))
    first = {span.ordinal: span for span in reversed(spans)}
    return tuple(
        Split(
            split.partition,
            tuple(
                span if span.ordinal not in gone else replace(span, at={**span.at, "lost": True})
                for span in split.spans
                if span.ordinal not in gone or span == first[span.ordinal]
            ),
        )
        for split in splits
    )


_LOST: Final = "listed, but gone before it was read; if it returns, rename it so that it is read"


@dataclass(frozen=True)
class SpanReader:
    """Reads spans of files of one layout, after verifying that each file is the one that was listed. Unless
    ``bad_file_raises``, an unreadable file is one dead letter.
    ``infers``: fields that the schema lacks are reported."""

    files: Files
    layout: Layout
    format: Format
    bad_file_raises: bool
    infers: bool = False

    def read(self, span: Span) -> Iterator[Records]:
        at = span.at
        file = InputFile(self.files, at["path"], at["size"], at["fingerprint"])
        if not is_read(span):
            yield self._one_dead(span, file)
            return
        if not file.is_small():
            file = dataclasses.replace(file, hint=file.hint_now())
        file.require_unchanged()
        try:
            ignored = set[str]() if self.infers else None
            opened = OpenSpan(span.ordinal, file, span.start, span.stop, self.layout, self.bad_file_raises, ignored)
            yield from self.format.read(opened)
        except Unreadable as error:
            raise bad_listed(file, str(error)) from error
        if not file.is_small():
            _require_quiet(file)

    def _one_dead(self, span: Span, file: InputFile) -> Records:
        """The dead letter for a whole file. A file that was bad when it was listed may be gone."""
        if "lost" in span.at:
            whole = DeadRecord(span.ordinal, span.start, f"{file.path}: {_LOST}", lost=file.path)
        else:
            with suppress(InputGone):
                file.require_unchanged()
            whole = DeadRecord(span.ordinal, 0, skipped(span.at["fault"]))
        none = np.array([], np.int64)
        return Records(span.ordinal, empty_batch(self.layout.schema), none, none, (whole,))


def _require_quiet(file: InputFile) -> None:
    """Raise ``SourceChanged`` if a file was written to after its hint was taken. It may be gone by now."""
    with suppress(InputGone):
        if file.hint_now() != file.hint:
            raise SourceChanged(
                f"{file.where}: written to while it was read. Nothing of this step was counted: run again once it "
                "is complete, and write new data under a name that ends in .tmp until it is"
            )


@dataclass(frozen=True)
class PlannedFiles:
    """What one plan works with: the files, and their index."""

    place: FoundAt
    index: Index


def record_of(layout: Layout, place: FoundAt) -> dict[str, Any]:
    """What a checkpoint records about the source."""
    return {**layout.to_json(), **place.root.to_json()}
