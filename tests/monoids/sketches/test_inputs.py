"""One value has one hash, however it is given."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids.hashing import hash_keys, key_column
from monoids.sketches.count_min import CountMin
from monoids.sketches.datasketches import hash_values
from monoids.sketches.inputs import hash_column, hash_value, key_hash

MIXED = [
    1,
    1.0,
    True,
    None,
    "1",
    b"1",
    Decimal("1.00"),
    Decimal("1e-30"),
    Decimal("9" * 38),
    "\ud800",
    "",
    -0.0,
    math.nan,
    2**63 - 1,
    -(2**63),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3),
    datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))),
    np.int16(7),
    np.str_("x"),
]


@pytest.mark.parametrize("hash", [key_hash, hash_values])
def test_a_list_of_many_types_is_hashed_as_its_values_alone(hash: Any) -> None:
    """Without it a list of 1 and 1.5 would count 1 as 1.0, and a record's rows would differ from its batches."""
    hashes, valid = hash_column(MIXED, hash, "X")
    assert valid is not None
    alone = [hash_value(value, hash, "X") for value in MIXED]
    assert [int(h) if v else None for h, v in zip(hashes, valid)] == alone
    assert alone[3] is None
    assert len({h for h in alone if h is not None}) == len(MIXED) - 1 - (hash is hash_values)  # "1" and b"1"


def test_a_value_is_equal_to_itself_in_every_form() -> None:
    """Without it the same visitor would be counted once for each width, dictionary or time zone a file has."""
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    same: list[list[Any]] = [
        [5, pa.array([5], pa.int8()), np.array([5], ">i4"), pa.array([5], pa.uint64())],
        [-0.0, 0.0, np.array([0], np.float32), pa.array([-0.0])],
        [math.nan, -math.nan, np.array([math.nan]), np.frombuffer(b"\1\0\0\0\0\0\xf8\xff", np.float64)],
        ["a", pa.array(["a"], pa.large_string()), pa.array(["a"]).dictionary_encode(), np.array(["a"])],
        [b"a", bytearray(b"a"), pa.array([b"a"], pa.binary(1)), pa.array([b"a"], pa.large_binary())],
        [Decimal("1.5"), Decimal("1.500"), pa.array([Decimal("1.5")], pa.decimal128(30, 9))],
        [moment, moment.replace(tzinfo=None), pa.array([moment], pa.timestamp("ms", "UTC"))],
        [moment, moment.astimezone(timezone(timedelta(hours=5))), np.array(["2026-01-02T03"], "datetime64[ns]")],
        [date(2026, 1, 2), pa.array([date(2026, 1, 2)], pa.date64())],
    ]
    for forms in same:
        columns = [form if isinstance(form, pa.Array | np.ndarray) else [form] for form in forms]
        assert len({int(hash_column(column, key_hash, "X")[0][0]) for column in columns}) == 1, forms


@pytest.mark.parametrize("rows", [0, 1, 5, 70_000])
def test_chunks_slices_nulls_and_dictionaries_change_nothing(rows: int) -> None:
    """Without it a large column, or a filtered one, would hash other rows than a small one."""
    values = [None if row % 7 == 3 else f"v{row % 1000}" for row in range(rows)]
    array = pa.array([*values, "more"], pa.string())
    ways = [
        array.slice(0, rows),
        pa.concat_arrays([pa.array(["x"]), array]).slice(1, rows),
        pa.chunked_array([array.slice(0, rows // 2), array.slice(rows // 2, rows - rows // 2)]),
        array.dictionary_encode().slice(0, rows),
        pa.concat_arrays([pa.array(["x"]), array]).dictionary_encode().slice(1, rows),
    ]
    expected = hash_keys([array.slice(0, rows)], rows)
    for way in ways:
        hashes, valid = hash_column(way, key_hash, "X")
        present = np.array([value is not None for value in values], bool)
        assert (valid is None and present.all()) or (valid == present).all()
        assert (hashes[present] == expected[present]).all() and not hashes[~present].any()


@pytest.mark.parametrize("values", [["a", None], ["a", "c"], [None], []])
def test_dictionaries_of_chunks_are_hashed_one_by_one(values: list[Any]) -> None:
    """Without it a column read in parts would be refused, because Arrow unifies no dictionaries with nulls."""
    first = pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), pa.array(values, pa.string()))
    second = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["b", "a"]))
    column = pa.chunked_array([first, second])
    hashes, valid = hash_column(column, key_hash, "X")
    plain, known = hash_column([*values, "b", None, "a"], key_hash, "X")
    assert hashes.tolist() == plain.tolist() and valid.tolist() == known.tolist()
    whole = key_column(column)
    assert whole.to_pylist() == [*values, "b", None, "a"] and whole.type == pa.string()
    assert CountMin(str).lift_columns(column)[0].lengths.astype(bool).tolist() == known.tolist()
    assert hash_column(pa.chunked_array([], column.type), key_hash, "X")[0].tolist() == []


def test_a_list_of_decimals_is_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a column would be built for each decimal, at a hundred times the cost."""
    values = [Decimal(number).scaleb(-(number % 3)) for number in range(300)]
    expected = [hash_value(value, key_hash, "X") for value in values]
    built: list[int] = []

    def counted(column: pa.Array) -> Any:
        built.append(len(column))
        return key_hash(column)

    hashes, valid = hash_column(values, counted, "X")
    assert hashes.tolist() == expected and valid is None
    assert built == [0, 100, 100, 100]


def test_a_null_in_a_dictionary_is_no_value() -> None:
    """Without it a null that hides among the distinct values would be counted as one of them."""
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([None, "a"]))
    assert hash_column(array, key_hash, "X")[1].tolist() == [False, True, False]
    masked = np.ma.masked_array([1, 2], [False, True])
    assert hash_column(masked, key_hash, "X")[1].tolist() == [True, False]
    nothing = hash_column(pa.nulls(3), key_hash, "X")
    assert nothing[1].tolist() == [False] * 3 and len(nothing[0]) == 3


def test_the_key_hash_is_that_of_keys() -> None:
    """Without it sketches would count by a hash that no test vector pins down."""
    column = key_column(pa.array([3, -1]))
    assert hash_column([3, -1], key_hash, "X")[0].tolist() == hash_keys([column], 2).tolist()


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([2**63], OverflowError, "64 bits"),
        ([2**70], OverflowError, "64 bits"),
        (pa.array([2**63], pa.uint64()), OverflowError, "uint64"),
        ([[1]], TypeError, "takes int, float"),
        ([object()], TypeError, "takes int, float"),
        (pa.array([[1]]), TypeError, "can be keys"),
        (np.zeros((2, 2)), ValueError, "one dimension, not 2"),
        ([Decimal("inf")], ValueError, "cannot hold"),
        ([Decimal("9" * 40)], ValueError, "cannot hold"),
        (pa.array([1], pa.timestamp("ns")), ValueError, "cannot hold"),
    ],
)
def test_what_can_be_no_key_is_refused_by_name(values: Any, error: type[Exception], words: str) -> None:
    """Without it a wrong column would fail deep inside Arrow, or be counted as something else."""
    with pytest.raises(error, match=f"X .*{words}"):
        hash_column(values, key_hash, "X")
