"""Compaction folds all runs of a state at once; a step folds only a bounded part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.commit_change import Decision, Manifests, commit_change
from persistent.checkpoint.compaction import Merge, beside, shards
from persistent.checkpoint.copies import OnProgress
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, commits_of
from persistent.checkpoint.parts import NodePart, SourcePart
from persistent.checkpoint.runs import fold_index
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver.commit import first_manifest, known_from
from persistent.driver.same_job import check_same_job
from persistent.names import Attempt
from persistent.pipeline import Pipeline
from persistent.worker.job import FoldRuns, Job, Node
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

    def decide(manifests: Manifests) -> Decision | None:
        old = manifests.newest.manifest
        check_same_job(old, first_manifest(job, ""), job.storage.url)
        if not _is_due(old):
            return None
        in_zones = job.in_zones({name: part.zone for name, part in old.nodes.items()})
        return Decision("compaction", write=lambda attempt: _compacted(in_zones, old, attempt, on_progress))

    return commit_change(Log(job.storage), decide, take_over=take_over)


def _compacted(job: Job, old: Manifest, attempt: Attempt, on_progress: OnProgress | None) -> dict[str, Any]:
    of_one = len(old.nodes) == 1
    total, done = sum(run.bytes for run in old.state_runs()), 0
    nodes = {}
    for id, part in old.nodes.items():

        def progress(part: int, whole: int, done: int = done) -> None:
            if on_progress is not None:
                on_progress(part if of_one else done + part, whole if of_one else total)

        nodes[id] = _folded(job.nodes[id], attempt, part, progress)
        done += sum(run.bytes for run in part.runs)
    sources = {name: replace(source, index=_folded_index(job, attempt, source)) for name, source in old.sources.items()}
    commits = commits_of({**old.bases, attempt.id: old.committed_ms})
    return {"commits": commits, "nodes": nodes, "sources": sources}


def _folded(node: Node, attempt: Attempt, part: NodePart, on_progress: OnProgress) -> NodePart:
    """A node, with its runs folded."""
    runs = tuple(_folded_runs(node, attempt, part, on_progress))
    return replace(
        part,
        runs=runs,
        lowest=part.lowest if runs else None,
        known_from=known_from(part, node.state.known_from(part.clock.closed)),
    )


def _is_due(manifest: Manifest) -> bool:
    parts = [part for node in manifest.nodes.values() for part in _parts(node)]
    return any(not _is_one_sum(part) for part in parts) or any(
        len(source.index) > 1 for source in manifest.sources.values()
    )


def _parts(node: NodePart) -> list[tuple[Run, ...]]:
    """The groups of runs that can be folded together: published and unpublished runs stay apart."""
    published = tuple(run for run in node.runs if run.last <= node.published)
    rest = tuple(run for run in node.runs if run.last > node.published)
    return [part for part in (published, rest) if part]


def _is_one_sum(part: Sequence[Run]) -> bool:
    """Whether each key group is in exactly one run, and every run still counts whole."""
    ranges = sorted((run.low, run.high) for run in part)
    return all(run.low == run.start for run in part) and all(a[1] <= b[0] for a, b in pairwise(ranges))


def _folded_runs(node: Node, attempt: Attempt, part: NodePart, on_progress: OnProgress) -> Iterator[Run]:
    all_bytes = sum(run.bytes for run in part.runs)
    done_bytes = 0
    for runs in _parts(part):
        if _is_one_sum(runs):
            yield from runs
        else:
            made: list[Run] = []
            for low, high in shards(runs):
                inputs = tuple(run for run in runs if run.low < high and low < run.high)
                if inputs:
                    merge = Merge(inputs, low, high)
                    over = 0 if beside(part.runs, merge) else _over(node, part, merge)
                    folded = compact_runs(node, FoldRuns(attempt, merge, part.final, over=over))
                    if folded.failure:
                        logger.warning("%d runs stay unfolded: %s", len(runs), folded.failure)
                        made = list(runs)
                        break
                    made += [folded.run] if folded.run is not None else []
                on_progress(done_bytes + sum(run.bytes for run in runs) * high // KEY_GROUPS, all_bytes)
            yield from made
        done_bytes += sum(run.bytes for run in runs)


def _over(node: Node, part: NodePart, merge: Merge) -> int:
    """The clock up to which a merge drops sessions or lives; it sees every run that holds a part of them."""
    ttl = node.state.time_to_live
    return part.final if ttl is None else ttl.over(part.final, part.shown_to(merge.inputs))


def _folded_index(job: Job, attempt: Attempt, source: SourcePart) -> tuple[Run, ...]:
    if len(source.index) < 2:
        return source.index
    return (fold_index(job.storage, source.kind, attempt, source.index),)
