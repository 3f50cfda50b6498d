"""A checkpoint is read and continued by the job that it belongs to, state by state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from persistent import InvalidPipeline, OtherJob, UnknownCheckpoint
from persistent.checkpoint.manifest import Manifest
from persistent.driver.commit import first_manifest
from persistent.driver.same_job import check_same_job, check_same_node, chosen_node
from persistent.worker.job import Job
from tests.several import KINDS, World

ROWS = [{"ts": 1, "key": "a", "value": 1}]


def job_of(*names: str) -> Job:
    return World({name: KINDS[name] for name in names}, ROWS).pipeline().job()


def test_a_state_is_chosen_by_its_name() -> None:
    """None is taken for another."""
    both, one = job_of("short", "total"), job_of("short")
    chosen = chosen_node(both, "total"), chosen_node(one, None), chosen_node(one, "short")
    assert [node.name for node in chosen] == ["total", "short", "short"]
    for job, name, text in (
        (both, None, "has the states short, total: say which"),
        (both, "x", "has the states short, total"),
        (one, "x", "has the states short"),
    ):
        with pytest.raises(InvalidPipeline, match=text):
            chosen_node(job, name)


def test_a_state_that_is_not_there_yet_says_so() -> None:
    """That of another task is for others to refuse."""
    old, new = (first_manifest(job_of(*names), "nonce") for names in (("short",), ("short", "total")))
    check_same_node(old, new, "Several/short", "url")
    with pytest.raises(UnknownCheckpoint, match="url: checkpoint 0 is from before the state 'total' was added"):
        check_same_node(old, new, "Several/total", "url")
    renamed = replace(new, tasks={"Other": new.tasks["Several"]}, nodes={"Other": new.nodes["Several/short"]})
    with pytest.raises(OtherJob, match=r"its states: \['Several/short'\], this pipeline's: \['Other'\]"):
        check_same_node(old, renamed, "Other", "url")


def test_a_checkpoint_of_two_tasks_is_another_job() -> None:
    """A pipeline has one task: it would go on with a half of it, and lose the other."""
    one = first_manifest(job_of("short"), "nonce")
    tasks = {**one.tasks, "Orders": one.tasks["Several"]}
    two = replace(one, tasks=tasks, nodes={**one.nodes, "Orders": one.nodes["Several/short"]})
    assert Manifest.decode(two.encode(), "m").tasks.keys() == {"Several", "Orders"}
    with pytest.raises(OtherJob, match=r"url is the checkpoint of another job: its states: \['Orders', 'Several"):
        check_same_job(two, one, "url")
    more = {"more": replace(one.sources["memory"], partitions=("b",), positions={"b": (0, 0)})}
    unread = replace(one, sources={**one.sources, **more})
    with pytest.raises(OtherJob, match="Several does not read more, and the task of a pipeline reads every source"):
        check_same_job(unread, one, "url")


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (("short",), ("short", "total"), r"fewer states: .*\. Run the pipeline once: it adds them$"),
        (
            ("short", "total"),
            ("short",),
            r"Give the task the states that it had; or drop its state: .*'Several/total'\]",
        ),
        (("short", "total", "changes"), ("short",), r"or drop their states: .*\['Several/changes', 'Several/total'\]"),
        (("short",), ("total",), r"or the task its old name; or drop its state: .*\['Several/short'\]"),
    ],
)
def test_other_states_are_refused_with_what_to_do(found: tuple[str, ...], expected: tuple[str, ...], text: str) -> None:
    """Whether some are new, some are gone, or all are others."""
    with pytest.raises(OtherJob, match=text):
        check_same_job(*(first_manifest(job_of(*names), "nonce") for names in (found, expected)), "url")
