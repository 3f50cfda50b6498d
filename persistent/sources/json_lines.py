"""JSON lines are one object a line. A field that the schema does not name is ignored; a missing one is null."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.json

from monoids.groupby.sorting import Integers
from persistent.errors import SourceError
from persistent.sources.formats import InputFile
from persistent.sources.lines import Block, LineEnds, ends_of_lines
from persistent.sources.reader import Unreadable
from persistent.sources.schemas import timeless, unified
from persistent.sources.text import mistyped

_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_MISTYPED = re.compile(r"Failed to convert JSON|changed from")
_BLANKS = b" \t\r\n"
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
        for number in np.flatnonzero(~objects).tolist():
            line = bytes(block.data[block.starts[number] : block.stops[number]]).strip(_BLANKS)
            if line.startswith(b"{") and line.endswith(b"}"):
                objects[number] = True
            elif line:
                bad.append((number, _no_object(line)))
        return np.flatnonzero(objects), bad

    def padded(self, lines: Block, names: Sequence[str]) -> dict[str, str]:
        """JSON has no number that begins with a zero."""
        return {}

    def infer(self, lines: Block, names: Sequence[str]) -> pa.Schema:
        _require_shallow(lines)
        try:
            return timeless(_inferred(lines))
        except UnicodeDecodeError as error:
            raise Unreadable(f"its columns cannot be inferred: a field name is not UTF-8 ({error})") from error

    def decode(self, lines: Block, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
        try:
            table = _parse(lines.text(), _wire(schema))
        except pa.ArrowInvalid as error:
            if len(lines) > 1 or not _MISTYPED.search(str(error)):
                raise
            raise ValueError(mistyped(_with_column(str(error), lines.text(), _wire(schema)))) from error
        if table.num_rows != len(lines):
            raise ValueError("the line is not one JSON object")
        table.validate(full=True)
        return _typed(table, schema)

    def require_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                _typed(_parse(b"{}", _wire(pa.schema([field]))), pa.schema([field]))
            except pa.ArrowException as error:
                raise SourceError(
                    f"JSON lines cannot give column {field.name!r} of type {field.type} ({error}); give schema= "
                    "with another"
                ) from error

    def misfit(self, names: Sequence[str], schema: pa.Schema) -> str | None:
        return None


def _parse(text: memoryview | bytes, schema: pa.Schema | None) -> pa.Table:
    return pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


def _with_column(message: str, text: memoryview | bytes, schema: pa.Schema) -> str:
    """The parser's message about a line, with the column if the message does not name it."""
    if "Column(" in message:
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


def _wire(schema: pa.Schema) -> pa.Schema:
    """The types to parse: dates as strings, because Arrow's JSON reader does not convert them."""
    for place, field in enumerate(schema):
        if pa.types.is_date(field.type):
            schema = schema.set(place, pa.field(field.name, pa.string()))
    return schema


def _typed(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = [table.column(field.name) for field in schema]
    cast = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema)]
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in cast], schema=schema)


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


def _no_object(line: bytes) -> str:
    """Why a line is no record, and what may have been meant.

    >>> _no_object(b"[1]")
    "the line is not a JSON object, but a list: write each record in a line of its own, for example with jq -c '.[]'"
    """
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
        return unified(_inferred(lines[:half]), _inferred(lines[half:]))
