"""The effects of a step are performed here, one at a time, according to the step; each returns the next value.

Splits of one step that meet the same number are set apart: it is new in the first of them, else a copy.

The order is that of the plan, so that what a record becomes is a function of the state and the plan alone, however the
step is split. A later split is mapped again, knowing what the earlier ones have seen, if

 it has seen a number that an earlier one has seen
 it has found a number too old that an earlier one has seen: it is a copy
 it has found a number used again, and an earlier one has seen its origin, perhaps at a later time: it may be a copy

A split that is mapped again has seen fewer numbers, and none more; all splits together have seen the same as before.
Only the times may change: a record that is no longer new may have been the youngest of its origin. Then the splits
that know of it are mapped once more. The first split is right at once, the second after a round, and so on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.checkpoint.compaction import Merge, choose, replaced
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.runs import fold_index, write_index
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import KEY_GROUPS, Run, common_key_types
from persistent.connect.source import Split
from persistent.driver.commit import next_manifest
from persistent.driver.publish import collect, delete_dropped, joining_sinks, publish, sweep
from persistent.driver.publish_after import outputs_after, publishes_after
from persistent.driver.report import StepReport
from persistent.driver.results import Fold, NodeResults, Results, seen_before
from persistent.driver.step import Effect, NodeStep, Step
from persistent.driver.workbench import NodeBench, Workbench
from persistent.errors import InputGone
from persistent.state.rows import fold, in_panes
from persistent.storage.protocol import delete_all
from persistent.time.clock import monotonic_s, wall_ms
from persistent.worker.dispatch import Item, Result
from persistent.worker.job import Closed, CloseShard, Folded, FoldRuns, Job, Mapped, MapSplit
from persistent.worker.merge_runs import read_rows
from persistent.worker.seen_items import SeenAfter, SeenBefore, SeenSpan
from persistent.worker.seen_state import latest_of, numbers_of, seen_monoid, seen_node


def set_apart(
    bench: Workbench, maps: Sequence[MapSplit], mapped: Sequence[Mapped]
) -> tuple[list[MapSplit], list[Mapped]]:
    """The splits and their results, each as if the earlier ones of its source had been judged before it."""
    items, results = list(maps), list(mapped)
    for source in bench.job.dedupe:
        places = [place for place, result in enumerate(results) if result.source == source and result.seen is not None]
        shared = shared_hashes([_reach(results[place]) for place in places])
        known: dict[int, GroupSums] = {}
        while again := _to_tell(bench.job, items, [(place, results[place]) for place in places], shared, known):
            known |= again
            for place, earlier in again.items():
                items[place] = _told(items[place], earlier)
            for place, result in zip(again, bench.engine.map(bench.work, [items[place] for place in again])):
                assert isinstance(result, Mapped)
                results[place] = result
    return items, results


def _to_tell(
    job: Job,
    items: Sequence[MapSplit],
    results: Sequence[tuple[int, Mapped]],
    shared: Words,
    known: Mapping[int, GroupSums],
) -> dict[int, GroupSums]:
    """The rows that each split of one source must know, by the place of the split: what earlier splits have seen of the
    ``shared`` keys. A split that already knows the same rows (``known``) is left out."""
    to_tell = {}
    earlier: GroupSums | None = None
    for place, result in results if len(shared) else ():
        seen = result.seen
        assert seen is not None
        rows = _rows_of(job, items[place], seen, shared)
        if earlier is not None and _matters(earlier, rows, seen, known.get(place)):
            to_tell[place] = earlier
        parts = [part for part in (earlier, rows) if part is not None]
        earlier = fold(seen_monoid(), parts, 1) if parts else None
    return to_tell


def _matters(earlier: GroupSums, rows: GroupSums | None, seen: SeenAfter, known: GroupSums | None) -> bool:
    """Whether a split that has seen these ``rows`` must be mapped again, knowing what was seen ``earlier``. ``known``:
    what it knew when it was mapped; None at first."""
    if known is not None:
        # The keys and numbers of all splits before one stay the same, round after round.
        return not np.array_equal(latest_of(known), latest_of(earlier))
    if _have_met(seen.doubtful, earlier):
        return True
    return rows is not None and _count(earlier) + _count(rows) != _count(fold(seen_monoid(), (earlier, rows), 1))


def _have_met(doubtful: SeenSpan, earlier: GroupSums) -> bool:
    """Whether numbers that were seen earlier lie in these spans."""
    if not len(doubtful.hashes):
        return False
    place = np.minimum(np.searchsorted(doubtful.hashes, earlier.hashes), len(doubtful.hashes) - 1)
    same = doubtful.hashes[place] == earlier.hashes
    if doubtful.is_of_ids:
        return bool(same.any())
    numbers = numbers_of(earlier)
    firsts, lasts = numbers.flat()
    place, same = numbers.spread(place), numbers.spread(same)
    return bool((same & (firsts <= doubtful.lasts[place]) & (lasts >= doubtful.firsts[place])).any())


def _reach(result: Mapped) -> SeenSpan:
    """The span of what a split has seen, and of what others may have seen before it."""
    assert result.seen is not None
    return SeenSpan.joined([result.seen.span, result.seen.doubtful])


def shared_hashes(spans: Sequence[SeenSpan]) -> Words:
    """The ascending hashes of the keys that several spans have with numbers in a common range; of ids, the hashes that
    several spans have.

    >>> def span(*numbers): return SeenSpan(np.array([7], np.uint64), *(np.array([n]) for n in (*numbers, 0, 0, 0)))
    >>> shared_hashes([span(1, 4), span(5, 9)]).tolist(), shared_hashes([span(1, 9), span(5, 5)]).tolist()
    ([], [7])
    """
    if len(spans) < 2:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([span.hashes for span in spans])
    if any(span.is_of_ids for span in spans):
        distinct, counts = np.unique(hashes, return_counts=True)
        return distinct[counts > 1]
    firsts, lasts = (np.concatenate([getattr(span, name) for span in spans]) for name in ("firsts", "lasts"))
    order = np.lexsort((firsts, hashes))
    hashes, firsts, lasts = hashes[order], firsts[order], lasts[order]
    # If the first of three spans reaches over the second into the third, it overlaps the second as well.
    meets = (hashes[1:] == hashes[:-1]) & (firsts[1:] <= lasts[:-1])
    return np.unique(hashes[1:][meets])


def _rows_of(job: Job, item: MapSplit, seen: SeenAfter, shared: Words) -> GroupSums | None:
    """What a split has seen of these keys, a row for each; None if nothing."""
    if seen.run is None or item.seen is None:
        return None
    rows = read_rows(seen_node(job, item.source, item.seen.pane_ms), seen.run, 0, KEY_GROUPS)
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, shared)))
    # In one live pane: within a step, the pane in which a number was seen decides nothing.
    return in_panes(seen_monoid(), rows, np.full(len(rows), item.seen.horizon)) if len(rows) else None


def _count(rows: GroupSums) -> int:
    """The number of sequence numbers in these rows."""
    firsts, lasts = (column.astype(np.uint64) for column in numbers_of(rows).flat())
    between = lasts - firsts
    # In two halves: the sum of a million 64-bit ranges exceeds 64 bits.
    return len(between) + (int((between >> np.uint64(32)).sum()) << 32) + int((between & np.uint64(2**32 - 1)).sum())


def _told(item: MapSplit, earlier: GroupSums) -> MapSplit:
    assert item.seen is not None
    return replace(item, seen=replace(item.seen, also=(earlier,)))


logger = logging.getLogger("persistent.driver")


def perform(bench: Workbench, step: Step) -> tuple[Step, StepReport]:
    """Perform each effect that is due, to the end of the step."""
    seconds: dict[Effect, float] = {}
    began = monotonic_s()
    while (effect := step.due) is not None:
        step = _performed(bench, step, effect)
        ended = monotonic_s()
        began, seconds[effect] = ended, ended - began
    report = step.report(seconds, wall_ms(), bench.reached(step.entry.manifest))
    bench.keep_pace(
        report.rows, sum(len(source.splits) for source in step.plan.sources.values()), seconds.get(Effect.MAP, 0.0)
    )
    return step, report


def _performed(bench: Workbench, step: Step, effect: Effect) -> Step:
    manifest = step.entry.manifest
    match effect:
        case Effect.PLAN:
            return step.planned(_put_plan(bench, step))
        case Effect.MAP:
            bench.keep_zones({id: node.zone for id, node in step.nodes.items()})
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
        plan = structs.replace(
            plan, sources={**plan.sources, name: structs.replace(plan.sources[name], appended=(run,))}
        )
    return bench.log.put_plan(plan)


def _run_items(bench: Workbench, step: Step) -> Results:
    unfolded = frozenset(bench.unfolded)
    seen = seen_before(step.last.manifest, bench.job.dedupe)
    others, discarded = list[Item](), dict[str, int]()
    for id, node in step.nodes.items():
        node_bench = bench.nodes[id]
        closes, discarded[id] = ([], 0) if publishes_after(node_bench.node, node) else _closes(node_bench, node)
        others += [*closes, *node_bench.run_cache.with_over(node.folds(unfolded), node.before.runs)]
    others += step.seen_folds(seen, unfolded)
    outcomes, maps = _with_splits(bench, step, seen, others)
    done = list(zip(others, outcomes[len(maps) :], strict=True))
    first = [result for result in outcomes if isinstance(result, Mapped)]
    if bench.job.dedupe:
        maps, first = set_apart(bench, maps, first)
    mapped = _agreeing(bench, step, maps, first)
    results = Results(
        mapped,
        {id: _node_results(id, mapped, done, discarded[id]) for id in step.nodes},
        _folds(done, ""),
    )
    bench.learn(results)
    results = replace(
        results, nodes={id: _published(bench.nodes[id], node, results.nodes[id]) for id, node in step.nodes.items()}
    )
    bench.leave_unfolded(results)
    return results


def _closes(bench: NodeBench, step: NodeStep) -> tuple[list[CloseShard], int]:
    """The shards whose windows close, or whose changed keys are published; without a sink, how many windows close.
    Sessions that close are counted by their shards, because each has one key."""
    node, before = bench.node, step.before
    open_and_due = before.runs, before.clock.closed, step.task.close_at
    joining = joining_sinks(node, step.last.manifest)
    is_due = step.ends_with_changes(joining) if node.state.window is None else bench.run_cache.is_due(*open_and_due)
    if is_due and not node.sinks and bench.run_cache.counts_windows:
        return [], bench.run_cache.windows_over(*open_and_due)
    if not is_due:
        return [], 0
    return bench.run_cache.with_due(step.closes(node.state.window, bench.engine.parallelism, joining)), 0


def _node_results(
    id: str, mapped: Sequence[Mapped], done: Sequence[tuple[Item, Result]], discarded: int
) -> NodeResults:
    """The results for one node of what has run along with the splits. ``discarded``: windows that close without a
    sink."""
    closed = tuple(
        result
        for item, result in done
        if isinstance(item, CloseShard) and isinstance(result, Closed) and item.node == id
    )
    discarded += sum(result.discarded for result in closed)
    return NodeResults(tuple(result.nodes[id] for result in mapped), closed, _folds(done, id), discarded)


def _folds(done: Sequence[tuple[Item, Result]], node: str) -> tuple[Fold, ...]:
    """The folds of the runs of ``node``; if it is empty, the folds of seen records."""
    return tuple(
        (item, result)
        for item, result in done
        if isinstance(item, FoldRuns) and isinstance(result, Folded) and item.node == node
    )


def _published(bench: NodeBench, step: NodeStep, results: NodeResults) -> NodeResults:
    """The results with what a node publishes once all has run."""
    if not publishes_after(bench.node, step):
        return results
    closed, discarded, changes = outputs_after(bench, step, results.mapped)
    return replace(results, closed=closed, discarded=discarded, changes=changes)


def _with_splits(
    bench: Workbench, step: Step, seen: Mapping[str, SeenBefore], others: Sequence[Item]
) -> tuple[Sequence[Result], list[MapSplit]]:
    """The results of the plan's splits and of other items, and the splits as they were run.

    Inputs that are gone can become dead letters of the plan: a rerun finds the same ones gone.
    """
    splits = {name: source.splits for name, source in step.plan.sources.items()}
    while True:
        maps = step.maps(splits, bench.options.max_future_ms, seen)
        try:
            return bench.engine.map(bench.work, [*maps, *others]), maps
        except InputGone as error:
            changed = _without_lost(bench, step, splits)
            if not changed:
                raise
            splits |= changed
            logger.warning("%s; it is a dead letter", error)


def _without_lost(
    bench: Workbench, step: Step, splits: Mapping[str, tuple[Split, ...]]
) -> dict[str, tuple[Split, ...]]:
    """The splits of the sources that have lost inputs, with each lost input as one dead record."""
    lost: dict[str, tuple[Split, ...]] = {}
    for name, source_splits in splits.items():
        changed = bench.job.sources[name].without_lost(source_splits, step.plan.sources[name].recorded)
        lost |= {} if changed is None else {name: changed}
    return lost


def _agreeing(bench: Workbench, step: Step, maps: list[MapSplit], mapped: list[Mapped]) -> tuple[Mapped, ...]:
    """The results of the splits, with agreeing key types: in the order of the records, the first key decides the type
    of its column. A split that began with keys of another type is mapped again with that type."""
    types = {id: node.key_types for id, node in step.last.manifest.nodes.items()}
    agreeing = []
    for item, result in zip(maps, mapped, strict=True):
        if not all(_agree(types[id], node.key_types) for id, node in result.nodes.items()):
            nodes = {id: replace(node, key_types=types[id]) for id, node in item.nodes.items()}
            (again,) = bench.engine.map(bench.work, [replace(item, nodes=nodes)])
            assert isinstance(again, Mapped)
            result = again
        types |= {id: common_key_types([types[id], node.key_types]) for id, node in result.nodes.items()}
        agreeing.append(result)
    return tuple(agreeing)


def _agree(known: tuple[str, ...], types: tuple[str, ...]) -> bool:
    try:
        common_key_types([known, types])
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
    plan, manifest = step.plan, next_manifest(bench.job, step, bench.options.retention)
    for name, source in plan.sources.items():
        if source.splits:
            bench.job.sources[name].confirm(source.recorded)
    entry = bench.log.put(manifest)
    bench.committed = manifest.id
    return entry


def _collect(bench: Workbench, step: Step, manifest: Manifest) -> None:
    job = bench.job
    dropped = bench.keep(manifest)
    # The known files first: a sweep looks only into the folder of the current task.
    delete_dropped(job, manifest, bench.kept.values(), dropped)
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
