"""Splits are made of pieces, the parts of listed files that a plan takes: about equal in size, one span a piece.

``at`` of a span holds the path, size and fingerprint of the listed file. If it also holds ``fault`` or ``lost``, no
record of the span is read: it is one dead letter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace

from persistent.errors import InputGone, SourceChanged
from persistent.sources.formats import Extent, Format, InputFile, OpenSpan, bad_listed, skipped
from persistent.sources.index import ListedFile
from persistent.sources.layout import Layout
from persistent.sources.listing import Files
from persistent.sources.protocol import Budget, DeadRecord, Records, Span, Split
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import empty_batch


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
