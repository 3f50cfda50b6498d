"""The results of a step: of its splits, and of the work for each node; the runs after its folds, and the
seen records of each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.compaction import replaced
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SeenColumns, SeenPart
from persistent.checkpoint.plan import StepPlan
from persistent.codec.fields import Run
from persistent.connect.offsets import UNCONFIRMED
from persistent.names import Staged
from persistent.task.dedupe import Dedupe, kinds_of
from persistent.worker.job import Closed, Folded, FoldRuns, Job, Mapped, MappedNode
from persistent.worker.seen_items import SeenBefore

Runs = tuple[Run, ...]
Fold = tuple[FoldRuns, Folded]
"""A piece of a fold, and what it returned."""


@dataclass(frozen=True)
class NodeResults:
    """The results of a step for one node. ``discarded``: how many windows closed without a sink. ``changes``: whether
    the step publishes all that has changed."""

    mapped: tuple[MappedNode, ...] = ()
    closed: tuple[Closed, ...] = ()
    folded: tuple[Fold, ...] = ()
    discarded: int = 0
    changes: bool = False

    def staged(self, sink: str) -> tuple[Staged, ...]:
        """The outputs for the sink of that name."""
        return tuple(result.staged[sink] for result in self.closed if sink in result.staged)

    @property
    def delta(self) -> tuple[Run, ...]:
        """The runs that the splits have written."""
        return tuple(result.run for result in self.mapped if result.run is not None)

    @property
    def outputs(self) -> int:
        """The number of rows for each sink; where the numbers differ, because a sink joins, the largest."""
        return sum(max(staged.rows for staged in result.staged.values()) for result in self.closed if result.staged)


@dataclass(frozen=True)
class Results:
    """The results of a step's items, in the order of the plan. ``nodes``: for each node. ``seen_folded``: folds of seen
    records."""

    mapped: tuple[Mapped, ...] = ()
    nodes: Mapping[str, NodeResults] = field(default_factory=dict)
    seen_folded: tuple[Fold, ...] = ()

    @property
    def closed(self) -> tuple[Closed, ...]:
        """The outputs of all shards."""
        return tuple(closed for node in self.nodes.values() for closed in node.closed)

    @property
    def folded(self) -> tuple[Fold, ...]:
        """All folds: of nodes, and of seen records."""
        return (*(fold for node in self.nodes.values() for fold in node.folded), *self.seen_folded)

    @property
    def first_dead(self) -> str:
        """The reason of the first dead letter, if any."""
        return next((result.first_dead for result in self.mapped if result.first_dead), "")

    @property
    def ignored(self) -> dict[str, str]:
        """The fields that have no column, each with the first file that has it."""
        return {name: file for result in reversed(self.mapped) for name, file in result.ignored.items()}

    @property
    def valued(self) -> dict[str, frozenset[str]]:
        """The columns of each source in which a record has a value."""
        found: dict[str, frozenset[str]] = {}
        for result in self.mapped:
            found[result.source] = found.get(result.source, frozenset()) | result.valued
        return found

    def seen_runs(self, source: str | None = None) -> tuple[Run, ...]:
        """The runs of the records that the splits of a source have seen; by default, of all sources."""
        chosen = (result.seen for result in self.mapped if source is None or result.source == source)
        return tuple(seen.run for seen in chosen if seen is not None and seen.run is not None)

    def written(self) -> set[str]:
        """The names of all runs that the step has written."""
        runs = (*(run for result in self.mapped for run in result.runs()), *self.seen_runs())
        return {run.name for run in (*runs, *(folded.run for _, folded in self.folded)) if run is not None}

    def late_outputs(self) -> tuple[Staged, ...]:
        """The outputs for the sink of late records."""
        return tuple(result.late_output for result in self.mapped if result.late_output)

    def set_aside(self) -> tuple[Staged, ...]:
        """The dead letters of results that cannot be published."""
        return tuple(result.dead for result in self.closed if result.dead)


def unfolded(folds: Sequence[Fold]) -> frozenset[str]:
    """The runs whose fold raised in at least one piece. All pieces of that fold are left out, because each raises
    ``low`` where the one before ends."""
    return frozenset(run.name for item, folded in folds if folded.failure for run in item.merge.inputs)


def runs_after(runs: Runs, folds: Sequence[Fold]) -> Runs:
    """The runs after these folds. A fold that raised in any of its pieces leaves its runs unchanged."""
    left = unfolded(folds)
    for item, folded in folds:
        if not left & {run.name for run in item.merge.inputs}:
            runs = replaced(runs, item.merge, folded.run)
    return runs


def first_seen(dedupe: Dedupe | None) -> SeenPart | None:
    """The seen records before anything is read; None without deduplication."""
    return None if dedupe is None else SeenPart(SeenColumns(**dedupe.columns()), dedupe.pane_ms)


def seen_of(manifest: Manifest, dedupe: Mapping[str, Dedupe], source: str) -> SeenPart | None:
    """The records of a source seen up to this checkpoint; none if deduplication begins now."""
    if source not in dedupe:
        return None
    seen = manifest.sources[source].seen if source in manifest.sources and manifest.base else None
    return first_seen(dedupe[source]) if seen is None else seen


def seen_before(manifest: Manifest, dedupe: Mapping[str, Dedupe]) -> dict[str, SeenBefore]:
    """The seen records for the splits of each source, in the step after this checkpoint."""
    before = {}
    for name, rule in dedupe.items():
        seen = seen_of(manifest, dedupe, name)
        assert seen is not None
        horizon = _horizon(seen, rule, manifest.clock.watermark, manifest.sources[name].recorded)
        before[name] = SeenBefore(seen.runs, horizon, seen.pane_ms)
    return before


def _horizon(seen: SeenPart, dedupe: Dedupe, watermark: int, recorded: Mapping[str, Any]) -> int:
    """The first pane that counts. Messages whose acknowledgement is not confirmed may come again, with times of their
    own, however late."""
    return seen.horizon(min(watermark, recorded.get(UNCONFIRMED, watermark)), dedupe.within_ms)


def seen_after(
    seen: SeenPart,
    dedupe: Dedupe,
    new: Runs,
    folded: Sequence[Fold],
    watermark: int,
    *,
    kinds: Mapping[str, str] = MappingProxyType({}),
    recorded: Mapping[str, Any] = MappingProxyType({}),
) -> SeenPart:
    """The seen records after a step. ``new``: the runs that it wrote. ``watermark``: the clock that it moved to.
    ``kinds``: the kinds of the values that it read, by column. ``recorded``: by the plan of the source."""
    expired = _horizon(seen, dedupe, watermark, recorded)
    runs = tuple(run for run in (*runs_after(seen.runs, folded), *new) if run.pane_max >= expired)
    return replace(seen, expired=expired, runs=runs, kinds={**seen.kinds, **kinds})


def kinds_read(job: Job, plan: StepPlan) -> dict[str, dict[str, str]]:
    """The kinds of the values that identify a record, by source, in what a plan reads."""
    return {
        name: kinds_of(job.dedupe[name], job.sources[name].schema(step.recorded))
        for name, step in plan.sources.items()
        if name in job.dedupe and step.splits
    }
