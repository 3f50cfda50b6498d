"""The effects of a step are performed here, one at a time, according to the step; each returns the next value."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from persistent.checkpoint.compaction import Merge, choose, replaced
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.runs import fold_index, write_index
from persistent.checkpoint.successor import Entry
from persistent.clock import monotonic_s, wall_ms
from persistent.codec import KEY_GROUPS, Run, common_key_types
from persistent.driver.commit import Results, next_manifest
from persistent.driver.effects import Effect
from persistent.driver.joined_states import joined_checkpoint, joined_results
from persistent.driver.overlaps import set_apart
from persistent.driver.publish import collect, no_longer_kept, publish, sweep
from persistent.driver.report import StepReport
from persistent.driver.seen_part import kinds_read, seen_before
from persistent.driver.state_step import begun, ended, zone_of
from persistent.driver.step import Step
from persistent.driver.workbench import Workbench
from persistent.errors import InputGone
from persistent.sources.protocol import Split
from persistent.storage import delete_all
from persistent.task import state_name
from persistent.worker.dispatch import Item, Result
from persistent.worker.job import Folded, FoldRuns, Mapped, MapSplit
from persistent.worker.seen_items import SeenBefore

logger = logging.getLogger("persistent.driver")


def perform(bench: Workbench, step: Step) -> tuple[Step, StepReport]:
    """Perform each effect that is due, to the end of the step."""
    seconds: dict[Effect, float] = {}
    while (effect := step.due) is not None:
        began = monotonic_s()
        step = _performed(bench, step, effect)
        seconds[effect] = monotonic_s() - began
    return step, step.report(seconds, wall_ms(), bench.reached(step.entry.manifest))


def _performed(bench: Workbench, step: Step, effect: Effect) -> Step:
    manifest = step.entry.manifest
    match effect:
        case Effect.PLAN:
            return step.planned(_put_plan(bench, step))
        case Effect.MAP:
            bench.keep_zones({name: zone_of(one) for name, one in step.each().items()})
            results = _run_items(bench, step)
            return step.mapped(results, {name: _merged_index(bench, step, name) for name in step.plan.sources})
        case Effect.COMMIT:
            return step.committed(_commit(bench, step))
        case Effect.CHECK:
            bench.log.check(manifest.id)
        case Effect.PUBLISH:
            publish(bench.job, bench.log, manifest, is_own=True)
        case Effect.COLLECT:
            _collect(bench, step, manifest)
    return step.past(effect)


def _put_plan(bench: Workbench, step: Step) -> StepPlan:
    plan = step.plan
    for name, rows in step.appended.items():
        run = write_index(bench.job.storage, step.last.manifest.sources[name].kind, step.attempt, rows)
        plan = replace(plan, sources={**plan.sources, name: replace(plan.sources[name], appended=(run,))})
    plan = bench.log.put_plan(plan)
    for one in plan.sources.values() if plan.number and not bench.adopts else ():
        logger.warning("a smaller step: reading from %s to %s", dict(one.start), dict(one.end))
    return plan


def _run_items(bench: Workbench, step: Step) -> Results:
    steps, unfolded = step.each(), frozenset(bench.unfolded)
    seen = seen_before(step.last.manifest, bench.job.dedupe)
    begun_of = {name: begun(bench.states[name], one, unfolded) for name, one in steps.items()}
    seen_folds = step.seen_folds(seen, unfolded)
    others: list[Item] = [item for one in begun_of.values() for item in one.items()]
    others += seen_folds
    found, maps = _with_splits(bench, step, seen, others)
    done = list(zip(others, found[len(maps) :], strict=True))
    maps, first = set_apart(bench, maps, [result for result in found if isinstance(result, Mapped)])
    mapped = _agreeing(bench, step, maps, first)
    folds = [(item, result) for item, result in done if isinstance(item, FoldRuns) and isinstance(result, Folded)]
    bench.learn(mapped, [fold for fold in folds if fold[0].seen_of is None])
    seen_folded = tuple(fold for fold in folds if fold[0].seen_of is not None)
    states = {
        name: ended(bench.states[name], one, begun_of[name].discarded, mapped, done, seen_folded)
        for name, one in steps.items()
    }
    results = joined_results(Results(mapped, seen_folded=seen_folded), states)
    bench.leave_unfolded(results)
    return results


def _with_splits(
    bench: Workbench, step: Step, seen: Mapping[str, SeenBefore], others: Sequence[Item]
) -> tuple[Sequence[Result], list[MapSplit]]:
    """The results of the plan's splits and of other items, and the splits as they were run.

    Inputs that are gone can become dead letters of the plan: a rerun finds the same ones gone.
    """
    splits = {name: one.splits for name, one in step.plan.sources.items()}
    while True:
        maps = step.maps(splits, bench.options.max_future_ms, seen)
        try:
            return bench.engine.map(bench.work, [*maps, *others]), maps
        except InputGone as error:
            found = _without_lost(bench, step, splits)
            if not found:
                raise
            splits |= found
            logger.warning("%s; it is a dead letter", error)


def _without_lost(
    bench: Workbench, step: Step, splits: Mapping[str, tuple[Split, ...]]
) -> dict[str, tuple[Split, ...]]:
    """The splits of the sources that have lost inputs, with each lost input as one dead record."""
    lost: dict[str, tuple[Split, ...]] = {}
    for name, some in splits.items():
        if name in bench.losing:
            found = bench.losing[name].without_lost(some, step.plan.sources[name].recorded)
            lost |= {} if found is None else {name: found}
    return lost


def _agreeing(bench: Workbench, step: Step, maps: list[MapSplit], mapped: list[Mapped]) -> tuple[Mapped, ...]:
    """The results of the splits, with agreeing key types: in the order of the records, the first key decides the type
    of its column. A split that began with keys of another type is mapped again with that type."""
    types = {state_name(name): one.key_types for name, one in step.last.manifest.operators.items()}
    agreeing = []
    for item, result in zip(maps, mapped, strict=True):
        if not all(_agree(types[name], result.of(name).key_types) for name in types):
            (again,) = bench.engine.map(bench.work, [_with_types(item, types)])
            assert isinstance(again, Mapped)
            result = again
        types = {name: common_key_types([known, result.of(name).key_types]) for name, known in types.items()}
        agreeing.append(result)
    return tuple(agreeing)


def _with_types(item: MapSplit, types: Mapping[str, tuple[str, ...]]) -> MapSplit:
    """The same split, whose keys have these types in each state."""
    if not item.states:
        return replace(item, key_types=next(iter(types.values())))
    return replace(item, states={name: replace(one, key_types=types[name]) for name, one in item.states.items()})


def _agree(known: tuple[str, ...], found: tuple[str, ...]) -> bool:
    try:
        common_key_types([known, found])
    except TypeError:
        return False
    return True


def _merged_index(bench: Workbench, step: Step, name: str) -> tuple[Run, ...]:
    """The runs of a source's index, neighbours folded when there are many."""
    source = step.last.manifest.sources[name]
    runs = (*source.index, *step.plan.sources[name].appended)
    merge = choose(runs, sum(run.rows for run in runs))
    if merge is None:
        return runs
    whole = fold_index(bench.job.storage, source.kind, step.attempt, merge.inputs)
    return replaced(runs, Merge(merge.inputs, 0, KEY_GROUPS), whole)


