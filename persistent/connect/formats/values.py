"""A value format turns the bytes of messages into records. A value that it cannot decode costs only itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from persistent.connect import options
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.lines import Block
from persistent.connect.formats.schemas import empty_batch, unified
from persistent.connect.formats.text import without_row

MessageValue = bytes | None
"""The bytes of a message; None if it has no value, such as one that deletes its key from a compacted topic."""

_REASON_MAX = 300
NO_VALUE = "the message has no value"
_NOTHING: Mapping[str, Any] = {}
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_OF_A_FILE = re.compile(r": write each record .*")
"""The part of a reason that helps only if the values are lines of a file."""


@dataclass(frozen=True)
class Decoded:
    """The records of some values: ``batch`` row i is from value ``rows[i]``; ``dead``: the other values, each with the
    reason. ``ignored``: the fields that inferred columns lack."""

    batch: pa.RecordBatch
    rows: Sequence[int]
    dead: Sequence[tuple[int, str]] = ()
    ignored: frozenset[str] = frozenset()


class ValueFormat(Protocol):
    """How the values of messages are read. ``name``: recorded in the checkpoint."""

    name: str

    def fixed(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the checkpoint must hold in addition to the columns, so that values always decode the same.
        ``recorded``: what it already holds."""

    def columns(self, fixed: Mapping[str, Any]) -> pa.Schema | None:
        """The columns, if they are known without a value; otherwise None."""

    def infer(self, values: Sequence[MessageValue]) -> pa.Schema | None:
        """The columns of these values, None if no value defines them. ``Unreadable`` if they cannot be read at all."""

    def decode(self, values: Sequence[MessageValue], schema: pa.Schema, fixed: Mapping[str, Any]) -> Decoded:
        """The records of these values."""


@dataclass
class _SelfContained:
    """Values that need nothing but the columns to be decoded. ``infers``: fields that the columns lack are reported."""

    infers: bool = field(default=False, kw_only=True)

    def fixed(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def columns(self, fixed: Mapping[str, Any]) -> pa.Schema | None:
        return None


@dataclass
class RawValues(_SelfContained):
    """One column, ``value``: the bytes unchanged, null if a message has none."""

    name: str = "bytes"

    def infer(self, values: Sequence[MessageValue]) -> pa.Schema | None:
        return pa.schema([("value", pa.binary())])

    def decode(self, values: Sequence[MessageValue], schema: pa.Schema, fixed: Mapping[str, Any] = _NOTHING) -> Decoded:
        column = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
        return Decoded(pa.RecordBatch.from_arrays([column], schema=schema), range(len(values)))


@dataclass
class JsonValues(_SelfContained):
    """A JSON object in each value, with a column for each field, read like JSON lines."""

    name: str = "json"
    _lines: JsonLines = field(default_factory=JsonLines, repr=False)

    def infer(self, values: Sequence[MessageValue]) -> pa.Schema | None:
        block, _ = _block(values)
        numbers, bad = self._lines.sort(block)
        if len(numbers):
            return self._lines.infer(block[numbers], ())
        if bad:
            row, why = bad[0]
            raise Unreadable(_of_value(why, values[row]))
        return None

    def decode(self, values: Sequence[MessageValue], schema: pa.Schema, fixed: Mapping[str, Any] = _NOTHING) -> Decoded:
        block, dead = _block(values)
        numbers, bad = self._lines.sort(block)
        reasons = dict(bad) | dict(dead)
        lines = numbers if not dead else numbers[~np.isin(numbers, [number for number, _ in dead])]
        batches: list[pa.RecordBatch] = []
        rows: list[int] = []
        ignored = set[str]() if self.infers else None
        self._decode(block[lines], schema, batches, rows, reasons, ignored)
        decoded = set(rows)
        for number in range(len(values)):
            if number not in decoded:
                reasons.setdefault(number, "the value is empty")
        batch = pa.concat_batches(batches) if batches else empty_batch(schema)
        dead = [(row, _of_value(why, values[row])) for row, why in sorted(reasons.items())]
        return Decoded(batch, rows, dead, frozenset(ignored or ()))

    def _decode(
        self,
        lines: Block,
        schema: pa.Schema,
        batches: list[pa.RecordBatch],
        rows: list[int],
        reasons: dict[int, str],
        ignored: set[str] | None,
    ) -> None:
        if not len(lines):
            return
        try:
            batch = self._lines.decode(lines, (), schema, ignored)
            rounded = self._lines.rounded(lines, (), batch)
            reasons.update({int(lines.numbers[row]): why for row, why in rounded.items()})
            kept = np.setdiff1d(np.arange(len(lines)), [*rounded])
            batches.append(batch.take(pa.array(kept)) if rounded else batch)
            rows.extend(lines.numbers[kept].tolist())
        except (pa.ArrowException, ValueError) as error:
            if isinstance(error, MemoryError):
                raise
            if len(lines) == 1:
                reasons[int(lines.numbers[0])] = without_row(str(error).splitlines()[0])[:_REASON_MAX]
                return
            half = len(lines) // 2
            self._decode(lines[:half], schema, batches, rows, reasons, ignored)
            self._decode(lines[half:], schema, batches, rows, reasons, ignored)


_FORMATS: Mapping[str, type[RawValues] | type[JsonValues]] = {"json": JsonValues, "bytes": RawValues}


def value_format(name: str, *, infers: bool) -> RawValues | JsonValues:
    """The format of this name, an option of a source. InvalidPipeline if there is none."""
    options.require_choice("format", name, tuple(_FORMATS))
    return _FORMATS[name](infers=infers)


def _of_value(why: str, value: MessageValue) -> str:
    """The reason why a line is dead, in words for a value; with a hint for a value of a registry's serializer."""
    is_framed = value is not None and len(value) > 5 and value[0] == 0
    hint = ". It begins with a zero byte, as Avro with a schema registry does: give format=Avro(registry)"
    return _OF_A_FILE.sub("", why.replace("the line", "the value")) + (hint if is_framed else "")


def _block(values: Sequence[MessageValue]) -> tuple[Block, list[tuple[int, str]]]:
    """The values as lines, and those that cannot be lines, with the reason. A line break in JSON can only be a blank
    between tokens."""
    dead: list[tuple[int, str]] = []
    lines: list[bytes] = []
    for row, value in enumerate(values):
        line = value or b""
        if value is None:
            dead.append((row, NO_VALUE))
        elif b"\n" in value:
            line = value.replace(b"\n", b" ")
            if any(b"\n" in text for text in _TEXT.findall(value)):
                line = b""
                dead.append((row, "the value is not a JSON object: a text has a line break in it"))
        lines.append(line)
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    stops = np.cumsum(lengths + 1) - 1
    data = memoryview(b"\n".join([*lines, b""]))
    numbers: Any = np.arange(len(lines), dtype=np.int64)
    return Block(0, data, stops - lengths, stops, numbers, len(data)), dead


def widest(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all of these; where they disagree the first wins, but int64 yields to double."""
    first, *rest = schemas
    for schema in rest:
        first = unified(first, schema)
    return first
