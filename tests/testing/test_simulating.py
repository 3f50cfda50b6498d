"""simulate finds what faults bring to light, and finds nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent import FileSink, InvalidPipeline, MemorySink, MemorySource, PersistentTask, Pipeline
from persistent.connect.source import Records, Split
from persistent.testing import FAULTS, SimulationFailed, simulate
from persistent.testing.simulating import SEEDS
from tests.testing.planted import Random, StateOnSelf, Visits, VisitsByMinute, WallClock

ROWS = [{"ts": 3 * number % 60, "page": "ab"[number % 2], "n": number} for number in range(24)]


pytestmark = pytest.mark.usefixtures("quiet")


def pipeline(task: PersistentTask, **options: Any) -> Pipeline:
    source = options.pop("source", None) or MemorySource(ROWS, ordered=True)
    return Pipeline(source=source, task=task, checkpoint="never-made/", **options)


class Raising(VisitsByMinute):
    """Puts some messages aside."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "largest": 10 // (message.value["n"] % 7)})


def test_a_sound_pipeline_passes_and_every_fault_strikes() -> None:
    """With late rows, dead letters and windows: a fault that never strikes would prove nothing."""
    made = pipeline(Raising(), sink=MemorySink(), on_error="dead-letter", step_rows=5)
    found = simulate(made, seeds=range(24))
    assert found.seeds == 24 and found.operations > 50
    assert set(found.struck) == set(FAULTS) and min(found.struck.values()) >= 2, found.struck


def test_nothing_of_the_users_own_is_touched(tmp_path: Path) -> None:
    """A test must not write to the checkpoint of production."""
    source = MemorySource(ROWS)
    made = Pipeline(
        source=source,
        task=Visits(),
        sink=FileSink(tmp_path / "sink", format="jsonl"),
        checkpoint=tmp_path / "checkpoint",
    )
    simulate(made, seeds=range(3))
    assert list(tmp_path.iterdir()) == []
    assert made.run(engine="embedded").rows == len(ROWS)


@pytest.mark.parametrize("task", [StateOnSelf, Random, WallClock])
def test_a_mistake_is_found(task: type[PersistentTask]) -> None:
    """A mistake in the task shows only when something is repeated."""
    with pytest.raises(SimulationFailed, match="calm: "):
        simulate(pipeline(task()), seeds=range(30))


class Unreplayable(MemorySource):
    """Gives other records when it is read again."""

    reads = 0

    def read(self, split: Split, recorded: Any) -> Iterator[Records]:
        type(self).reads += 1
        rows = [{**row, "page": f"page {self.reads}"} for row in self.rows]
        return MemorySource(rows).read(split, recorded)


def test_every_process_has_a_task_of_its_own() -> None:
    """What one life leaves on ``self`` would reach the next, and the user's own object."""
    made = pipeline(StateOnSelf())
    with pytest.raises(SimulationFailed):
        simulate(made, seeds=range(30))
    assert isinstance(made.task, StateOnSelf) and not made.task.seen


def test_a_source_that_does_not_replay_is_found() -> None:
    """I1: what was read before a crash would be counted otherwise after it."""
    with pytest.raises(SimulationFailed, match="key: page='page"):
        simulate(pipeline(Visits(), source=Unreplayable(ROWS)), seeds=range(3))


def test_a_seed_brings_a_failure_back() -> None:
    """A failure that cannot be seen again cannot be mended."""
    with pytest.raises(SimulationFailed) as first:
        simulate(lambda: pipeline(StateOnSelf(), step_rows=3), faults=["crash", "pause"])
    told = first.value
    assert f"To reproduce: simulate(..., seeds=[{told.seed}], faults=['crash', 'pause'])" in str(told)
    assert f"StateOnSelf with seed {told.seed}" in str(told) and "  1. " in str(told)
    with pytest.raises(SimulationFailed) as again:
        simulate(lambda: pipeline(StateOnSelf(), step_rows=3), seeds=[told.seed], faults=["crash", "pause"])
    assert again.value.difference == told.difference
    assert [line.split(",")[0] for line in again.value.story] == [line.split(",")[0] for line in told.story]


def test_what_is_left_to_do_is_found() -> None:
    """A run that says it has finished, and has not, leaves results missing until the next one."""
    rows = list(ROWS)

    def growing() -> Pipeline:
        rows.append({"ts": 100, "page": "a", "n": 1})
        return pipeline(Visits(), source=MemorySource(list(rows)), step_rows=50)

    with pytest.raises(SimulationFailed, match="run again undisturbed, it made"):
        simulate(growing, seeds=[0], faults=["lost answer"])


def test_each_fault_alone() -> None:
    """A fault that is only found beside others is not asked for by its name."""
    for fault in FAULTS:
        found = simulate(pipeline(VisitsByMinute(), sink=MemorySink()), seeds=range(2), faults=[fault])
        assert set(found.struck) == {fault} and found.struck[fault] > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"faults": ["fire"]}, r"faults=\['fire'\]: choose some of crash, lost answer"),
        ({"faults": []}, "choose some"),
        ({"seeds": []}, "seeds= is empty"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], told: str) -> None:
    """Nothing would be tried, and the test would pass."""
    with pytest.raises(InvalidPipeline, match=told):
        simulate(pipeline(Visits()), **options)


def test_what_is_no_pipeline_is_refused() -> None:
    """The error would come from somewhere inside."""
    with pytest.raises(InvalidPipeline, match="give a Pipeline"):
        simulate(Visits())  # type: ignore[arg-type]


def test_seeds_are_as_many_as_was_said() -> None:
    """``--persistent-seeds`` would be without effect."""
    before = SEEDS.set(2)
    try:
        assert simulate(pipeline(Visits())).seeds == 2
    finally:
        SEEDS.reset(before)
