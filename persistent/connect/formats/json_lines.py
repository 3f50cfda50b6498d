"""JSON lines are one object a line. A field that the schema does not name is ignored; a missing one is null."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import MIN_ETINY, Decimal, InvalidOperation
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from monoids.arrays import exact_decimals
from monoids.groupby.sorting import Integers
from persistent.codec.decimals import is_exact
from persistent.connect import remedies
from persistent.connect.files.layout import of_folder_too
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats import schemas
from persistent.connect.formats.lines import Block, LineEnds, ends_of_lines
from persistent.connect.formats.protocol import InputFile
from persistent.connect.formats.text import mistyped
from persistent.errors import SourceError

_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_MANY = 10_000  # From so many lines on, a search in all lines at once is faster.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_LONG_INTEGER = re.compile(rb"[:,\[\s-][0-9]{16,}+(?![.eE])")
_MISTYPED = re.compile(r"Failed to convert JSON|changed from|decimal|^column ")
_TOO_BIG = "Number too big to be stored"
_NOT_NULL = re.compile(r"Column\(/(.*)\) changed from null to ")
_COLUMN = re.compile(r"Column\(/([^/)]*)")
_SHAPES = bytes.maketrans(b"E123456789", b"e000000000")
_MINUTE_SHAPES = (b"e-00", b"0" * 30 + b"e-0")
_MINUTE = rb"[eE]-0*[1-9][0-9]|[0-9]{30}[eE]-"
"""Exponents of numbers that can have more than 38 digits behind the point."""
_HUGE_SHAPES = (b"0e0", b"0e+0")
_HUGE = rb'[:,\[\s"-][0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]+(?=[,}\]\s"])'
"""A number with a positive exponent."""
_WIDE_DIGITS = 76
_TOO_DEEP, _UNEXPECTED = "and the line is nested too deep to tell", "unexpected field"
_NAMELESS = "(a field that cannot be named)"
_BLANKS = b" \t\r\n"
_LEAST = Decimal((0, (1,), MIN_ETINY))
_DEPTH_MAX = 60
"""A dead letter wraps a record in a few more levels, and no file of a checkpoint has more than 64."""


class JsonLines:
    """Times in inferred columns stay strings, so that no later file disagrees about their precision."""

    def __init__(self) -> None:
        self.scattered = True
        self.line_ends: LineEnds = ends_of_lines

    def header(self, file: InputFile) -> tuple[tuple[str, ...], int]:
        return (), 0

    def sort(self, block: Block) -> tuple[Integers, list[tuple[int, str]]]:
        text = np.frombuffer(block.data, np.uint8)
        if not len(block.starts):
            return block.starts, []
        first = text[np.minimum(block.starts, len(text) - 1)]
        last = text[np.maximum(block.stops - 1, 0)]
        objects = (first == _OPEN) & (last == _CLOSE) & (block.stops > block.starts)
        bad = []
        for number in (~objects).nonzero()[0].tolist():
            line = bytes(block.data[block.starts[number] : block.stops[number]]).strip(_BLANKS)
            if line.startswith(b"{") and line.endswith(b"}"):
                objects[number] = True
            elif line:
                bad.append((number, _no_object(line)))
        return objects.nonzero()[0], bad

    def padded(self, lines: Block, names: Sequence[str]) -> dict[str, str]:
        """JSON has no number that begins with a zero."""
        return {}

    def infer(self, lines: Block, names: Sequence[str]) -> pa.Schema:
        _require_shallow(lines)
        try:
            return schemas.timeless(_inferred(lines))
        except UnicodeDecodeError as error:
            raise Unreadable(f"its columns cannot be inferred: a field name is not UTF-8 ({error})") from error

    def decode(
        self,
        lines: Block,
        names: Sequence[str],
        schema: pa.Schema,
        ignored: set[str] | None = None,
        of_folders: tuple[str, ...] = (),
    ) -> pa.RecordBatch:
        try:
            table = _parse_noting(lines, _wire(schema, of_folders), ignored)
            if table.num_rows != len(lines):
                raise ValueError("the line is not one JSON object")
            batch = _typed(table, schema)
            batch.validate(full=True)
        except ValueError as error:
            if len(lines) > 1:
                raise
            raise ValueError(_reason(str(error), lines, schema, of_folders)) from error
        return batch

    def rounded(self, lines: Block, names: Sequence[str], decoded: pa.RecordBatch) -> dict[int, str]:
        reasons = _misread(lines, decoded.schema)
        for name, rows in schemas.large_rows(decoded).items():
            for row in (rows if len(rows) < _MANY else np.intersect1d(rows, _with_long_integers(lines))).tolist():
                line = lines.line(row)
                if _LONG_INTEGER.search(line) and (why := _why_rounded(line, decoded.schema.field(name))):
                    reasons[row] = why
        return reasons

    def require_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                _typed(_parse(b"{}", _wire(pa.schema([field]))), pa.schema([field]))
            except pa.ArrowException as error:
                raise SourceError(
                    f"JSON lines cannot give column {field.name!r} of type {field.type} ({error}); give schema= "
                    "with another"
                ) from error

    def misfit(self, names: Sequence[str], schema: pa.Schema | None) -> str | None:
        return None


def _parse_noting(lines: Block, schema: pa.Schema, ignored: set[str] | None) -> pa.Table:
    """The columns of the schema, among others. A second parse is needed only if a field has no column."""
    text = lines.text()
    if ignored is None:
        return _parse(text, schema)
    try:
        return _parse(text, schema, "error")
    except pa.ArrowInvalid as error:
        if _UNEXPECTED not in str(error):
            raise
    try:
        _require_shallow(lines)
        table = _parse(text, schema, "infer")
        ignored.update(_additional(table.schema, schema))
        return table
    except (pa.ArrowInvalid, UnicodeDecodeError, Unreadable) as error:
        # Values of other fields are no fault of a record.
        field = _COLUMN.search(str(error))
        name = field[1] if field else _NAMELESS
        table = _parse(text, schema)
        ignored.update({name} - {*schema.names})
        return table


def _additional(have: Iterable[pa.Field], want: Iterable[pa.Field]) -> Iterator[str]:
    """The names of the fields that only ``have`` has, also within its fields and within list items.

    >>> of_list = pa.schema({"l": pa.list_(pa.struct({"a": pa.int64(), "b": pa.int64()})), "c": pa.int64()})
    >>> list(_additional(of_list, pa.schema({"l": pa.list_(pa.struct({"a": pa.int64()}))})))
    ['l.b', 'c']
    """
    known = {field.name: _innermost(field.type) for field in want}
    for field in have:
        kind = _innermost(field.type)
        if field.name not in known:
            yield field.name
        elif pa.types.is_struct(kind):
            yield from (f"{field.name}.{name}" for name in _additional(kind, known[field.name]))


def _innermost(kind: pa.DataType) -> pa.DataType:
    return _innermost(kind.value_type) if pa.types.is_list(kind) else kind


def _parse(text: memoryview | bytes, schema: pa.Schema | None, unexpected: str = "ignore") -> pa.Table:
    return pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else unexpected
        ),
    )


def _reason(message: str, line: Block, schema: pa.Schema, of_folders: Sequence[str]) -> str:
    """Why a line is no record, from the parser's message about it."""
    if (field := _NOT_NULL.search(message)) and field[1] in of_folders:
        return of_folder_too([field[1]])
    if _TOO_BIG in message:
        record = _record(line.line(0), _number) or {}
        where = "".join(f"column {name!r}: " for name, value in record.items() if _is_too_big(value))
        return f"{where}{_TOO_BIG} in double: write it as text, in quotes, and {remedies.COLUMNS}, this one 'string'"
    if not _MISTYPED.search(message):
        return message
    return _why_misfit(line.line(0), list(schema)) or mistyped(_with_column(message, line.text(), _wire(schema)))


