"""What a correction publishes: of which keys and windows, and what stands in each row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.late import Row, run_of


def published(rows: list[tuple[str, int, int]], late: str, step_rows: int = 1, **options: Any) -> list[Row]:
    """The rows after the first window of ``a`` and ``b`` has closed, by (key, time, value)."""
    given = [{"key": key, "ts": time, "value": value} for key, time, value in rows]
    chosen = {"allowed_lateness": 1000, "late": late}
    with run_of(given, options=chosen, step_rows=step_rows, **options) as run:
        run.run(end_of_input=False)
        return run.published()


def values(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


BEFORE = [("a", 1, 5), ("b", 2, 7), ("a", 15, 1), ("a", 16, 1)]


def test_only_the_keys_of_the_delta_are_published_again() -> None:
    """A late record of one key would otherwise publish all keys of its window."""
    rows = published([*BEFORE, ("a", 3, 1)], "accumulate")
    assert values(rows, "key", "total") == [("a", 5), ("b", 7), ("a", 6)]
    assert rows[2]["revision"] > rows[1]["revision"] == rows[0]["revision"]


def test_only_the_windows_of_a_key_that_it_touched_are_published_again() -> None:
    """In one step a is late in one window and b in another: neither is published in the other's."""
    late = [("a", 3, 1), ("b", 18, 1)]
    rows = published(
        [*BEFORE, ("b", 17, 4), ("a", 25, 1), ("a", 26, 1), ("a", 27, 1), *late], "accumulate", step_rows=2
    )
    again = [row for row in rows if row["revision"] == rows[-1]["revision"]]
    assert sorted(values(again, "key", "window", "total")) == [("a", (0, 10), 6), ("b", (10, 20), 5)]


def test_a_retraction_repeats_the_old_row_before_the_new_one() -> None:
    rows = published([*BEFORE, ("a", 3, 1)], "retract")
    assert values(rows, "key", "total", "retracted") == [
        ("a", 5, False),
        ("b", 7, False),
        ("a", 5, True),
        ("a", 6, False),
    ]
    assert rows[2]["revision"] == rows[3]["revision"] > rows[0]["revision"]


def test_nothing_is_taken_back_where_there_was_nothing() -> None:
    rows = published([*BEFORE, ("c", 3, 1)], "retract")
    assert values(rows, "key", "total", "retracted")[2:] == [("c", 1, False)]


def test_a_delta_is_what_the_late_records_add() -> None:
    rows = published([*BEFORE, ("a", 3, 1), ("c", 4, 2)], "delta")
    assert values(rows, "key", "rows", "total")[2:] == [("a", 1, 1), ("c", 1, 2)]


@pytest.mark.parametrize("late", ["accumulate", "retract"])
def test_a_window_that_closes_in_a_step_has_what_the_step_reads(late: str) -> None:
    """It is published once in that step, with the records that came with it."""
    rows = published([*BEFORE, ("a", 3, 1), ("b", 4, 1)], late, step_rows=3)
    assert values(rows, "key", "total") == [("a", 6), ("b", 8)]
