"""CSV has a line of column names, then one record a line. Columns that the schema does not name are ignored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from monoids.groupby.sorting import Integers
from persistent.codec.decimals import from_text
from persistent.connect import remedies
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats.csv_dialect import USUAL, UTF_8, CsvDialect
from persistent.connect.formats.lines import (
    BYTE_ORDER_MARK,
    Block,
    LineEnds,
    blocks,
    ends_of_lines,
    ends_outside_quotes,
    open_text,
)
from persistent.connect.formats.protocol import TO_THE_END, InputFile
from persistent.connect.formats.schemas import is_rounded, large_rows, timeless, why_rounded
from persistent.connect.formats.text import mistyped
from persistent.connect.formats.timestamps import misread
from persistent.errors import SourceError

_HEADER_BYTES = 64 * 1024
_RETURN = 13
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_PADDED = r'(?m)(?:^|[%s"])[+-]?0[0-9xX]'
_INTEGER = r"^\s*[+-]?[0-9]+\s*$"
_PADDED_FIELD = "^[+-]?0[0-9xX]"
_NO_UTF8 = "invalid UTF8 data"
_NO_UTF8_HINT = f"A CSV file is UTF-8: {remedies.ENCODING}write it so, as with iconv -t UTF-8"
_MARKS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UTF_16 = "it seems to be UTF-16: write it as UTF-8, as with iconv -f UTF-16 -t UTF-8"
_PADDED_FILE = (
    "its first line has zero bytes, as a log that was cut while it was written: remove them, as with tr -d '\\000'"
)
_RETURNS = "its header ends with a carriage return alone: end lines with newlines, as with tr '\\r' '\\n'"
_TRIMMED = " \t"
"""What Arrow ignores around a number."""
_SEPARATOR_LINE = b"sep="
_NULLS: dict[str, Any] = {"null_values": [""]}
_TWICE = "its header names %s twice: rename one of them, or do not read it"
_ROW = re.compile(r"Row #\d+: ")
_UNPAIRED = (
    "the line is not one record: a quote in it is not closed, or there is a carriage return in it; "
    f"{remedies.MULTILINE}"
)


class CsvLines:
    """Fields are separated by the delimiter and may be quoted. ``multiline``: a quoted field may contain line breaks.

    An empty field is null, and no other is. In a string column a quoted field is text: ``""`` is the empty string.
    Times in inferred columns stay strings.
    """

    def __init__(self, multiline: bool, dialect: CsvDialect = USUAL) -> None:
        self.scattered = not multiline
        self._dialect = dialect
        self._quoted = partial(ends_outside_quotes, delimiter=dialect.delimiter)
        self._padded = re.compile((_PADDED % re.escape(dialect.delimiter)).encode())
        self.line_ends: LineEnds = self._quoted if multiline else ends_of_lines

    def header(self, file: InputFile) -> tuple[tuple[str, ...], int]:
        with open_text(file, 0) as stream:
            for block in blocks(stream, 0, TO_THE_END, self.line_ends, _HEADER_BYTES):
                numbers, _ = self.sort(block)
                if len(numbers):
                    first = int(numbers[0])
                    after = block.starts[first + 1] if first + 1 < len(block.starts) else len(block.data)
                    return self._names(block.line(first), bytes(block.data[:3])), block.base + int(after)
                if block.broken:
                    raise Unreadable(block.broken)
        return (), 0

    def sort(self, block: Block) -> tuple[Integers, list[tuple[int, str]]]:
        return np.flatnonzero(block.stops > block.starts), []

    def infer(self, lines: Block, names: Sequence[str]) -> pa.Schema:
        if twice := _twice(names):
            raise Unreadable(_TWICE % ", ".join(map(repr, twice)))
        schema = timeless(self._parse(self._text(lines, "replace"), names, None, **_NULLS).schema)
        return pa.schema([field for field in schema if field.name or names.count("") == 1])

    def padded(self, lines: Block, names: Sequence[str]) -> dict[str, str]:
        if self._padded.search(bytes(lines.text())) is None:
            return {}
        whole = [field.name for field in self.infer(lines, names) if pa.types.is_integer(field.type)]
        if not whole:
            return {}
        schema = pa.schema([(name, pa.string()) for name in whole])
        texts = self._parse(self._text(lines, "replace"), names, schema, skips=True)
        codes = {}
        for name, column in zip(texts.column_names, texts.columns):
            codes[name] = column.filter(pc.match_substring_regex(column, _PADDED_FIELD))
        return {name: str(column[0]) for name, column in codes.items() if len(column)}

    def decode(
        self,
        lines: Block,
        names: Sequence[str],
        schema: pa.Schema,
        ignored: set[str] | None = None,
        of_folders: tuple[str, ...] = (),
    ) -> pa.RecordBatch:
        if ignored is not None:
            ignored |= {*names} - {*schema.names, ""}
        text = self._text(lines)
        if len(lines) > 1 and _has_lone_return(text):
            raise ValueError(_UNPAIRED)
        try:
            table = _with_decimals(self._parse(text, names, _wire(schema), **_NULLS), schema)
            table = self._with_nulls(table, text, names)
        except pa.ArrowInvalid as error:
            raise ValueError(_reason(str(error), names)) from error
        if table.num_rows != len(lines) or not self._is_closed(lines.line(-1)):
            raise ValueError(_UNPAIRED)
        return pa.RecordBatch.from_arrays([c.combine_chunks() for c in table.columns], schema=schema)

    def rounded(self, lines: Block, names: Sequence[str], decoded: pa.RecordBatch) -> dict[int, str]:
        large = large_rows(decoded)
        if not large:
            return {}
        texts = self._parse(self._text(lines), names, pa.schema([(name, pa.string()) for name in large]))
        reasons = {}
        for name, rows in large.items():
            literals = texts.column(name).take(pa.array(rows))
            whole = np.asarray(pc.match_substring_regex(literals, _INTEGER))
            for row, text in zip(rows[whole].tolist(), literals.filter(pa.array(whole)).to_pylist()):
                if is_rounded(Decimal(text)):
                    reasons[row] = why_rounded(name, text.strip())
        return reasons

    def require_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                self._parse(b'""\n', (field.name,), pa.schema([field]))
            except pa.ArrowException as error:
                raise SourceError(
                    f"CSV cannot give column {field.name!r} of type {field.type} ({error}); give schema= with another"
                ) from error

    def misfit(self, names: Sequence[str], schema: pa.Schema | None) -> str | None:
        if twice := [name for name in _twice(names) if schema is not None and name in schema.names]:
            return _TWICE % ", ".join(map(repr, twice))
        missing = [] if schema is None else [repr(name) for name in schema.names if name not in names]
        hint = misread(names, self._dialect.delimiter)
        if not (missing if schema is not None else hint):
            return None
        fault = f"its header has no column {' nor '.join(missing)}; it" if missing else "it has one line, which"
        return f"{fault} reads {', '.join(names)}{f'. {hint}' if hint else f'; {remedies.COMMON}'}"

    def _text(self, lines: Block, errors: str = "strict") -> memoryview | bytes:
        """Lines in UTF-8, so that Arrow keeps a byte order mark at the beginning as bytes of the first record."""
        text = self._dialect.utf8(lines.text(), errors)
        return b"\n" + bytes(text) if bytes(text[:3]) == BYTE_ORDER_MARK else text

    def _parse(
        self,
        text: memoryview | bytes,
        names: Sequence[str],
        schema: pa.Schema | None,
        *,
        skips: bool = False,
        **nulls: Any,
    ) -> pa.Table:
        """The columns of the schema; without a schema, all columns as inferred. With ``skips``, or without a schema,
        lines with another number of fields are left out."""
        wanted = {} if schema is None else {"column_types": schema, "include_columns": schema.names}
        skip = (lambda row: "skip") if skips or schema is None else None
        return _read_csv(
            text,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(names)),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._dialect.delimiter, newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=pyarrow.csv.ConvertOptions(**wanted, **nulls),
        )

    def _names(self, line: bytes, beginning: bytes) -> tuple[str, ...]:
        if beginning.startswith(_MARKS_OF_UTF_16) or b"\0" in line:
            is_marked = beginning.startswith(_MARKS_OF_UTF_16)
            raise Unreadable(_UTF_16 if is_marked or not _is_padded(line) else _PADDED_FILE)
        if line[:4].lower() == _SEPARATOR_LINE:
            label = line.decode("latin-1")
            raise Unreadable(f"its line {label!r} is for a spreadsheet: remove it, and give delimiter={label[4:]!r}")
        if beginning == BYTE_ORDER_MARK and self._dialect.encoding != UTF_8:
            raise Unreadable(f"it begins with the mark of UTF-8: omit encoding={self._dialect.encoding!r}")
        options = pyarrow.csv.ParseOptions(delimiter=self._dialect.delimiter)
        try:
            text = bytes(self._dialect.utf8(line)) + b"\n"
            header = _read_csv(text, parse_options=options)
            if header.num_rows:
                # Arrow ends a line there; the records behind it would be a part of the header.
                raise Unreadable(_RETURNS)
            return tuple(header.column_names)
        except (pa.ArrowException, ValueError) as error:
            if not self._is_closed(line):
                raise Unreadable(
                    f"its header cannot be read: a quote in it is not closed; {remedies.MULTILINE}"
                ) from error
            hint = f". {_NO_UTF8_HINT}" if self._dialect.encoding == UTF_8 and _is_no_utf8(line) else ""
            hint = f". {_RETURNS[0].upper()}{_RETURNS[1:]}" if _has_lone_return(line) else hint
            raise Unreadable(f"its header cannot be read: {error}{hint}") from error

    def _is_closed(self, line: bytes) -> bool:
        """Whether a record ends with this line, rather than inside a quoted field."""
        ends = self._quoted(np.frombuffer(line + b"\n", np.uint8), False) if b'"' in line else [len(line)]
        return len(ends) > 0 and int(ends[-1]) == len(line)

    def _with_nulls(self, table: pa.Table, text: memoryview | bytes, names: Sequence[str]) -> pa.Table:
        """The table, with empty fields of text columns null unless they are quoted."""
        texts = [name for name, kind in zip(table.column_names, table.schema.types) if _is_text(kind)]
        empty = [name for name in texts if pc.min(pc.binary_length(table.column(name))).as_py() == 0]
        if not empty:
            return table
        if b'""' in (data := bytes(text)):
            # Only the parser knows which fields are quoted, and it applies one rule for nulls to all columns it reads.
            # Without the newline it takes the last field for quoted if the previous one is.
            schema = pa.schema([table.schema.field(name) for name in empty])
            rule: dict[str, Any] = {
                "null_values": [""],
                "strings_can_be_null": True,
                "quoted_strings_can_be_null": False,
            }
            columns = self._parse(data + b"\n", names, schema, **rule).columns
        else:
            originals = [table.column(name) for name in empty]
            columns = [pc.if_else(pc.equal(pc.binary_length(column), 0), None, column) for column in originals]
        for name, column in zip(empty, columns):
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
        return table


def _read_csv(text: memoryview | bytes, **options: Any) -> pa.Table:
    """Read again if a signal interrupts it. On the main thread Arrow takes SIGINT and SIGTERM, gives up, and sends the
    signal on to its handler: that says nothing of the text."""
    while True:
        with suppress(pa.ArrowCancelled):
            return pyarrow.csv.read_csv(pa.BufferReader(text), **options)


def _with_decimals(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table, with its texts as decimals where ``schema`` has decimals."""
    for place, field in enumerate(schema):
        if pa.types.is_decimal128(field.type):
            texts = table.column(place).combine_chunks()
            texts = pc.ascii_trim(pc.if_else(pc.equal(texts, ""), None, texts), _TRIMMED)
            try:
                table = table.set_column(place, field, from_text(texts, field.type))
            except pa.ArrowInvalid as error:
                raise ValueError(mistyped(f"column {field.name!r}: {error}")) from error
    return table


