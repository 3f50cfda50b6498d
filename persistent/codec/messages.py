"""An Arrow message is checked before Arrow decodes it: only messages that we write are decoded at all.

    [ff ff ff ff][metadata length, 4 bytes][metadata: a flatbuffer][body: buffers one after the other]

Refused are compression, dictionaries, extension types, unions, views and run ends (with all of which a few bytes can
stand for many, or run code), lengths and counts beyond the available bytes, overlapping buffers, and offsets outside
the message. The rest is decoded as a view of the bytes and validated in full.

Source: the Arrow columnar format 1.5, files Message.fbs and Schema.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

FIELDS_MAX = 10_000
DEPTH_MAX = 64

_HEAD_BYTES = 8
_CONTINUATION = b"\xff\xff\xff\xff"
_VERSION_5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_EXTENSION = b"ARROW:extension"

_REFUSALS = (pa.ArrowException, OSError)
"""The errors that Arrow raises for an unreadable message."""

_ONE, _ANY = 1, -1
_KINDS: dict[int, tuple[int, int]] = {
    1: (0, 0),  # null
    2: (2, 0),  # int
    3: (2, 0),  # floating point
    4: (3, 0),  # binary
    5: (3, 0),  # string
    6: (2, 0),  # bool
    7: (2, 0),  # decimal
    8: (2, 0),  # date
    9: (2, 0),  # time
    10: (2, 0),  # timestamp
    11: (2, 0),  # interval
    12: (2, _ONE),  # list
    13: (1, _ANY),  # struct
    15: (2, 0),  # fixed size binary
    16: (1, _ONE),  # fixed size list
    17: (2, _ONE),  # map
    18: (2, 0),  # duration
    19: (3, 0),  # large binary
    20: (3, 0),  # large string
    21: (2, _ONE),  # large list
}
"""For each type that a file can hold: the numbers of its buffers and of its children."""


class Malformed(ValueError):
    """A message that our files never hold."""


@dataclass(frozen=True)
class BatchLayout:
    """The layout of every record batch of a schema. ``nodes``: for each column and its children, depth first, the
    number of buffers, and whether it is a column itself. ``textless``: the schema with bytes in place of text."""

    schema: pa.Schema
    textless: pa.Schema
    nodes: tuple[tuple[int, bool], ...]
    buffers: int


def read_schema(message: pa.Buffer) -> BatchLayout:
    """The schema in a message of its own. Malformed, or another ValueError, for a message that we did not write."""
    return _read_schema(bytes(message))


@lru_cache
def _read_schema(data: bytes) -> BatchLayout:
    """Likewise, cached: every run of a state has the same schema, which is checked once."""
    message = pa.py_buffer(data)
    header, body_size = _header(message, _SCHEMA)
    if body_size:
        raise Malformed("a schema with a body")
    if header.number("<h", 0):
        raise Malformed("a schema of big-endian numbers")
    _check_metadata(header, 2)
    nodes = tuple(_nodes(header, 1, 0))
    try:
        schema = pa.ipc.read_schema(message)
    except _REFUSALS as error:
        raise Malformed(f"Arrow refuses the schema: {error}") from error
    textless = pa.schema([pa.field(field.name, _textless(field.type)) for field in schema])
    return BatchLayout(schema, textless, nodes, sum(buffers for buffers, _ in nodes))


def read_batch(message: pa.Buffer, layout: BatchLayout, rows: int, *, with_texts: bool = True) -> pa.RecordBatch:
    """A record batch of ``rows`` rows, valid throughout. Malformed, or another ValueError, if we did not write it.

    ``with_texts``: also check that its texts are UTF-8, which not every source of ours guarantees.
    """
    header, body_size = _header(message, _RECORD_BATCH)
    if header.slot(3) or header.slot(4):
        raise Malformed("a record batch with compressed buffers or views")
    found = header.number("<q", 0)
    if found != rows:
        raise Malformed(f"{found} rows, but its index says {rows}")
    _check_nodes(header, layout, rows, body_size)
    _check_buffers(header, layout, body_size)
    try:
        batch = pa.ipc.read_record_batch(message, layout.schema)
        (batch if with_texts else pa.ipc.read_record_batch(message, layout.textless)).validate(full=True)
    except _REFUSALS as error:
        raise Malformed(f"Arrow refuses it: {error}") from error
    return batch


def _check_nodes(header: _FlatTable, layout: BatchLayout, rows: int, body_size: int) -> None:
    start, count = header.vector(1, 16)
    if count != len(layout.nodes):
        raise Malformed(f"{count} columns, but its schema has {len(layout.nodes)}")
    # A value takes at least one bit, or belongs to a column without bytes, which has at most ``rows`` values.
    length_max = max(rows, 8 * body_size)
    for number, (_, is_column) in enumerate(layout.nodes):
        length, nulls = header.read("<qq", start + 16 * number)
        if not 0 <= nulls <= length <= length_max or (is_column and length != rows):
            raise Malformed(f"a column of {length} values, {nulls} of them null, in {rows} rows of {body_size} bytes")


def _check_buffers(header: _FlatTable, layout: BatchLayout, body_size: int) -> None:
    start, count = header.vector(2, 16)
    if count != layout.buffers:
        raise Malformed(f"{count} buffers, but its schema has {layout.buffers}")
    reached = 0
    for number in range(count):
        offset, length = header.read("<qq", start + 16 * number)
        if not reached <= offset <= offset + length <= body_size or offset % 8:
            raise Malformed(f"a buffer of {length} bytes at {offset}, after {reached} of {body_size}")
        reached = offset + length


def _nodes(table: _FlatTable, field: int, depth: int) -> Iterator[tuple[int, bool]]:
    """The fields of a schema, or the children of a field, depth first."""
    for child in table.tables(field):
        if depth > DEPTH_MAX:
            raise Malformed(f"types are nested deeper than {DEPTH_MAX}")
        if child.slot(4):
            raise Malformed("a column with a dictionary")
        _check_metadata(child, 6)
        child.text(0).decode()  # UnicodeDecodeError if it is not a name
        kind = child.number("<B", 2)
        if kind not in _KINDS:
            raise Malformed(f"a column of type {kind}, which our files never have")
        (buffers, children), (_, found) = _KINDS[kind], child.vector(5, 4)
        if children not in (found, _ANY):
            raise Malformed(f"a column of type {kind} with {found} children")
        yield buffers, depth == 0
        yield from _nodes(child, 5, depth + 1)


def _textless(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.binary() if types.is_string(kind) else pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _textless(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_textless(kind.key_type), _textless(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_textless(kind.value_type), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return (pa.list_ if types.is_list(kind) else pa.large_list)(_textless(kind.value_type))
    return kind


def _check_metadata(table: _FlatTable, field: int) -> None:
    """Refuse extension types, which are named in metadata and decoded by code of their own."""
    for pair in table.tables(field):
        if pair.text(0).startswith(_EXTENSION):
            raise Malformed("a column of an extension type")


class _TablesLeft:
    """The number of flatbuffer tables that can still be read. Tables can be referenced repeatedly, so their bytes are
    no bound."""

    def __init__(self) -> None:
        self.left = FIELDS_MAX

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Malformed(f"more than {FIELDS_MAX} columns and pairs of metadata")


@dataclass(frozen=True)
class _FlatTable:
    """A table of a flatbuffer. Every position is checked before it is read."""

    data: bytes
    at: int
    budget: _TablesLeft

    def read(self, form: str, at: int) -> tuple[int, ...]:
        if not 0 <= at <= len(self.data) - struct.calcsize(form):
            raise Malformed("an offset outside the message")
        return struct.unpack_from(form, self.data, at)

    def slot(self, field: int) -> int:
        """The position of a field; 0 if it is omitted."""
        vtable = self.at - self.read("<i", self.at)[0]
        if 4 + 2 * field >= self.read("<H", vtable)[0]:
            return 0
        offset = self.read("<H", vtable + 4 + 2 * field)[0]
        return self.at + offset if offset else 0

    def number(self, form: str, field: int) -> int:
        """A number; 0 if it is omitted."""
        at = self.slot(field)
        return self.read(form, at)[0] if at else 0

    def table(self, field: int) -> _FlatTable:
        at = self.slot(field)
        if not at:
            raise Malformed("a message without its header")
        return _FlatTable(self.data, at + self.read("<I", at)[0], self.budget)

    def vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """The position of the items of a vector, and their number."""
        at = self.slot(field)
        if not at:
            return 0, 0
        start = at + self.read("<I", at)[0]
        (count,) = self.read("<I", start)
        if count * item_bytes > len(self.data) - start - 4:
            raise Malformed(f"a vector of {count} items, longer than the message")
        return start + 4, count

    def tables(self, field: int) -> Iterator[_FlatTable]:
        start, count = self.vector(field, 4)
        for at in range(start, start + 4 * count, 4):
            self.budget.spend()
            yield _FlatTable(self.data, at + self.read("<I", at)[0], self.budget)

    def text(self, field: int) -> bytes:
        start, count = self.vector(field, 1)
        return self.data[start : start + count]


def _header(message: pa.Buffer, kind: int) -> tuple[_FlatTable, int]:
    """The header of a message, and the size of its body."""
    head = message.slice(0, min(_HEAD_BYTES, message.size)).to_pybytes()
    size = int.from_bytes(head[4:], "little")
    if head[:4] != _CONTINUATION or _HEAD_BYTES + size > message.size:
        raise Malformed("not an Arrow message")
    data = message.slice(_HEAD_BYTES, size).to_pybytes()
    whole = _FlatTable(data, 0, _TablesLeft())
    root = _FlatTable(data, whole.read("<I", 0)[0], whole.budget)
    body_size = message.size - _HEAD_BYTES - size
    if root.number("<h", 0) != _VERSION_5 or root.number("<B", 1) != kind or root.vector(4, 4)[1]:
        raise Malformed("an Arrow message of the wrong kind")
    if root.number("<q", 3) != body_size:
        raise Malformed(f"a body of {root.number('<q', 3)} bytes, but {body_size} bytes follow")
    return root.table(2), body_size
