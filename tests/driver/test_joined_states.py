"""What became of each state is joined to one checkpoint, which has all of them."""

from __future__ import annotations

import pytest

from persistent import MemorySink
from persistent.checkpoint.log import Log
from persistent.driver.commit import Results
from persistent.driver.joined_states import joined_results
from persistent.worker.job import Closed
from tests.several import KINDS, Run, World, disordered


def test_the_results_of_one_state_are_those_of_the_step() -> None:
    """Nothing is copied in a job of one state."""
    one = Results(closed=(Closed(corrected=2),))
    assert joined_results(Results(), {"Task": one}) is one


def test_the_results_of_several_are_all_of_theirs() -> None:
    """The files of one that are forgotten would stay, or be deleted while they are needed."""
    one, other = Results(closed=(Closed(corrected=2),), discarded=1), Results(closed=(Closed(),), changes=True)
    joined = joined_results(Results(), {"Task/a": one, "Task/b": other})
    assert (joined.corrected, joined.discarded, joined.changes, len(joined.closed)) == (2, 1, True, 2)
    assert joined.of("Task/a") is one and joined.of("Task/b") is other


@pytest.mark.parametrize("name", ["state", "other"])
def test_a_checkpoint_has_every_state_with_its_sink(name: str) -> None:
    """A state called "state" is written as one without a name, so that it can become one."""
    world = World({name: KINDS["short"], "total": KINDS["total"]}, disordered(1, 20))
    world.run(Run(20, 7, end_of_input=True))
    manifest = Log(world.storage).newest().manifest  # type: ignore[union-attr]
    operator = "Several" if name == "state" else "Several/other"
    assert manifest.operators.keys() == manifest.clocks.keys() == manifest.ledger.keys() == {operator, "Several/total"}
    assert {sink: part.state for sink, part in manifest.sinks.items()} == {
        name: None if name == "state" else name,
        "total": "total",
    }
    view = manifest.of(operator)
    assert view.sinks.keys() == {name} and view.operator is manifest.operators[operator]
    assert manifest.folders() == {"d/Several", f"d/{operator}", "d/Several/total"}
    assert "several states" in manifest._features()


def test_a_checkpoint_of_one_state_is_as_it_always_was() -> None:
    """An earlier release reads it."""
    world = World({"state": KINDS["short"]}, disordered(1, 20))
    world.run(Run(20, 7), sink={"state": MemorySink()})
    manifest = Log(world.storage).newest().manifest  # type: ignore[union-attr]
    assert manifest._features() == [] and "added" not in str(manifest.encode())
