"""Arrow decodes only what we write: nothing that stands for more than it is, or runs code."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent.codec import messages
from persistent.codec.messages import Malformed, read_batch, read_schema
from tests.few import examples

KINDS = {
    "ints": pa.array([1, None, 3], pa.int32()),
    "floats": pa.array([1.5, None, 3.0]),
    "text": pa.array(["a", None, "é"]),
    "bytes": pa.array([b"a", None, b""]),
    "large": pa.array(["a", None, "é"], pa.large_string()),
    "large bytes": pa.array([b"a", None, b""], pa.large_binary()),
    "flags": pa.array([True, None, False]),
    "decimals": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("0.01")]),
    "days": pa.array([1, None, 3], pa.date32()),
    "times": pa.array([1, None, 3], pa.time64("us")),
    "instants": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
    "durations": pa.array([1, None, 3], pa.duration("ms")),
    "months": pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "nothing": pa.nulls(3),
    "lists": pa.array([[1], None, [2, 3]]),
    "large lists": pa.array([[1], None, [2, 3]], pa.large_list(pa.int64())),
    "pairs": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    "maps": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "structs": pa.array([{"a": [{"b": 1}]}, None, {"a": []}]),
}


def parts(batch: pa.RecordBatch) -> tuple[bytes, bytes]:
    return batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()


def read(schema: bytes, batch: bytes, rows: int) -> pa.RecordBatch:
    return read_batch(pa.py_buffer(batch), read_schema(pa.py_buffer(schema)), rows)


def batch_of(array: pa.Array, name: str = "x") -> pa.RecordBatch:
    return pa.record_batch([array], [name])


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_write_is_read(kind: str) -> None:
    """A bound that is too narrow makes a checkpoint unreadable that was committed."""
    batch = pa.record_batch([KINDS[kind], KINDS["ints"]], ["a", "b"])
    assert read(*parts(batch), 3) == batch
    none = batch.slice(0, 0)
    assert read(*parts(none), 0) == none
    layout = read_schema(pa.py_buffer(parts(batch)[0]))
    assert read_batch(pa.py_buffer(parts(batch)[1]), layout, 3, with_texts=False) == batch


def test_what_bears_harmless_metadata_is_read() -> None:
    """Columns that came from Parquet carry the number of their field."""
    field = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"})
    batch = pa.record_batch([pa.array([1])], schema=pa.schema([field], metadata={"pandas": "{}"}))
    assert read(*parts(batch), 1).schema.equals(batch.schema, check_metadata=True)


class Unpickled(pa.ExtensionType):
    """A type that is read by code of its own."""

    seen: list[bytes] = []

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unpickled")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"payload"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, data: bytes) -> Unpickled:
        cls.seen.append(data)
        return cls()


@pytest.fixture
def extension() -> Iterator[pa.DataType]:
    kind = Unpickled()
    pa.register_extension_type(kind)
    Unpickled.seen.clear()
    yield kind
    pa.unregister_extension_type("tests.unpickled")


@pytest.mark.parametrize("nested", [False, True])
def test_an_extension_type_is_refused_before_its_code_runs(extension: pa.DataType, nested: bool) -> None:
    """A file in a shared folder would choose which code runs in the driver."""
    kind = pa.list_(extension) if nested else extension
    schema = pa.schema([pa.field("x", kind)]).serialize()
    with pytest.raises(Malformed, match="extension type"):
        read_schema(schema)
    assert not Unpickled.seen
    pa.ipc.read_schema(schema)
    assert Unpickled.seen == [b"payload"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (pa.dictionary(pa.int32(), pa.string()), "dictionary"),
        (pa.list_(pa.dictionary(pa.int32(), pa.string())), "dictionary"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "type 22"),
        (pa.string_view(), "type 24"),
        (pa.binary_view(), "type 23"),
        (pa.list_view(pa.int64()), "type 25"),
        (pa.large_list_view(pa.int64()), "type 26"),
        (pa.struct([pa.field("a", pa.list_view(pa.int64()))]), "type 25"),
        (pa.dense_union([pa.field("a", pa.int64())]), "type 14"),
        (pa.sparse_union([pa.field("a", pa.int64())]), "type 14"),
    ],
)
def test_types_in_which_a_few_bytes_stand_for_many_are_refused(kind: pa.DataType, says: str) -> None:
    """One run, view or dictionary entry may be said to stand in 2**60 rows."""
    with pytest.raises(Malformed, match=says):
        read_schema(pa.schema([pa.field("x", kind)]).serialize())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_buffers_are_refused(codec: str) -> None:
    """1 kB that unpacks to 2 GB."""
    batch = batch_of(pa.array(np.zeros(100_000)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
    message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1].serialize().to_pybytes()
    with pytest.raises(Malformed, match="compressed"):
        read(parts(batch)[0], message, 100_000)


def test_types_that_nest_deeply_are_refused() -> None:
    """The stack of the driver would end, and with it the driver."""
    kind = pa.int64()
    for _ in range(messages.DEPTH_MAX):
        kind = pa.list_(kind)
    assert read_schema(pa.schema([("x", kind)]).serialize()).buffers == 2 * messages.DEPTH_MAX + 2
    with pytest.raises(Malformed, match="nested deeper"):
        read_schema(pa.schema([("x", pa.list_(kind))]).serialize())


def test_many_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flatbuffer may name one table any number of times: its bytes do not bound what is in it."""
    monkeypatch.setattr(messages, "FIELDS_MAX", 10)
    names = [f"c{number}" for number in range(10)]
    assert read_schema(pa.schema([(name, pa.int64()) for name in names]).serialize()).buffers == 20
    with pytest.raises(Malformed, match="more than 10"):
        read_schema(pa.schema([(name, pa.int64()) for name in [*names, "x"]]).serialize())


