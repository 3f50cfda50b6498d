"""What a column may hold is looked at before anything is committed, however deep it stands."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.connect.sql import check_distinct, check_times, leaves
from persistent.errors import InvalidPipeline


def test_every_value_is_looked_at_and_no_other() -> None:
    """One that is missed stops every run once it is committed; one that is not there, the first run."""
    entry = pa.struct([("x", pa.list_(pa.int64()))])
    struct = pa.StructArray.from_arrays([pa.array(["hidden", "seen"])], ["a"], mask=pa.array([True, False]))
    outputs = {
        "plain": (pa.array([None, 1, 2]), [("plain", [1]), ("plain", [2])]),
        "map": (
            pa.array([[("no", None)], [("k", {"x": [1]})], None], pa.map_(pa.string(), entry)),
            [("map.key", ["k"]), ("map.value.x", [1]), ("map.key", []), ("map.value.x", [])],
        ),
        "list": (pa.array([[["no"]], [["a"], [None]], None]), [("list", ["a"]), ("list", [])]),
        "large": (pa.array([[9], [1], [2]], pa.large_list(pa.int8())), [("large", [1]), ("large", [2])]),
        "fixed": (pa.array([[9, 9], [1, 2], None], pa.list_(pa.int8(), 2)), [("fixed", [1, 2]), ("fixed", [])]),
        "words": (pa.array(["no", "a", None]).dictionary_encode(), [("words", ["a"]), ("words", [])]),
        "masked": (pa.concat_arrays([struct, struct.slice(0, 1)]), [("masked.a", ["seen"]), ("masked.a", [])]),
    }
    for name, (column, expected) in outputs.items():
        chunks = pa.chunked_array([column.slice(1, 1), column.slice(2, 1)])
        assert [(where, values.to_pylist()) for where, values in leaves(name, chunks)] == expected, name


DAY = 86_400
FIRST, LAST = -719_162, 2_932_896


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_of_four_digits_are_taken_and_no_others(unit: str) -> None:
    """A year that the text of a timestamp has no digits for comes back as another: 60,000 as -5,536."""
    a_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "Asia/Tokyo")):
        low, high = FIRST * DAY * a_second, (LAST + 1) * DAY * a_second - 1
        check_times(pa.table({"at": pa.array([low, None, high]).cast(kind)}), "t")
        for wrong in (low - 1, high + 1):
            outputs = pa.table({"at": pa.array([[], [0, wrong]], pa.list_(pa.int64())).cast(pa.list_(kind))})
            text = f"^t: column 'at' has the timestamp of {wrong} {unit} since 1970, .* the years 1 to 9999: give"
            with pytest.raises(InvalidPipeline, match=text):
                check_times(outputs, "t")


def test_dates_and_times_of_day_have_bounds() -> None:
    """Arrow takes any number for them, and writes no day."""
    fine = {
        "day": pa.array([FIRST, LAST], pa.int32()).cast(pa.date32()),
        "milliseconds": pa.array([FIRST * DAY * 1_000, (LAST + 1) * DAY * 1_000 - 1]).view(pa.date64()),
        "nanoseconds": pa.array([-(2**63), 2**63 - 1]).view(pa.timestamp("ns")),
        "time": pa.array([0, DAY - 1], pa.int32()).view(pa.time32("s")),
        "fine": pa.array([0, DAY * 10**9 - 1]).view(pa.time64("ns")),
        "span": pa.array([-(2**63), 2**63 - 1]).view(pa.duration("s")),
        "empty": pa.array([None, None], pa.date32()),
    }
    check_times(pa.table(fine), "t")
    for name, wrong, text in (
        ("day", pa.array([0, LAST + 1], pa.int32()).cast(pa.date32()), f"date of {LAST + 1} days since 1970"),
        ("day", pa.array([FIRST - 1, 0], pa.int32()).cast(pa.date32()), f"date of {FIRST - 1} days since 1970"),
        ("milliseconds", pa.array([0, 2**60]).view(pa.date64()), f"date of {2**60} ms since 1970"),
        ("time", pa.array([DAY, 0], pa.int32()).view(pa.time32("s")), f"time of {DAY} s, which is not in a day"),
        ("fine", pa.array([-1, 0]).view(pa.time64("ns")), "time of -1 ns, which is not in a day"),
    ):
        with pytest.raises(InvalidPipeline, match=f"column '{name}' has the {text}"):
            check_times(pa.table({**fine, name: wrong}), "t")


def test_names_that_differ_in_case_alone_are_one_to_sqlite() -> None:
    """The table cannot be made, and what is committed can only be published."""
    check_distinct(["page", "value", "pages"], "t")
    with pytest.raises(InvalidPipeline, match="the columns 'page' and 'PAGE' are the same to SQLite"):
        check_distinct(["page", "value", "PAGE"], "t")
