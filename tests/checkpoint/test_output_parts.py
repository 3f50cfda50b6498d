"""The parts of what was published are read as they were written, and name the node of a sink of results."""

from __future__ import annotations

import pytest

from persistent.checkpoint.output_parts import Aside, Inheritance, SinkBatch, SinkPart, named_after
from persistent.names import Staged
from tests.checkpoint.samples import json_of, read_back

STAGED = Staged("_staged/e1-c3-00.parquet", 2, 10)


@pytest.mark.parametrize("node", [None, "Visits", "Visits/hourly"])
def test_a_sink_and_a_place_remember_the_node(node: str | None) -> None:
    """Without it a sink could be given to another state, and its place would hold rows of both."""
    batch = SinkBatch(3, None, (STAGED,))
    for part in (SinkPart(("retract",), 3, (batch,), node), Inheritance(("a", "b"), 7, node)):
        body = json_of(part)
        assert body.get("node") == node and ("node" in body) == (node is not None)
        assert read_back(part) == part


def test_a_sink_without_a_node_receives_late_records() -> None:
    """Counted as one of results, it would be owed what closes."""
    assert SinkPart().late and not SinkPart(node="Visits").late


def test_a_sink_follows_the_state_that_it_takes() -> None:
    """Under the old name of its task it would be given every row again; under that of another state, rows of both."""
    sinks = {"a": SinkPart(node="Old"), "b": SinkPart(node="Old/hourly"), "late": SinkPart(last=3)}
    assert named_after(sinks, ["Old", "Old/hourly"]) == sinks
    assert named_after(sinks, ["New"]) == {**sinks, "a": SinkPart(node="New")}
    assert named_after(sinks, ["New", "New/hourly"])["b"] == SinkPart(node="New/hourly")
    assert named_after(sinks, ["New", "Old"]) == sinks, "a node that is there keeps its sinks"


def test_only_batches_with_files_are_owed() -> None:
    """Those that a run without a sink has discarded are not."""
    batches = SinkBatch(3, None, ()), SinkBatch(4, 3, (STAGED,))
    assert SinkPart(unpublished=batches).owed == batches[1:]


def test_what_is_set_aside_is_read_as_it_was_written() -> None:
    """Late rows and dead letters are published under the id that staged them."""
    aside = Aside(4, (Staged("d/Visits/e1-c3-00.arrow", 2, 10),), ())
    assert read_back(aside) == aside and aside and not Aside(4)