BATCH = pa.record_batch([pa.array(["ab", "cd", None]), pa.array([[1], [2, 3], []])], ["s", "l"])
SCHEMA, MESSAGE = parts(BATCH)


def changed(data: bytes, old: bytes, new: bytes, nth: int = 0) -> bytes:
    """With the n-th place of ``old`` replaced."""
    at = -1
    for _ in range(nth + 1):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(old) :]


def nodes_of(batch: pa.RecordBatch) -> bytes:
    return struct.pack("<qq", len(batch), batch.column(0).null_count)


@pytest.mark.parametrize(("length", "nulls"), [(1 << 60, 0), (-1, 0), (3, -1), (3, 4), (2, 0), (1 << 62, 1 << 62)])
def test_lengths_beyond_the_bytes_are_refused(length: int, nulls: int) -> None:
    """A column of 2**60 nulls takes no bytes in a file, and all memory when it is looked at."""
    hostile = changed(MESSAGE, nodes_of(BATCH), struct.pack("<qq", length, nulls))
    with pytest.raises(Malformed, match=f"a column of {length} values, {nulls} of them null"):
        read(SCHEMA, hostile, 3)


def test_children_without_bytes_are_not_longer_than_the_message() -> None:
    """A list of 2**40 nulls is 4 bytes."""
    batch = batch_of(pa.array([[None] * 7], pa.list_(pa.null())))
    schema, message = parts(batch)
    assert read(schema, message, 1) == batch
    bits = 8 * (len(message) - 8 - int.from_bytes(message[4:8], "little"))
    for length in (1 << 40, bits + 1, bits):
        hostile = changed(message, struct.pack("<qq", 7, 7), struct.pack("<qq", length, length))
        if length == bits:
            assert read(schema, hostile, 1).num_rows == 1
            continue
        with pytest.raises(Malformed, match=f"a column of {length} values"):
            read(schema, hostile, 1)


def test_rows_are_those_of_the_index() -> None:
    """The bound on rows would be that of another file."""
    with pytest.raises(Malformed, match="3 rows, but its index says 4"):
        read(SCHEMA, MESSAGE, 4)


BUFFERS = [(0, 1), (8, 16), (24, 4), (32, 0), (32, 16), (48, 0), (48, 24)]


def test_the_buffers_are_where_the_tests_change_them() -> None:
    """The tests below would change nothing."""
    assert struct.pack("<14q", *(number for pair in BUFFERS for number in pair)) in MESSAGE


