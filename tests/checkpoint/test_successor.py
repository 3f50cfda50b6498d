"""The table of succession: of each kind of manifest, what it may change of the one before it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from persistent.checkpoint.manifest import KINDS, SETS, Manifest
from persistent.checkpoint.output_parts import Aside, Correction, Inheritance, SinkBatch, SinkPart
from persistent.checkpoint.parts import Account, NodeClock, NodePart, SeenColumns, SeenPart, SourcePart, TaskPart
from persistent.checkpoint.successor import (
    TABLE,
    Entry,
    Rule,
    broken,
    check_follows,
    first,
    succeed,
    table_text,
)
from persistent.errors import LawBroken
from persistent.names import Staged
from persistent.time.clock import Clock
from tests.checkpoint.samples import manifest, node, run
from tests.single import only

SOURCE = SourcePart("MemorySource", ("memory",), {"memory": (0, 7)})
PARENT = replace(
    manifest(4, epoch=2, oldest=1, clock=Clock(20, 10), source=SOURCE),
    sinks={"memory": SinkPart(("retract",), 4, (SinkBatch(4, 2, (Staged("s", 1, 9),)),), "Visits")},
    aside=(Aside(4, (Staged("d/l", 1, 9),)),),
    fences=1,
    replan=1,
    pins=(3,),
    commits=((3, 5), (4, 6)),
    burnt=(2,),
    committed_ms=6,
    target=3,
    retract=(3, 4),
    left=((3, 4, True),),
    origin=("other", 1),
    publishes=True,
    revision_base=30,
    inherits={"memory": Inheritance(("other",), 29)},
    not_after=70,
    corrections={"one": Correction(3, 1, 0, (0, 0), "0" * 64)},
)
LAST = Entry(PARENT, "f" * 64, 100)
OTHER: dict[str, Any] = {
    "job": "another",
    "base": 3,
    "oldest": 2,
    "epoch": 9,
    "sources": {"memory": replace(SOURCE, positions={"memory": (0, 9)})},
    "tasks": {"Visits": TaskPart({"memory": {"memory": Account(8, 8)}})},
    "nodes": {"Visits": node({"of": "another"}, ("page",), clock=NodeClock(30, 10))},
    "sinks": {"memory": SinkPart(("retract",), 5, (SinkBatch(5, 4, (Staged("t", 1, 9),)),), "Visits")},
    "aside": (Aside(5, (Staged("d/d", 1, 9),)),),
    "fences": 7,
    "replan": 7,
    "pins": (4,),
    "commits": ((4, 6),),
    "burnt": (1,),
    "committed_ms": 60,
    "target": 2,
    "retract": (1, 3),
    "left": ((1, 3, False),),
    "origin": ("another", 2),
    "publishes": False,
    "revision_base": 40,
    "inherits": {"memory": Inheritance(("another",), 39)},
    "not_after": 80,
    "corrections": {**PARENT.corrections, "other": Correction(5, 2, 0, (0, 0), "1" * 64)},
}
"""Of each field a value that is not the parent's, nor the first manifest's, nor an id."""


def at(clock: NodeClock, name: str = "Visits", **changes: Any) -> dict[str, NodePart]:
    """The other node, at that clock."""
    return {name: replace(OTHER["nodes"]["Visits"], clock=clock, **changes)}


def given(kind: str) -> dict[str, Any]:
    """What a maker of that kind has to say."""
    own: dict[str, Any] = {"epoch": 3 if kind == "fence" else 2, "oldest": 2, "burnt": (2,)}
    if kind in ("compaction", "migration"):
        own["nodes"] = at(only(PARENT.nodes).clock)
    if kind == "migration":
        own |= {"tasks": PARENT.tasks, "sinks": PARENT.sinks}
    if kind == "compaction":
        own["sources"] = {"memory": replace(only(PARENT.sources), index=(run("i"),))}
    return {name: own.get(name, OTHER[name]) for name, rule in TABLE[kind].items() if rule is Rule.SET}


def test_the_table_knows_every_kind_and_every_field() -> None:
    """A field that nobody has judged is copied by all, or lost by some."""
    own = {"id", "kind", "nonce", "parent"}
    for kind in KINDS:
        assert {*TABLE[kind], *own} == {field.name for field in structs.fields(Manifest)}, kind
    assert OTHER.keys() == TABLE["fence"].keys()
    for field in structs.fields(Manifest):
        if any(rules.get(field.name) is Rule.RESET for rules in TABLE.values()):
            assert not field.required, f"{field.name} has no first value"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_follows_by_the_table(kind: str) -> None:
    """The one place where a manifest after the first is made."""
    made = succeed(LAST, kind, nonce="mine", **given(kind))
    assert (made.id, made.kind, made.nonce, made.parent) == (5, kind, "mine", (4, "f" * 64))
    empty = Manifest("j", 0, "checkpoint", 0, 0, 0, "n", {}, {}, {})
    for name, rule in TABLE[kind].items():
        expected = {
            Rule.COPIED: getattr(PARENT, name),
            Rule.MAY: getattr(PARENT, name),
            Rule.RESET: getattr(empty, name, None),
            Rule.OWN: 5,
            Rule.SET: given(kind).get(name),
        }[rule]
        assert getattr(made, name) == expected, name
    check_follows(made, PARENT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_maker_says_what_its_kind_sets_and_nothing_else(kind: str) -> None:
    """Else a fence could move the clock past records that were never read."""
    for name, rule in TABLE[kind].items():
        if rule in (Rule.COPIED, Rule.RESET, Rule.OWN):
            with pytest.raises(TypeError, match=f"kind {kind} after 4 sets {name}$"):
                succeed(LAST, kind, **given(kind), **{name: OTHER[name]})
        elif rule is Rule.SET:
            with pytest.raises(TypeError, match=f"kind {kind} after 4 omits {name}$"):
                succeed(LAST, kind, **{one: value for one, value in given(kind).items() if one != name})


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_breaks_the_table_is_not_put(kind: str) -> None:
    """The same table judges what others have written."""
    good = succeed(LAST, kind, **given(kind))
    verbs = {Rule.COPIED: f"a {kind} copies", Rule.RESET: f"a {kind} resets", Rule.OWN: f"a {kind} has its own id as"}
    for name, rule in TABLE[kind].items():
        if rule in verbs:
            bad = replace(good, **{name: OTHER[name]})
            assert any(law.startswith(f"{verbs[rule]} {name}") for law in broken(bad, PARENT)), name
            with pytest.raises(LawBroken, match=r"manifest 5 after 4 breaks the law that .* it was not committed"):
                check_follows(bad, PARENT)


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"id": 6}, "ids count up by one"),
        ({"id": 4}, "ids count up by one"),
        ({"epoch": 1}, "only a fence raises the epoch"),
        ({"epoch": 4}, "only a fence raises the epoch"),
        ({"oldest": 0}, "the oldest kept id never decreases"),
        ({"nodes": at(NodeClock(20, -1))}, "closed windows lie behind the clock"),
        ({"nodes": at(NodeClock(20, 21))}, "closed windows lie behind the clock"),
        (
            {"tasks": {"Visits": TaskPart({"memory": {"memory": Account(5, 4)}})}},
            "the account of memory balances: Account(read=5",
        ),
        ({"sinks": {"memory": SinkPart((), 3)}}, "the last batch of memory never goes back"),
        ({"sinks": {"memory": SinkPart()}}, "the last batch of memory never goes back"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_every_kind(kind: str, changes: dict[str, Any], law: str) -> None:
    """Clock and positions may go back where a state is set anew; the log itself never does."""
    bad = replace(succeed(LAST, kind, **given(kind)), **changes)
    assert any(found.startswith(law) for found in broken(bad, PARENT)), list(broken(bad, PARENT))


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"nodes": at(NodeClock(19, 10))}, "the clock never goes back"),
        ({"nodes": at(NodeClock(20, 9))}, "a closed window never reopens"),
        ({"nodes": at(NodeClock(20, 10), "Other")}, "only a migration brings other nodes"),
        ({"sources": {"memory": replace(SOURCE, positions={"memory": (0, 6)})}}, "positions of memory never go back"),
        ({"sources": {"memory": replace(SOURCE, positions={})}}, "positions of memory never go back"),
        ({"sources": {"other": SOURCE}}, "positions of memory never go back"),
        (
            {"sources": {"memory": replace(SOURCE, partitions=())}},
            "partitions of memory join at the end, and none vanishes",
        ),
        (
            {"sources": {"memory": replace(SOURCE, partitions=("a", "memory"))}},
            "partitions of memory join at the end, and none vanishes",
        ),
        (
            {"sources": {"memory": replace(SOURCE, codec="offset/1", positions={"memory": 9})}},
            "the positions of memory keep their codec",
        ),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_only_a_state_that_is_set_anew_goes_back(kind: str, changes: dict[str, Any], law: str) -> None:
    """A law too strict stops a job for good, at a step that was right; one too loose counts records twice."""
    made = replace(succeed(LAST, kind, **given(kind)), **changes)
    may = kind in SETS or (kind == "migration" and "Other" in changes.get("nodes", ()))
    assert (law in list(broken(made, PARENT))) != may


def test_a_sink_may_be_new_or_have_been_given_nothing() -> None:
    """Its first batch follows none."""
    for sinks in ({}, {"memory": SinkPart()}):
        last = Entry(replace(PARENT, sinks=sinks), "f" * 64, 100)
        assert succeed(last, "checkpoint", **given("checkpoint")).sinks == OTHER["sinks"]


def test_a_partition_joins_while_a_job_runs() -> None:
    """Refused, a topic that grows would stop every job that reads it."""
    grown = replace(SOURCE, partitions=("memory", "late"), positions={"memory": (0, 9), "late": (0, 0)})
    made = succeed(LAST, "checkpoint", **{**given("checkpoint"), "sources": {"memory": grown}})
    gone = {"memory": replace(grown, positions={"memory": (0, 9)})}
    with pytest.raises(LawBroken, match="positions of late never go back"):
        succeed(Entry(made, "0" * 64, 1), "checkpoint", **{**given("checkpoint"), "sources": gone})


def test_a_migration_moves_neither_clock_nor_account() -> None:
    """A task of another name goes on where the one before stood; anywhere else, records are lost or counted twice."""
    renamed = {**given("migration"), "nodes": at(PARENT.nodes["Visits"].clock, "Other")}
    renamed["tasks"] = {"Other": PARENT.tasks["Visits"]}
    renamed["sinks"] = {"memory": replace(PARENT.sinks["memory"], node="Other")}
    assert succeed(LAST, "migration", **renamed).clock == PARENT.clock
    for name, law in (("nodes", "a migration moves no clock"), ("tasks", "a migration changes no account")):
        for task in ("Visits", "Other"):
            with pytest.raises(LawBroken, match=law):
                succeed(LAST, "migration", **{**renamed, name: {task: OTHER[name]["Visits"]}})


def test_a_migration_renames_the_node_of_a_sink_and_changes_nothing_else_of_it() -> None:
    """A sink whose state has another name would be given every row again; one with another batch would lack rows."""
    renamed = {**given("migration"), "nodes": at(PARENT.nodes["Visits"].clock, "Other")}
    renamed["tasks"] = {"Other": PARENT.tasks["Visits"]}
    for sink in (PARENT.sinks["memory"], replace(OTHER["sinks"]["memory"], node="Other")):
        with pytest.raises(LawBroken, match="a migration changes only the node of a sink"):
            succeed(LAST, "migration", **{**renamed, "sinks": {"memory": sink}})


def test_a_compaction_moves_no_clock() -> None:
    """It folds: windows that it closed would be published by nobody."""
    for clock in (NodeClock(21, 10), NodeClock(20, 11)):
        with pytest.raises(LawBroken, match="a compaction moves no clock"):
            succeed(LAST, "compaction", **{**given("compaction"), "nodes": at(clock)})


@pytest.mark.parametrize(
    "changes", [{"positions": {"memory": (0, 8)}}, {"largest": {"memory": 7}}, {"idle": ("memory",)}, {"since": 3}]
)
def test_a_compaction_changes_of_a_source_its_index_alone(changes: dict[str, Any]) -> None:
    """It folds: records passed over on the way would never be read."""
    source = replace(only(PARENT.sources), index=(run("i"),), **changes)
    with pytest.raises(LawBroken, match="a compaction changes only the index of memory"):
        succeed(LAST, "compaction", **{**given("compaction"), "sources": {"memory": source}})


def test_ids_and_epochs_go_on_above_what_is_burnt() -> None:
    """Where the newest manifest was lost, a rollback stands above its id: by one law, and not beside it."""
    rollback = {**given("rollback"), "epoch": 8, "burnt": (2, 7)}
    assert succeed(LAST, "rollback", id=8, **rollback).id == 8
    with pytest.raises(LawBroken, match="above burnt ids"):
        succeed(LAST, "rollback", id=9, **rollback)
    # The first fence burns the lost id from below it.
    assert succeed(LAST, "fence", burnt=(2, 9), **given("fence")).id == 5


@pytest.mark.parametrize("clock", [NodeClock(20, 20), NodeClock(20, 10), NodeClock(30, 30)])
def test_what_is_closed_may_reach_the_clock(clock: NodeClock) -> None:
    """At the end of the input all windows are closed."""
    check_follows(succeed(LAST, "checkpoint", **{**given("checkpoint"), "nodes": at(clock)}), PARENT)


SEEN = SeenPart(SeenColumns(("o",)), 10, 20, (run(),))


def test_a_first_manifest_has_seen_nothing() -> None:
    """What begins again reads again: it would take all for copies."""
    made = first("n", {"memory": replace(SOURCE, seen=SEEN)}, PARENT.nodes)
    assert made.sources["memory"].seen == SeenPart(SEEN.columns, 10, 0, ())
    assert first("n", {"memory": SOURCE}, PARENT.nodes).sources["memory"].seen is None


@pytest.mark.parametrize(
    ("before", "after", "holds"), [(None, 20, True), (20, None, True), (20, 20, True), (20, 30, True), (20, 10, False)]
)
def test_what_has_expired_stays_so(before: int | None, after: int | None, holds: bool) -> None:
    """Panes that are gone would be taken for panes in which nothing was seen."""

    def at(expired: int | None) -> dict[str, SourcePart]:
        seen = None if expired is None else replace(SEEN, expired=expired)
        return {"memory": replace(PARENT.sources["memory"], seen=seen)}

    parent = replace(PARENT, sources=at(before))
    made = replace(succeed(LAST, "checkpoint", **given("checkpoint")), sources=at(after))
    assert ("seen records of memory expire once" not in list(broken(made, parent))) == holds


def test_nothing_need_be_closed() -> None:
    """A job whose first window is still open."""
    last = Entry(replace(PARENT, nodes=at(NodeClock())), "f" * 64, 100)
    nodes = at(NodeClock(7, 0))
    check_follows(succeed(last, "checkpoint", **{**given("checkpoint"), "nodes": nodes}), last.manifest)


def test_each_is_told_from_every_other() -> None:
    """By its nonce a driver knows that an id is its own, whatever the store answered."""
    drawn = {succeed(LAST, "fence", **given("fence")).nonce for _ in range(10)}
    assert len(drawn) == 10 and all(re.fullmatch("[0-9a-f]{32}", nonce) for nonce in drawn)


def test_the_first_is_empty() -> None:
    """Nothing has been read, counted, kept or published: what is there from the beginning counts in every sum."""
    nodes = {"Visits": node({}, ("page",))}
    made = first("mine", {"lists": SourcePart("Lists", ("a", "b"), {})}, nodes)
    assert made == Manifest(
        job="mine",
        id=0,
        kind="checkpoint",
        base=0,
        oldest=0,
        epoch=0,
        nonce="mine",
        sources={"lists": SourcePart("Lists", ("a", "b"), {"a": (0, 0), "b": (0, 0)}, {}, (), None)},
        tasks={"Visits": TaskPart({"lists": {"a": Account(0, 0), "b": Account(0, 0)}})},
        nodes=nodes,
        commits=((0, 0),),
    )


def test_the_page_of_the_protocol_has_this_table() -> None:
    """A table that is copied by hand says what was once so."""
    page = Path(__file__).parents[2] / "docs" / "protocol.md"
    assert table_text() in page.read_text()


@pytest.mark.parametrize(
    ("was", "now", "laws"),
    [
        (6, 6, []),
        (6, 5, ["a final window stays final"]),
        (None, 9, ["a final window stays final"]),
        (6, None, []),
        (6, 10, []),
        (6, 11, ["final windows are closed"]),
    ],
)
def test_a_final_window_stays_final_and_is_closed(was: int | None, now: int | None, laws: list[str]) -> None:
    """Its panes are gone: opened again, it would be published with a part of its sum."""
    parent, made = (
        replace(PARENT, nodes={"Visits": replace(only(PARENT.nodes), final_at=final)}) for final in (was, now)
    )
    made = replace(
        succeed(Entry(parent, "f" * 64, 100), "checkpoint", **given("checkpoint")),
        nodes=made.nodes,
    )
    assert [law for law in broken(made, parent) if "final" in law] == laws
