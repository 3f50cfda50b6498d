"""The runs after the folds of a step: folded whole, or as they were."""

from __future__ import annotations

from collections.abc import Sequence

from persistent.checkpoint.compaction import replaced
from persistent.codec import Run
from persistent.worker.job import Folded, FoldRuns

Runs = tuple[Run, ...]
Fold = tuple[FoldRuns, Folded]
"""A piece of a fold, and what it returned."""


def unfolded(folds: Sequence[Fold]) -> frozenset[str]:
    """The runs whose fold raised in at least one piece. All pieces of that fold are left out, because each raises
    ``low`` where the one before ends."""
    return frozenset(run.name for item, folded in folds if folded.failure for run in item.merge.inputs)


def runs_after(runs: Runs, folds: Sequence[Fold]) -> Runs:
    """The runs after these folds, of which those that raised leave everything as it was."""
    left = unfolded(folds)
    for item, folded in folds:
        if not left & {run.name for run in item.merge.inputs}:
            runs = replaced(runs, item.merge, folded.run)
    return runs
