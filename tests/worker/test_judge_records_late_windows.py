"""Late records by the window that they missed: every one is counted, however many windows there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.time.window import sliding, tumbling
from persistent.worker.judge_records import added, windows_missed
from tests.late import Run, disordered, run_of

counts = st.dictionaries(st.none() | st.integers(0, 9), st.integers(1, 50), max_size=6)


@given(st.lists(counts, max_size=4), st.integers(0, 8))
def test_sums_lose_no_record_and_name_the_windows_with_most(counted: list[Any], most: int) -> None:
    """A window that thousands have missed would hide among those that one has."""
    sums, plain = added(counted, most), Counter[Any]()
    for one in counted:
        plain.update(one)
    named = {start: count for start, count in sums.items() if start is not None}
    assert sum(sums.values()) == sum(plain.values()) and 0 not in sums.values()
    assert list(named) == sorted(named) and all(plain[start] == count for start, count in named.items())
    unnamed = [count for start, count in plain.items() if start is not None and start not in named]
    assert len(named) == min(most, len(named) + len(unnamed))
    assert not unnamed or not named or max(unnamed) <= min(named.values())


def test_windows_of_equal_counts_are_named_from_the_first() -> None:
    """Two runs over the same records would name others."""
    assert added([{30: 1, 10: 1, 20: 1}], 2) == {10: 1, 20: 1, None: 1}


def test_a_record_has_missed_the_last_window_that_held_it() -> None:
    """Each is counted once, although several windows have held it."""
    assert windows_missed(sliding(20, every=5), np.array([7, 9, 12])) == {5: 2, 10: 1}


def plain_windows(run: Run) -> dict[int, int]:
    """The late records by window: step by step."""
    found: Counter[int] = Counter()
    clock = 0
    for first in range(0, len(run.rows), run.step_rows):
        step = run.rows[first : first + run.step_rows]
        found.update(run.window.last_start(row["ts"]) for row in step if run.window.last_end(row["ts"]) <= clock)
        clock = max(clock, *(row["ts"] for row in step))
    return dict(found)


@pytest.mark.parametrize("window", [tumbling(10), sliding(20, every=5)])
@pytest.mark.parametrize("step_rows", [1, 7])
def test_the_report_counts_late_records_by_task_and_window(window: Any, step_rows: int) -> None:
    """Whoever is asked how wrong a published window is could only say how many records were late in all."""
    seen: list[Any] = []
    with run_of(disordered(3, 60, 60), window=window, step_rows=step_rows) as run:
        report = run.run(on_step=seen.append)
        expected = plain_windows(run)
        assert report.late_windows == {"late": expected} and sum(expected.values()) == report.late > 5
        assert added(step.late_windows["late"] for step in seen) == expected
        assert f"{report.late:,} late, " in str(report) and "; late in late: " in str(report)
        assert "of other windows" in str(report)


def test_a_report_without_late_records_says_nothing_of_them() -> None:
    with run_of([{"ts": time, "key": "a", "value": 1} for time in (1, 12)]) as run:
        report = run.run()
        assert report.late_windows == {} and "late in" not in str(report)
