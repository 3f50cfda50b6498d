"""The part of one state in a step: what is run for it along with the splits, and what it publishes after that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from persistent.driver.commit import Results
from persistent.driver.folds import Fold
from persistent.driver.publish import joining_sinks
from persistent.driver.publish_after import outputs_after, publishes_after
from persistent.driver.state_bench import StateBench
from persistent.driver.step import Step
from persistent.worker.dispatch import Item, Result
from persistent.worker.job import Closed, CloseShard, Folded, FoldRuns, Mapped
from persistent.zone import Zone


def zone_of(step: Step) -> Zone | None:
    """The rules of the time zone of the windows of a step's only state."""
    return step.plan.task.zone or step.last.manifest.operator.state.zone


@dataclass(frozen=True)
class Begun:
    """What is run for one state along with the splits; without a sink, how many windows close."""

    closes: Sequence[CloseShard]
    folds: Sequence[FoldRuns]
    discarded: int

    def items(self) -> Iterator[Item]:
        yield from self.closes
        yield from self.folds


def begun(bench: StateBench, step: Step, unfolded: frozenset[str]) -> Begun:
    """What to run for one state along with the splits. ``unfolded``: the names of runs whose fold raised."""
    closes, discarded = ([], 0) if publishes_after(bench.job, step) else _closes(bench, step)
    return Begun(closes, bench.run_cache.with_over(step.folds(unfolded), bench.runs(step.last.manifest)), discarded)


def ended(
    bench: StateBench,
    step: Step,
    discarded: int,
    mapped: Sequence[Mapped],
    done: Sequence[tuple[Item, Result]],
    seen_folded: tuple[Fold, ...],
) -> Results:
    """The results for one state, once all has run, with what it publishes after that."""
    name, changes = bench.job.name, False
    own = tuple(one.of(name) for one in mapped)
    closed = tuple(
        result
        for item, result in done
        if isinstance(item, CloseShard) and isinstance(result, Closed) and item.state == name
    )
    folded = tuple(
        (item, result)
        for item, result in done
        if isinstance(item, FoldRuns) and isinstance(result, Folded) and not item.seen_of and item.state == name
    )
    discarded += sum(one.discarded for one in closed)
    if publishes_after(bench.job, step):
        closed, discarded, changes = outputs_after(bench, step, own)
    return Results(own, closed, folded, discarded, seen_folded, changes)


def _closes(bench: StateBench, step: Step) -> tuple[list[CloseShard], int]:
    """The shards whose windows close, or whose changed keys are published; without a sink, how many windows close.
    Sessions are of one key each, so shards count them."""
    last, window = step.last.manifest, bench.job.state.window
    open_and_due = bench.runs(last), last.clock, step.plan.task.close_at
    joining = joining_sinks(bench.job, last)
    is_due = step.ends_with_changes(joining) if window is None else bench.run_cache.is_due(*open_and_due)
    if is_due and not bench.job.sinks and bench.run_cache.counts_windows:
        return [], bench.run_cache.windows_over(*open_and_due)
    if not is_due:
        return [], 0
    return bench.run_cache.with_due(step.closes(window, bench.engine.parallelism, joining)), 0
