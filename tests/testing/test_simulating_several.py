"""simulate runs pipelines with several sources and sinks: each sink is compared by itself."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import FileSink, MemorySink, MemorySource, Pipeline
from persistent.testing import SimulationFailed, simulate
from persistent.testing.outcome import Outcome, Slot, all_outputs, first_difference
from tests.testing.planted import VisitsByMinute, WallClock

ROWS = [{"ts": 3 * number % 60, "page": "ab"[number % 2], "n": number} for number in range(24)]


pytestmark = pytest.mark.usefixtures("quiet")


def pipeline(task: Any) -> Pipeline:
    halves = {name: MemorySource(ROWS[part::2], ordered=True) for part, name in enumerate(("even", "odd"))}
    sinks = {"rows": MemorySink(), "files": FileSink("memory://never-made", format="jsonl")}
    return Pipeline(source=halves, task=task, sink=sinks, checkpoint="never-made/", step_rows=3)


def test_a_sound_pipeline_passes() -> None:
    """Two sources and two sinks survive what one survives."""
    assert simulate(pipeline(VisitsByMinute()), seeds=range(12)).operations > 50


def test_a_mistake_is_found() -> None:
    """As with one of each."""
    with pytest.raises(SimulationFailed, match="calm: "):
        simulate(pipeline(WallClock()), seeds=range(30))


def test_each_sink_is_compared_by_itself() -> None:
    """A row that one of them lacks, and the other has twice, would not show in their sum."""
    here, state = Slot("outputs", ("a",)), Slot("state", ("a",))
    one = Outcome(("page",), {here: [{"value": 1}], state: [{"value": 2}]})
    none = Outcome(("page",), {state: [{"value": 2}]})
    both, half = all_outputs([one, one]), all_outputs([one, none])
    assert all_outputs([one]) is one
    assert [slot.part for slot in both.rows] == ["state", "outputs of sink 1", "outputs of sink 2"]
    difference = first_difference(both, half, None)
    assert difference is not None and difference.place == Slot("outputs of sink 2", ("a",))
    assert first_difference(both, all_outputs([one, one]), None) is None