@pytest.mark.parametrize(
    ("number", "offset", "length"),
    [(1, 0, 16), (1, 8, -8), (1, -8, 16), (1, 9, 8), (1, 8, 1 << 62), (6, 1 << 62, 24), (6, 48, 32), (6, 40, 24)],
)
def test_buffers_that_overlap_or_leave_the_message_are_refused(number: int, offset: int, length: int) -> None:
    """A buffer that reaches beyond the file reads the memory of the driver; overlapping ones multiply the bytes."""
    buffers = [*BUFFERS]
    buffers[number] = (offset, length)
    old, new = (struct.pack("<14q", *(value for pair in pairs for value in pair)) for pairs in (BUFFERS, buffers))
    with pytest.raises(Malformed, match=f"a buffer of {length} bytes at {offset}"):
        read(SCHEMA, changed(MESSAGE, old, new), 3)


def test_offsets_that_go_back_are_refused() -> None:
    """Texts that overlap make of 1 MB any number of texts; one that goes back ends the process."""
    at = MESSAGE.index(struct.pack("<4i", 0, 2, 4, 4))
    for offsets in ((0, 4, 2, 4), (0, 2, 1 << 30, 4), (0, -2, 4, 4)):
        hostile = MESSAGE[:at] + struct.pack("<4i", *offsets) + MESSAGE[at + 16 :]
        for with_texts in (False, True):
            with pytest.raises(Malformed, match="Arrow refuses it"):
                read_batch(pa.py_buffer(hostile), read_schema(pa.py_buffer(SCHEMA)), 3, with_texts=with_texts)


def test_text_that_is_none_is_refused() -> None:
    """It would fail far from here, or be read as other text."""
    with pytest.raises(Malformed, match=r"Arrow refuses it.*UTF8"):
        read(SCHEMA, changed(MESSAGE, b"abcd", b"ab\xffd"), 3)
    with pytest.raises(ValueError, match="utf-8"):
        read_schema(pa.py_buffer(changed(parts(batch_of(KINDS["ints"], "name"))[0], b"name", b"na\xffe")))
    with pytest.raises(ValueError, match="utf-8"):
        read_schema(pa.py_buffer(changed(parts(batch_of(KINDS["lists"]))[0], b"item", b"it\xffm")))


WRONG = pa.array([b"ab\xff", b"c"]).view(pa.string())
LARGE = pa.array([b"ab\xff", b"c"], pa.large_binary()).view(pa.large_string())


@pytest.mark.parametrize(
    "array",
    [
        WRONG,
        LARGE,
        pa.ListArray.from_arrays([0, 1, 2], WRONG),
        pa.LargeListArray.from_arrays([0, 1, 2], WRONG),
        pa.FixedSizeListArray.from_arrays(LARGE, 2),
        pa.MapArray.from_arrays([0, 1, 2], WRONG, LARGE),
        pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2], LARGE)], ["x"]),
    ],
    ids=lambda array: str(array.type),
)
def test_texts_are_not_looked_at_where_nobody_asks(array: pa.Array) -> None:
    """A source may have taken text that is none; the state that holds it must be read all the same."""
    schema, message = parts(batch_of(array))
    layout = read_schema(pa.py_buffer(schema))
    with pytest.raises(Malformed, match=r"Arrow refuses it.*UTF8"):
        read_batch(pa.py_buffer(message), layout, len(array))
    found = read_batch(pa.py_buffer(message), layout, len(array), with_texts=False)
    assert found.schema == layout.schema == batch_of(array).schema
    assert found.serialize().equals(batch_of(array).serialize())


