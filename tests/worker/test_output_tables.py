"""A result is presented, or told with its key and window."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from monoids import Monoid, Product, Sum
from persistent import (
    UserCodeError,
    sliding,
    tumbling,
)
from persistent.verify import verify
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
