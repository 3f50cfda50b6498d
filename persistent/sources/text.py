"""A text format is one record a line: a line that cannot be decoded costs itself and nothing else.

Whole blocks are decoded at once. Where that fails, or gives another number of records than there are lines, the block
is halved until the bad lines stand alone; a line reads the same alone as among others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers
from persistent.sources.formats import (
    TO_THE_END,
    UNKNOWN,
    Decoded,
    Extent,
    Facts,
    Fault,
    InputFile,
    Taken,
    Unreadable,
    unsteady,
)
from persistent.sources.lines import BLOCK_BYTES, Block, LineEnds, blocks, codec_of, next_line, open_text
from persistent.sources.schemas import empty_batch

_SAMPLE_BYTES = 64 * 1024
_ROW_BYTES = 100
_PACKING = 4
_FAULT_BYTES_MAX = 1 << 20
_TOLD_MAX = 150
_SPACE = b" \t\r\n\xef\xbb\xbf"


@dataclass(frozen=True)
class Lines:
    """Some of the lines of a block, by their numbers, in order."""

    block: Block
    numbers: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Lines:
        return Lines(self.block, self.numbers[part])

    @property
    def offsets(self) -> Integers:
        return self.block.base + self.block.starts[self.numbers]

    def line(self, place: int) -> bytes:
        number = self.numbers[place]
        return bytes(self.block.data[self.block.starts[number] : self.block.stops[number]])

    def text(self) -> memoryview | bytes:
        """These lines only: without copying where they are neighbours."""
        first, last = int(self.numbers[0]), int(self.numbers[-1])
        if last - first + 1 == len(self.numbers):
            return self.block.data[self.block.starts[first] : self.block.stops[last]]
        return b"\n".join(self.line(place) for place in range(len(self)))


class Dialect(Protocol):
    """What distinguishes one text format from another. ``scattered``: a file may be cut at any end of a line."""

    scattered: bool
    line_ends: LineEnds

    def header(self, file: InputFile) -> tuple[tuple[str, ...], int]:
        """The names of the columns and the offset of the first record; ``Unreadable`` if there is no good header."""

    def sort(self, block: Block) -> tuple[Integers, list[tuple[int, str]]]:
        """The numbers of the lines that may be records, and of those that cannot be, with the reason.

        Blank lines are neither.
        """

    def infer(self, lines: Lines, names: Sequence[str]) -> pa.Schema:
        """The columns of these lines, as far as they have any."""

    def decode(self, lines: Lines, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
        """A record for each line; an error of Arrow, or ``ValueError`` where records and lines do not pair."""

    def require_schema(self, schema: pa.Schema) -> None:
        """Raise ``SourceError`` if there are no columns of these types in such a text."""

    def misfit(self, names: Sequence[str], schema: pa.Schema) -> str | None:
        """Why a file with this header does not fit the schema."""


class Text:
    """Records as lines of a dialect."""

    def __init__(self, dialect: Dialect, block_bytes: int = BLOCK_BYTES) -> None:
        self._dialect = dialect
        self._block_bytes = block_bytes

    # -- plans -----------------------------------------------------------------------------------------------

    def infer(self, file: InputFile) -> pa.Schema | None:
        names, start = self._dialect.header(file)
        for block in self._blocks(file, start, TO_THE_END):
            numbers, bad = self._dialect.sort(block)
            if len(numbers):
                return self._dialect.infer(Lines(block, numbers), names)
            if bad or block.broken:
                raise Unreadable(block.broken or "its columns cannot be told: " + bad[0][1])
        return None

    def require_schema(self, schema: pa.Schema) -> None:
        self._dialect.require_schema(schema)

    def inspect(self, file: InputFile, schema: pa.Schema) -> Facts:
        names, start = self._dialect.header(file)
        facts = self._counted(file, start)
        fault = self._dialect.misfit(names, schema) if facts.rows != 0 else None
        if fault:
            raise Unreadable(fault)
        return facts

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
        """Count lines up to the first one that does not belong to the step any more."""
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
        """The numbers of the lines that are records, good or bad: all but the blank ones."""
        numbers, bad = self._dialect.sort(block)
        return np.sort(np.concatenate([numbers, np.array([line for line, _ in bad], np.int64)])) if bad else numbers

    def _cuttable(self, file: InputFile) -> bool:
        return self._dialect.scattered and codec_of(file.path) is None

    def _stop_of(self, file: InputFile) -> int:
        return file.size if codec_of(file.path) is None else TO_THE_END

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, file: InputFile, start: int, stop: int, schema: pa.Schema) -> Iterator[Decoded]:
        names, first = self._dialect.header(file)
        for block in self._blocks(file, max(start, first), stop):
            numbers, bad = self._dialect.sort(block)
            faults = [_fault(Lines(block, np.array([number])), reason) for number, reason in bad]
            pieces: list[tuple[pa.RecordBatch, Integers]] = []
            self._decode(Lines(block, numbers), names, schema, pieces, faults)
            if faults:
                _require_same(file, block)
            if block.broken:
                faults.append(Fault(block.base + block.ended, block.broken, broken=True))
            faults.sort(key=lambda fault: fault.offset)
            batches = [batch for batch, _ in pieces] or [empty_batch(schema)]
            offsets = [offset for _, offset in pieces] or [np.array([], np.int64)]
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            yield Decoded(batch, offsets[0] if len(offsets) == 1 else np.concatenate(offsets), tuple(faults))

    def _decode(
        self,
        lines: Lines,
        names: Sequence[str],
        schema: pa.Schema,
        pieces: list[tuple[pa.RecordBatch, Integers]],
        faults: list[Fault],
    ) -> None:
        if not len(lines):
            return
        try:
            pieces.append((self._dialect.decode(lines, names, schema), lines.offsets))
        except (pa.ArrowException, ValueError) as error:
            if isinstance(error, MemoryError):
                raise
            if len(lines) == 1:
                faults.append(_fault(lines, _reason(error)))
                return
            half = len(lines) // 2
            self._decode(lines[:half], names, schema, pieces, faults)
            self._decode(lines[half:], names, schema, pieces, faults)

    def _blocks(self, file: InputFile, start: int, stop: int) -> Iterator[Block]:
        if start >= stop:
            return
        with open_text(file, start) as stream:
            yield from blocks(stream, start, stop, self._dialect.line_ends, self._block_bytes)


def _require_same(file: InputFile, block: Block) -> None:
    """Raise ``StorageError`` unless a block is the same when it is read again on a new connection. Compressed text may
    have a checksum of its own; a small file is as its fingerprint says."""
    if codec_of(file.path) is not None or file.is_small():
        return
    with file.anew().open() as reader:
        reader.seek(block.base)
        if reader.read(len(block.data)) != block.data:
            raise unsteady(file.where)


def _fault(lines: Lines, reason: str) -> Fault:
    return Fault(int(lines.offsets[0]), reason, lines.line(0)[:_FAULT_BYTES_MAX])


def mistyped(told: str) -> str:
    """Why a line is no record whose value is of another type than its column."""
    shown = told.splitlines()[0][:_TOLD_MAX]
    return f"{shown}. If the value is right, give all columns their types with schema=, for what is read from then on"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
