"""A span reader reads records from a span of a file, after verifying that the file is the one that was listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from persistent.errors import InputGone, SourceChanged
from persistent.sources.formats import Format, InputFile, OpenSpan, bad_listed
from persistent.sources.layout import Layout
from persistent.sources.listing import Files
from persistent.sources.protocol import DeadRecord, Records, Span
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import empty_batch
from persistent.sources.splits import is_read

_LOST: Final = "listed, but gone before it was read; if it returns, rename it so that it is read"


@dataclass(frozen=True)
class SpanReader:
    """Reads spans of files of one layout. Unless ``bad_file_raises``, an unreadable file is one dead letter."""

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
            opened = OpenSpan(span.ordinal, file, span.start, span.stop, self.layout, self.bad_file_raises)
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
            whole = DeadRecord(span.ordinal, 0, span.at["fault"])
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
