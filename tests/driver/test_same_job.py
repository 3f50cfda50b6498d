"""A checkpoint is read and continued by the job that it belongs to, state by state."""

from __future__ import annotations

import pytest

from persistent import InvalidPipeline, OtherJob, UnknownCheckpoint
from persistent.driver.commit import first_manifest
from persistent.driver.same_job import check_same_job, chosen_state, view_of
from persistent.worker.job import Job
from tests.several import KINDS, World

ROWS = [{"ts": 1, "key": "a", "value": 1}]


def job_of(*names: str) -> Job:
    return World({name: KINDS[name] for name in names}, ROWS).pipeline().job()


def test_a_state_is_chosen_by_its_name() -> None:
    """None is taken for another."""
    both, one = job_of("short", "total"), job_of("short")
    assert (chosen_state(both, "total"), chosen_state(one, None), chosen_state(one, "short")) == (
        "total",
        "short",
        "short",
    )
    for job, name, text in (
        (both, None, "has the states short, total: say which"),
        (both, "x", "has the states short, total"),
        (one, "x", "has the states short"),
    ):
        with pytest.raises(InvalidPipeline, match=text):
            chosen_state(job, name)


def test_the_view_of_a_state_that_is_not_there_yet_says_so() -> None:
    """That of another task is for others to refuse."""
    old, job = first_manifest(job_of("short"), "nonce"), job_of("short", "total")
    assert view_of(job.of("short"), old, "url") is old
    with pytest.raises(UnknownCheckpoint, match="url: checkpoint 0 is from before the state 'total' was added"):
        view_of(job.of("total"), old, "url")


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (("short",), ("short", "total"), r"fewer states: .*\. Run the pipeline once: it adds them$"),
        (
            ("short", "total"),
            ("short",),
            r"Give the task the states that it had; or drop its state: .*'Several/total'\]",
        ),
        (("short", "total", "ever"), ("short",), r"or drop their states: .*\['Several/ever', 'Several/total'\]"),
        (("short",), ("total",), r"or the task its old name; or drop its state: .*\['Several/short'\]"),
    ],
)
def test_other_states_are_refused_with_what_to_do(found: tuple[str, ...], expected: tuple[str, ...], text: str) -> None:
    """Whether some are new, some are gone, or all are others."""
    with pytest.raises(OtherJob, match=text):
        check_same_job(*(first_manifest(job_of(*names), "nonce") for names in (found, expected)), "url")