def test_a_batch_of_another_schema_is_refused() -> None:
    """Its buffers would be read as those of other types."""
    for other in (batch_of(pa.array([1, 2, 3])), pa.record_batch([KINDS["ints"]] * 4, [*"abcd"])):
        with pytest.raises(Malformed, match=r"columns, but its schema has|buffers, but its schema has"):
            read(parts(other)[0], MESSAGE, 3)
    three = pa.record_batch([pa.array([1, 2, 3])] * 3, [*"abc"])
    with pytest.raises(Malformed, match="7 buffers, but its schema has 6"):
        read(parts(three)[0], MESSAGE, 3)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00" * 64,
        MESSAGE,
        SCHEMA[:40],
        SCHEMA + b"\x00" * 8,
        changed(SCHEMA, SCHEMA[4:8], b"\xff\xff\xff\x7f"),
        changed(SCHEMA, SCHEMA[8:12], b"\xff\xff\xff\xff"),
    ],
)
def test_what_is_no_schema_is_refused(damaged: bytes) -> None:
    """Every place is held against the length before it is read."""
    with pytest.raises(Malformed):
        read_schema(pa.py_buffer(damaged))


def test_what_our_reader_lets_pass_and_arrow_does_not_is_refused() -> None:
    """An error of Arrow's is an error in the bytes, and says so."""
    schema = parts(batch_of(KINDS["fixed"]))[0]
    hostile = changed(schema, struct.pack("<i", 2), struct.pack("<i", -2), schema.count(struct.pack("<i", 2)) - 1)
    with pytest.raises(Malformed):
        read_schema(pa.py_buffer(hostile))


def test_a_column_has_the_children_of_its_type() -> None:
    """Arrow would read a child that is not there."""
    schema, other = (parts(batch_of(KINDS[kind]))[0] for kind in ("ints", "lists"))
    at = next(place for place in range(len(other)) if other[place] == 12 and is_kind(other, place))
    with pytest.raises(Malformed, match="a column of type 2 with 1 children"):
        read_schema(pa.py_buffer(other[:at] + b"\x02" + other[at + 1 :]))
    assert read_schema(pa.py_buffer(schema)).buffers == 2


def is_kind(schema: bytes, place: int) -> bool:
    """Whether the byte there is the type of the column: another number makes it another type."""
    try:
        read_schema(pa.py_buffer(schema[:place] + b"\x63" + schema[place + 1 :]))
    except Malformed as error:
        return "type 99" in str(error)
    except ValueError:
        return False
    return False


ALL = pa.record_batch(list(KINDS.values()), list(KINDS))
ALL_PARTS = parts(ALL)


def test_columns_of_all_types_are_read_side_by_side() -> None:
    """The test below would pass if everything were refused."""
    assert read(*ALL_PARTS, 3) == ALL


def test_the_bounds_are_part_of_the_format() -> None:
    """A driver with wider ones puts what the driver beside it, of another release, cannot read."""
    assert (messages.FIELDS_MAX, messages.DEPTH_MAX) == (10_000, 64)


def test_an_extension_type_is_refused_wherever_it_is_named() -> None:
    """Some release of Arrow may look for it in the schema too."""
    schema = pa.schema([pa.field("x", pa.int64())], metadata={"a": "b", "ARROW:extension:name": "tests.unpickled"})
    with pytest.raises(Malformed, match="extension type"):
        read_schema(schema.serialize())


def test_a_message_with_metadata_of_its_own_is_refused() -> None:
    """None of ours has any, and Arrow hands it on unread."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as stream:
        stream.write_batch(BATCH, custom_metadata={"a": "b"})
    message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1].serialize().to_pybytes()
    with pytest.raises(Malformed, match="an Arrow message of the wrong kind"):
        read(SCHEMA, message, 3)


@settings(deadline=None, max_examples=examples(500))
@given(st.data())
def test_changed_messages_are_refused_or_valid(drawn: st.DataObject) -> None:
    """Whoever can write a file can choose its hashes: what is behind them must be safe by itself."""
    schema, batch = map(bytearray, ALL_PARTS)
    target = drawn.draw(st.sampled_from([schema, batch]))
    head = 8 + int.from_bytes(target[4:8], "little")
    for _ in range(drawn.draw(st.integers(1, 4))):
        at = drawn.draw(st.integers(0, min(head + 64, len(target)) - 1))
        target[at] = drawn.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, target[at] ^ 1, target[at] ^ 0x10]))
    try:
        found = read(bytes(schema), bytes(batch), 3)
    except ValueError:
        return
    found.validate(full=True)
    assert found.num_rows == 3 and found.nbytes <= len(batch)
