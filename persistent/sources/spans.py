"""A span of a file is read to its records, once it is certain that the file is the one that was listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from persistent.errors import InputGone, SourceChanged, SourceError
from persistent.sources.files import Files
from persistent.sources.formats import Decoded, Format, InputFile, Unreadable
from persistent.sources.layout import Layout
from persistent.sources.pieces import is_read
from persistent.sources.protocol import DeadRecord, Records, Span
from persistent.sources.schemas import empty_batch
from persistent.sources.times import milliseconds, why_none

_LOST: Final = "listed, but gone before it was read; if it comes back, give it a new name to have it read"


@dataclass(frozen=True)
class SpanReader:
    """Reads spans of files of one layout. ``bad_file_raises``: else what cannot be read is one dead letter."""

    files: Files
    layout: Layout
    format: Format
    bad_file_raises: bool

    def read(self, span: Span) -> Iterator[Records]:
        at = span.at
        file = InputFile(self.files, at["path"], at["size"], at["fingerprint"])
        if not is_read(span):
            yield self._one_dead(span, file)
            return
        if not file.is_small():
            file = replace(file, hint=file.hint_now())
        file.require_unchanged()
        try:
            for decoded in self.format.read(file, span.start, span.stop, self.layout.file_schema):
                yield self._records(span.ordinal, file, decoded)
        except Unreadable as error:
            raise bad_listed(file, str(error)) from error
        if not file.is_small():
            _require_quiet(file)

    def _records(self, ordinal: int, file: InputFile, decoded: Decoded) -> Records:
        dead = []
        for fault in decoded.faults:
            if fault.broken and self.bad_file_raises:
                raise bad_listed(file, fault.reason)
            dead.append(DeadRecord(ordinal, fault.offset, fault.reason, fault.data))
        layout = self.layout
        batch = layout.complete(decoded.batch, file.path)
        times = milliseconds(column := batch.column(layout.timestamp), layout.timestamp_unit)
        why = partial(why_none, column, layout.timestamp, layout.timestamp_unit)
        return Records(ordinal, batch, times, decoded.offsets, dead, why)

    def _one_dead(self, span: Span, file: InputFile) -> Records:
        """The dead letter that a whole file is. One that was bad when it was listed may be gone."""
        if "lost" in span.at:
            whole = DeadRecord(span.ordinal, span.start, f"{file.path}: {_LOST}", lost=file.path)
        else:
            with suppress(InputGone):
                file.require_unchanged()
            whole = DeadRecord(span.ordinal, 0, span.at["fault"])
        none = np.array([], np.int64)
        return Records(span.ordinal, empty_batch(self.layout.schema), none, none, (whole,))


def _require_quiet(file: InputFile) -> None:
    """Raise ``SourceChanged`` if a file has been written to since its hint was taken. It may be gone by now."""
    with suppress(InputGone):
        if file.hint_now() != file.hint:
            raise SourceChanged(
                f"{file.where}: written to while it was read. Nothing of this step was counted: run again once it "
                "is complete, and write new data under a name that ends in .tmp until it is"
            )


def bad_file(file: InputFile, fault: str) -> SourceError:
    return SourceError(
        f"{file.where}: {fault}. Repair or remove the file, give the columns with schema=, or count such files as "
        "dead letters with on_bad_file='dead-letter'"
    )


def bad_listed(file: InputFile, fault: str) -> SourceError:
    """Of a file that a plan may hold already: repaired it would be another, removed it would be missing."""
    return SourceError(
        f"{file.where}: {fault}. The file is listed, so it can neither be repaired in its place nor just removed. Run "
        "with on_bad_file='dead-letter': what cannot be read of it is one dead letter, which names the offset where "
        "that begins; and put what is missing into a file of a new name"
    )