def _wire(schema: pa.Schema) -> pa.Schema:
    """The types to parse: decimals as text, because Arrow does not notice when one overflows."""
    return pa.schema(
        [field.with_type(pa.string()) if pa.types.is_decimal128(field.type) else field for field in schema]
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    kinds = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _has_lone_return(text: memoryview | bytes) -> bool:
    """Whether a carriage return occurs without a newline after it; Arrow would end a line there."""
    if not (np.frombuffer(text, np.uint8) == _RETURN).any():
        return False
    data = bytes(text)
    return data.count(b"\r") != data.count(b"\r\n")


def _reason(text: str, names: Sequence[str]) -> str:
    named = _COLUMN.sub(lambda match: f"column {names[int(match[1])]!r}: ", text)
    reason = _ROW.sub("", named)
    if _NO_UTF8 in reason:
        return f"{reason}. {_NO_UTF8_HINT}"
    return mistyped(reason) if named != text else reason


def _twice(names: Sequence[str]) -> list[str]:
    """The names that a header has twice. Several columns without a name are no columns."""
    return [name for name in dict.fromkeys(names) if name and names.count(name) > 1]


def _is_padded(line: bytes) -> bool:
    """Whether zero bytes are around a text, or three in a row, which UTF-16 has for no character.

    >>> _is_padded(b"\\0\\0\\0ts,page"), _is_padded("ts,page".encode("utf-16-le"))
    (True, False)
    """
    return b"\0" not in line.strip(b"\0") or b"\0\0\0" in line


def _is_no_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False
