"""The kit tries a task with several states in every way, and tells which state differs."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Monoid, Sum
from persistent import (
    FileSink,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.testing import SimulationFailed, TaskDiffers, simulate, verify_task
from tests.several import KINDS, Several, disordered

ROWS = [{"ts": 1, "key": "x"}, {"ts": 2, "key": "x"}, {"ts": 150, "key": "y"}]
EXPECTED = {"a": {"x": 2, "y": 1}, "b": {("x", 0): 4, ("y", 100): 2}}


class Two(PersistentTask):
    key = "key"

    def persistent_state(self) -> Any:
        return {"a": NonWindowState(Sum(int)), "b": WindowState(Sum(int), tumbling("100 ms"))}

    def process_message(self, state: Any, message: Any) -> None:
        state["a"].update(message.timestamp, 1)
        state["b"].update(message.timestamp, 2)


def test_what_is_expected_is_given_by_state() -> None:
    """Of one without windows its values are compared, of one with windows its outputs."""
    verify_task(Two, ROWS, expected=EXPECTED, elsewhere=False)
    verify_task(Two, ROWS, expected={"b": EXPECTED["b"]}, elsewhere=False)
    for wrong, part in (({"a": {"x": 3, "y": 1}}, "in: state of a"), ({"b": {("x", 0): 3}}, "in: outputs of b")):
        with pytest.raises(TaskDiffers, match=part) as raised:
            verify_task(Two, ROWS, expected=wrong, elsewhere=False)
        assert (raised.value.key, raised.value.expected) == ("x", 3)
    with pytest.raises(InvalidPipeline, match="'c': the task has the states a, b"):
        verify_task(Two, ROWS, expected={"c": {}}, elsewhere=False)


def test_a_state_that_depends_on_the_steps_is_found() -> None:
    """What the task keeps between messages is lost with its process, in whichever of the states it counts."""

    class Remembering(Two):
        def __init__(self) -> None:
            self.seen = 0

        def process_message(self, state: Any, message: Any) -> None:
            self.seen += 1
            state["a"].update(message.timestamp, 1)
            state["b"].update(message.timestamp, self.seen)

    with pytest.raises(TaskDiffers, match="in: outputs of b"):
        verify_task(Remembering, ROWS, elsewhere=False)


def test_values_of_every_state_keep_the_laws_and_the_message() -> None:
    """The kit sees through ``state["b"]``, and through a loop over the states."""

    class Odd(Monoid[int]):
        """Not associative where a value is odd."""

        identity, commutative = 0, True

        def lift(self, value: int) -> int:
            return value

        def combine(self, a: int, b: int) -> int:
            return max(a, b) if a % 2 and b else a + b

    class Breaking(Two):
        def persistent_state(self) -> Any:
            return {"a": NonWindowState(Sum(int)), "b": NonWindowState(Odd())}

        def process_message(self, state: Any, message: Any) -> None:
            for name, one in state.items():
                one.update(message.timestamp, 3 if name == "a" else message.timestamp)

    with pytest.raises(TaskDiffers, match="its state 'b' is not a sum"):
        verify_task(Breaking, ROWS, elsewhere=False)


@pytest.mark.parametrize(
    "names",
    [
        ("short", "total"),
        ("early", "sessions", "known"),
        ("retracting", "final", "changes"),
        ("short", "alive", "lives"),
    ],
)
def test_faults_change_no_state(names: tuple[str, ...]) -> None:
    """One that is published, folded or collected with the files of another would differ after some crash."""

    def make(task: Any = Several) -> Pipeline:
        return Pipeline(
            source=MemorySource(disordered(2, 30), timestamp="ts", ordered=True),
            task=task({name: KINDS[name] for name in names}),
            checkpoint="memory://unused",
            sink={name: FileSink(f"memory://unused-{name}") for name in names},
            step_rows=6,
        )

    verify_task(lambda: Several({name: KINDS[name] for name in names}), disordered(2, 20), elsewhere=False, shuffles=1)
    simulate(make, seeds=range(6))

    class Counting(Several):
        lives = 0

        def process_message(self, state: Any, message: Any) -> None:
            Counting.lives += 1
            state[names[-1]].update(message.timestamp, {"rows": 1, "total": Counting.lives, "most": 1})

    with pytest.raises(SimulationFailed, match=f"of {names[-1]}"):
        simulate(lambda: make(Counting), seeds=range(6))
