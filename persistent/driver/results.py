"""The results of a step: of its splits, and of the work for each node; and the runs after its folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from persistent.checkpoint.compaction import replaced
from persistent.codec import Run
from persistent.names import Staged
from persistent.worker.job import Closed, Folded, FoldRuns, Mapped, MappedNode

Runs = tuple[Run, ...]
Fold = tuple[FoldRuns, Folded]
"""A piece of a fold, and what it returned."""


@dataclass(frozen=True)
class NodeResults:
    """What a step has done for one node. ``discarded``: windows that close without a sink. ``changes``: whether all
    that has changed is published."""

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
