"""Tables are read as they were written, whatever their types, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.codec.sealed import decode_table, encode_table
from persistent.errors import CorruptCheckpoint, StorageError
from tests.codec.files import finished, index_of, sealed_of, sha256


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_tables_are_read_as_they_were_written(rows: int) -> None:
    """Listings, late rows and dead letters are read again, years later."""
    table = pa.table({"path": [f"é{n}" for n in range(rows)], "n": pa.array(range(rows), pa.int64())})
    data, sha256 = encode_table(table)
    assert decode_table(pa.py_buffer(data), sha256, "place") == table
    assert decode_table(pa.py_buffer(data), None, "place") == table
    with pytest.raises(CorruptCheckpoint):
        decode_table(pa.py_buffer(data), "0" * 64, "place")


class Uncombined:
    """A table whose chunks do not combine, as those of columns with more than 2 GB of text do not."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def combine_chunks(self) -> pa.Table:
        return self._table


def test_a_table_in_several_chunks_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows and dead letters after the first 2 GB of text would be lost, though they are counted."""
    monkeypatch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 3)
    chunks = [pa.table({"data": [f"{chunk}-{n}" for n in range(size)]}) for chunk, size in enumerate([4, 1, 7])]
    table = pa.concat_tables(chunks)
    assert table["data"].num_chunks == 3
    data, sha256 = encode_table(Uncombined(table))
    assert decode_table(pa.py_buffer(data), sha256, "place") == table


def test_every_flipped_byte_of_a_table_is_refused() -> None:
    """Also without the hash in a manifest, as late rows are read: against its own index."""
    data, sha256 = encode_table(pa.table({"n": [1, 2, 3]}))
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 4
        with pytest.raises(CorruptCheckpoint, match="place"):
            decode_table(pa.py_buffer(bytes(changed)), sha256, "place")


TEXT = pa.array(["a", None, "b"])


class Tagged(pa.ExtensionType):
    """Text with a tag."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (TEXT.dictionary_encode(), pa.string()),
        (TEXT.cast(pa.string_view()), pa.large_string()),
        (TEXT.cast(pa.binary()).cast(pa.binary_view()), pa.large_binary()),
        (pa.ExtensionArray.from_storage(Tagged(), TEXT), pa.string()),
        (pa.array([["a"], None, ["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))), pa.list_(pa.string())),
        (pa.array([[1], None, [2]], pa.large_list(pa.int64())), pa.large_list(pa.int64())),
        (pa.array([[1], None, [2]], pa.list_(pa.int64(), 1)), pa.list_(pa.int64(), 1)),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.int64())),
        (
            pa.StructArray.from_arrays([TEXT.dictionary_encode()], ["t"], mask=pa.array([False, True, False])),
            pa.struct([("t", pa.string())]),
        ),
    ],
    ids=str,
)
def test_late_rows_of_any_type_are_stored_plainly(column: pa.Array, kind: pa.DataType) -> None:
    """The reader refuses dictionaries, views and types with code: what was staged in them would be lost."""
    table = pa.table({"x": column, "n": [1, 2, 3]})
    data, sha256 = encode_table(table)
    found = decode_table(pa.py_buffer(data), sha256, "place")
    assert found.schema.field("x").type == kind
    assert found["x"].to_pylist() == table["x"].to_pylist()


@pytest.mark.parametrize("kind", [pa.list_view(pa.int64()), pa.run_end_encoded(pa.int32(), pa.int64())])
def test_a_table_that_cannot_be_read_again_is_not_stored(kind: pa.DataType) -> None:
    """It would be found out when it is needed."""
    with pytest.raises(StorageError, match="rows with the columns x were not stored"):
        encode_table(pa.schema([("x", kind)]).empty_table())


def test_texts_are_looked_at_where_no_manifest_vouches_for_them() -> None:
    """A key that a source took without looking must not make the state unreadable."""
    wrong = pa.table({"k": pa.array([b"a\xff"]).view(pa.string())})
    data, sha256 = encode_table(wrong)
    refused(data, "UTF8")
    assert decode_table(pa.py_buffer(data), sha256, "place")["k"].cast(pa.binary()).to_pylist() == [b"a\xff"]


# -- hostile files ------------------------------------------------------------------------------------------------

