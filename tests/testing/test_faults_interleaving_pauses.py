"""A pause lets another go on in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from persistent import InvalidPipeline, Pipeline
from persistent.connect.source import Budget, SourceState
from persistent.testing import PAUSE, ScriptedSource
from tests.testing.scripts import counted, rows, run


def test_a_pause_lets_another_driver_take_over(pipeline: Callable[..., Pipeline]) -> None:
    """The first driver must find itself fenced off, and nothing counted twice."""
    from persistent import Fenced

    source = ScriptedSource([*rows(1, 2), PAUSE, *rows(3, 4)])
    source.on_pause = lambda: run(pipeline(source, step_rows=2))
    with pytest.raises(Fenced):
        run(pipeline(source, step_rows=3))
    assert counted(pipeline(source)) == [4]


def test_a_pause_with_nothing_to_do_is_refused() -> None:
    """It would be passed in silence, and the test would test nothing."""
    source = ScriptedSource([*rows(1), PAUSE, *rows(2)])
    plan = source.plan(SourceState({}), Budget(9))
    with pytest.raises(InvalidPipeline, match="on_pause"):
        list(source.read(plan.splits[0], plan.recorded))


def test_a_function_is_called_between_two_records(pipeline: Callable[..., Pipeline]) -> None:
    """What a test does there must happen there, and once."""
    seen: list[str] = []
    source = ScriptedSource([*rows(1), lambda: seen.append("here"), *rows(2)])
    for _ in range(2):
        plan = source.plan(SourceState({}), Budget(9))
        read = source.read(plan.splits[0], plan.recorded)
        assert len(next(read).timestamps) == 1 if not seen else True
        seen += ["before"] if not seen else []
        list(read)
    assert seen == ["before", "here"]
    assert run(pipeline(source)).rows == 2
