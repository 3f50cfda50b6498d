"""A manual clock is what persistent takes for the time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from monoids import Count
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.testing import ManualClock
from persistent.time.clock import monotonic_s, wall_ms


def test_time_stands_still_until_it_is_told_to_go_on() -> None:
    """A test that waits for time to pass is slow, and fails on a slow machine."""
    with ManualClock(5_000) as clock:
        began = monotonic_s()
        assert wall_ms() == 5_000
        clock.advance("1 min")
        assert (wall_ms(), monotonic_s() - began) == (65_000, 60.0)
        clock.set(7)
        assert (wall_ms(), monotonic_s() - began) == (7, 60.0)


def test_true_time_comes_back() -> None:
    """All later tests of the process would live in another year."""
    with pytest.raises(ZeroDivisionError), ManualClock(0), ManualClock(1):
        assert wall_ms() == 1
        raise ZeroDivisionError
    assert abs(wall_ms() - time.time() * 1_000) < 60_000


def test_others_get_the_true_time() -> None:
    """What waits with a limit, in another thread, would wait for ever."""
    with ManualClock(0):
        assert time.time() > 1e9
        assert not threading.Event().wait(0.001)


def test_a_pipeline_lives_in_it(manual_clock: ManualClock, memory_checkpoint: str) -> None:
    """How far ahead a timestamp may be, and how long a step took, depend on the time."""

    class Visits(PersistentTask):
        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    manual_clock.set(1_000)
    rows = [{"ts": 1_500}, {"ts": 3_000}]
    pipeline = Pipeline(source=MemorySource(rows), task=Visits(), checkpoint=memory_checkpoint, max_future="1 s")
    report = pipeline.run(engine="embedded")
    assert (report.rows, report.dead, report.seconds) == (2, 1, 0.0)