def _is_too_big(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_too_big, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal) and math.isinf(float(value))


def _with_column(message: str, text: memoryview | bytes, schema: pa.Schema) -> str:
    """The parser's message about a line, with the column if the message does not name it."""
    if "Column(" in message or message.startswith("column "):
        return message
    fields = list(schema)
    while len(fields) > 1:
        half = fields[: len(fields) // 2]
        fields = half if _fails(text, pa.schema(half)) else fields[len(half) :]
    return f"column {fields[0].name!r}: {message}"


def _fails(text: memoryview | bytes, schema: pa.Schema) -> bool:
    try:
        _parse(text, schema)
    except pa.ArrowInvalid:
        return True
    return False


@lru_cache
def _wire(schema: pa.Schema, of_folders: tuple[str, ...] = ()) -> pa.Schema:
    """The types to parse: dates as strings, because Arrow's JSON reader does not convert them, and decimals of 256
    bits, because it does not notice when a value overflows 128. A field ``of_folders`` can only be null."""
    columns = [pa.field(field.name, _wide(field.type)) for field in schema]
    return pa.schema([*columns, *(pa.field(name, pa.null()) for name in of_folders)])


def _wide(kind: pa.DataType, top: bool = True) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_wide(kind.value_type, False))
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _wide(child.type, False)) for child in kind])
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    return pa.string() if top and pa.types.is_date(kind) else kind


