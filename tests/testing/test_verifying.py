"""verify_task finds the mistakes that users make, and finds none where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from monoids import Mean, Sum
from persistent import InvalidPipeline, NonWindowState, PersistentTask
from persistent.testing import TaskDiffers, verify_task
from tests.few import one_in
from tests.testing.planted import (
    MISTAKES,
    ROWS,
    KeyByChecksum,
    Mistake,
    OrderOfReading,
    OrderWithinAKey,
    StateOnSelf,
    Totals,
    Visits,
    VisitsByMinute,
)

RIGHT = tuple(dict.fromkeys(mistake.right for mistake in MISTAKES)) + (OrderWithinAKey,)
PAGES = dict(Counter(row["page"] for row in ROWS))


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("mistake", one_in(2, MISTAKES), ids=repr)
def test_a_mistake_is_found(mistake: Mistake) -> None:
    """A user would learn of it from wrong figures, after the first crash."""
    elsewhere = mistake.way == "in another process"
    with pytest.raises(TaskDiffers) as caught:
        verify_task(mistake.wrong, mistake.rows, elsewhere=elsewhere)
    assert caught.value.way.startswith(mistake.way), caught.value
    assert mistake.shown is None or len(caught.value.records) == mistake.shown, caught.value
    assert mistake.wrong.__name__ in str(caught.value)


@pytest.mark.parametrize("task", one_in(2, RIGHT), ids=lambda task: task.__name__)
def test_an_honest_task_passes(task: type[PersistentTask]) -> None:
    """A test that fails for no reason is switched off."""
    verify_task(task, ROWS, steps=5, elsewhere=task in (Totals, KeyByChecksum))


def test_the_message_says_where_and_why() -> None:
    """A user who reads only "not equal" has to find the place alone."""
    with pytest.raises(TaskDiffers) as caught:
        verify_task(StateOnSelf, ROWS, elsewhere=False)
    told = caught.value
    assert (told.way, told.key, told.window) == ("reborn between messages", "page 1", None)
    assert (told.expected, told.found) == (3, 2)
    assert str(told).splitlines() == [
        "StateOnSelf, run reborn between messages, has a different result",
        "  key: page='page 1'",
        "  value, all at once: 3",
        "  value, reborn between messages: 2",
        "  shown by 2 of 14 records:",
        *[f"    {row!r}" for row in told.records],
        "A crash loses the attributes on self, because the task is created again: keep them in the state.",
    ]


def test_records_of_one_time_stay_in_their_order() -> None:
    """Which of them is the latest is decided by where they stand, and that is no mistake."""
    verify_task(OrderOfReading, [{"ts": 5, "page": "a", "n": number} for number in range(6)], elsewhere=False)


def test_records_are_shuffled_as_far_as_is_allowed() -> None:
    """A task that relies on what its source promises is right."""
    rows = [{"ts": 10 * number, "page": "a", "n": number} for number in range(8)]
    verify_task(OrderOfReading, rows, max_out_of_orderness=9, elsewhere=False, steps=2, shuffles=20)
    with pytest.raises(TaskDiffers, match="shuffled"):
        verify_task(OrderOfReading, rows, max_out_of_orderness=25, elsewhere=False, steps=2, shuffles=20)


@pytest.mark.parametrize(
    "expected", [PAGES, lambda rows: Counter(row["page"] for row in rows)], ids=["map", "function"]
)
def test_what_is_expected_comes_out(expected: Any) -> None:
    """All ways could agree on what is wrong."""
    verify_task(Visits, ROWS, expected=expected, shuffles=0, steps=2, elsewhere=False)


def test_what_is_expected_of_windows() -> None:
    """Windows are named by key and start; fields that are left out are not compared."""

    def expected(rows: Sequence[Any]) -> dict[Any, Any]:
        return {
            place: {"visits": count}
            for place, count in Counter((row["page"], row["ts"] // 10 * 10) for row in rows).items()
        }

    verify_task(VisitsByMinute, ROWS, expected=expected, shuffles=0, steps=2, elsewhere=False)
    with pytest.raises(TaskDiffers) as caught:
        verify_task(VisitsByMinute, ROWS, expected=lambda rows: {**expected(rows), ("page 9", 20): {"visits": 1}})
    assert (caught.value.way, caught.value.key, caught.value.window) == ("expected", "page 9", (20, 30))
    assert "expected: {'visits': 1}\n  the task: nothing" in str(caught.value)


def test_sums_of_floats_need_not_be_the_same_to_the_bit() -> None:
    """Their last bits depend on the order of adding, which nobody promises."""

    class Means(Visits):
        def persistent_state(self) -> Any:
            return NonWindowState(Mean())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, message.value["x"])

    rows = [{"ts": n, "page": "a", "x": 1 / (n + 1)} for n in range(6)]
    verify_task(Means, rows, elsewhere=False, steps=2)
    with pytest.raises(TaskDiffers):
        verify_task(Means, rows, elsewhere=False, tolerance=0.0, steps=2, shuffles=20)


@pytest.mark.parametrize(
    ("task", "records", "options", "told"),
    [
        (Visits, [], {}, "at least one record"),
        (Visits, "ts", {}, "a list of mappings"),
        (3, ROWS, {}, "give a task, its class"),
        (Visits, ROWS, {"steps": 0}, "steps=0"),
        (Visits, ROWS, {"shuffles": -1}, "shuffles=-1"),
        (Visits, ROWS, {"on_error": "go on"}, "choose"),
        (VisitsByMinute, ROWS, {"expected": {"page 0": 1}}, "give \\(key, window_start in ms\\)"),
    ],
)
def test_bad_arguments_are_refused(task: Any, records: Any, options: dict[str, Any], told: str) -> None:
    """A test that tests nothing would pass."""
    with pytest.raises(InvalidPipeline, match=told):
        verify_task(task, records, elsewhere=False, **options)


def test_an_overflow_in_one_way_only_is_a_difference() -> None:
    """A task that works in one step and stops in two would stop in production."""

    class Batchwise(Visits):
        def persistent_state(self) -> Any:
            return NonWindowState(Sum())

        def process_batch(self, state: Any, batch: Any) -> None:
            if len(batch) < len(ROWS):
                raise ValueError("a small batch")
            state.update_batch(batch.timestamps, 1)

    with pytest.raises(TaskDiffers, match=r"all at once: ends\n  one by one: raises UserCodeError.*a small"):
        verify_task(Batchwise, ROWS, elsewhere=False)
