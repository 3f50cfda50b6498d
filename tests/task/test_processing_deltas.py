"""The deltas of several states take updates by name, and keep those of a batch together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from monoids import Sum
from persistent import NonWindowState, WindowState, tumbling
from persistent.task.delta import Delta
from persistent.task.message import Batch
from persistent.task.processing import Deltas


def deltas_of(watermark: int = 0) -> Deltas:
    states = {"short": WindowState(Sum(int), tumbling(10)), "total": NonWindowState(Sum(int))}
    return Deltas({name: Delta(state, ("key",), watermark, drops=True) for name, state in states.items()})


def batch_of(*times: int) -> Batch:
    columns = pa.RecordBatch.from_pydict({"key": ["a"] * len(times)})
    stamps = np.array(times, np.int64)
    return Batch(columns, stamps, "p", 0, np.arange(len(times)), lambda batch: (batch["key"],))


def sums(deltas: Deltas, name: str) -> list[int]:
    rows = deltas[name].rows()
    return [] if rows is None else rows.columns[0].tolist()


@pytest.mark.parametrize("failing", ["short", "total"])
def test_a_batch_counts_in_all_states_or_in_none(failing: str) -> None:
    """An error in the last must not leave what the first has kept."""
    other = "total" if failing == "short" else "short"
    deltas = deltas_of()
    for value in (1, "x", 2):
        deltas.begin(batch_of(5))
        deltas.row = 0
        deltas[other].update(5, 1)
        deltas[failing].update(5, value)
        if value == "x":
            with pytest.raises((TypeError, ValueError)):
                deltas.end()
            deltas.abandon()
        else:
            deltas.end()
            deltas.settle()
    assert (sums(deltas, failing), sums(deltas, other)) == ([3], [2])


def test_an_update_that_a_state_refuses_is_dropped_if_it_is_at_the_time_of_its_message() -> None:
    """The message is counted as partly late: nothing is silent. At another time nobody counts it."""
    deltas = deltas_of(watermark=20)
    deltas.begin(batch_of(5, 25))
    for deltas.row, time in ((0, 5), (1, 25)):
        for one in deltas.values():
            one.update(time, 1)
    deltas.end()
    assert (sums(deltas, "short"), sums(deltas, "total")) == ([1], [2])
    deltas.begin(batch_of(5, 25))
    deltas.row = 1
    deltas["short"].update(5, 1)
    with pytest.raises(ValueError, match="every window of that time ended before"):
        deltas.end()


def test_the_deltas_are_the_mapping_that_a_task_declares() -> None:
    """A task may go through its states, and errors name them."""
    deltas = deltas_of()
    assert [*deltas] == ["short", "total"] and len(deltas) == 2 and "total" in deltas and "x" not in deltas
    with pytest.raises(KeyError, match="no state 'x': its states are short, total"):
        deltas["x"]
    for method in (deltas.update, deltas.update_batch):
        with pytest.raises(TypeError, match=rf"Name one: state\['short'\]\.{method.__name__}"):
            method(5, 1)


def test_each_update_is_tried_at_once_to_find_its_line() -> None:
    """The error is raised by the call that causes it, whichever state it is of."""
    deltas = deltas_of().at_once()
    deltas.begin(batch_of(5))
    deltas.row = 0
    deltas["total"].update(5, 1)
    with pytest.raises((TypeError, ValueError)):
        deltas["short"].update(5, "x")


def test_a_copy_of_all_times_of_a_batch_is_known_and_a_part_of_it_is_not() -> None:
    """A batch with a late message would be processed again in halves for each copy; and a part may be of others."""
    deltas = deltas_of(watermark=20)
    deltas.begin(batch_of(5, 25))
    deltas["short"].update_batch(np.array([5, 25]), 1, keys="a")
    deltas.end()
    assert sums(deltas, "short") == [1]
    deltas.begin(batch_of(5, 25))
    with pytest.raises(ValueError, match="unknown whether they are at the time of their own message"):
        deltas["short"].update_batch(np.array([5]), 1, keys="a")