def _typed(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_cast(table.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        if pa.types.is_decimal(field.type):
            return exact_decimals(column, field.type)
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {field.name!r}: {error}") from error


def _require_shallow(lines: Block) -> None:
    """``Unreadable`` if fields of a line are nested too deeply: Arrow's parser would need a stack that deep."""
    text = np.frombuffer(lines.data, np.uint8)
    brackets = np.flatnonzero((text == _OPEN) | (text == _OPEN_LIST))
    counts = np.searchsorted(brackets, lines.stops) - np.searchsorted(brackets, lines.starts)
    for place in np.flatnonzero(counts > _DEPTH_MAX).tolist():
        depth = _depth(lines.line(place))
        if depth > _DEPTH_MAX:
            raise Unreadable(
                f"its columns cannot be inferred: the line at byte {int(lines.offsets[place]):,} is nested {depth:,} "
                f"levels deep, the limit is {_DEPTH_MAX}"
            )


def _depth(line: bytes) -> int:
    """How deep objects and lists are nested.

    >>> _depth(b'{"a":[1,[2]],"[[[[":"[[[["}')
    3
    """
    text = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    opened, closed = (text == _OPEN) | (text == _OPEN_LIST), (text == _CLOSE) | (text == _CLOSE_LIST)
    return int((np.cumsum(opened, dtype=np.int64) - np.cumsum(closed, dtype=np.int64)).max(initial=0))


def _with_long_integers(lines: Block) -> Integers:
    """The lines with an integer of 16 digits or more, without a fraction or an exponent."""
    places = [at.start() for at in _LONG_INTEGER.finditer(lines.data)]
    return np.unique(np.searchsorted(lines.starts, places, "right") - 1)


def _why_rounded(line: bytes, column: pa.Field) -> str | None:
    """Why a line is no record, if one of its integers is rounded in a column."""
    if (record := _record(line, float)) is None:
        return f"column {column.name!r} may have rounded an integer, {_TOO_DEEP}"
    doubles = (value for value, field in _leaves(record.get(column.name), column) if schemas.is_inferred_double(field))
    integers = (value for value in doubles if isinstance(value, Decimal))
    return next(
        (schemas.why_rounded(column.name, integer) for integer in integers if schemas.is_rounded(integer)), None
    )


def _misread(lines: Block, schema: pa.Schema) -> dict[int, str]:
    """The lines with a number that Arrow may read as any other one: with digits too far behind the point for its type
    of decimals, or with more before it than 256 bits hold."""
    declared = [field for field in schema if _scale(field.type) is not None]
    if not declared:
        return {}
    text = bytes(lines.data)
    shapes = text.translate(_SHAPES)
    digits = max(1, _WIDE_DIGITS + 1 - max(_scale(field.type) or 0 for field in declared))
    long = b"0" * digits
    if not any(mark in shapes for mark in (*_MINUTE_SHAPES, *_HUGE_SHAPES, long)):
        return {}
    risky = re.compile(b"%b|%b|[0-9]{%d}" % (_MINUTE, _HUGE, digits))
    places = np.searchsorted(lines.starts, [at.start() for at in risky.finditer(text)], "right") - 1
    reasons = {row: _why_misfit(lines.line(row), declared) for row in np.unique(places[places >= 0]).tolist()}
    return {row: why for row, why in reasons.items() if why}


def _why_misfit(line: bytes, columns: Sequence[pa.Field]) -> str | None:
    """Why a line is no record, if one of its numbers is no value of a decimal type."""
    if (record := _record(line, _number)) is None:
        return f"a decimal may have been misread, {_TOO_DEEP}"
    for column in columns:
        for value, field in _leaves(record.get(column.name), column):
            if pa.types.is_decimal(field.type) and not is_exact(str(value), field.type):
                return mistyped(f"column {column.name!r}: {value!s:.60} is no value of type {field.type}")
    return None


@cache
def _scale(kind: pa.DataType) -> int | None:
    """The largest scale of the decimals in a column; None if it has none."""
    if pa.types.is_list(kind):
        return _scale(kind.value_type)
    if pa.types.is_struct(kind):
        return max((scale for field in kind if (scale := _scale(field.type)) is not None), default=None)
    return kind.scale if pa.types.is_decimal(kind) else None


def _record(line: bytes, parse_float: Callable[[str], Any]) -> Any:
    """A line as Python reads it, with its integers as decimals; None if it is nested too deep."""
    if line.count(b"{") + line.count(b"[") > _DEPTH_MAX and _depth(line) > _DEPTH_MAX:
        return None
    reads = json.JSONDecoder(parse_int=Decimal, parse_float=parse_float, strict=False)
    return reads.decode(line.decode(errors="replace"))


def _number(text: str) -> Decimal:
    """A number, exactly; one with an exponent beyond Python's is infinite, or as small as can be.

    >>> _number("1.50"), _number("-1e99999999999999999999"), _number("0e99999999999999999999")
    (Decimal('1.50'), Decimal('-Infinity'), Decimal('0'))
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        value, is_zero = float(text), not text.lower().partition("e")[0].strip("-.0")
        return Decimal(value) if value or is_zero else _LEAST


def _leaves(value: Any, field: pa.Field) -> Iterator[tuple[Any, pa.Field]]:
    """The values in a column, without the objects and lists of its type around them, with their fields."""
    if isinstance(value, dict) and pa.types.is_struct(field.type):
        for child in field.type:
            yield from _leaves(value.get(child.name), child)
    elif isinstance(value, list) and pa.types.is_list(field.type):
        for item in value:
            yield from _leaves(item, field.type.value_field)
    elif value is not None:
        yield value, field


def _no_object(line: bytes) -> str:
    """Why a line is no record, and what may have been meant.

    >>> _no_object(b"[1]")
    "the line is not a JSON object, but a list: write each record in a line of its own, for example with jq -c '.[]'"
    """
    if b"\0" in line:
        return (
            "the line is not a JSON object: it has zero bytes, as text in UTF-16 has (iconv -f UTF-16 -t UTF-8), or a "
            "log that was cut while it was written (tr -d '\\000')"
        )
    if line.startswith(b"["):
        return (
            "the line is not a JSON object, but a list: write each record in a line of its own, for example with "
            "jq -c '.[]'"
        )
    if line.startswith(b"{"):
        return "the line is not a JSON object, but the beginning of one: write each record in one line (jq -c)"
    return "the line is not a JSON object"


def _inferred(lines: Block) -> pa.Schema:
    """The columns of all lines that can be parsed. Where lines disagree the first wins, but int64 yields to double."""
    try:
        return _parse(lines.text(), None).schema
    except (pa.ArrowException, ValueError):
        if len(lines) == 1:
            return pa.schema([])
        half = len(lines) // 2
        return schemas.unified(_inferred(lines[:half]), _inferred(lines[half:]))
