"""Splits are made of pieces, the parts of listed files that a plan takes: about equal in size, one span a piece.

``at`` of a span holds the path, size and fingerprint of the listed file. If it also holds ``fault`` or ``lost``, no
record of the span is read: it is one dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from persistent.sources.formats import Extent, Format
from persistent.sources.index import ListedFile
from persistent.sources.protocol import Budget, Span, Split


@dataclass(frozen=True)
class Piece:
    """An extent of a file of the index."""

    entry: ListedFile
    extent: Extent


def splits_of(partition: str, format: Format, pieces: Sequence[Piece], budget: Budget) -> tuple[Split, ...]:
    """The pieces, cut where they are too large, as about ``budget.splits`` runs of about equal size."""
    aim = max(sum(piece.extent.rows for piece in pieces) / max(budget.splits, 1), 1)
    runs: list[list[Piece]] = []
    passed, last = 0.0, -1
    for piece in _cut(format, pieces, aim, budget.exact):
        place = min(int((passed + piece.extent.rows / 2) / aim), max(budget.splits, 1) - 1)
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
    """Whether its records are read; otherwise it is known to be one dead letter."""
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
