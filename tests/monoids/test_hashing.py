"""The hash of a key is fixed for ever: it says in which file, and in which place of it, the state of the key lies."""

from __future__ import annotations

import datetime
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.hashing import (
    VERSION,
    hash_key,
    hash_keys,
    is_injective,
    key_column,
    key_type,
    mix_records,
    null_safe_equal,
)
from tests.few import one_in

UTC = datetime.UTC

CASES: dict[str, tuple[list[pa.DataType], list[tuple[Any, ...]]]] = {
    "none": ([], [()]),
    "int64": ([pa.int64()], [(0,), (1,), (-1,), (2**63 - 1,), (-(2**63),), (None,)]),
    "bool": ([pa.bool_()], [(False,), (True,), (None,)]),
    "float64": ([pa.float64()], [(0.0,), (1.0,), (-1.5,), (math.inf,), (-math.inf,), (math.nan,), (5e-324,), (None,)]),
    "string": (
        [pa.string()],
        [
            ("",),
            ("a",),
            ("\0",),
            ("é",),
            ("12345678",),
            ("123456789",),
            ("日本語",),
            ("x" * 512,),
            ("x" * 513,),
            (None,),
        ],
    ),
    "binary": ([pa.binary()], [(b"",), (b"a",), (b"\0",), (b"\0\0",), (b"12345678",), (b"x" * 1000,), (None,)]),
    "date": (
        [pa.date32()],
        [(datetime.date(1970, 1, 1),), (datetime.date(1969, 12, 31),), (datetime.date(2024, 2, 29),)],
    ),
    "timestamp": (
        [pa.timestamp("us", "UTC")],
        [
            (datetime.datetime(1970, 1, 1, tzinfo=UTC),),
            (datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),),
            (None,),
        ],
    ),
    "decimal": ([pa.decimal128(10, 2)], [(Decimal("0.00"),), (Decimal("1.10"),), (Decimal("-120.00"),), (None,)]),
    "null": ([pa.null()], [(None,)]),
    "int64, string": ([pa.int64(), pa.string()], [(1, "a"), (0, ""), (None, None), (1, None), (None, "a")]),
    "string, string": ([pa.string(), pa.string()], [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), (None, "")]),
    "string, float64, bool": ([pa.string(), pa.float64(), pa.bool_()], [("é", 0.5, True), ("é", None, False)]),
}


def hashes(types: Sequence[pa.DataType], keys: Sequence[tuple[Any, ...]]) -> list[int]:
    columns = [
        key_column(pa.array([key[i] for key in keys], type_, from_pandas=False)) for i, type_ in enumerate(types)
    ]
    return [int(hash_) for hash_ in hash_keys(columns, len(keys))]


VECTORS = {
    "none": (0xE220A8397B1DCDAF,),
    "int64": (
        0x8B172F19D02C3B2B,
        0x3D13FF473CFD3F9D,
        0x8698C73A5C991FCF,
        0x4E406E89F541DFD9,
        0x694D955635F72460,
        0x19532C6B5D9DD6DD,
    ),
    "bool": (
        0x15FDB1C026C4216E,
        0xAC2D64F9AEB3208C,
        0x19532C6B5D9DD6DD,
    ),
    "float64": (
        0xAC7C6F2309317D6A,
        0x5AFAD91141309D5F,
        0x381BEF984747130D,
        0x1DDC58D086BEE525,
        0x8FA4C01A46CA50FD,
        0xF041DC528AF0DA40,
        0x2A5D2F9404A24018,
        0x19532C6B5D9DD6DD,
    ),
    "string": (
        0x77903A232F7B2E2C,
        0x1F5BA3B2079A3C47,
        0xFA802080825CFBE4,
        0x080C95BEF6D3C695,
        0x87C2AE6AB1F985DB,
        0x1CD08CBC84B5CDDE,
        0x28102AD629DAA291,
        0x7F2DC23D78BFCAD3,
        0x54102CE049A60EBD,
        0x19532C6B5D9DD6DD,
    ),
    "binary": (
        0xE93CF0D84FBABF4C,
        0xD2D4454191B6C806,
        0xAEA5BA287E994005,
        0x76B6FFB84B90AE9D,
        0x2F6B2B27FD5BFDC0,
        0x360635F0E2E601F6,
        0x19532C6B5D9DD6DD,
    ),
    "date": (
        0xE911EE3140E41BF4,
        0x3389434E198C6B53,
        0xEB6CCD6200F5CD6F,
    ),
    "timestamp": (
        0xF5187D8800FEBE7B,
        0xF94CE587DA936DDB,
        0x19532C6B5D9DD6DD,
    ),
    "decimal": (
        0xD3B65A5A7B7BE22A,
        0x49F9319F2DC96941,
        0x1558895E9E30ACEC,
        0x19532C6B5D9DD6DD,
    ),
    "null": (0x19532C6B5D9DD6DD,),
    "int64, string": (
        0x87E3770480747D5A,
        0x42A2840A8DE99771,
        0xCFACEC9A77FE4B78,
        0x6BACD0B6EBAB6550,
        0xB534FC02DE8C5FA0,
    ),
    "string, string": (
        0x928A2105EC827798,
        0xADDA2C7877427D59,
        0x0536105B77A46186,
        0xD807B8457B400C8F,
        0xEB3E3F57F97064A5,
    ),
    "string, float64, bool": (
        0x367AD44EAF2D55F5,
        0x8A14AA0D7C57C28A,
    ),
}
"""Version 1. A release that changes one of these cannot read the checkpoints of any other."""


