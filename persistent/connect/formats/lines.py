"""A text file is lines, and a line has the offset of its first byte. This turns bytes into blocks of whole lines.

A line ends with a newline, or at the end of the file. In compressed text, offsets count decompressed bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers
from persistent.connect.files.reader import Reader, Unreadable
from persistent.connect.formats.protocol import InputFile, confirmed, inconsistent

BLOCK_BYTES: Final = 16 * 1024 * 1024
_LINE_BYTES_MAX = 1 << 30
_PIECE_BYTES = 256 * 1024
_BUFFER_BYTES = 1024 * 1024
_WINDOW_BYTES = 64 * 1024
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CODECS = {".gz": "gzip", ".zst": "zstd"}

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
LineEnds = Callable[[Bytes, bool], Integers]
"""The line ends in a block that starts with a line; the flag says whether the file starts there too."""


class ByteStream(Protocol):
    """Bytes in order, from some offset on. ``broken`` says why they end early, always at the same offset."""

    broken: str | None

    def fill(self, buffer: memoryview) -> int:
        """Put the next bytes into ``buffer`` and return their number, which is less than its length only at the end."""


@dataclass(frozen=True)
class Block:
    """Whole lines: line i is ``data[starts[i] : stops[i]]``, at offset ``base + starts[i]``.

    A line includes neither its newline, nor a carriage return before it, nor a byte order mark at the beginning of the
    file. ``data`` is valid until the next block is requested. ``numbers``: which lines of ``data`` these are, in order.
    ``broken``: why the file breaks off, after ``ended`` bytes of whole lines.
    """

    base: int
    data: memoryview
    starts: Integers
    stops: Integers
    numbers: Integers
    ended: int
    broken: str | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, lines: slice | Integers) -> Block:
        """Some of these lines, in order."""
        return replace(self, starts=self.starts[lines], stops=self.stops[lines], numbers=self.numbers[lines])

    @property
    def offsets(self) -> Integers:
        return self.base + self.starts

    def line(self, place: int) -> bytes:
        return bytes(self.data[self.starts[place] : self.stops[place]])

    def text(self) -> memoryview | bytes:
        """Only these lines; without copying if they are adjacent."""
        if int(self.numbers[-1]) - int(self.numbers[0]) + 1 == len(self):
            return self.data[self.starts[0] : self.stops[-1]]
        return b"\n".join(self.line(place) for place in range(len(self)))


def codec_of(path: str) -> str | None:
    """The compression that a file name implies."""
    return next((codec for ending, codec in _CODECS.items() if path.endswith(ending)), None)


@contextmanager
def open_text(file: InputFile, start: int) -> Iterator[ByteStream]:
    """The text of a file as bytes, from offset ``start`` on."""
    with file.open() as reader:
        codec = codec_of(file.path)
        if codec is None:
            reader.seek(start)
            yield _Plain(reader)
        else:
            yield _Compressed(file, reader, codec, start)


class _Plain:
    broken: str | None = None

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def fill(self, buffer: memoryview) -> int:
        return self._reader.readinto(buffer)


class _Compressed:
    """Decompresses in pieces that always start at the same offsets, so that a break is found at the same one.

    A break counts only after two more readings find the same one.
    """

    broken: str | None = None

    def __init__(self, file: InputFile, reader: Reader, codec: str, start: int) -> None:
        self._file = file
        self._pieces = _pieces(reader, codec)
        self._codec = codec
        self._skip = start
        self._passed = 0
        self._piece = memoryview(b"")

    def fill(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer) and (len(self._piece) or self._advance()):
            count = min(len(self._piece), len(buffer) - filled)
            buffer[filled : filled + count] = self._piece[:count]
            self._piece = self._piece[count:]
            filled += count
        return filled

    def _advance(self) -> bool:
        """Decompress the next piece that reaches past the start; False at the end."""
        while self.broken is None:
            try:
                piece = next(self._pieces, None)
            except _Broken as error:
                _confirm_break(self._file, self._codec, self._passed)
                self.broken = str(error)
                return False
            if piece is None:
                return False
            self._passed += len(piece)
            skipped = min(self._skip, len(piece))
            self._skip -= skipped
            if skipped < len(piece):
                self._piece = piece[skipped:]
                return True
        return False


class _Broken(Exception):
    """Compressed data end too early."""


def _pieces(reader: Reader, codec: str) -> Iterator[memoryview]:
    """The text of compressed data, in pieces; ``_Broken`` where it breaks off."""
    source = pa.BufferedInputStream(reader.arrow(), _BUFFER_BYTES)
    try:
        stream = pa.CompressedInputStream(source, codec)
        while len(piece := memoryview(stream.read(_PIECE_BYTES))):
            yield piece
    except (pa.ArrowException, OSError) as error:
        reader.require_sound()
        if isinstance(error, MemoryError):
            raise
        raise _Broken(f"its compressed data break off: {error}") from error


def _confirm_break(file: InputFile, codec: str, at: int) -> None:
    """Return if the data do break off at this offset; StorageError if this reading differs."""

    def read(file: InputFile) -> None:
        passed = 0
        with file.open() as reader:
            try:
                for piece in _pieces(reader, codec):
                    passed += len(piece)
            except _Broken as error:
                if passed == at:
                    raise Unreadable(str(error)) from error

    try:
        confirmed(file, read)
    except Unreadable:
        return
    raise inconsistent(file.where)


def blocks(stream: ByteStream, start: int, stop: int, line_ends: LineEnds, block_bytes: int) -> Iterator[Block]:
    """The lines at ``start <= offset < stop``, both of which are starts of lines, in blocks of about ``block_bytes``.

    The last block of a broken file says so. The line in which it breaks is not among its lines, but is in its ``data``.
    """
    buffer = memoryview(bytearray(min(block_bytes, max(stop - start, 1))))
    filled = 0
    while True:
        wanted = min(len(buffer), stop - start)
        filled += stream.fill(buffer[filled:wanted])
        at_end = filled < wanted or filled == stop - start
        ends = line_ends(np.frombuffer(buffer[:filled], np.uint8), start == 0)
        if at_end:
            if filled or stream.broken:
                yield _block(start, buffer[:filled], ends, stream.broken)
            return
        if not len(ends):
            if len(buffer) >= _LINE_BYTES_MAX:
                raise Unreadable(f"the line at byte {start:,} is longer than {_LINE_BYTES_MAX:,} bytes")
            larger = memoryview(bytearray(2 * len(buffer)))
            larger[:filled] = buffer[:filled]
            buffer = larger
            continue
        used = int(ends[-1]) + 1
        yield _block(start, buffer[:used], ends, None)
        buffer[: filled - used] = bytes(buffer[used:filled])
        start, filled = start + used, filled - used


def _block(base: int, data: memoryview, ends: Integers, broken: str | None) -> Block:
    ended = int(ends[-1]) + 1 if len(ends) else 0
    if ended < len(data) and broken is None:
        ends = np.append(ends, len(data))
    starts = np.empty(len(ends), np.int64)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    text = np.frombuffer(data, np.uint8)
    if base == 0 and len(starts) and bytes(data[:3]) == BYTE_ORDER_MARK:
        starts[0] = len(BYTE_ORDER_MARK)
    stops = ends
    if len(ends):
        stops = ends - ((ends > starts) & (text[np.maximum(ends - 1, 0)] == _RETURN))
    return Block(base, data, starts, stops, np.arange(len(starts)), ended, broken)


def ends_of_lines(text: Bytes, of_file: bool = False) -> Integers:
    """Every newline."""
    ends: Integers = (text == _NEWLINE).nonzero()[0]
    return ends


def ends_outside_quotes(text: Bytes, of_file: bool, delimiter: str = ",") -> Integers:
    """Every newline that is not inside a quoted field, by the rule of pyarrow.csv, for a text that begins with a line.

    ``of_file``: the text begins a file, where a byte order mark precedes the first field and is not part of it.

    A quote opens a field only as its first character. Inside, two quotes are one character of the field, and a single
    quote closes it. The rest up to the delimiter is unquoted, and quotes in it are ordinary characters.
    """
    ends = ends_of_lines(text)
    quotes = np.flatnonzero(text == _QUOTE)
    opened, opening = np.searchsorted(quotes, ends), quotes[::2]
    if not (_opens(text, opening, of_file, delimiter) | (text[opening - 1] == _QUOTE)).all():
        # Some quote is an ordinary character, so parity alone cannot separate inside from outside.
        quotes, inside = _odd_runs(text, quotes, of_file, delimiter)
        opened = np.concatenate(([0], inside))[np.searchsorted(quotes, ends)]
    outside: Integers = ends[opened % 2 == 0]
    return outside


def _opens(text: Bytes, quotes: Integers, of_file: bool, delimiter: str) -> Flags:
    """Which of these quotes would be the first character of a field."""
    before = np.zeros(256, np.bool_)
    before[[ord(delimiter), _NEWLINE, _RETURN]] = True
    opens: Flags = before[text[quotes - 1]] | (quotes == 0)
    if of_file and bytes(text[:3]) == BYTE_ORDER_MARK:
        opens |= quotes == len(BYTE_ORDER_MARK)
    return opens


def _odd_runs(text: Bytes, quotes: Integers, of_file: bool, delimiter: str) -> tuple[Integers, Integers]:
    """The first quote of each run of an odd number of quotes, and whether it leaves the text inside a field (1).

    An even run changes nothing. An odd run at the start of a field toggles inside and outside; elsewhere it always
    leads outside.
    """
    firsts = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
    runs = quotes[firsts[np.diff(firsts, append=len(quotes)) % 2 == 1]]
    turns = _opens(text, runs, of_file, delimiter)
    turned = np.cumsum(turns)
    since: Integers = turned - np.maximum.accumulate(np.where(turns, 0, turned))
    return runs, since % 2


def next_line(file: InputFile, offset: int) -> int:
    """The first start of a line at or after ``offset`` in uncompressed text; the size if there is none."""
    if offset <= 0:
        return 0
    with file.open() as reader:
        reader.seek(offset - 1)
        position = offset - 1
        while True:
            window = reader.read(_WINDOW_BYTES)
            if not window:
                return file.size
            newline = window.find(b"\n")
            if newline >= 0:
                return position + newline + 1
            position += len(window)
