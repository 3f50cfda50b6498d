"""Compaction folds all runs of a state at once; a step folds only a bounded part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from persistent.checkpoint.compaction import Merge, beside, shards
from persistent.checkpoint.copies import OnProgress, newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.parts import OperatorState, SourcePart, StateRuns
from persistent.checkpoint.runs import fold_index
from persistent.checkpoint.successor import Entry, at_all, succeed
from persistent.codec import KEY_GROUPS, Run
from persistent.driver.commit import first_manifest, known_from
from persistent.driver.same_job import check_same_job
from persistent.operations.fencing import committed, fenced
from persistent.pipeline import Pipeline
from persistent.worker.job import FoldRuns, Job
from persistent.worker.merge_runs import compact_runs

logger = logging.getLogger("persistent.operations")


def compact(pipeline: Pipeline, *, take_over: bool = False, on_progress: OnProgress | None = None) -> Entry:
    """Fold the runs of the state into one per shard, and those of the source's index into one, and commit the result.

    State and outputs do not change. Compaction runs in this process, one shard at a time, in memory that does not grow
    with the state. The next collection deletes the old files, once no kept checkpoint names them. If there is nothing
    to fold, returns the newest manifest. Raises StillRunning. ``on_progress`` receives the bytes done and the total
    bytes.
    """
    job = pipeline.job()
    log = Log(job.storage)
    newest = newest_of(log)
    check_same_job(newest.manifest, first_manifest(job, ""), job.storage.url)
    if not _is_due(newest.manifest):
        return newest
    fence = fenced(log, take_over=take_over)
    zones = {name: one.state.zone for name, one in fence.manifest.operators.items()}
    with log.unless_fenced(fence.manifest.id):
        manifest = _compacted(job.in_zones(zones), fence, on_progress)
    return committed(log, manifest)


def _compacted(job: Job, fence: Entry, on_progress: OnProgress | None) -> Manifest:
    old = fence.manifest
    attempt = Attempt(old.epoch, old.id + 1)
    of_one = len(old.operators) == 1
    total, done = sum(run.bytes for run in old.state_runs()), 0
    operators = {}
    for name, one in job.each().items():
        view = old.of(name)

        def progress(part: int, whole: int, done: int = done) -> None:
            if on_progress is not None:
                on_progress(part if of_one else done + part, whole if of_one else total)

        operators[name] = _folded(one, attempt, view, progress)
        done += sum(run.bytes for run in view.state_runs())
    return succeed(
        fence,
        "compaction",
        bases={**old.bases, old.id + 1: old.committed_ms},
        **at_all(
            old,
            operators=operators,
            sources={
                name: replace(source, index=_folded_index(job, attempt, source)) for name, source in old.sources.items()
            },
        ),
    )


def _folded(job: Job, attempt: Attempt, old: Manifest, on_progress: OnProgress) -> OperatorState:
    """The only state, with its runs folded."""
    state = old.operator.state
    runs = tuple(_folded_runs(job, attempt, state, old.final, on_progress))
    return old.operator.with_state(
        runs=runs,
        lowest=state.lowest if runs else None,
        known_from=known_from(state, job.state.known_from(old.clock.closed)),
    )


def _is_due(manifest: Manifest) -> bool:
    parts = [part for one in manifest.operators.values() for part in _parts(one.state)]
    return any(not _is_one_sum(part) for part in parts) or any(
        len(source.index) > 1 for source in manifest.sources.values()
    )


def _parts(state: StateRuns) -> list[tuple[Run, ...]]:
    """The groups of runs that can be folded together: published and unpublished runs stay apart."""
    published = tuple(run for run in state.runs if run.last <= state.published)
    rest = tuple(run for run in state.runs if run.last > state.published)
    return [part for part in (published, rest) if part]


def _is_one_sum(part: Sequence[Run]) -> bool:
    """Whether each key group is in exactly one run, and every run still counts whole."""
    ranges = sorted((run.low, run.high) for run in part)
    return all(run.low == run.start for run in part) and all(a[1] <= b[0] for a, b in pairwise(ranges))


def _folded_runs(
    job: Job, attempt: Attempt, state: StateRuns, final: int, on_progress: OnProgress | None
) -> Iterator[Run]:
    all_bytes = sum(run.bytes for run in state.runs)
    done_bytes = 0
    for part in _parts(state):
        if _is_one_sum(part):
            yield from part
        else:
            made: list[Run] = []
            for low, high in shards(part):
                inputs = tuple(run for run in part if run.low < high and low < run.high)
                if inputs:
                    merge = Merge(inputs, low, high)
                    over = 0 if beside(state.runs, merge) else _over(job, state, merge, final)
                    result = compact_runs(job, FoldRuns(attempt, merge, final, over=over))
                    if result.failure:
                        logger.warning("%d runs stay unfolded: %s", len(part), result.failure)
                        made = list(part)
                        break
                    made += [result.run] if result.run is not None else []
                if on_progress is not None:
                    on_progress(done_bytes + sum(run.bytes for run in part) * high // KEY_GROUPS, all_bytes)
            yield from made
        done_bytes += sum(run.bytes for run in part)


def _over(job: Job, state: StateRuns, merge: Merge, final: int) -> int:
    """The clock up to which sessions, or lives, are dropped by a merge that sees all of each."""
    ttl = job.state.time_to_live
    return final if ttl is None else ttl.over(final, state.shown_to(merge.inputs))


def _folded_index(job: Job, attempt: Attempt, source: SourcePart) -> tuple[Run, ...]:
    if len(source.index) < 2:
        return source.index
    return (fold_index(job.storage, source.kind, attempt, source.index),)
