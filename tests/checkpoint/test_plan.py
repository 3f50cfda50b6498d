"""A plan found after a crash is the plan that was put."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from persistent.checkpoint.parts import SourcePart
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.connect.source import Span, Split
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat
from tests.checkpoint.samples import body_of, document, plan, run
from tests.single import only

FULL = plan(
    5,
    number=2,
    start={"memory": (3, 40)},
    wall_ms=1_700_000_000_000,
    close_at=60_000,
    ends=True,
    splits=(Split("memory", (Span(3, 40, 49), Span(4, 0, 3, {"path": "x=1/é", "groups": [0, 1]}))), Split("late", ())),
    cap={"a": -1, "b": 7, "c": None},
    recorded={"schema": [["ts", "int64"]]},
    appended=(run("i"),),
    end={"memory": (4, 3), "late": (0, 0)},
    joins=("late",),
    idle=("memory",),
    skipped={"late": 7},
    max_out_of_orderness_ms=7,
    max_future_ms=None,
)


def test_a_plan_is_read_as_it_was_written() -> None:
    """A step repeated from a plan that lost a split, a time of day or a cap is another step."""
    for one in (plan(), FULL):
        assert StepPlan.decode(one.encode(), "p") == one


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    """A wrong plan commits wrong positions."""
    data = plan().encode()
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpoint, match="place"):
            StepPlan.decode(bytes(changed), "place")
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpoint, match="place"):
            StepPlan.decode(data[:length], "place")


def test_a_newer_plan_is_refused_by_name() -> None:
    """An older release must not run half of what a newer one planned."""
    body = body_of(plan().encode(), "p")
    with pytest.raises(NewerFormat, match="format 9"):
        StepPlan.decode(document({**body, "format": 9}), "p")
    with pytest.raises(NewerFormat, match="format 9"):
        StepPlan.decode(document({**body, "sources": [], "more": 1, "format": 9}), "p")


def test_a_plan_that_contradicts_itself_is_neither_put_nor_run() -> None:
    """Put once, every run would begin with it, and none could end it."""
    with pytest.raises(LawBroken, match=r"plan of the step after 0 could not be read back \(sources\.memory\.end:"):
        plan(end={}).encode()
    body = body_of(plan().encode(), "p")
    body["sources"]["memory"]["end"] = {}
    with pytest.raises(CorruptCheckpoint, match=r"p: not a plan .*sources\.memory\.end: of none"):
        StepPlan.decode(document(body), "p")


@pytest.mark.parametrize("part", ["sources", "tasks"])
def test_a_plan_of_none_is_refused(part: str) -> None:
    """It would move nothing, for ever."""
    body = body_of(plan().encode(), "p")
    with pytest.raises(CorruptCheckpoint, match=f"^p: not a plan .has no {part}"):
        StepPlan.decode(document({**body, part: {}}), "p")


def test_a_plan_of_two_tasks_is_one_plan() -> None:
    """A graph has several; whoever has one of them refuses it."""
    two = replace(plan(), tasks={"Visits": TaskStep(7), "Orders": TaskStep(5)})
    assert StepPlan.decode(two.encode(), "p") == two


@pytest.mark.parametrize("part", ["", "sources.memory"])
def test_a_field_that_is_missing_is_refused(part: str) -> None:
    """A default in its place would be an invention."""
    for field in (one.name for one in structs.fields(SourceStep if part else StepPlan) if one.required):
        body = body_of(plan().encode(), "p")
        del _part(body, part)[field]
        with pytest.raises(CorruptCheckpoint, match="not a plan"):
            StepPlan.decode(document(body), "p")


def _part(body: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        body = body[name]
    return body


def test_what_a_plan_adds_is_live() -> None:
    """Its listing is named by nothing else until the step is committed."""
    assert FULL.files() == {"d/Visits/i.arrow"} and plan().files() == set()


def test_a_plan_begins_where_each_source_stands() -> None:
    """Another driver's plan is run only if it does."""
    assert FULL.starts == {"memory": {"memory": (3, 40)}}


def test_a_source_that_joins_is_read_from_its_beginning() -> None:
    """Read on from elsewhere, it would lack records; and a plan that does not fit would be run."""
    stood = {"memory": SourcePart("MemorySource", ("memory",), {"memory": (3, 40)})}
    assert FULL.starts_at(stood)
    assert not FULL.starts_at({"memory": replace(stood["memory"], positions={"memory": (3, 41)})})
    for start, fits in (((0, 0), True), ((0, 1), False)):
        joining = replace(only(FULL.sources), start={"b": start}, end={"b": (0, 9)})
        assert replace(FULL, sources={**FULL.sources, "new": joining}).starts_at(stood) == fits


def test_a_plan_reads_if_one_of_its_sources_does() -> None:
    """A step that only closes windows ends the input; one that reads does not."""
    idle = replace(only(FULL.sources), splits=())
    assert FULL.reads and not replace(FULL, sources={"a": idle}).reads
    assert replace(FULL, sources={"a": idle, "b": only(FULL.sources)}).reads


def test_all_that_a_step_closes_is_final_unless_its_plan_says_otherwise() -> None:
    """Windows that allow lateness would take nothing more, or those that do not would stay in the state for good."""
    assert (TaskStep(7).final, TaskStep(7, final_at=3).final, TaskStep(7, final_at=0).final) == (7, 3, 0)


def test_a_plan_of_a_task_that_was_renamed_is_of_the_new_name() -> None:
    """Put before the name changed, it closes what it says: otherwise the step would take records that were late."""
    (task,) = plan().tasks
    renamed = plan(close_at=60)
    only_step = only(renamed.tasks)
    assert renamed.task_of(task, 60) is only_step is renamed.task_of("Renamed", 60)
    assert renamed.task_of("Renamed", 61) == TaskStep(61), "it would close what is closed"
    assert renamed.task_of("Renamed/named", 7) == TaskStep(7)
    two = replace(renamed, tasks={"Visits/a": TaskStep(60), "Visits/b": TaskStep(50)})
    assert (two.task_of("Visits/b", 0), two.task_of("Visits/c", 9)) == (TaskStep(50), TaskStep(9))
