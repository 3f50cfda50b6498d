"""Messages are read as they were written, or refused: nothing that stands for more than it is."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.codec import sealed
from persistent.codec.sealed import Malformed, read_batch, read_schema

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
    schema = read_schema(pa.py_buffer(parts(batch)[0]))
    assert read_batch(pa.py_buffer(parts(batch)[1]), schema, 3, is_proven=True) == batch


def test_what_bears_harmless_metadata_is_read() -> None:
    """Columns that came from Parquet carry the number of their field."""
    field = pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"})
    batch = pa.record_batch([pa.array([1])], schema=pa.schema([field], metadata={"pandas": "{}"}))
    assert read(*parts(batch), 1).schema.equals(batch.schema, check_metadata=True)


class Tagged(pa.ExtensionType):
    """A type that is read by code of its own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.tagged_number")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, data: bytes) -> Tagged:
        return cls()


@pytest.fixture
def extension() -> Iterator[pa.DataType]:
    kind = Tagged()
    pa.register_extension_type(kind)
    yield kind
    pa.unregister_extension_type("tests.tagged_number")


@pytest.mark.parametrize("nested", [False, True])
def test_an_extension_type_is_refused(extension: pa.DataType, nested: bool) -> None:
    """Who restores the state may not have its code."""
    kind = pa.list_(extension) if nested else extension
    with pytest.raises(Malformed, match=r"tests\.tagged_number"):
        read_schema(pa.schema([pa.field("x", kind)]).serialize())


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.string_view(),
        pa.binary_view(),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
        pa.struct([pa.field("a", pa.list_view(pa.int64()))]),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.sparse_union([pa.field("a", pa.int64())]),
    ],
    ids=str,
)
def test_types_in_which_a_few_bytes_stand_for_many_are_refused(kind: pa.DataType) -> None:
    """One run, view or dictionary entry may be said to stand in 2**60 rows."""
    with pytest.raises(Malformed, match="which our files never have"):
        read_schema(pa.schema([pa.field("x", kind)]).serialize())


def test_types_that_nest_deeply_are_refused() -> None:
    """The stack of the driver would end, and with it the driver."""
    kind = pa.int64()
    for _ in range(sealed.DEPTH_MAX):
        kind = pa.list_(kind)
    assert read_schema(pa.schema([("x", kind)]).serialize()).types == [kind]
    with pytest.raises(Malformed, match="nested deeper"):
        read_schema(pa.schema([("x", pa.list_(kind))]).serialize())


def test_many_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step reads the schema of every run."""
    monkeypatch.setattr(sealed, "FIELDS_MAX", 10)
    names = [f"c{number}" for number in range(10)]
    assert read_schema(pa.schema([(name, pa.int64()) for name in names]).serialize()).names == names
    with pytest.raises(Malformed, match="11 columns and fields in them; at most 10"):
        read_schema(pa.schema([("x", pa.struct([(name, pa.int64()) for name in names]))]).serialize())


BATCH = pa.record_batch([pa.array(["ab", "cd", None]), pa.array([[1], [2, 3], []])], ["s", "l"])
SCHEMA, MESSAGE = parts(BATCH)


def changed(data: bytes, old: bytes, new: bytes, nth: int = 0) -> bytes:
    """With the n-th place of ``old`` replaced."""
    at = -1
    for _ in range(nth + 1):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(old) :]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_buffers_are_refused(codec: str) -> None:
    """1 kB that unpacks to 2 GB: none of our files has it."""
    batch = batch_of(pa.array(np.zeros(100_000)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
    message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1].serialize().to_pybytes()
    with pytest.raises(Malformed, match="compressed"):
        read(parts(batch)[0], message, 100_000)


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([("a", pa.null())]), pa.binary(0)], ids=str)
@pytest.mark.parametrize("is_proven", [False, True])
def test_a_list_of_values_without_bytes_may_be_long(kind: pa.DataType, is_proven: bool) -> None:
    """A list of 20,000 empty objects is a record like any other: set aside, it must be read again."""
    batch = batch_of(pa.array([[None] * 20_000], pa.list_(kind)))
    schema, message = parts(batch)
    assert read_batch(pa.py_buffer(message), read_schema(pa.py_buffer(schema)), 1, is_proven=is_proven) == batch


def test_rows_are_those_of_the_index() -> None:
    """The bound on rows would be that of another file."""
    with pytest.raises(Malformed, match="3 rows, but its index says 4"):
        read(SCHEMA, MESSAGE, 4)


def test_offsets_that_go_back_are_refused() -> None:
    """Texts that overlap make of 1 MB any number of texts; one that goes back ends the process."""
    at = MESSAGE.index(struct.pack("<4i", 0, 2, 4, 4))
    for offsets in ((0, 4, 2, 4), (0, 2, 1 << 30, 4), (0, -2, 4, 4)):
        hostile = MESSAGE[:at] + struct.pack("<4i", *offsets) + MESSAGE[at + 16 :]
        with pytest.raises(Malformed, match="Arrow refuses it"):
            read(SCHEMA, hostile, 3)


def test_text_that_is_none_is_refused() -> None:
    """It would fail far from here, or be read as other text."""
    with pytest.raises(Malformed, match=r"Arrow refuses it.*UTF8"):
        read(SCHEMA, changed(MESSAGE, b"abcd", b"ab\xffd"), 3)


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
    read_as = read_schema(pa.py_buffer(schema))
    with pytest.raises(Malformed, match=r"Arrow refuses it.*UTF8"):
        read_batch(pa.py_buffer(message), read_as, len(array))
    found = read_batch(pa.py_buffer(message), read_as, len(array), is_proven=True)
    assert found.schema == read_as == batch_of(array).schema
    assert found.serialize().equals(batch_of(array).serialize())


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00" * 64, MESSAGE, SCHEMA[:40]],
)
def test_what_is_no_schema_is_refused(damaged: bytes) -> None:
    with pytest.raises(Malformed, match="Arrow refuses the schema"):
        read_schema(pa.py_buffer(damaged))


ALL = pa.record_batch(list(KINDS.values()), list(KINDS))
ALL_PARTS = parts(ALL)


def test_columns_of_all_types_are_read_side_by_side() -> None:
    """The test below would pass if everything were refused."""
    assert read(*ALL_PARTS, 3) == ALL


def test_the_bounds_are_part_of_the_format() -> None:
    """A driver with wider ones puts what the driver beside it, of another release, cannot read."""
    assert (sealed.FIELDS_MAX, sealed.DEPTH_MAX) == (10_000, 64)
