"""What a shard stages where a value has no result, and where it had none before."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Monoid, Sum
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.storage import MemoryStorage


class Unlucky(Monoid[int]):
    """A sum that has no result where it is 13."""

    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        return a + b

    def present(self, element: int) -> int:
        if element == 13:
            raise ValueError("13 is unlucky")
        return element


class Corrections(PersistentTask):
    """Values of one window that come one by one, all but the first of them late."""

    def __init__(self, monoid: Any, key: Any = "key") -> None:
        self.monoid, self.key = monoid, key

    def persistent_state(self) -> WindowState:
        return WindowState(self.monoid, tumbling(10), allowed_lateness=1_000, late="retract")

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["key"] != "clock":
            given = {} if self.key == "key" else {"key": message.value["key"]}
            state.update(message.timestamp, message.value["n"], **given)


def corrected(task: PersistentTask, *values: int, key: Any = "a") -> tuple[list[tuple[int, bool]], int]:
    """The value, and whether it is taken back, of each published row; and how many dead letters there are."""
    rows = [{"ts": 5, "key": key, "n": values[0]}, *({"ts": ts, "key": "clock", "n": 0} for ts in (50, 51))]
    rows += [{"ts": 6, "key": key, "n": value} for value in values[1:]]
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    pipeline = Pipeline(
        source=MemorySource(rows, ordered=True),
        task=task,
        sink=sink,
        checkpoint=storage,
        step_rows=1,
        on_error="dead-letter",
    )
    pipeline.run(engine="embedded")
    found = sorted(sink.rows(), key=lambda row: (row["revision"], not row["retracted"]))
    return [(int(row["value"]), row["retracted"]) for row in found], pipeline.dead_letters().num_rows


@pytest.mark.parametrize(
    "values, rows",
    [
        ((10, 3), [(10, False), (10, True)]),
        ((10, 3, 1), [(10, False), (10, True), (14, False)]),
        ((10, 3, 1, 1), [(10, False), (10, True), (14, False), (14, True), (15, False)]),
        ((13, 1, 1), [(14, False), (14, True), (15, False)]),
    ],
)
def test_a_value_without_a_result_takes_back_the_one_before_and_is_never_taken_back(
    values: tuple[int, ...], rows: list[tuple[int, bool]]
) -> None:
    """A reader that adds rows up would keep a value that is no more, or subtract one that it never had."""
    assert corrected(Corrections(Unlucky()), *values) == (rows, 1)


def test_a_key_that_was_only_null_so_far_is_corrected() -> None:
    """Its column has no type yet, in which nothing is equal to anything."""
    task = Corrections(Sum(), {"word": None})
    assert corrected(task, 1, 2, 3, key=None) == ([(1, False), (1, True), (3, False), (3, True), (6, False)], 0)
