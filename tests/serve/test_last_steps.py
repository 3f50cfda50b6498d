"""The last steps say how fast a job reads: from plan to plan, and without steps that are not known."""

from __future__ import annotations

from typing import Any

from persistent.serve.last_steps import RATE_STEPS, follows, last_steps


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


def test_old_steps_do_not_count() -> None:
    """The speed of last week would be that of now."""
    found = last_steps([facts(id) for id in range(100)])
    assert found is not None and found.first["id"] == 99 - RATE_STEPS
