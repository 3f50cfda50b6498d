"""The folds of a step leave runs folded whole, or as they were."""

from __future__ import annotations

from collections.abc import Sequence

from persistent.checkpoint.compaction import replaced
from persistent.checkpoint.parts import OperatorState, StateRuns
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


def shown_to(state: StateRuns, runs: Sequence[Run]) -> int | None:
    """The clock up to which the sinks know which keys of these runs have expired; None if no sink has any of them."""
    return state.shown_at if not state.published or any(run.first <= state.published for run in runs) else None


def shown_after(state: StateRuns, closed: int, *, told: bool) -> int | None:
    """The same of all runs, after a step that is closed up to ``closed``. ``told``: it publishes what has changed."""
    return closed if told and state.has_time_to_live else state.shown_at


def shown_since(operator: OperatorState, closed: int) -> OperatorState:
    """The same state, whose sinks keep later outputs: with a time to live they may know keys that expire after
    ``closed``, and none that had expired before, unless they knew it before."""
    state = operator.state
    told = closed if state.shown_at is None and state.has_time_to_live else state.shown_at
    return operator.with_state(shown_at=told)
