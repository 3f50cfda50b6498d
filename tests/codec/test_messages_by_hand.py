"""Messages written by hand: what Arrow's own writer never writes, and another program might."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from persistent.codec.messages import Malformed, read_batch, read_schema

INTEGERS = read_schema(pa.schema([("x", pa.int64())]).serialize())


def flatbuffer(tables: bytes, body_size: int = 0) -> bytes:
    return b"\xff\xff\xff\xff" + struct.pack("<I", len(tables)) + tables + b"\x00" * body_size


def message_of(header: bytes, kind: int = 1, body_size: int = 0, header_slot: bool = True) -> bytes:
    """A message written by hand: root, its vtable and table, then the header, which begins with its own vtable."""
    vtable = struct.pack("<HHHHHH", 12, 24, 4, 6, 8 if header_slot else 0, 16)
    table = struct.pack("<iHBxIxxxxq", 12, 4, kind, 0, body_size)
    at = 4 + len(vtable)
    header_at = 4 + len(vtable) + len(table)
    (vtable_size,) = struct.unpack_from("<H", header)
    table = table[:8] + struct.pack("<I", header_at + vtable_size - (at + 8)) + table[12:]
    return flatbuffer(struct.pack("<I", at) + vtable + table + header, body_size)


EMPTY = struct.pack("<HHi", 4, 4, 4)
"""A table without fields."""


def test_messages_written_by_hand() -> None:
    """What Arrow's own writer never writes: the checks behind it would never be seen to work."""
    with pytest.raises(Malformed, match=r"Arrow refuses the schema.*null field Schema\.fields"):
        read_schema(pa.py_buffer(message_of(EMPTY)))
    with pytest.raises(Malformed, match="without its header"):
        read_schema(pa.py_buffer(message_of(EMPTY, header_slot=False)))
    with pytest.raises(Malformed, match="a schema with a body"):
        read_schema(pa.py_buffer(message_of(EMPTY, body_size=8)))
    big_endian = struct.pack("<HHHiHxx", 6, 8, 4, 6, 1)
    with pytest.raises(Malformed, match="big-endian"):
        read_schema(pa.py_buffer(message_of(big_endian)))
    long_vector = struct.pack("<HHHHiII", 8, 8, 0, 4, 8, 4, 1 << 30)
    with pytest.raises(Malformed, match="a vector of 1073741824 items"):
        read_schema(pa.py_buffer(message_of(long_vector)))
    # One field, whose children it is itself said to have: a list of two.
    with pytest.raises(Malformed, match="a body of 0 bytes, but 8 bytes follow"):
        read_schema(pa.py_buffer(message_of(EMPTY) + b"\x00" * 8))


def table_of(*slots: bytes) -> bytes:
    """A table with these fields, empty ones left out, behind its vtable."""
    size, offsets = 4, []
    for slot in slots:
        offsets.append(size if slot else 0)
        size += len(slot)
    vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *offsets)
    return vtable + struct.pack("<i", len(vtable)) + b"".join(slots)


def test_columns_may_share_what_describes_them() -> None:
    """A table may be named any number of times: what is read of it is bounded by the names, not by its bytes."""
    children = 100
    text = struct.pack("<I4s", 1, b"a")

    def field(kind: int, children_at: int) -> bytes:
        """Of this type; its name follows, then its type, then its children."""
        slots = [struct.pack("<I", 16), b"", struct.pack("<Bxxx", kind), struct.pack("<I", 20), b""]
        return table_of(*slots, struct.pack("<I", children_at)) + text + EMPTY

    child = field(1, 20) + struct.pack("<I", 0)
    names = struct.pack(f"<{1 + children}I", children, *(4 * (children - n) + 16 for n in range(children)))
    schema = table_of(b"", struct.pack("<I", 4)) + struct.pack("<II", 1, 20) + field(13, 20) + names + child
    layout = read_schema(pa.py_buffer(message_of(schema)))
    (struct_type,) = layout.schema.types
    assert [(inner.name, inner.type) for inner in struct_type] == [("a", pa.null())] * children
    assert layout.nodes == ((1, True), *[(0, False)] * children)


def test_a_field_half_in_its_vtable_is_looked_at() -> None:
    """As Arrow does: what it would read must not be skipped here."""
    header = struct.pack("<HHHHHHB", 13, 8, 0, 0, 0, 0, 4) + struct.pack("<iI", 13, 0)
    with pytest.raises(Malformed, match="compressed buffers or views"):
        read_batch(pa.py_buffer(message_of(header, 3)), INTEGERS, 0)


def test_a_message_may_end_with_any_of_its_vectors() -> None:
    """Arrow writes them in an order of its own, and another writer in another."""
    # The rows, then where the nodes are and where the buffers, counted from the place that says so.
    table = table_of(struct.pack("<q", 3), struct.pack("<I", 12), struct.pack("<I", 32), b"")
    nodes = struct.pack("<4xIqq", 1, 3, 0)
    buffers = struct.pack("<4xIqqqq", 2, 0, 0, 0, 24)
    found = read_batch(pa.py_buffer(message_of(table + nodes + buffers, 3, body_size=24)), INTEGERS, 3)
    assert found.to_pydict() == {"x": [0, 0, 0]}


@pytest.mark.parametrize(("number", "says"), [(3, "compressed buffers or views"), (4, "compressed buffers or views")])
def test_a_batch_with_compression_or_views_is_refused_by_hand(number: int, says: str) -> None:
    """Also where it names them and has none."""
    slots = [b"", b"", b"", b"", b""]
    slots[number] = b"\x00" * 4
    with pytest.raises(Malformed, match=says):
        read_batch(pa.py_buffer(message_of(table_of(*slots), 3)), INTEGERS, 0)


@pytest.mark.parametrize(("length", "says"), [(1, "Arrow refuses the schema"), (2, "a vector of 2 items")])
def test_a_name_ends_with_the_message(length: int, says: str) -> None:
    """Cut short without a word, a column would have the name of another."""
    slots = [struct.pack("<I", 28), b"", struct.pack("<Bxxx", 1), struct.pack("<I", 12), b"", struct.pack("<I", 12)]
    field = table_of(*slots) + EMPTY + struct.pack("<I", 0) + struct.pack("<I", length) + b"a"
    schema = table_of(b"", struct.pack("<I", 4)) + struct.pack("<II", 1, 20) + field
    with pytest.raises(Malformed, match=says):
        read_schema(pa.py_buffer(message_of(schema)))


def test_a_list_longer_than_its_message_is_refused_before_it_is_read() -> None:
    """By a little, or by a gigabyte: the message says which list it is."""
    for count in (16, 30, 1 << 30):
        schema = table_of(b"", struct.pack("<I", 4)) + struct.pack("<I", count) + b"\x00" * 60
        with pytest.raises(Malformed, match=f"a vector of {count} items, longer than the message"):
            read_schema(pa.py_buffer(message_of(schema)))


def test_metadata_may_end_a_message_and_is_refused() -> None:
    """Arrow would hand it on unread."""
    root = table_of(struct.pack("<hxx", 4), struct.pack("<Bxxx", 1), b"\x00" * 4, b"", struct.pack("<I", 4))
    message = flatbuffer(struct.pack("<I", 4 + 14) + root + struct.pack("<II", 1, 0))
    with pytest.raises(Malformed, match="an Arrow message of the wrong kind"):
        read_schema(pa.py_buffer(message))