BATCH = pa.record_batch({"n": pa.array([1, 2, 3]), "t": TEXT})
SCHEMA, MESSAGE = BATCH.schema.serialize().to_pybytes(), BATCH.serialize().to_pybytes()
INDEX = index_of(SCHEMA, [(MESSAGE, 3)])
ENTRY = INDEX["batches"][0]


def refused(data: bytes, says: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=says) as caught:
        decode_table(pa.py_buffer(data), None, "place")
    assert str(caught.value).startswith("place: ")


def test_a_sound_file_made_by_hand_is_read() -> None:
    """The tests below would pass for another reason."""
    data = sealed_of(SCHEMA, (MESSAGE, 3), (MESSAGE, 3))
    assert decode_table(pa.py_buffer(data), None, "place").num_rows == 6
    assert decode_table(pa.py_buffer(sealed_of(SCHEMA)), None, "place").num_rows == 0


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ([ENTRY[0] + 8, *ENTRY[1:]], "does not begin where the previous one ends"),
        ([0, *ENTRY[1:]], "does not begin where the previous one ends"),
        ([1 << 62, *ENTRY[1:]], "does not begin where the previous one ends"),
        ([ENTRY[0], 1 << 62, *ENTRY[2:]], "bytes between its last batch and its index"),
        ([*ENTRY[:2], (1 << 16) + 1, *ENTRY[3:]], "does not begin where the previous one ends"),
        ([*ENTRY[:2], 4, *ENTRY[3:]], "batch 0: 3 rows, but its index says 4"),
        ([*ENTRY[:3], 1 << 64, ENTRY[4]], "does not begin where the previous one ends"),
        ([*ENTRY[:4], "0" * 64], "batch 0: SHA-256 differs"),
        ([*ENTRY[:4], "0" * 63], "not an index"),
        ([-1, *ENTRY[1:]], "not an index"),
        ([True, *ENTRY[1:]], "not an index"),
        ([1.0, *ENTRY[1:]], "not an index"),
        ([10**30, *ENTRY[1:]], "not an index"),
        ([*ENTRY, 0], "not an index"),
        ([[*ENTRY]], "not an index"),
        ([], "not an index"),
    ],
)
def test_an_index_that_names_other_bytes_is_refused(entry: list[object], says: str) -> None:
    """An offset beyond the file would be read from the memory of the driver."""
    refused(sealed_of(SCHEMA, (MESSAGE, 3), batches=[entry]), says)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{}",
        b"[" * 10_000,
        b'{"":0},' * 1000,
        b'{"batches":[],"panes":[],"schema":[0,"' + b"0" * 64 + b'"]} ',
        b'{"batches":[,],"panes":[],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[1,],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[1e9],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[--1],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[[]],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[' + b"9" * 100_000 + b'],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[1,' + b"9" * 21 + b'],"schema":[0,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[],"schema":[01,"' + b"0" * 64 + b'"]}',
        b'{"batches":[],"panes":[],"schema":[0,"' + b"0" * 64 + b'"],"x":0}',
        b'{"schema":[0,"' + b"0" * 64 + b'"],"batches":[],"panes":[]}',
    ],
    ids=range(15),
)
def test_an_index_of_another_shape_is_refused(index: bytes) -> None:
    """It is looked at as bytes: parsing it first would make of it what it says."""
    refused(finished(b"", index), "not an index")


@pytest.mark.parametrize("length", [1 << 63, 1 << 30, 0, len(INDEX)])
def test_an_index_longer_or_shorter_than_it_is_is_refused(length: int) -> None:
    """Its length is the first number that is believed."""
    refused(finished(SCHEMA + MESSAGE, INDEX, length), "longer than the file|not an index")


@pytest.mark.parametrize(("size", "says"), [(0, "schema: Arrow refuses"), (1 << 62, "bytes between")])
def test_a_schema_that_is_none_is_refused(size: int, says: str) -> None:
    """The first message of the file."""
    refused(finished(b"", {"batches": [], "panes": [], "schema": [size, sha256(b"")]}), says)


def test_a_schema_of_other_bytes_is_refused() -> None:
    """Its columns would be read as those of other types."""
    refused(sealed_of(SCHEMA, (MESSAGE, 3), schema=[len(SCHEMA), "0" * 64]), "schema: SHA-256 differs")
