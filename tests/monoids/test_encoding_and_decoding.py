"""The canonical encoding of plain values."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.encoding import DEPTH_MAX, decode, encode, order_key, to_json
from tests.few import examples

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.sampled_from(["\ud800", "a\udfffb"])
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.timedeltas()
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of equal types all the way down (in sets and keys: by the encoding)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, datetime) and a.tzinfo and b.tzinfo:
        # By the instant: Python calls a time that a zone skips unequal to any time of another zone.
        return a.astimezone(UTC) == b.astimezone(UTC)
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    return str(a) == str(b) if isinstance(a, Decimal) else bool(a == b)


def test_a_time_that_its_zone_skips_is_its_instant() -> None:
    """On the night when clocks go forward, a task may be given 02:00."""
    skipped = datetime(2040, 3, 11, 2, tzinfo=ZoneInfo("America/New_York"))
    assert decode(encode(skipped)) == datetime(2040, 3, 11, 7, tzinfo=UTC)


@settings(max_examples=examples(200), derandomize=True, database=None, deadline=None)
@given(VALUES)
def test_round_trip(value: Any) -> None:
    """A value that comes back as another is a wrong state after every restart."""
    assert same(decode(encode(value)), value)
    assert encode(decode(encode(value))) == encode(value)


@settings(max_examples=examples(200), derandomize=True, database=None, deadline=None)
@given(VALUES, st.data())
def test_corrupt_bytes_raise_value_error_or_are_another_value(value: Any, data: st.DataObject) -> None:
    """Corrupt bytes must neither crash in odd ways nor decode to the value that was meant."""
    good = encode(value)
    at = data.draw(st.integers(0, len(good) - 1))
    for bad in (good[:at], good + b"N", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
        try:
            assert encode(decode(bad)) == bad != good
        except ValueError as error:
            assert "byte" in str(error)


def test_kinds_of_number_differ() -> None:
    """1, 1.0 and True are different keys of a state; -0.0 keeps its sign; NaN is one."""
    values = [1, 1.0, True, Decimal(1), "1", b"1", 0.0, -0.0, 0, False, None]
    assert len({encode(value) for value in values}) == len(values)
    other_nan = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x12\x34")[0]
    assert encode(other_nan) == encode(math.nan)
    assert decode(encode(other_nan)) is math.nan
    assert encode({other_nan, math.nan}) == encode({math.nan})


def test_order_of_sets_and_dicts_does_not_show() -> None:
    """Equal states must give equal bytes, or no checkpoint can be compared."""
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})
    assert encode({0, 8, 16}) == encode({16, 8, 0})
    east = timezone(timedelta(hours=1))
    assert encode(datetime(2024, 1, 1, 13, tzinfo=east)) == encode(datetime(2024, 1, 1, 12, tzinfo=UTC))
    assert decode(encode(datetime(2024, 1, 1, 13, tzinfo=east))).tzinfo is UTC
    assert decode(encode(datetime(2024, 1, 1))).tzinfo is None


def test_format_is_fixed() -> None:
    """A change of these bytes makes every existing checkpoint unreadable."""
    value = (None, True, -129, 1.5, "é", b"\0", Decimal("1.20"), date(2024, 2, 29), {"k": [2]}, frozenset({1}))
    assert encode(value).hex() == (
        "280a4e5469" + "02ff7f" + "663ff8000000000000" + "7302c3a9" + "620100" + "6404312e3230"
        "44030b4681" + "7b0173016b5b01690102" + "3e01690101"
    )


def test_same_bytes_under_another_hash_seed() -> None:
    """Workers hash strings differently; their state must not differ."""
    code = (
        "from monoids.encoding import *; print(encode({str(i): {str(j) for j in range(9)} for i in range(50)}).hex())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(runs) == 1
    assert len(next(iter(runs))) > 1000


@pytest.mark.parametrize("value", [object(), np.int64(1), np.float64(1), namedtuple("P", "x")(1), [{1: {object()}}]])
def test_other_objects_are_refused_by_name(value: Any) -> None:
    """Pickling them quietly would make checkpoints that only one program can read."""
    with pytest.raises(TypeError, match=r"has no canonical encoding: (write value\.item|build it from plain)"):
        encode(value)


def test_aware_time_is_refused() -> None:
    """Its equality depends on an offset that may depend on the date."""
    with pytest.raises(TypeError, match="time of day with a time zone"):
        encode(time(1, tzinfo=UTC))


def test_depth_is_bounded_both_ways() -> None:
    """A hostile checkpoint must not overflow the stack."""
    value: Any = 1
    for _ in range(DEPTH_MAX):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(ValueError, match="deeper than"):
        encode([value])
    with pytest.raises(ValueError, match="deeper than"):
        decode(b"[\x01" * 100_000 + b"N")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"s\xff\xff\xff\xff\xff\xff\x7f",  # a string longer than there are bytes
        b"[\xff\xff\xff\xff\xff\xff\x7f",  # a list of more items than there are bytes
        b"i\x02\x00\x01",  # an integer that is not minimal
        b"s\x81\x00a",  # a length that is not minimal
        b"<\x02NN",  # a set with an item twice
        b"<\x02i\x01\x02i\x01\x01",  # a set out of order
        b"<\x02Ti\x01\x01",  # a set of True and 1, which are equal
        b"<\x01[\x00",  # a set with an item that cannot be hashed
        b"f\xff\xf8\x00\x00\x00\x00\x00\x00",  # another NaN
        b"d\x03abc",
        b"D\x01\x00",
        b"t\x08\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"z\x08\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"s\x01\xff",
    ],
)
def test_what_encode_never_writes_is_refused_with_its_place(data: bytes) -> None:
    """Two byte strings for one value, or a crash while allocating, would both be holes."""
    with pytest.raises(ValueError, match=r"corrupt encoding at byte \d+ of \d+"):
        decode(data)


def test_json_is_canonical() -> None:
    """Presented values are compared and published as text."""
    assert to_json({"b": (1, 2.5), "a": {"z", "y"}, 3: None}) == '{"3":null,"a":["y","z"],"b":[1,2.5]}'
    assert to_json([math.nan, math.inf, -math.inf, b"\xff", Decimal("1.10")]) == '["nan","inf","-inf","/w==","1.10"]'
    assert to_json([date(2024, 1, 2), datetime(2024, 1, 2, tzinfo=UTC)]) == '["2024-01-02","2024-01-02T00:00:00+00:00"]'
    assert to_json("é\ud800") == '"\\u00e9\\ud800"'
    assert to_json(-(10**5000)) == "-1" + 5000 * "0"
    assert to_json("é") == '"é"'
    assert to_json([np.int64(3), np.float32(0.5), True]) == "[3,0.5,true]"
    assert to_json({(1, "a"): 1, None: 2, "": 3}) == '{"":3,"[1,\\"a\\"]":1,"null":2}'
    with pytest.raises(TypeError, match="cannot be presented"):
        to_json(object())


def test_order_key_orders_anything() -> None:
    """Sorted presentations must not depend on how a set was built."""
    values = [
        math.nan,
        "b",
        2,
        (1, "x"),
        None,
        -1.5,
        b"a",
        (1, None),
        frozenset({1}),
        "a",
        Decimal("0.5"),
        date(2024, 1, 1),
    ]
    expected = [
        None,
        -1.5,
        Decimal("0.5"),
        2,
        math.nan,
        "a",
        "b",
        b"a",
        date(2024, 1, 1),
        (1, None),
        (1, "x"),
        frozenset({1}),
    ]
    assert sorted(values, key=order_key) == expected
    backwards = values[::-1]
    assert sorted(backwards, key=order_key) == expected


def test_no_entry_is_lost_where_two_keys_read_alike() -> None:
    """A reader of JSON keeps one of two entries with one name."""
    alike = [
        ({1: "a", "1": "b"}, '[["1","b"],[1,"a"]]'),
        ({None: 1, "null": 2}, '[["null",2],[null,1]]'),
        ({(1, 2): 1, frozenset({1, 2}): 0}, "[[[1,2],0],[[1,2],1]]"),
        ({True: 1, "true": 2, "x": 3}, '[["true",2],["x",3],[true,1]]'),
    ]
    for value, text in alike:
        assert to_json(value) == text == to_json(dict(reversed(list(value.items()))))
    assert to_json({1: "a", "2": "b", '"1"': "c"}) == '{"\\"1\\"":"c","1":"a","2":"b"}'
