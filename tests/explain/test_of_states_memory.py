"""The estimate of memory grows with what it is made of, and says what it assumes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from monoids import Count, SetUnion
from persistent.explain.of_states import memory_section, row_width, shard_sizes
from persistent.state.state import NonWindowState
from persistent.storage import MemoryStorage
from tests.metrics.test_board_values import manifest
from tests.single import only
from tests.visits import GOOD, Visits, pipeline_of


class Kept(Visits):
    """Of a given monoid."""

    def __init__(self, monoid: Any) -> None:
        self.monoid = monoid

    def persistent_state(self) -> Any:
        return NonWindowState(self.monoid)


@pytest.mark.parametrize(("monoid", "origin"), [(Count(), "fixed"), (SetUnion(str), "assumed")])
def test_a_width_is_that_of_the_columns_if_they_have_one(monoid: Any, origin: str) -> None:
    """A state of sets would be taken for one of numbers."""
    node = only(pipeline_of(GOOD, MemoryStorage("width"), Kept(monoid)).job().nodes)
    assert row_width(node, None).origin == origin
    assert row_width(node, None).row_bytes == (40 if origin == "fixed" else 96)


def test_a_width_that_is_stored_is_measured() -> None:
    """The estimate would not know of a state that is there."""
    part = only(manifest().nodes)
    node = only(pipeline_of(GOOD, MemoryStorage("measured")).job().nodes)
    runs = part.runs
    assert row_width(node, part).origin == "measured"
    assert row_width(node, part).row_bytes == sum(run.bytes for run in runs) // sum(run.rows for run in runs)


def test_a_large_state_is_folded_in_shards() -> None:
    """The estimate would be that of the whole state."""
    part = only(manifest().nodes)
    assert shard_sizes(None, 8) == (1, 0)
    assert shard_sizes(part, 8)[0] == 1
    runs = tuple(replace(run, rows=10**9, bytes=10**10) for run in part.runs)
    count, size = shard_sizes(replace(part, runs=runs), 8)
    assert count > 8 and size <= 1 << 29
    runs = tuple(replace(run, rows=10**6) for run in part.runs)
    assert shard_sizes(replace(part, runs=runs), 8)[0] == 8


def test_the_estimate_follows_the_step() -> None:
    """Whoever makes steps smaller would see no difference."""
    pipeline = pipeline_of(GOOD, MemoryStorage("estimate"))
    job = pipeline.job()
    views = dict.fromkeys(job.nodes)
    small, large = (memory_section(job, views, rows, 2).facts["worker_bytes"] for rows in (1_000, 1_000_000))
    more = memory_section(job, views, 1_000_000, 8).facts["worker_bytes"]
    assert small < more < large
    facts = memory_section(job, views, 1_000_000, 2).facts
    assert large == (150 << 20) + 500_000 * (100 + 3 * facts["row_bytes"]["Visits"])
    text = " ".join(memory_section(job, views, 1_000, 2).lines)
    assert "Assumed: 500 records a split" in text
