"""CSV has a line of column names, then one record a line. Columns that the schema does not name are ignored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from monoids.groupby.sorting import Integers
from persistent.errors import SourceError
from persistent.sources import remedies
from persistent.sources.csv_dialect import USUAL, UTF_8, CsvDialect
from persistent.sources.formats import TO_THE_END, InputFile
from persistent.sources.lines import (
    BYTE_ORDER_MARK,
    Block,
    LineEnds,
    blocks,
    ends_of_lines,
    ends_outside_quotes,
    open_text,
)
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import timeless
from persistent.sources.text import mistyped
from persistent.sources.timestamps import misread

_HEADER_BYTES = 64 * 1024
_RETURN = 13
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_MISTYPED = "CSV conversion error"
_PADDED = r'(?m)(?:^|[%s"])[+-]?0[0-9]'
_PADDED_FIELD = "^[+-]?0[0-9]"
_NO_UTF8 = "invalid UTF8 data"
_NO_UTF8_HINT = f"A CSV file is UTF-8: {remedies.ENCODING}write it so, as with iconv -t UTF-8"
_MARKS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ROW = re.compile(r"Row #\d+: ")
_UNPAIRED = (
    "the line is not one record: a quote in it is not closed, or there is a carriage return in it; "
    f"{remedies.MULTILINE}"
)


class CsvLines:
    """Fields are separated by the delimiter and may be quoted. ``multiline``: a quoted field may contain line breaks.

    An empty field is null, and no other is. In a string column a quoted field is text: ``""`` is the empty string.
    ``empty_is_text``: an unquoted empty field is the empty string too, and in other columns the texts that Arrow takes
    for null (``NA``, ``null``, ``nan`` and others) are null. Times in inferred columns stay strings.
    """

    def __init__(self, multiline: bool, empty_is_text: bool = False, dialect: CsvDialect = USUAL) -> None:
        self.scattered = not multiline
        self._dialect = dialect
        self._quoted = partial(ends_outside_quotes, delimiter=dialect.delimiter)
        self._padded = re.compile((_PADDED % re.escape(dialect.delimiter)).encode())
        self._empty_is_text = empty_is_text
        self._nulls: dict[str, Any] = {} if empty_is_text else {"null_values": [""]}
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
        return timeless(self._parse(self._text(lines, "replace"), names, None, **self._nulls).schema)

    def padded(self, lines: Block, names: Sequence[str]) -> dict[str, str]:
        if self._padded.search(bytes(lines.text())) is None:
            return {}
        whole = [field.name for field in self.infer(lines, names) if pa.types.is_integer(field.type)]
        if not whole:
            return {}
        given = pa.schema([(name, pa.string()) for name in whole])
        texts = self._parse(self._text(lines, "replace"), names, given, skips=True)
        found = {}
        for name, column in zip(texts.column_names, texts.columns):
            found[name] = column.filter(pc.match_substring_regex(column, _PADDED_FIELD))
        return {name: str(column[0]) for name, column in found.items() if len(column)}

    def decode(self, lines: Block, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
        text = self._text(lines)
        if len(lines) > 1 and _has_lone_return(text):
            raise ValueError(_UNPAIRED)
        try:
            table = self._parse(text, names, schema, **self._nulls)
            if not self._empty_is_text:
                table = self._with_nulls(table, text, names)
        except pa.ArrowInvalid as error:
            raise ValueError(_reason(str(error), names)) from error
        if table.num_rows != len(lines) or not self._is_closed(lines.line(-1)):
            raise ValueError(_UNPAIRED)
        return pa.RecordBatch.from_arrays([c.combine_chunks() for c in table.columns], schema=schema)

    def require_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                self._parse(b'""\n', (field.name,), pa.schema([field]))
            except pa.ArrowException as error:
                raise SourceError(
                    f"CSV cannot give column {field.name!r} of type {field.type} ({error}); give schema= with another"
                ) from error

    def misfit(self, names: Sequence[str], schema: pa.Schema) -> str | None:
        missing = [repr(name) for name in schema.names if name not in names]
        if not missing:
            return None
        hint = misread(names, self._dialect.delimiter)
        return f"its header has no column {' nor '.join(missing)}; it reads {', '.join(names)}{hint and f'. {hint}'}"

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
        """The columns of the schema; without one, all columns as inferred. ``skips``, and without a schema: lines with
        another number of fields are left out."""
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
            raise Unreadable("it seems to be UTF-16: write it as UTF-8, as with iconv -f UTF-16 -t UTF-8")
        if beginning == BYTE_ORDER_MARK and self._dialect.encoding != UTF_8:
            raise Unreadable(f"it begins with the mark of UTF-8: omit encoding={self._dialect.encoding!r}")
        options = pyarrow.csv.ParseOptions(delimiter=self._dialect.delimiter)
        try:
            text = bytes(self._dialect.utf8(line)) + b"\n"
            names = tuple(_read_csv(text, parse_options=options).column_names)
        except (pa.ArrowException, ValueError) as error:
            hint = f". {_NO_UTF8_HINT}" if self._dialect.encoding == UTF_8 and _is_no_utf8(line) else ""
            raise Unreadable(f"its header cannot be read: {error}{hint}") from error
        twice = [repr(name) for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise Unreadable(f"its header names {', '.join(twice)} twice")
        return names

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
            told = pa.schema([table.schema.field(name) for name in empty])
            rule: dict[str, Any] = {
                "null_values": [""],
                "strings_can_be_null": True,
                "quoted_strings_can_be_null": False,
            }
            columns = self._parse(data + b"\n", names, told, **rule).columns
        else:
            found = [table.column(name) for name in empty]
            columns = [pc.if_else(pc.equal(pc.binary_length(column), 0), None, column) for column in found]
        for name, column in zip(empty, columns):
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
        return table


def _read_csv(text: memoryview | bytes, **options: Any) -> pa.Table:
    """Read again if a signal interrupts it. On the main thread Arrow takes SIGINT and SIGTERM, gives up, and sends the
    signal on to its handler: that says nothing of the text."""
    while True:
        with suppress(pa.ArrowCancelled):
            return pyarrow.csv.read_csv(pa.BufferReader(text), **options)


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
    return mistyped(reason) if _MISTYPED in reason else reason


def _is_no_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False
