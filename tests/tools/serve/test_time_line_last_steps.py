"""The last steps say how fast a job reads: from plan to plan, and without steps that are not known."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.tools.serve.time_line import RATE_STEPS, follows, last_steps, rates


def facts(id: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "committed_ms": 1_000 * id, "read": 100 * id, **more}


def test_rows_are_those_read_between_the_plans() -> None:
    """The rows of the newest checkpoint, whose step has no end yet, would make a rate of any height."""
    found = last_steps([facts(id) for id in range(1, 7)])
    assert found is not None
    assert (found.first["id"], found.last["id"], found.span_ms) == (1, 5, 4_000)
    assert found.rate(found.last["read"] - found.first["read"]) == 100.0


def test_few_checkpoints_tell_nothing() -> None:
    """A rate would be made of one step, or of one that has no time."""
    assert last_steps([facts(1), facts(2)]) is None
    assert last_steps([facts(1), facts(2), facts(3, committed_ms=0)]) is None
    same = last_steps([facts(id, committed_ms=5) for id in (1, 2, 3)])
    assert same is not None and same.rate(10) is None


def test_a_gap_is_no_step() -> None:
    """Where checkpoints were collected, one step would seem to have taken as long as all of them."""
    found = last_steps([facts(1), facts(2), facts(3, before=2), facts(9, before=8), facts(10, before=9)])
    assert found is not None and found.step_ms == (1_000, 1_000)
    assert follows(facts(2), facts(3, before=2)) and not follows(facts(3), facts(9, before=8))


def of_rows(*steps: tuple[int, int]) -> list[dict[str, Any]]:
    """Checkpoints that are planned so long after the one before, in ms, and have read so many rows."""
    found, at, read = [facts(1, committed_ms=1_000, processed=0, late=0, dead=0, duplicate=0)], 1_000, 0
    for id, (span, rows) in enumerate(steps, 2):
        at, read = at + span, read + rows
        found.append(facts(id, committed_ms=at, before=id - 1, processed=read, late=0, dead=0, duplicate=0))
    return found


def read_in(parts: list[dict[str, float]]) -> float:
    return sum(one["processed"] * (one["to_ms"] - one["from_ms"]) / 1_000 for one in parts)


def test_a_follower_is_no_comb() -> None:
    """Every second step of a job that follows its source has only moved the clock: a bar of each checkpoint would stand
    beside nothing, and a pause between two would make a spike of an even stream."""
    found = rates(of_rows(*[(950, 100), (50, 0)] * 40))
    assert len(found) == 19 and all(one["processed"] == pytest.approx(100) for one in found[:-1])
    assert read_in(found) == pytest.approx(100 * 40)
    uneven = rates(of_rows(*[(1_000, 100)] * 20, (3_000, 100), (1_000, 300), *[(1_000, 100)] * 20))
    assert max(one["processed"] for one in uneven) <= 150
    after = rates(of_rows(*[(10, 100)] * 60, *[(950, 100), (50, 0)] * 10))
    assert [round(one["processed"]) for one in after] == [10_000, 10_000, 10_000, 600, 100, 100, 100, 131]
    assert rates(of_rows((10, 5))) == [] and rates([]) == []


def test_all_rows_are_drawn_whatever_the_steps() -> None:
    """Rows would be left out of the picture, or be drawn twice."""
    steps = of_rows((400, 7), (0, 30), (9_000, 1), (30, 0), (1, 900), (2_000, 60), (10, 4))
    assert read_in(rates(steps)) == pytest.approx(7 + 30 + 1 + 900 + 60)
    gone = [one for one in steps if one["id"] not in (3, 4)]
    assert read_in(rates(gone)) == pytest.approx(7 + 30 + 1 + 900 + 60)
    back = of_rows((1_000, 10), (1_000, 20), (-50_000, 30), (1_000, 40), (1_000, 50), (1_000, 60))
    assert read_in(rates(back)) == pytest.approx(20 + 30 + 40 + 50)
    assert all(one["processed"] >= 0 for one in rates(back))


def test_a_night_without_a_driver_is_not_the_picture() -> None:
    """The steps of today would be one line at the edge."""
    night = 8 * 3_600_000
    found = rates(of_rows(*[(1_000, 100)] * 30, (night, 100), *[(1_000, 50)] * 9))
    assert found[0]["to_ms"] - found[0]["from_ms"] == 2_000 and read_in(found) == pytest.approx(100 + 50 * 8)
    few = rates(of_rows(*[(1_000, 100)] * 30, (night, 100), (1_000, 50)))
    assert read_in(few) == pytest.approx(100 * 31)


def test_old_steps_do_not_count() -> None:
    """The speed of last week would be that of now."""
    found = last_steps([facts(id) for id in range(100)])
    assert found is not None and found.first["id"] == 99 - RATE_STEPS
