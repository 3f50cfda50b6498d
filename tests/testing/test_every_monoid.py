"""A task is verified whatever monoid of the catalogue its state is, fed as the documentation says."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Bag, HeavyHitters, Monoid, Reservoir, mapping, record
from monoids.containers.intervals import Sessions
from monoids.laws.examples import examples_of
from monoids.laws.instances import INSTANCES
from persistent import NonWindowState, PersistentTask
from persistent.testing import verify_task
from persistent.testing.watching import draws_lots
from tests.few import only

ROWS = [{"ts": number // 2 * 10, "key": "ab"[number % 2], "number": number} for number in range(4)]


def task_of(monoid: Monoid[Any], inputs: list[Any]) -> type[PersistentTask]:
    """A task that gives a state of this monoid one of the inputs for each message."""

    class Gives(PersistentTask):
        key = "key"

        def persistent_state(self) -> Any:
            return NonWindowState(monoid)

        def process_message(self, state: Any, message: Any) -> None:
            value = inputs[message.value["number"]]
            if isinstance(monoid, Reservoir | HeavyHitters) and isinstance(value, tuple):
                value = (message.order, value[1])
            state.update(message.timestamp, value)

    return Gives


GIVEN = {number: monoid for number, (monoid, _) in enumerate(INSTANCES) if not isinstance(monoid, Sessions)}
"""Sessions are what the state of a session window is a sum of, not what a task gives to a state."""
CLASSES = {type(monoid): number for number, monoid in reversed(GIVEN.items())}
"""The first instance of each class of monoids."""


@pytest.mark.parametrize(
    "monoid",
    only({*[*CLASSES.values()][::3]}.__contains__, GIVEN),
    ids=[repr(monoid)[:60] for monoid in GIVEN.values()],
)
def test_every_monoid_of_the_catalogue_is_verified(monoid: int) -> None:
    """Lost: the test kit itself, on whoever uses a Bag, a Histogram or a sketch."""
    given, strategy = INSTANCES[monoid]
    inputs = [x for example in examples_of(strategy, 8) for x in example["xs"].xs]
    inputs = (inputs[:: max(len(inputs) // len(ROWS), 1)] * len(ROWS))[: len(ROWS)]
    if given.widens:  # of inputs at the limits the total may be none; of one it always is
        inputs[2:] = [None, None]
    verify_task(task_of(given, inputs), ROWS, elsewhere=False, shuffles=1, steps=2)


def test_samples_are_fed_as_documented() -> None:
    """Lost: a true verdict on Reservoir(k) and HeavyHitters(k), whose sample is drawn by message.order."""
    records = [{"ts": number * 10, "key": "ab"[number % 2], "number": number} for number in range(8)]
    values = [(None, number % 5) for number in range(8)]
    for task in (task_of(Reservoir(2), values), task_of(HeavyHitters(2, int, track=2), values), Sampled):
        verify_task(task, records, elsewhere=False)


class Sampled(PersistentTask):
    """A sample in a field of a record."""

    key = "key"

    def persistent_state(self) -> Any:
        return NonWindowState(record(sample=Reservoir(1)))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"sample": (message.order, message.value["number"])})


def test_parts_are_found_however_deep() -> None:
    """Lost: the position that a sample is drawn by, inside a record or a mapping; an end to the search in a Bag."""
    assert draws_lots(record(a=mapping(Reservoir(2))))
    assert not draws_lots(record(a=mapping(Bag(int))))
