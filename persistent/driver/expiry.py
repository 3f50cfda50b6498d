"""A state with a time to live publishes, and counts, once its step has mapped: a record of the step can keep a key.

The keys whose last life may have ended are looked up by the agendas of the runs; without any, and without changes to
publish, nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from monoids.text import Words
from persistent.driver.agenda_cache import LifeCache, of_shard
from persistent.driver.commit import key_types
from persistent.driver.output_batches import lacks_all
from persistent.driver.publish import joining_sinks
from persistent.driver.state_bench import StateBench
from persistent.driver.step import Step, changing, closing_of, in_shards
from persistent.lateness import CHANGE, EARLY
from persistent.worker.job import Closed, CloseShard, Mapped


def lives_after(bench: StateBench, step: Step, mapped: Sequence[Mapped]) -> tuple[tuple[Closed, ...], bool]:
    """The results of keys that have changed or expired, and whether all that has changed is published."""
    changes = bool(bench.job.sinks) and _publishes_changes(bench, step)
    publishes = changes or (bool(bench.job.sinks) and step.plan.task.ends)
    closing, due = _closing(bench, step, mapped, publishes=publishes)
    is_all = publishes and bool(closing.delta or (closing.whole and closing.runs))
    items = [
        replace(one, hashes=of_shard(due, one), key_types=key_types(step.last.manifest.operator, mapped))
        for one in in_shards(closing, bench.engine.parallelism if is_all or len(due) else 1, None)
    ]
    items = [one for one in items if is_all or (one.hashes is not None and len(one.hashes))]
    found = bench.engine.map(bench.work, items) if items else ()
    return tuple(one for one in found if isinstance(one, Closed)), changes


def _publishes_changes(bench: StateBench, step: Step) -> bool:
    """Whether the step publishes what has changed, and expired: as its plan says; and with early results also if a sink
    lacks every key. A key that a sink has stays on disk until it is retracted, so nothing else forces a
    step to publish."""
    planned = step.plan.task.emit
    holds_back = planned == EARLY or (planned is None and bench.job.state.lateness.of_changes == EARLY)
    return planned == CHANGE or (holds_back and lacks_all(bench.job, step.last.manifest))


def _closing(bench: StateBench, step: Step, mapped: Sequence[Mapped], *, publishes: bool) -> tuple[CloseShard, Words]:
    """What a step publishes, or only counts, in all key groups; and the hashes of the keys that may have expired."""
    last, cache = step.last.manifest, bench.run_cache
    assert isinstance(cache, LifeCache)
    state, closing = last.operator.state, closing_of(step)
    delta = tuple(one.run for one in mapped if one.run)
    due = cache.due(state.runs, closing.closed, closing.close_at)
    if not publishes:
        return replace(closing, delta=delta, counts=True), due
    # Once all that was published has left, the sinks know of nothing that a key could be taken back for.
    shown_at = state.shown_to(state.runs)
    told = due if shown_at is None else cache.due(state.runs, shown_at, closing.close_at)
    closing = replace(
        changing(closing, state), close_at=closing.close_at, shown_at=shown_at, whole=joining_sinks(bench.job, last)
    )
    return replace(closing, delta=(*closing.delta, *delta)), np.union1d(due, told)