MIX = 11882341273021446475


def test_the_hashes_are_those_of_version_1() -> None:
    """A key whose hash changes with a release, a machine or a library is not found again: its state starts
    from nothing."""
    assert VERSION == 1
    found = {name: tuple(hashes(types, keys)) for name, (types, keys) in CASES.items()}
    assert found == VECTORS


def test_one_key_hashes_as_in_a_column() -> None:
    """A reader that looks up one key must find the row that a column of keys wrote."""
    assert {name: tuple(hash_key(*key) for key in keys) for name, (_, keys) in CASES.items()} == VECTORS


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.decimals(-(10**9), 10**9, places=4)
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(SCALARS, min_size=1, max_size=3))
def test_any_key_hashes_as_in_a_column(key: list[Any]) -> None:
    """The scalar hash is the definition that the vectorised one is read beside."""
    columns = [key_column(pa.array([value], from_pandas=False)) for value in key]
    assert hash_key(*key) == int(hash_keys(columns, 1)[0])


def test_what_is_no_key_is_refused() -> None:
    """A list hashed by chance would be looked up under one hash and stored under another."""
    with pytest.raises(TypeError, match="cannot be a key"):
        hash_key([1])
    with pytest.raises(OverflowError, match="outside 64-bit integers"):
        hash_key(1 << 63)


def test_all_vectors_differ() -> None:
    """Vectors of a hash that ignores its input would pass any test."""
    nulls = {hashes([pa.int64()], [(None,)])[0]}
    everything = [hash_ for name in VECTORS for hash_ in VECTORS[name] if hash_ not in nulls]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("seed", one_in(3, ["0", "1", "4242"]))
def test_another_process_gives_the_same(seed: str) -> None:
    """Python's own hash differs from process to process: of two executors each would find other keys."""
    root = Path(__file__).parents[2]
    code = (
        "from tests.monoids.test_hashing import *\n"
        "assert {n: tuple(hashes(*c)) for n, c in CASES.items()} == VECTORS\n"
        "print(mix_records('é', 3, np.arange(5), np.arange(5) * 7))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == mix_records("é", 3, np.arange(5), np.arange(5) * 7) == MIX


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=20), st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_a_hash_depends_on_nothing_but_the_key(keys: list[tuple[Any, ...]]) -> None:
    """Neither on the other rows of the batch, nor on where in a buffer the column begins."""
    types = [pa.string(), pa.int64()]
    whole = hashes(types, keys)
    assert whole == [hashes(types, [key])[0] for key in keys]
    padded = [key_column(pa.array([None, "pad"] + [key[0] for key in keys], pa.string())[2:])]
    padded.append(key_column(pa.array([7, None] + [key[1] for key in keys], pa.int64())[2:]))
    assert [int(hash_) for hash_ in hash_keys(padded, len(keys))] == whole


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), unique=True, min_size=2, max_size=60))
def test_different_bytes_have_different_hashes(keys: list[bytes]) -> None:
    """Not a promise, but a collision among a handful is a defect: zeros at the end, lengths, words swapped."""
    assert len(set(hashes([pa.binary()], [(key,) for key in keys]))) == len(keys)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=200))