def _commit(bench: Workbench, step: Step) -> Entry:
    job, plan = bench.job, step.plan
    kinds = kinds_read(job, plan)
    lag_ms = {
        name: job.sources[name].max_out_of_orderness
        if one.max_out_of_orderness_ms is None
        else one.max_out_of_orderness_ms
        for name, one in plan.sources.items()
    }
    made = {
        name: next_manifest(
            one.last,
            one.plan,
            one.results,
            window=bench.states[name].job.state.window,
            sinks=bench.states[name].job.sinks,
            index=step.index,
            lag_ms=lag_ms,
            retention=bench.options.retention,
            known=bench.states[name].job.state.known_from(one.last.manifest.clock.watermark),
            dedupe=job.dedupe,
            kinds=kinds,
            late=bench.states[name].job.state.lateness.answer,
            emit=bench.states[name].job.state.lateness.of_changes,
            late_sink=bench.states[name].job.late_sink,
        )
        for name, one in step.each().items()
    }
    manifest = joined_checkpoint(step.last, job, step.results, made)
    for name, one in plan.sources.items():
        if one.splits and name in bench.confirming:
            bench.confirming[name].confirm(one.recorded)
    entry = bench.log.put(manifest)
    bench.committed = manifest.id
    return entry


def _collect(bench: Workbench, step: Step, manifest: Manifest) -> None:
    job = bench.job
    dropped = bench.keep(manifest)
    # The known files first: a sweep looks only into the folder of the current task.
    delete_all(job.storage, no_longer_kept(manifest, bench.kept.values(), dropped))
    # The clock of the step may be past all that one of its own runs holds; then no manifest has ever named it.
    delete_all(job.storage, sorted(step.results.written() - manifest.files()))
    if step.sweeps:
        sweep(job, manifest)
        collect(job, manifest, bench.kept.values(), None)
    bench.forget_all_but(manifest)
    oldest = bench.kept[min(bench.kept)].sources
    for name, source in job.sources.items():
        if name in oldest:
            source.acknowledge(oldest[name].positions)
