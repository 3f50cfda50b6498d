"""A text format has one record a line. A line that cannot be decoded costs only itself.

Whole blocks are decoded at once. If that fails, or gives a number of records other than the number of lines, the block
is halved until the bad lines are alone. A line reads the same alone as among others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers
from persistent.connect import remedies
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats.lines import BLOCK_BYTES, Block, LineEnds, blocks, codec_of, next_line, open_text
from persistent.connect.formats.protocol import (
    TO_THE_END,
    UNKNOWN,
    Extent,
    Facts,
    InputFile,
    OpenSpan,
    Taken,
    inconsistent,
)
from persistent.connect.formats.schemas import empty_batch, settled
from persistent.connect.source import DeadRecord, Records

logger = logging.getLogger("persistent.sources")

_SAMPLE_BYTES = 64 * 1024
_ROW_BYTES = 100
_PACKING = 4
_DEAD_BYTES_MAX = 1 << 20
_MESSAGE_MAX = 150
_ROW = re.compile(r" in row \d+\b")
_PADDED = (
    "%s: %s in column %r is read as the number %d, as are its other spellings: if it is text, as a code is, give all "
    "columns their types with schema=, as in schema={%r: 'string', ...}"
)
_OTHER_FILES = {
    b"\x1f\x8b": "compressed by gzip: let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: let its name end in .zst",
    b"PK\x03\x04": "a zip archive, as an .xlsx is too: unpack it, or save the spreadsheet as CSV",
    b"PAR1": "Parquet: let its name end in .parquet, without format=",
}
_SPACE = b" \t\r\n\xef\xbb\xbf"


class Dialect(Protocol):
    """What distinguishes one text format from another. ``scattered``: a file may be cut at any end of a line."""

    scattered: bool
    line_ends: LineEnds

    def header(self, file: InputFile) -> tuple[tuple[str, ...], int]:
        """The column names and the offset of the first record; ``Unreadable`` without a valid header."""

    def sort(self, block: Block) -> tuple[Integers, list[tuple[int, str]]]:
        """The numbers of the lines that may be records, and of those that cannot be, with the reason.

        Blank lines are neither.
        """

    def infer(self, lines: Block, names: Sequence[str]) -> pa.Schema:
        """The columns of these lines, as far as they can be inferred."""

    def padded(self, lines: Block, names: Sequence[str]) -> dict[str, str]:
        """The columns of whole numbers in which a number begins with a zero, as codes do; and that number."""

    def decode(
        self,
        lines: Block,
        names: Sequence[str],
        schema: pa.Schema,
        ignored: set[str] | None = None,
        of_folders: tuple[str, ...] = (),
    ) -> pa.RecordBatch:
        """A record for each line; an Arrow error, or ``ValueError`` if records and lines do not pair up, or a record
        has a field ``of_folders``. ``ignored`` collects the fields that the schema lacks."""

    def rounded(self, lines: Block, names: Sequence[str], decoded: pa.RecordBatch) -> dict[int, str]:
        """The decoded lines with an integer that an inferred double has rounded, each with the reason."""

    def require_schema(self, schema: pa.Schema) -> None:
        """Raise ``SourceError`` if this format cannot have columns of these types."""

    def misfit(self, names: Sequence[str], schema: pa.Schema | None) -> str | None:
        """Why a file with this header does not fit the schema; without a schema, why its only line is no header."""


class Text:
    """Records as lines of a dialect."""

    def __init__(self, dialect: Dialect, block_bytes: int = BLOCK_BYTES, *, warns: bool = True) -> None:
        self._warns = warns
        self._dialect = dialect
        self._block_bytes = block_bytes

    # -- plans -----------------------------------------------------------------------------------------------

    def infer(self, file: InputFile) -> pa.Schema | None:
        _require_text(file)
        names, start = self._dialect.header(file)
        for block in self._blocks(file, start, TO_THE_END):
            numbers, bad = self._dialect.sort(block)
            if len(numbers):
                for name, text in self._dialect.padded(block[numbers], names).items() if self._warns else ():
                    number = int(text, 16 if "x" in text.lower() else 10)
                    logger.warning(_PADDED, file.where, text, name, number, name)
                try:
                    return settled(self._dialect.infer(block[numbers], names), file.where)
                except Unreadable as error:
                    raise Unreadable(f"{error}; {remedies.OTHER_COLUMNS}") from error
            if block.broken:
                raise Unreadable(block.broken)
            if bad:
                raise Unreadable(f"its columns cannot be inferred: {bad[0][1]}; {remedies.OTHER_COLUMNS}")
        if fault := self._dialect.misfit(names, None):
            raise Unreadable(fault)
        return None

    def codes(self, file: InputFile) -> frozenset[str]:
        """The columns of whole numbers in which a number begins with a zero, as codes do, in a file's first lines."""
        names, start = self._dialect.header(file)
        for block in self._blocks(file, start, TO_THE_END):
            numbers, _ = self._dialect.sort(block)
            if len(numbers):
                return frozenset(self._dialect.padded(block[numbers], names))
        return frozenset()

    def require_schema(self, schema: pa.Schema) -> None:
        self._dialect.require_schema(schema)

    def inspect(self, file: InputFile, schema: pa.Schema) -> Facts:
        _require_text(file)
        names, start = self._dialect.header(file)
        if names and (fault := self._dialect.misfit(names, schema)):
            raise Unreadable(fault)
        return self._counted(file, start)

    def fields(self, file: InputFile) -> Sequence[str]:
        names, start = self._dialect.header(file)
        for block in self._blocks(file, start, TO_THE_END) if not names else ():
            numbers, _ = self._dialect.sort(block)
            if len(numbers):
                # A record whose names cannot be inferred says nothing about the file.
                with suppress(Unreadable):
                    schema = self._dialect.infer(block[numbers[:1]], names)
                    return [field.name for field in schema if not pa.types.is_null(field.type)]
                break
        return names

    def _counted(self, file: InputFile, start: int) -> Facts:
        if codec_of(file.path) is None and file.size > _SAMPLE_BYTES:
            sample = file.edges[0]
            rows = max(sample.count(b"\n"), 1)
            return Facts(None, max(file.size * rows // len(sample), 1), UNKNOWN)
        with open_text(file, start) as stream:
            buffer = memoryview(bytearray(_SAMPLE_BYTES))
            filled = stream.fill(buffer)
            data = bytes(buffer[:filled])
            whole = filled < _SAMPLE_BYTES and stream.broken is None
        if whole and not data.strip(_SPACE) and not self._has_records(file, start):
            return Facts(0, 0, None)
        rows = data.count(b"\n") + 1
        packing = 1 if codec_of(file.path) is None else _PACKING
        estimate = rows if whole else max(file.size * packing * rows // max(filled, _ROW_BYTES), rows)
        return Facts(None, estimate, UNKNOWN)

    def take(self, file: InputFile, start: int, rows: int, *, exact: bool, at_least_one: bool) -> Taken:
        if exact:
            return self._take_exactly(file, start, rows)
        stop = self._stop_of(file)
        remaining = max(file.estimate * max(file.size - start, 0) // max(file.size, 1), 1)
        cuttable = self._cuttable(file)
        if remaining * 10 <= rows * 11 or (at_least_one and not cuttable):
            return Taken((Extent(start, stop, remaining),), True)
        if not cuttable or (rows * 10 < remaining and not at_least_one):
            return Taken((), False)
        cut = next_line(file, start + max((stop - start) * rows // remaining, 1))
        return Taken((Extent(start, cut, rows),), cut >= stop)

    def _take_exactly(self, file: InputFile, start: int, rows: int) -> Taken:
        """Count lines up to the first one beyond the step."""
        counted = 0
        begin = max(start, self._dialect.header(file)[1])
        for block in self._blocks(file, begin, self._stop_of(file)):
            numbers = self._records(block)
            if counted + len(numbers) > rows:
                cut = block.base + int(block.starts[numbers[rows - counted]])
                return Taken((Extent(start, cut, rows),), False)
            counted += len(numbers)
            if block.broken:
                if counted == rows:
                    cut = block.base + block.ended
                    return Taken((Extent(start, cut, rows),), False)
                counted += 1
        return Taken((Extent(start, self._stop_of(file), counted),) if counted else (), True)

    def split(self, file: InputFile, extent: Extent, parts: int, *, exact: bool) -> Sequence[Extent]:
        if not self._cuttable(file) or parts < 2:
            return (extent,)
        length = extent.stop - extent.start
        inner = {next_line(file, extent.start + length * part // parts) for part in range(1, parts)}
        cuts = [extent.start, *sorted(c for c in inner if extent.start < c < extent.stop), extent.stop]
        pairs = pairwise(cuts)
        return [Extent(a, b, max(extent.rows * (b - a) // max(length, 1), 1)) for a, b in pairs]

    def smallest_from(self, file: InputFile, start: int) -> int | None:
        return UNKNOWN

    def _has_records(self, file: InputFile, start: int) -> bool:
        return any(len(self._records(block)) for block in self._blocks(file, start, TO_THE_END))

    def _records(self, block: Block) -> Integers:
        """The numbers of the lines that are records, good or bad: all except blank ones."""
        numbers, bad = self._dialect.sort(block)
        return np.sort(np.concatenate([numbers, np.array([line for line, _ in bad], np.int64)])) if bad else numbers

    def _cuttable(self, file: InputFile) -> bool:
        return self._dialect.scattered and codec_of(file.path) is None

    def _stop_of(self, file: InputFile) -> int:
        return file.size if codec_of(file.path) is None else TO_THE_END

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, span: OpenSpan) -> Iterator[Records]:
        names, first = self._dialect.header(span.file)
        if names and (fault := self._dialect.misfit(names, span.schema) or span.layout.misfit(names)):
            yield span.unfit(fault)
            return
        for block in self._blocks(span.file, max(span.start, first), span.stop):
            numbers, bad = self._dialect.sort(block)
            dead = [_dead(span, block, number, reason) for number, reason in bad]
            decoded = list(self._decode(span, block[numbers], names, dead))
            if dead:
                _require_same(span.file, block)
            if block.broken:
                dead.append(span.broken(block.base + block.ended, block.broken))
            dead.sort(key=lambda record: record.offset)
            yield span.records(*_concatenated(decoded, span.schema), tuple(dead))

    def _decode(
        self, span: OpenSpan, lines: Block, names: Sequence[str], dead: list[DeadRecord]
    ) -> Iterator[tuple[pa.RecordBatch, Integers]]:
        """The records of lines, and their offsets; a line that cannot be decoded goes to ``dead`` instead."""
        if not len(lines):
            return
        try:
            batch = self._dialect.decode(lines, names, span.schema, span.ignored, span.layout.of_folders)
            rounded = self._dialect.rounded(lines, names, batch)
            dead += [_dead(span, lines, row, reason) for row, reason in rounded.items()]
            kept = np.setdiff1d(np.arange(len(lines)), [*rounded]) if rounded else None
            yield (batch, lines.offsets) if kept is None else (batch.take(pa.array(kept)), lines.offsets[kept])
        except (pa.ArrowException, ValueError) as error:
            if isinstance(error, MemoryError):
                raise
            if len(lines) == 1:
                dead.append(_dead(span, lines, 0, _reason(error)))
                return
            half = len(lines) // 2
            yield from self._decode(span, lines[:half], names, dead)
            yield from self._decode(span, lines[half:], names, dead)

    def _blocks(self, file: InputFile, start: int, stop: int) -> Iterator[Block]:
        if start >= stop:
            return
        with open_text(file, start) as stream:
            yield from blocks(stream, start, stop, self._dialect.line_ends, self._block_bytes)


def _require_text(file: InputFile) -> None:
    """``Unreadable`` if a file begins as files of another kind do."""
    what = next((what for mark, what in _OTHER_FILES.items() if file.edges[0].startswith(mark)), None)
    if what and codec_of(file.path) is None:
        raise Unreadable(f"it is no text, but {what}")


def _require_same(file: InputFile, block: Block) -> None:
    """Raise ``StorageError`` unless a block reads the same again on a new connection. Compressed text may have a
    checksum of its own; the fingerprint covers a small file."""
    if codec_of(file.path) is not None or file.is_small():
        return
    with file.fresh().open() as reader:
        reader.seek(block.base)
        if reader.read(len(block.data)) != block.data:
            raise inconsistent(file.where)


def _dead(span: OpenSpan, lines: Block, place: int, reason: str) -> DeadRecord:
    return span.dead(int(lines.offsets[place]), reason, lines.line(place)[:_DEAD_BYTES_MAX])


def _concatenated(
    decoded: Sequence[tuple[pa.RecordBatch, Integers]], schema: pa.Schema
) -> tuple[pa.RecordBatch, Integers]:
    if len(decoded) == 1:
        return decoded[0]
    batches, offsets = zip(*decoded) if decoded else ((empty_batch(schema),), (np.array([], np.int64),))
    return pa.concat_batches(batches), np.concatenate(offsets)


def mistyped(message: str) -> str:
    """Why a line whose value has another type than its column is not a record, from the parser's message."""
    # What Arrow advises about its own functions is left out.
    cause = without_row(message.splitlines()[0]).partition(". If these timestamps")[0][:_MESSAGE_MAX]
    return f"{cause}. {remedies.ZONES if 'zone offset' in cause else remedies.TYPES}"


def _reason(error: Exception) -> str:
    return without_row(str(error).splitlines()[0])[:300]


def without_row(message: str) -> str:
    """A parser's message about a line that it was given alone, without the number of the row, which is always 0.

    >>> without_row("JSON parse error: Missing a comma or '}' after an object member. in row 0")
    "JSON parse error: Missing a comma or '}' after an object member."
    """
    return _ROW.sub("", message)
