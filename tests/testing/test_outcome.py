"""Outcomes are compared value by value: what is not seen here is not seen by any test of a user."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from monoids import Count
from persistent import PersistentTask, WindowState, tumbling
from persistent.testing import verify_task
from persistent.testing.outcome import Outcome, Slot, first_difference, same

NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, True),
        (None, 0),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        (1.0, 1.0 + 1e-12),
        (Decimal(1), 1),
        ("a", b"a"),
    ],
)
def test_what_is_not_the_same(a: Any, b: Any) -> None:
    """1 and 1.0 are different values in a column."""
    assert not same(a, b) and not same(b, a)


@pytest.mark.parametrize("a", [NAN, [NAN], {"x": (1, NAN)}, 0, "", None, Decimal("1.5")])
def test_what_is_the_same(a: Any) -> None:
    """NaN that differs from itself would make every run differ."""
    assert same(a, a)
    assert same(1.0, 1.0 + 1e-12, 1e-9) and not same(1.0, 1.1, 1e-9)


def outcome(**rows: list[Any]) -> Outcome:
    """Rows of key ``k`` under each part."""
    return Outcome(("page",), {Slot(part, ("k",), (0, 10)): found for part, found in rows.items()})


def test_a_difference_says_where() -> None:
    """The first that matters to a user: outputs, then state, then what was put aside."""
    left = outcome(outputs=[{"a": 1, "b": 2}], state=[{"a": 1}], late=[{"x": 1}])
    right = outcome(outputs=[{"a": 1, "b": 3}], state=[{"a": 2}], late=[])
    found = first_difference(left, right, None)
    assert found is not None
    assert (found.place.part, found.key, found.field, found.expected, found.found) == ("outputs", "k", "b", 2, 3)
    assert found.where() == ["key: page='k'", "window: [0, 10)"]
    assert found.values("calm", "now") == ["b, calm: 2", "b, now: 3"]
    assert first_difference(left, left, None) is None


def test_what_is_there_twice_differs() -> None:
    """A window published two times is the mistake that exactly-once forbids."""
    found = first_difference(outcome(outputs=[{"a": 1}]), outcome(outputs=[{"a": 1}, {"a": 1}]), None)
    assert found is not None and found.values("calm", "now") == ["calm: {'a': 1}", "now: [{'a': 1}, {'a': 1}]"]
    gone = first_difference(outcome(late=[{"x": 1}]), outcome(), None)
    assert gone is not None and gone.where()[0] == "in: late" and repr(gone.found) == "nothing"


def test_a_key_can_be_called_revision() -> None:
    """Without it a task with that key would end its test with a TypeError of ours."""

    class Changes(PersistentTask):
        key = "revision"

        def persistent_state(self) -> WindowState:
            return WindowState(Count(), tumbling("1 min"))

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    records = [{"ts": 1, "revision": "a"}, {"ts": 2, "revision": "b"}, {"ts": 3, "revision": "a"}]
    verify_task(Changes, records, expected={("a", 0): 2, ("b", 0): 1}, elsewhere=False)