def test_different_integers_never_collide(keys: list[int]) -> None:
    """Grouping leans on it: no look at the keys where ``is_injective`` says so."""
    column = key_column(pa.array(keys, pa.int64()))
    assert is_injective([column])
    assert len(set(hash_keys([column], len(keys)).tolist())) == len(keys)


def test_what_may_collide_is_not_called_injective() -> None:
    """A null may have the hash of an integer, a text that of another: there the keys are compared."""
    assert is_injective([]) and is_injective([pa.array([1.5])]) and is_injective([pa.array([True])])
    for columns in ([pa.array([1, None])], [pa.array(["a"])], [pa.array([b"a"])], [pa.array([1]), pa.array([1])]):
        assert not is_injective(columns)


def test_one_is_not_one_point_zero_is_not_true() -> None:
    """A key column has one type, but keys of two columns must not meet by chance of spelling."""
    kinds = [(pa.int64(), 1), (pa.float64(), 1.0), (pa.bool_(), True), (pa.string(), "1"), (pa.binary(), b"1")]
    assert len({hashes([type_], [(value,)])[0] for type_, value in kinds}) == len(kinds)


def test_zero_and_nan_are_one_key_each() -> None:
    """-0.0 == 0.0, and who groups by a float wants one row of NaN."""
    odd = np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\xff", np.float64)[0]
    column = key_column(pa.array([0.0, -0.0, math.nan, odd, None], from_pandas=False))
    first, second, third, fourth, fifth = hash_keys([column], 5).tolist()
    assert first == second != third == fourth != fifth
    assert null_safe_equal(column, column).all()
    assert str(column.to_pylist()[:2]) == "[0.0, 0.0]"


def test_a_decimal_is_its_value() -> None:
    """1.1 and 1.10 are one number: a file that writes more digits is not another customer."""
    short, long = pa.decimal128(5, 1), pa.decimal128(20, 8)
    assert hashes([short], [(Decimal("1.1"),)]) == hashes([long], [(Decimal("1.10000000"),)])
    assert hashes([short], [(Decimal("-0.0"),)]) == hashes([long], [(Decimal("0"),)])


def test_a_key_column_has_one_type_for_each_kind_of_value() -> None:
    """The same key from a Parquet file with int32 and from one with int64 is the same key."""
    assert key_type(pa.decimal64(12, 3)) == pa.decimal128(12, 3)
    for narrow in (pa.decimal32(5, 1), pa.decimal64(5, 1)):
        assert hashes([narrow], [(Decimal("1.1"),)]) == hashes([pa.decimal128(5, 1)], [(Decimal("1.1"),)])
    assert hashes([pa.binary_view()], [(b"a",), (None,)]) == hashes([pa.binary()], [(b"a",), (None,)])
    with pytest.raises(TypeError, match=r"decimal256.*a decimal of at most 38 digits"):
        key_type(pa.decimal256(50, 2))
    for type_ in (pa.int8(), pa.int32(), pa.uint16(), pa.dictionary(pa.int8(), pa.int32())):
        assert key_type(type_) == pa.int64()
    small = key_column(pa.array([1, None], pa.int16()))
    assert hash_keys([small], 2).tolist() == hash_keys([pa.array([1, None], pa.int64())], 2).tolist()
    words = key_column(pa.array(["a", None, "a"]).dictionary_encode())
    assert words.type == pa.string() and words.to_pylist() == ["a", None, "a"]
    instant = key_column(pa.array([0], pa.timestamp("s")))
    assert instant.type == pa.timestamp("us", "UTC")
    with pytest.raises(TypeError, match="a key of type list"):
        key_column(pa.array([[1]]))
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        key_column(pa.array([2**64 - 1], pa.uint64()))


def test_the_mix_is_a_sum_over_records() -> None:
    """The ledger adds it up over splits, in any order: it must not matter how the records were divided."""
    offsets, times = np.arange(10), np.arange(10) * 3
    whole = mix_records("p", 1, offsets, times)
    parts = mix_records("p", 1, offsets[:4], times[:4]) + mix_records("p", 1, offsets[4:], times[4:])
    assert whole == parts % (1 << 64)
    for other in (
        ("q", 1, offsets, times),
        ("p", 2, offsets, times),
        ("p", 1, offsets + 1, times),
        ("p", 1, offsets, times + 1),
    ):
        assert mix_records(*other) != whole
    assert mix_records("p", 1, offsets[:0], times[:0]) == 0
