"""Each state of a task goes through a step alone; their results are joined into one checkpoint.

All have read the same records, at the same positions. A sink takes one state, by which the manifest knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.successor import Entry, succeed
from persistent.driver.commit import Results, aside_of
from persistent.driver.next_sinks import next_late_sink
from persistent.driver.sink_names import taken_by
from persistent.state import PersistentState
from persistent.worker.job import Job


def joined_results(whole: Results, states: Mapping[str, Results]) -> Results:
    """The results of a step: those of its only state, or of all. ``whole``: what belongs to no single state."""
    if len(states) == 1:
        return next(iter(states.values()))
    each = states.values()
    return replace(
        whole,
        closed=tuple(closed for one in each for closed in one.closed),
        folded=tuple(fold for one in each for fold in one.folded),
        discarded=sum(one.discarded for one in each),
        changes=any(one.changes for one in each),
        states=states,
    )


def joined_checkpoint(last: Entry, job: Job, results: Results, states: Mapping[str, Manifest]) -> Manifest:
    """The checkpoint after ``last``, joined from the checkpoints that each state alone would make."""
    one = next(iter(states.values()))
    has_names = bool(job.takes) or not isinstance(job.declared, PersistentState)
    if not has_names and last.manifest.of(next(iter(states))) is last.manifest:
        return one
    # A seen record expires once no state has use for it.
    slowest = min(states.values(), key=lambda made: made.clock.watermark)
    return succeed(
        last,
        "checkpoint",
        nonce=one.nonce,
        oldest=one.oldest,
        bases=one.bases,
        left=one.left,
        burnt=one.burnt,
        committed_ms=one.committed_ms,
        sources=slowest.sources,
        clocks={name: made.clocks[name] for name, made in states.items()},
        operators={name: made.operators[name] for name, made in states.items()},
        ledger={name: made.ledger[name] for name, made in states.items()},
        sinks={
            sink: replace(part, state=taken_by(job, sink) if sink in job.sinks else part.state)
            for made in states.values()
            for sink, part in made.sinks.items()
        }
        | next_late_sink(last.manifest.sinks, one.id, job.late_sink, results.late_outputs()),
        aside=aside_of(one.id, results),
        publishes=bool(job.sinks),
    )
