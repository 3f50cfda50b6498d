"""Which types of a file fit the recorded ones, and the schema as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSource, MemorySource
from persistent.connect.formats.message_columns import MessageColumns
from persistent.connect.formats.schemas import from_json, misfit, plain, settled, to_json
from persistent.connect.formats.values import JsonValues
from persistent.connect.source import Budget, SourceState
from persistent.errors import SourceError
from tests.connect.draining import drain

TYPES = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("ns"),
    pa.timestamp("ms", "Asia/Tokyo"),
    pa.duration("s"),
    pa.decimal128(9, 2),
    pa.list_(pa.struct([("a", pa.int64()), ("é", pa.string())])),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_comes_back_from_json(kind):
    """Without it a column would change its type when a run is continued."""
    schema = pa.schema([("a", kind), ("é b", kind)])
    assert from_json(json.loads(json.dumps(to_json(schema)))) == schema


@pytest.mark.parametrize(
    ("have", "want", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.uint32(), pa.int64(), True),
        (pa.uint64(), pa.int64(), False),
        (pa.int8(), pa.uint8(), False),
        (pa.int8(), pa.uint16(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int32(), pa.float32(), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.timestamp("ms"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("ms"), False),
        (pa.date32(), pa.timestamp("ms"), True),
        (pa.timestamp("ms"), pa.date32(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), True),
        (pa.decimal128(9, 3), pa.decimal128(9, 4), False),
        (pa.null(), pa.int64(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.int32()), pa.int32(), False),
    ],
)
def test_a_type_fits_iff_every_value_of_it_does(have, want, fits):
    """Without it values would be bent, or files refused that hold nothing strange."""
    fault = misfit(pa.schema([("a", have), ("more", pa.int8())]), pa.schema([("a", want)]))
    assert (fault is None) == fits
    assert fits or (f"{have}" in str(fault) and f"{want}" in str(fault))


def test_a_recorded_schema_has_only_types_that_every_step_takes():
    """Without it a column of nulls or a dictionary would fail at the border of Spark."""
    schema = pa.schema(
        [
            ("a", pa.null()),
            pa.field("d", pa.int64(), nullable=False),
            ("b", pa.dictionary(pa.int8(), pa.string())),
            ("c", pa.list_(pa.null())),
        ],
        metadata={"pandas": "x"},
    )
    assert plain(schema, "").equals(
        pa.schema([("a", pa.string()), ("d", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.string()))]),
        check_metadata=True,
    )


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 2, pa.binary(16)))
EXTENSIONS = {
    "uuid": (UUIDS, UUIDS.storage),
    "json": (pa.array(["{}", None], pa.json_()), pa.array(["{}", None])),
    "bool8": (pa.array([1, None], pa.bool8()), pa.array([1, None], pa.int8())),
    "a pandas period": (pa.array(pd.period_range("2024-01", periods=2, freq="M")), pa.array([648, 649])),
    "a list of uuids": (pa.ListArray.from_arrays([0, 1, 2], UUIDS), pa.ListArray.from_arrays([0, 1, 2], UUIDS.storage)),
    "a map of uuids": (
        pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], UUIDS),
        pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], UUIDS.storage),
    ),
    "a list of views": (pa.array([["a"], None], pa.list_(pa.string_view())), pa.array([["a"], None])),
}


@pytest.mark.parametrize("name", EXTENSIONS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_column_of_an_extension_type_is_read_as_it_is_stored(tmp_path, name, in_memory):
    """Every run ended with an error that named no column, though no task read it."""
    column, stored = EXTENSIONS[name]
    table = pa.table({"ts": [1, 2], "x": column})
    pq.write_table(table, tmp_path / "a.parquet")
    file = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    source = MemorySource(table, timestamp="ts") if in_memory else file
    assert [row["x"] for row in drain(source).values] == stored.to_pylist()


def test_a_column_of_a_type_that_no_checkpoint_records_is_named(tmp_path):
    """The error named neither the file nor the column; what it says to do must help."""
    pq.write_table(pa.table({"ts": [1], "v": pa.array([[2]], pa.list_view(pa.int64()))}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: column 'v' is of type list_view.*schema="):
        drain(FileSource(tmp_path, timestamp="ts", timestamp_unit="ms"))
    without = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64"})
    assert drain(without).values == [{"ts": 1}]


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.null()), pa.struct([("b", pa.null())])], ids=str)
def test_a_column_of_nulls_is_text_and_a_warning_says_so(kind: pa.DataType, caplog: pytest.LogCaptureFixture) -> None:
    """The numbers that come later would all be dead letters, and nobody know before."""
    found = settled(pa.schema([("n", kind), ("ts", pa.int64())]), "first.jsonl")
    assert found == plain(pa.schema([("n", kind), ("ts", pa.int64())]), "")
    (warning,) = caplog.messages
    assert warning.startswith("first.jsonl: 'n' is null in every record") and "schema=" in warning
    settled(found, "second.jsonl")
    assert len(caplog.messages) == 1


def test_what_is_null_in_the_sample_of_one_partition_has_the_type_of_another() -> None:
    """All numbers of the column would be dead letters, though the sample holds some."""
    columns = MessageColumns("topic", JsonValues(), None, (), ("ts", "ms"))
    samples = [[b'{"ts": 1, "n": null}'], [b'{"ts": 1, "n": 5}']]
    for order in (samples, samples[::-1]):
        recorded = columns.recorded({}, lambda order=order: order)  # type: ignore[misc]
        assert dict(recorded["schema"]) == {"ts": "int64", "n": "int64"}


def test_each_source_that_infers_says_which_columns_are_null(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it reads; with schema= there is nothing to say."""
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "n": null}\n')
    (tmp_path / "b.csv").write_text("ts,n\n1,\n")
    pq.write_table(pa.table({"ts": [1], "n": pa.nulls(1)}), tmp_path / "c.parquet")
    for given, warnings in ((None, 4), ({"ts": "int64", "n": "int64"}, 0)):
        caplog.clear()
        for name in ("a.jsonl", "b.csv", "c.parquet"):
            source = FileSource(str(tmp_path / name), timestamp="ts", timestamp_unit="ms", schema=given)
            source.plan(SourceState({}), Budget(rows=10))
        if given is None:
            MemorySource([{"ts": 1, "n": None}]).plan(SourceState({}), Budget(rows=10))
        assert sum("'n' is null in every record" in message for message in caplog.messages) == warnings
