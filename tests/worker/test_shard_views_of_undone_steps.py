"""After a rollback that has left later outputs, readers of sessions are brought back to what they held, and go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent import MemorySink, Refused, Retention
from persistent.operations import compact, rollback
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.few import examples
from tests.sessions import Run, Visits, held, run_of, straggling
from tests.test_session_window_lateness import ALLOWED, GAPS_AND_CUTS, manifests, run, small_folds

STOPS = st.tuples(*[st.integers(3, 40)] * 3)


def newest(made: Run) -> Any:
    return manifests(made)[-1]


def correct(made: Run, name: str, **given: Any) -> Any:
    return made.pipeline(retention=Retention(last=10_000)).correct(name=name, engine="embedded", **given)


def comes_back(seed: int, sizes: tuple[int, int], allowed: int, steps: tuple[int, int], stops: Any) -> None:
    """A branch is abandoned and its outputs stay; one that never was comes to the same, in the steps of the other."""
    first, second, third = sorted(stops)
    rows = straggling(seed, 40, (0, 4, 30)[seed % 3], sizes[0], allowed)
    task, behind = Visits(*sizes, allowed_lateness=allowed), (0, 4, 30)[seed % 3]
    with small_folds(seed), run_of(rows, task=task, behind=behind, step_rows=steps[0]) as made:
        run(made, rows[:first])
        target = newest(made).id
        shown = held(made.sink.rows())
        run(made, rows[:second])
        if seed % 2:
            added = {"ts": max(newest(made).clock.closed - allowed // 2, 0), "key": "a", "value": 3}
            correct(made, "ticket", add=[added])
        if seed % 5:
            run(made, rows[:third])
        else:
            run(made)
            compact(made.pipeline())
        newest_id = newest(made).id
        back = rollback(made.storage, target, outputs="again").manifest.id
        if newest_id == target:
            with pytest.raises(Refused, match="has undone nothing"):
                correct(made, "undo", undone=back)
        else:
            undone = correct(made, "undo", undone=back)
            assert held(made.sink.rows()) == shown and undone.is_neutral
            assert correct(made, "undo", undone=back) == undone
        made.step_rows = steps[1]
        run(made)
        twin = replace(made, storage=MemoryStorage(f"{made.storage.url}-twin"), sink=MemorySink(), step_rows=steps[0])
        run(twin, rows[:first])
        twin.step_rows = steps[1]
        run(twin)
        assert held(made.sink.rows()) == held(twin.sink.rows())
        assert verify(made.storage).ok
        twin.storage.clear()


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6), GAPS_AND_CUTS, ALLOWED, st.sampled_from(((1, 5), (3, 2), (7, 1))), STOPS)
def test_readers_are_brought_back(seed: int, sizes: Any, allowed: int, steps: Any, stops: Any) -> None:
    """A session that now has other borders would stay beside them for ever."""
    comes_back(seed, sizes, allowed, steps, stops)


@pytest.mark.check
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), GAPS_AND_CUTS, ALLOWED, st.sampled_from(((1, 5), (3, 2), (7, 1), (60, 3))), STOPS)
def test_many_readers_are_brought_back(seed: int, sizes: Any, allowed: int, steps: Any, stops: Any) -> None:
    comes_back(seed, sizes, allowed, steps, stops)


def test_it_is_for_a_rollback_that_nothing_followed() -> None:
    """What is published since is right, and would be taken back as well."""
    rows = straggling(1, 30, 0, 10, 80)
    with run_of(rows, task=Visits(allowed_lateness=80), step_rows=3) as made:
        run(made, rows[:10])
        target = newest(made).id
        run(made, rows[:20])
        with pytest.raises(Refused, match="is to be that rollback, which has left later outputs"):
            correct(made, "undo", undone=target)
        back = rollback(made.storage, target, outputs="again").manifest.id
        run(made, rows[:15])
        with pytest.raises(Refused, match="Give it before the job runs again"):
            correct(made, "undo", undone=back)
        twice = rollback(made.storage, target, outputs="again").manifest.id
        with pytest.raises(Refused, match=r"between checkpoint .* and this rollback are others"):
            correct(made, "undo", undone=twice)
        retracted = rollback(made.storage, target, outputs="retract").manifest.id
        with pytest.raises(Refused, match="which has left later outputs"):
            correct(made, "undo", undone=retracted)
