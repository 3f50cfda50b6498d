"""The job after the one that maps: when it runs, and over which windows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.driver.publish_after import touched
from persistent.engines import Embedded
from persistent.time.window import Panes, Window, sliding, tumbling
from persistent.worker.job import CloseShard
from tests.late import run_of

WINDOWS = st.sampled_from(
    (tumbling(10), tumbling(10, offset=3), sliding(20, every=5), sliding(10, every=4), sliding(5, every=10))
)
CLOCKS = st.integers(0, 80)


@given(WINDOWS, st.lists(st.sets(st.integers(0, 90)), max_size=3), CLOCKS, CLOCKS)
def test_the_touched_windows_are_those_that_hold_a_pane(
    window: Window, times: list[set[int]], final: int, closed: int
) -> None:
    """One too few, and a result stays wrong; one too many, and a window is published that is open or final."""
    starts = [sorted({int(Panes(window, None).starts(time)) for time in some if _held(window, time)}) for some in times]
    panes = [np.array(some, np.int64) for some in starts if some]
    found = touched(window, panes, final, closed)
    numbers = {
        number
        for some in starts
        for pane in some
        for number in range(window.first_number(pane), window.last_number(pane) + 1)
        if final < window.end_of(number) <= closed
    }
    assert {number for first, last in found for number in range(first, last + 1)} == numbers
    assert all(a[1] + 1 < b[0] for a, b in pairwise(found)), "in as few ranges as there are"


def _held(window: Window, time: int) -> bool:
    return bool(window.holds(np.array([time]))[0])


class Counting(Embedded):
    """Counts the jobs that close windows."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.closing: list[Any] = []

    def map(self, function: Any, items: Any) -> Any:
        self.closing += [item for item in items if isinstance(item, CloseShard)]
        return super().map(function, items)


@pytest.mark.parametrize(("times", "jobs"), [((1, 2, 3, 4), 0), ((1, 12, 13, 14), 1), ((1, 12, 13, 5), 2)])
def test_nothing_late_costs_no_job(times: tuple[int, ...], jobs: int) -> None:
    """A job in each step, to find that there is nothing to correct, would be the price of a late record for all."""
    rows = [{"ts": time, "key": "a", "value": 1} for time in times]
    with run_of(rows, options={"allowed_lateness": 100}, step_rows=1) as run:
        engine = Counting()
        run.run(engine=engine, end_of_input=False)
        assert len(engine.closing) == jobs
