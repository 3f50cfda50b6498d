"""A job whose state is saved."""

from __future__ import annotations

from typing import Any

from persistent import (
    MemorySink,
    MemorySource,
    Pipeline,
)
from tests.crash.worlds import World


def pipeline(world: World, sink: MemorySink, storage: Any, **options: Any) -> Pipeline:
    """The job of a world, over another checkpoint."""
    job = world.job
    return Pipeline(
        source=MemorySource(list(job.rows), timestamp="ts", ordered=job.ordered),
        task=job.task(),
        sink=sink,
        checkpoint=storage,
        step_rows=job.step_rows,
        on_error="dead-letter",
        **options,
    )


def shown(rows: Any) -> list[str]:
    kept = [{name: value for name, value in row.items() if name != "revision"} for row in rows]
    return sorted(repr(sorted(row.items())) for row in kept)
