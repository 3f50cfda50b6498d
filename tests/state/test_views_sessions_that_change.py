"""A published session that late records change is taken back as it was, even if what it becomes has no value."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from monoids import Monoid
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, UserCodeError, WindowState, session
from persistent.storage import MemoryStorage


class Fragile(Monoid[int]):
    """A sum that cannot be more than ten, and shows no five."""

    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        if a + b > 10:
            raise ValueError(f"{a + b} is too much")
        return a + b

    def present(self, element: int) -> int:
        if element == 5:
            raise ValueError("five")
        return element


class Totals(PersistentTask):
    key = "key"

    def __init__(self, **options: Any) -> None:
        self.options = options

    def persistent_state(self) -> WindowState:
        return WindowState(Fragile(), session(10, cut=1000), allowed_lateness=500, **self.options)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def at(*pairs: tuple[int, int], key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "n": n} for time, n in pairs]


CLOCK = at((100, 1), (101, 1), key="z")
"""Closes what ends before."""


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    made = MemoryStorage(uuid.uuid4().hex)
    yield made
    made.clear()


def pipeline(storage: MemoryStorage, sink: MemorySink, rows: list[dict[str, Any]], **options: Any) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    made = {"task": Totals(), "step_rows": 1, **options}
    return Pipeline(source=source, sink=sink, checkpoint=storage, **made)


def published(sink: MemorySink) -> list[tuple[int, int, int, bool]]:
    """The rows of "a" in their order: start, end, value, and whether it is taken back."""
    return [
        (_ms(row["window_start"]), _ms(row["window_end"]), int(row["value"]), row["retracted"])
        for row in sink.rows()
        if row["key"] == "a"
    ]


def _ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def test_what_raises_once_it_is_joined_is_set_aside_and_what_was_published_is_taken_back(
    storage: MemoryStorage,
) -> None:
    """The two that were published are no more. Nor is it set aside again by what comes later of its key."""
    sink = MemorySink()
    rows = [*at((0, 6), (18, 4)), *at((40, 2)), *CLOCK, *at((9, 1)), *at((45, 3)), *at((200, 1), key="z")]
    made = pipeline(storage, sink, rows, on_error="dead-letter")
    report = made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [
        (0, 10, 6, False),
        (18, 28, 4, False),
        (40, 50, 2, False),
        (0, 10, 6, True),
        (18, 28, 4, True),
        (40, 50, 2, True),
    ]
    reasons = [row["reason"] for row in made.dead_letters().to_pylist()]
    assert len(reasons) == 2 and "11 is too much" in reasons[0] and "five" in reasons[1]
    assert report.corrected == 3


def test_a_run_stops_at_a_session_whose_fold_raises_and_nothing_is_taken_back(storage: MemoryStorage) -> None:
    sink = MemorySink()
    rows = [*at((0, 6), (18, 4)), *CLOCK, *at((9, 1))]
    with pytest.raises(UserCodeError, match=r"window .*00Z to .*00.028Z: ValueError: 11 is too much"):
        pipeline(storage, sink, rows).run(engine="embedded")
    assert [row[3] for row in published(sink)] == [False, False]


def test_what_has_no_value_was_never_published_and_is_not_taken_back(storage: MemoryStorage) -> None:
    """A session of five becomes one of seven."""
    sink = MemorySink()
    rows = [*at((0, 5)), *CLOCK, *at((4, 2))]
    made = pipeline(storage, sink, rows, on_error="dead-letter")
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [(0, 14, 7, False)]
    (dead,) = made.dead_letters().to_pylist()
    assert json.loads(dead["data"])["window_end"] == 10


def test_beside_what_raises_others_are_corrected(storage: MemoryStorage) -> None:
    """Also by a run that would stop at it: it was set aside, and nothing has changed it."""
    sink = MemorySink()
    rows = [*at((0, 6)), *at((2, 6)), *at((20, 1)), *CLOCK, *at((22, 2)), *at((15, 3))]
    pipeline(storage, sink, rows[:-2], on_error="dead-letter").run(engine="embedded")
    made = pipeline(storage, sink, rows)
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [
        (20, 30, 1, False),
        (20, 30, 1, True),
        (20, 32, 3, False),
        (20, 32, 3, True),
        (15, 32, 6, False),
    ]
    assert len(made.dead_letters()) == 1


def test_an_open_session_whose_sum_raises_is_set_aside_and_what_was_published_of_it_is_taken_back(
    storage: MemoryStorage,
) -> None:
    """So is one that has no value. It is published once it has a value again, and nothing is then taken back."""
    sink = MemorySink()
    rows = [*at((0, 6)), *at((20, 3)), *at((3, 6)), *at((25, 2)), *at((28, 1)), *at((40, 1)), *at((33, 1))]
    made = pipeline(storage, sink, rows, task=Totals(emit="change"), on_error="dead-letter")
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [
        (0, 10, 6, False),
        (20, 30, 3, False),
        (0, 10, 6, True),
        (20, 30, 3, True),
        (20, 38, 6, False),
        (40, 50, 1, False),
        (20, 38, 6, True),
        (40, 50, 1, True),
        (20, 50, 8, False),
    ]
    reasons = [row["reason"] for row in made.dead_letters().to_pylist()]
    assert len(reasons) == 2 and "12 is too much" in reasons[0] and "five" in reasons[1]


def test_a_run_stops_at_an_open_session_whose_sum_raises(storage: MemoryStorage) -> None:
    sink = MemorySink()
    with pytest.raises(UserCodeError, match=r"window .*00Z to .*00.013Z: ValueError: 12 is too much"):
        pipeline(storage, sink, at((0, 6), (3, 6)), task=Totals(emit="change")).run(engine="embedded")
    assert published(sink) == [(0, 10, 6, False)]


def test_an_early_session_whose_sum_raises_takes_back_what_was_published_of_it(storage: MemoryStorage) -> None:
    """Which of them close is said by their times alone."""
    sink = MemorySink()
    rows = [*at((0, 6)), *at((30, 1), (31, 1), key="z"), *at((4, 5)), *at((60, 1), (61, 1), key="z")]
    made = pipeline(storage, sink, rows, task=Totals(early=10), on_error="dead-letter")
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [(0, 10, 6, False), (0, 10, 6, True)]
    assert len(made.dead_letters()) == 1
