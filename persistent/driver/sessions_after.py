"""A step of sessions with lateness publishes after it has mapped: what it has read can change what is published.

The keys whose sessions may close are looked up by the agendas of the runs, and those of late records in the delta. A
step that closes none, and has read nothing from before the clock, publishes nothing and reads no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from persistent.driver.commit import key_types
from persistent.driver.session_cache import SessionCache, of_shard
from persistent.driver.state_bench import StateBench
from persistent.driver.step import Step, closing_of, in_shards
from persistent.worker.job import Closed, Mapped


def sessions_after(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> tuple[tuple[Closed, ...], int]:
    """The results of sessions that close, and of closed ones that the delta changes; without a sink, how many close."""
    cache = bench.run_cache
    assert isinstance(cache, SessionCache) and cache.window is not None
    delta = tuple(one.run for one in mapped if one.run)
    closing = replace(closing_of(step), key_types=key_types(step.last.manifest.operator, mapped), delta=delta)
    corrected = cache.touched(delta, closing.closed) if bench.job.sinks else ()
    due = cache.due((*closing.runs, *delta), closing.closed, closing.close_at)
    if not (len(due) or corrected):
        return (), 0
    first = corrected[0][0] if corrected else cache.window.first_number(closing.closed)
    panes = (cache.window.start_of(first), max(closing.closed, closing.close_at))
    shards = in_shards(replace(closing, corrected=corrected), bench.engine.parallelism, panes)
    items = [replace(one, hashes=of_shard(due, one)) for one in shards]
    items = [one for one in items if corrected or (one.hashes is not None and len(one.hashes))]
    closed = tuple(one for one in bench.engine.map(bench.work, items) if isinstance(one, Closed))
    return closed, sum(one.discarded for one in closed)
