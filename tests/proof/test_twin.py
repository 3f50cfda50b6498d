"""A twin says in plain Python what a job must come to."""

from __future__ import annotations

from collections import Counter

from tests.proof.emission import TAKEN_BACK
from tests.proof.twin import Twin
from tests.proof.worlds import FOR_EVER, JOBS, ROWS, TUMBLING


def test_the_steps_of_a_job_worked_out_by_hand() -> None:
    """The twin is the oracle of every case: if it is wrong with the production code, all of them agree on nothing."""
    steps = list(Twin(ROWS, 4, TUMBLING).steps().values())
    assert [each.step for each in steps] == [
        (0, 0, False),
        (4, 0, False),
        (8, 21, False),
        (10, 36, False),
        (10, 40, True),
    ]
    assert [each.watermark for each in steps] == [0, 21, 36, 37, 40]
    assert steps[1].state == {("a", 0): (1, 1), ("b", 10): (1, 2), ("a", 10): (1, 3), (None, 20): (1, 4)}
    assert steps[2].state == {(None, 20): (1, 4), ("é", 30): (1, 8)}
    assert steps[2].outputs == Counter([("a", 0, 1, 1), ("b", 10, 1, 2), ("a", 10, 1, 3)])
    assert (steps[2].late, steps[2].dead, steps[3].late) == ((4,), (5, 6), (4, 8))
    assert steps[4].state == {} and steps[4].outputs.total() == 6 and steps[4].staged == 2


def test_a_state_without_windows_is_published_at_the_end() -> None:
    """Published before it, or twice, it would be a row that no later one replaces."""
    steps = list(Twin(ROWS, 4, FOR_EVER).steps().values())
    assert [each.outputs.total() for each in steps] == [0, 0, 0, 0, 4]
    assert steps[-1].outputs[("a", None, 4, 19)] == 1 and steps[-1].state[("b", None)] == (2, 11)


def test_the_jobs_hold_what_a_crash_could_lose() -> None:
    """A sweep over jobs without late rows, dead letters, outputs and several steps would prove little."""
    ends = {job.name: list(job.twin.steps().values())[-1] for job in JOBS}
    assert all(end.outputs for end in ends.values())
    assert ends["visits"].late and ends["visits"].dead and ends["totals"].state and ends["open"].state
    assert ends["apart"].late and ends["expired"].late and ends["lives"].late
    assert any(row[-1] == TAKEN_BACK for row in ends["lives"].batches[-2]), "no key expires in a step of its own"
    assert abs(sum(job.share for job in JOBS) - 1) < 1e-9
