"""The parts of what was published are read as they were written, and name a state only if it has a name."""

from __future__ import annotations

import pytest

from persistent.checkpoint.names import Staged
from persistent.checkpoint.output_parts import Aside, Inheritance, SinkBatch, SinkPart
from tests.checkpoint.samples import json_of, read_back

STAGED = Staged("_staged/e1-c3-00.parquet", 2, 10)


@pytest.mark.parametrize("state", [None, "hourly"])
def test_a_sink_and_a_place_remember_the_state(state: str | None) -> None:
    """Without it a sink could be given to another state, and its place would hold rows of both."""
    batch = SinkBatch(3, None, (STAGED,))
    for part in (SinkPart(("retract",), 3, (batch,), state), Inheritance(("a", "b"), 7, state)):
        body = json_of(part)
        assert body.get("state") == state and ("state" in body) == (state is not None)
        assert read_back(part) == part


def test_only_batches_with_files_are_owed() -> None:
    """Those that a run without a sink has discarded are not."""
    batches = SinkBatch(3, None, ()), SinkBatch(4, 3, (STAGED,))
    assert SinkPart(unpublished=batches).owed == batches[1:]


def test_what_is_set_aside_is_read_as_it_was_written() -> None:
    """Late rows and dead letters are published under the id that staged them."""
    aside = Aside(4, (Staged("d/Visits/e1-c3-00.arrow", 2, 10),), ())
    assert read_back(aside) == aside and aside and not Aside(4)
