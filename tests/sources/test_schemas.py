"""Which types of a file fit the recorded ones, and the schema as JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from persistent.sources.schemas import from_json, misfit, plain, to_json

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
    assert plain(schema).equals(
        pa.schema([("a", pa.string()), ("d", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.string()))]),
        check_metadata=True,
    )
