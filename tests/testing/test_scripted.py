"""A scripted source replays its records, whatever happens between them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from monoids import Count
from persistent import InvalidPipeline, MemorySink, Pipeline, WindowState, tumbling
from persistent.connect.source import Budget, Source, SourceState
from persistent.testing import CRASH, IDLE, Killed, ScriptedSource
from tests.testing.scripts import Visits, counted, rows, run


class Windows(Visits):
    """Counts messages by ten milliseconds."""

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))


def test_it_is_a_source() -> None:
    """A pipeline would refuse it."""
    assert isinstance(ScriptedSource(rows(1)), Source)


def test_a_crash_ends_the_run_once(pipeline: Callable[..., Pipeline]) -> None:
    """The records before it would be counted twice, or those after it never."""
    source = ScriptedSource([*rows(1, 2, 3), CRASH, *rows(4, 5)])
    with pytest.raises(Killed, match="CRASH before record 3"):
        run(pipeline(source))
    assert counted(pipeline(source)) == [] and source.left() == 0
    run(pipeline(source))
    assert counted(pipeline(source)) == [5]


def test_steps_before_a_crash_are_kept(pipeline: Callable[..., Pipeline]) -> None:
    """A crash is of use only where something was committed before."""
    source = ScriptedSource(
        [*rows(1, 2, 3), CRASH, *rows(4), CRASH],
    )
    for done in ([2], [3]):
        with pytest.raises(Killed):
            run(pipeline(source, step_rows=2 if done == [2] else 1))
        assert counted(pipeline(source)) == done or done == [3]
    run(pipeline(source))
    assert counted(pipeline(source)) == [4]


def test_idle_ends_a_run_and_the_next_goes_on(pipeline: Callable[..., Pipeline]) -> None:
    """What has not been written yet cannot be read."""
    source = ScriptedSource([*rows(1, 2), IDLE, *rows(3)])
    assert [run(pipeline(source)).rows for _ in range(3)] == [2, 1, 0]
    assert counted(pipeline(source)) == [3]


def test_what_comes_after_idle_may_be_late(pipeline: Callable[..., Pipeline]) -> None:
    """Late messages could not be tested at all: all that is listed holds the watermark back."""
    for script, late in (([*rows(5, 31), IDLE, *rows(6)], 1), ([*rows(5, 31), *rows(6)], 0)):
        source = ScriptedSource(script)
        made = Pipeline(source=source, task=Windows(), sink=MemorySink(), checkpoint=f"memory://scripted-late-{late}")
        reports = [run(made) for _ in range(3)]
        assert sum(report.late for report in reports) == late
        made.storage.clear()  # type: ignore[attr-defined]


def test_idle_while_following(pipeline: Callable[..., Pipeline]) -> None:
    """A driver that follows must wake up again."""
    source = ScriptedSource([*rows(1), IDLE, *rows(2)])
    made = pipeline(source)
    rows_seen: list[int] = []

    def stop(report: Any) -> None:
        rows_seen.append(report.rows)
        if len(rows_seen) == 2:
            raise Killed("enough")

    with pytest.raises(Killed):
        run(made, follow=True, on_step=stop)
    assert rows_seen == [1, 1]


def test_a_field_that_comes_after_idle_is_there(pipeline: Callable[..., Pipeline]) -> None:
    """The schema of a table is that of all its rows."""
    source = ScriptedSource([{"ts": 1}, IDLE, {"ts": 2, "page": "a"}])
    assert source.schema(source.plan(SourceState({}), Budget(9)).recorded).names == ["ts", "page"]


def test_the_same_positions_are_the_same_records() -> None:
    """I1: a replayed plan must be the step it was."""
    source = ScriptedSource([*rows(1, 2), CRASH, *rows(3), IDLE, *rows(4)])
    plan = source.plan(SourceState({}), Budget(9))
    with pytest.raises(Killed):
        list(source.read(plan.splits[0], plan.recorded))
    read = [list(source.read(plan.splits[0], plan.recorded)) for _ in range(2)]
    shown = [[(found.offsets.tolist(), found.timestamps.tolist()) for found in reading] for reading in read]
    assert shown[0] == shown[1] == [([0, 1, 2], [1, 2, 3])]


def test_an_empty_beginning_is_no_error(pipeline: Callable[..., Pipeline]) -> None:
    """A topic is often empty when a job begins."""
    source = ScriptedSource([IDLE, *rows(1)])
    assert [run(pipeline(source)).rows for _ in range(2)] == [0, 1]


def test_it_stays_in_its_process() -> None:
    """A worker elsewhere would crash again at each attempt, for it cannot know what has happened."""
    with pytest.raises(InvalidPipeline, match="embedded"):
        pickle.dumps(ScriptedSource(rows(1)))


def test_several_events_at_one_place_happen_one_after_the_other(pipeline: Callable[..., Pipeline]) -> None:
    """The second crash of a script, or the crash after a time without input, would be lost."""
    source = ScriptedSource([*rows(1), CRASH, CRASH, IDLE, CRASH, *rows(2)])
    ends = []
    for _ in range(5):
        try:
            ends.append(run(pipeline(source, step_rows=1)).rows)
        except Killed:
            ends.append("killed")
    assert ends == ["killed", "killed", 0, "killed", 1]
    assert counted(pipeline(source)) == [2]
