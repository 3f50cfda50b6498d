"""The results of a step are those of its splits and of each node, and one checkpoint has all of them."""

from __future__ import annotations

import pytest

from persistent import MemorySink
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import Account
from persistent.driver.results import NodeResults, Results
from persistent.names import Attempt, Staged
from persistent.worker.job import Closed, Folded, FoldRuns, Mapped, MappedNode
from tests.checkpoint.samples import run
from tests.several import KINDS, Run, World, disordered


def test_the_results_of_a_step_are_all_of_its_nodes() -> None:
    """The files of one that are forgotten would stay, or be deleted while they are needed."""
    whole, seen, delta = run("whole"), run("seen"), run("delta")
    fold, of_seen = ((FoldRuns(Attempt(1, 1), Merge((), 0, 9), 0), Folded(one, None)) for one in (whole, seen))
    one = NodeResults((MappedNode(delta),), (Closed(dead=Staged("a", 1, 1)), Closed()), (fold,))
    other = NodeResults((MappedNode(),), (Closed(dead=Staged("b", 2, 1)),))
    split = Mapped("memory", "0", {"Task/a": one.mapped[0], "Task/b": other.mapped[0]}, Account())
    found = Results((split,), {"Task/a": one, "Task/b": other}, (of_seen,))
    assert len(found.closed) == 3 and [staged.name for staged in found.set_aside()] == ["a", "b"]
    assert found.folded == (fold, of_seen) and found.written() == {one.name for one in (whole, seen, delta)}
    assert one.delta == (delta,) and other.delta == ()


def test_the_outputs_of_a_node_are_counted_once() -> None:
    """Each sink is given the same rows: a report would say twice as many."""
    rows = {name: Staged(name, 3, 9) for name in ("x", "y")}
    results = NodeResults(closed=(Closed(rows), Closed(), Closed({"x": Staged("more", 5, 9)})))
    assert results.outputs == 8 and NodeResults().outputs == 0
    assert [one.name for one in results.staged("x")] == ["x", "more"] and results.staged("z") == ()


@pytest.mark.parametrize("name", ["state", "other"])
def test_a_checkpoint_has_every_state_with_its_sink(name: str) -> None:
    """A state called "state" is written as one without a name, so that it can become one."""
    world = World({name: KINDS["short"], "total": KINDS["total"]}, disordered(1, 20))
    world.run(Run(20, 7, end_of_input=True))
    manifest = Log(world.storage).newest().manifest  # type: ignore[union-attr]
    node = "Several" if name == "state" else "Several/other"
    assert manifest.nodes.keys() == {node, "Several/total"} and manifest.tasks.keys() == {"Several"}
    assert {sink: part.node for sink, part in manifest.sinks.items()} == {name: node, "total": "Several/total"}
    assert manifest.sinks_of(node).keys() == {name}
    assert manifest.folders() == {"d/Several", f"d/{node}", "d/Several/total"}


def test_a_checkpoint_of_one_state_is_as_it_always_was() -> None:
    """An earlier release reads it."""
    world = World({"state": KINDS["short"]}, disordered(1, 20))
    world.run(Run(20, 7), sink={"state": MemorySink()})
    manifest = Log(world.storage).newest().manifest  # type: ignore[union-attr]
    assert "added" not in str(manifest.encode())
