"""The parts of a document are held against each other: a sealed manifest or plan that contradicts itself is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.connect.source import Span, Split
from persistent.errors import CorruptCheckpoint, NewerFormat
from tests.checkpoint.samples import body_of, document, full_manifest, plan

Change = Callable[[dict[str, Any]], Any]


def of_source(**changes: Any) -> Change:
    """Other fields of the only source."""
    return lambda body: next(iter(body["sources"].values())).update(changes)


def span(start: int, stop: int) -> dict[str, int]:
    return {"ordinal": 0, "start": start, "stop": stop}


def split(partition: str, *spans: dict[str, int]) -> dict[str, Any]:
    return {"partition": partition, "spans": list(spans)}


def of_inputs(*inputs: str) -> Change:
    """Other inputs of the task, with an account of each."""

    def change(body: dict[str, Any]) -> None:
        (accounts,) = body["tasks"]["Visits"]["inputs"].values()
        body["tasks"]["Visits"]["inputs"] = dict.fromkeys(inputs, accounts)

    return change


def refused(kind: type[Manifest] | type[StepPlan], data: bytes, change: Change, says: str) -> Any:
    """The error for a document of that kind after a change, sealed."""
    body = copy.deepcopy(body_of(data, "place"))
    change(body)
    with pytest.raises(CorruptCheckpoint, match=says) as caught:
        kind.decode(document(body), "place")
    return caught.value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_source(positions={}), r"sources\.file\.positions: of none, the partitions are files"),
        (of_source(positions={"files": [4, 17], "b": [0, 0]}), r"positions: of b, files, the partitions are files"),
        (of_source(partitions=[]), r"sources\.file\.positions: of files, the partitions are none"),
        (of_source(partitions=["files", "files"]), r"sources\.file\.partitions: files, files: one of them twice"),
        (of_source(largest={"b": 5}), r"sources\.file\.largest: b, the partitions are files"),
        (of_source(idle=["files", "b"]), r"sources\.file\.idle: b, the partitions are files"),
        (
            lambda body: body["tasks"]["Visits"]["inputs"].update(file={}),
            r"tasks\.Visits\.inputs\.file: of none, the partitions are",
        ),
        (of_inputs("b"), r"tasks\.Visits\.inputs: b, the sources are file"),
        (
            of_source(readings=[{"until": until, "recorded": {}} for until in ({"files": [1, 0]}, {"b": [1, 0]})]),
            r"sources\.file\.readings\[1\]\.until: b, the partitions are files",
        ),
        (
            of_source(idle=[*"abcdefghijk"]),
            r"sources\.file\.idle: a, b, c, d, e, f, g, h, i, j, the partitions are files",
        ),
        (of_inputs(), "place: not a manifest .has no inputs of Visits, which no release writes"),
        (
            lambda body: body["nodes"]["Visits"].update(final_at=body["nodes"]["Visits"]["clock"]["closed"] + 1),
            r"nodes\.Visits\.final_at: \d+: windows are final that end after \d+",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change: Change, says: str) -> None:
    """Without positions its input would be read again from the start, and count twice."""
    error = refused(Manifest, full_manifest().encode(), change, says)
    assert not isinstance(error, NewerFormat)


def test_a_source_that_no_task_reads_is_refused() -> None:
    """Its records would count nowhere."""

    def with_another(body: dict[str, Any]) -> None:
        body["sources"]["b"] = copy.deepcopy(body["sources"]["file"])

    error = refused(Manifest, full_manifest().encode(), with_another, r"not a manifest \(sources\.b: no task reads it")
    assert not isinstance(error, NewerFormat)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_source(end={}), r"sources\.memory\.end: of none, the partitions are memory"),
        (of_source(end={"memory": [0, 4], "b": [5, 5]}), r"end: of b, memory, the partitions are memory"),
        (of_source(joins=["b"]), r"sources\.memory\.end: of memory, the partitions are memory, b"),
        (of_source(joins=["memory"]), r"sources\.memory\.joins: memory joins and has a start"),
        (
            of_source(joins=["b", "b"], end={"memory": [0, 4], "b": [0, 0]}),
            r"sources\.memory\.joins: b, b: one of them twice",
        ),
        (
            of_source(splits=[split("b", span(0, 4))]),
            r"sources\.memory\.splits: b, the partitions are memory",
        ),
        (of_source(idle=["b"]), r"sources\.memory\.idle: b, the partitions are memory"),
        (
            of_source(start={"memory": [1, 2]}, end={"memory": [1, 1]}, splits=[]),
            r"end: memory at \(1, 1\) is before its start \(1, 2\)",
        ),
        (
            of_source(start={"memory": [0, 2]}, splits=[split("memory", span(2, 3), span(1, 4))]),
            r"splits: memory at \(0, 1\) is before its start \(0, 2\)",
        ),
        (
            lambda body: next(iter(body["tasks"].values())).update(close_at=9, final_at=10),
            r"tasks\.\w+\.final_at: 10: windows are final that end after 9, up to which they are closed",
        ),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(change: Change, says: str) -> None:
    """A step that ends nowhere is run again and again, each time as new records."""
    refused(StepPlan, plan().encode(), change, f"not a plan .*{says}")


def test_a_plan_may_let_a_partition_join() -> None:
    """The format has the field: what it says is not held against it."""
    step = plan(
        joins=("b",),
        end={"memory": (0, 4), "b": (0, 1)},
        splits=(Split("b", (Span(0, 0, 1),)),),
        idle=("b", "memory"),
    )
    assert StepPlan.decode(step.encode(), "p") == step


def of_two_states(**changes: Any) -> Change:
    """A second state of the task, with other parts."""

    def change(body: dict[str, Any]) -> None:
        body["nodes"]["Visits/hourly"] = {**copy.deepcopy(body["nodes"]["Visits"]), **changes}

    return change


def of_another_task(body: dict[str, Any]) -> None:
    body["nodes"]["Orders"] = body["nodes"].pop("Visits")


def without_a_node(body: dict[str, Any]) -> None:
    body["tasks"]["Orders"] = body["tasks"]["Visits"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_two_states(key_names=["other"], key_types=[]), r"nodes\.Visits/hourly\.key_names: differs from another"),
        (of_another_task, r"the nodes are of the tasks Orders, the tasks are Visits"),
        (without_a_node, r"the nodes are of the tasks Visits, the tasks are Orders, Visits"),
    ],
)
def test_nodes_that_are_not_of_their_task_are_refused(change: Change, says: str) -> None:
    """A step would count a record in one and not in the other, or in none."""
    refused(Manifest, full_manifest().encode(), change, says)
    body = copy.deepcopy(body_of(full_manifest().encode(), "place"))
    of_two_states()(body)
    assert Manifest.decode(document(body), "place").nodes.keys() == {"Visits", "Visits/hourly"}
