"""A result is presented, or told with its key and window."""

from __future__ import annotations

import decimal
import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest

from monoids import Monoid, Product, Sum
from persistent import (
    UserCodeError,
    sliding,
    tumbling,
)
from persistent.connect.sink import NUMBERED
from persistent.verify import verify
from persistent.worker.output_tables import END, RETRACTED, REVISION, START, TIMESTAMP, newest_rows
from tests.totals import HIGH, LOW, One, pipeline, published, rows, run

WINDOWS = {"none": None, "tumbling": tumbling("1 min"), "sliding": sliding(60_000, every=20_000)}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("monoid", "values", "expected"),
    [
        (Sum(), [HIGH] * 12 + [-HIGH] * 12, 0),
        (Sum(), [LOW] * 12 + [HIGH] * 12 + [12], 0),
        (Product(), [2**62, 2, -1], LOW),
        (Product(), [2**62] * 20 + [0], 0),
    ],
)
def test_a_total_that_comes_back_into_range_is_right(
    monoid: Monoid[Any], values: list[int], expected: int, window: Any
) -> None:
    """Compaction would stop every key, though no result was ever out of range."""
    given = [pair for value in values for pair in (("a", value), ("b", 1))]
    job = pipeline(rows(*given), monoid, window)
    report = run(job)
    ones = 1 if monoid.name == "Product" else len(values)
    assert published(job) == {"a": expected, "b": ones} and report.unfolded == 0
    assert verify(job.storage).ok


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_a_result_out_of_range_stops_the_run_with_key_window_and_remedy(window: Any) -> None:
    """Of a million keys, whoever has to mend it must know which."""
    job = pipeline(rows(("b", 1), ("a", HIGH), ("a", 1), ("b", 2)), Sum(), window)
    with pytest.raises(UserCodeError, match=r"key \(k='a'\)") as raised:
        run(job)
    for part in ("the total 9223372036854775808", "unbounded=True", "Evolution(before=", 'on_error="dead-letter"'):
        assert part in str(raised.value)
    assert window is None or re.search(r"window \S+ (00:00:00Z|ms) to 1970-01-01 00:0", str(raised.value))
    assert published(job) == {} and verify(job.storage).ok


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("monoid", "values", "reason"),
    [
        (Sum(), (HIGH, 1), "OverflowError: Sum(): the total 9223372036854775808 is outside 64-bit integers"),
        (Product(), (HIGH, 2), "OverflowError: Product(): a total is outside 64-bit integers"),
        (One(), (3, 4), "ValueError: 3 and 4 are not one"),
    ],
)
def test_with_dead_letters_only_its_row_is_set_aside(
    monoid: Monoid[Any], values: tuple[int, int], reason: str, window: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One key must not hold up the results of all others; nor be lost without a word, nor be counted as a record."""
    given = rows(
        ("b", 5), ("a", values[0]), ("c", 6), ("b", 5 if isinstance(monoid, One) else 1), ("d", 1), ("a", values[1])
    )
    job = pipeline(given, monoid, window, on_error="dead-letter", step_rows=3)
    report = run(job)
    seen = published(job)
    assert seen.keys() == {"b", "c", "d"} and (report.dead, report.duplicates) == (0, 0)
    letters = job.dead_letters().to_pylist()
    windows = 3 if window is WINDOWS["sliding"] else 1
    assert len(letters) == report.set_aside == windows and "could not be shown" in str(report)
    for letter in letters:
        assert "key (k='a')" in letter["reason"] and reason in letter["reason"] and letter["offset"] is None
        assert json.loads(letter["data"])["key"] == {"k": "a"}
    found = verify(job.storage)
    assert found.ok and found.findings == []
    assert sum(account.processed for account in report.ledger.values()) == len(given)


KEYS: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "long" * 9],
    pa.binary(): [b"", b"\0", b"a"],
    pa.int64(): [-(1 << 63), 0, 5],
    pa.float64(): [float("nan"), 0.0, 1.5],
    pa.bool_(): [True, False],
    pa.decimal128(5, 2): [decimal.Decimal("1.50"), decimal.Decimal("-2.25")],
    pa.timestamp("us", "UTC"): [-1, 0, 1],
    pa.date32(): [0, 1, 2],
}


def taken_back(kind: pa.DataType, rows: list[tuple[Any, int, int, int, bool]]) -> pa.Table:
    """Sessions of a key: start, end, revision, and whether it is taken back."""
    keys, starts, ends, revisions, marks = map(list, zip(*rows))
    columns = [pa.array(keys, kind), *(pa.array(one, TIMESTAMP) for one in (starts, ends)), pa.array(range(len(rows)))]
    fields = [pa.field(REVISION, pa.int64(), metadata=NUMBERED), pa.field(RETRACTED, pa.bool_())]
    names = [pa.field(name, one.type) for name, one in zip(("key", START, END, "value"), columns)]
    return pa.table([*columns, pa.array(revisions), pa.array(marks)], schema=pa.schema([*names, *fields]))


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_of_a_key_and_window_the_newest_row_stays(kind: pa.DataType) -> None:
    """A table would refuse the second row of a key, or keep the one that takes back what has a new value."""
    rng = random.Random(3)
    rows = [
        (key, start, start + length, revision, mark)
        for key in KEYS[kind]
        for start in (0, 7)
        for length in (5, 9)
        for revision in (3, 4)
        for mark in (True, False)
        if rng.random() < 0.7
    ]
    for _ in range(5):
        rng.shuffle(rows)
        table = taken_back(kind, rows)
        best: dict[Any, tuple[int, bool, int]] = {}
        for number, (key, start, end, revision, mark) in enumerate(rows):
            one = (revision, not mark, number)
            best[str(key), start, end] = max(best.get((str(key), start, end), one), one)
        kept = newest_rows(table, ("key", START, END))
        assert kept["value"].to_pylist() == sorted(number for *_, number in best.values())
        assert kept.schema.equals(table.schema, check_metadata=True)


def test_rows_that_take_nothing_back_stay_as_they_are() -> None:
    """A field of the record can have that name."""
    table = taken_back(pa.string(), [("a", 0, 5, 3, True), ("a", 0, 5, 3, False)])
    key = ("key", START, END)
    assert newest_rows(table, key).num_rows == 1
    fields = table.cast(pa.schema([field.remove_metadata() for field in table.schema]))
    moved = table.select(["key", START, END, RETRACTED, "value", REVISION])
    for other in (fields, moved, table.slice(1, 1), table.slice(0, 0)):
        assert newest_rows(other, key) is other
