"""The next step follows from the newest manifest and the sources: the plan that was put, or a new one.

A partition that is too far ahead of the slowest one waits, so that the state need not hold what it would bring.

The clock waits for the slowest partition, and the windows of a fast one stay open until then. The rule depends on the
timestamps that were read alone, and the slowest partition with something to read is always read, so a job never stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SourcePart
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import canonical_json
from persistent.connect.offsets import place_id
from persistent.connect.source import Budget, Source, SourcePlan
from persistent.driver.commit import watermark_after
from persistent.driver.output_batches import lacks_changes, lacks_totals
from persistent.driver.publish import joining_sinks
from persistent.driver.recover import check_belongs, check_options, has_forgotten
from persistent.driver.same_job import check_seen_columns
from persistent.driver.step import Effect, Step
from persistent.driver.workbench import NodeBench, Workbench
from persistent.errors import InvalidPipeline
from persistent.names import new_nonce, plan_name
from persistent.task.task import check_key
from persistent.time.clock import monotonic_s, wall_ms
from persistent.time.zone import Zone


def too_far_ahead(
    planned: Mapping[str, SourcePlan],
    parts: Mapping[str, SourcePart],
    lag_ms: Mapping[str, int],
    watermark: int,
    max_drift_ms: int,
) -> dict[str, frozenset[str]]:
    """The partitions, by source, whose clock is more than ``max_drift_ms`` ahead of the slowest that has something to
    read. ``lag_ms``: the disorder of each source.

    The clock of a partition is its largest timestamp less the disorder. One that is behind the ``watermark`` counts as
    being there: its records are late however fast they are read.
    """
    at = {
        (name, partition): max(parts[name].largest.get(partition, 0) - lag_ms[name], watermark)
        for name, plan in planned.items()
        for partition in plan.unread
    }
    slowest = min(at.values(), default=0)
    ahead: dict[str, set[str]] = {}
    for (name, partition), reached in at.items():
        if reached - slowest > max_drift_ms:
            ahead.setdefault(name, set()).add(partition)
    return {name: frozenset(partitions) for name, partitions in ahead.items()}


logger = logging.getLogger("persistent.driver")


def next_step(bench: Workbench, last: Entry, rows: int, *, is_fenced: bool = True) -> Step | None:
    """The step after ``last``: the plan that was put for it, or a new one of about ``rows`` rows; None if there is
    nothing to do. ``is_fenced``: whether ``last`` is ours. Before that, a plan that was put with other options is
    replaced by a plan with the next number, and the fence then has that number. Writes nothing."""
    manifest = last.manifest
    # After our own checkpoint only a driver that fences us can plan, and then the put of our plan finds its plan.
    put = bench.log.plan(manifest.base, manifest.replan) if manifest.id != bench.committed else None
    if put is None:
        return _step_again(bench, last, rows) or _new_step(bench, last, rows)
    check_belongs(put, manifest, bench.job.storage.url)
    step = None if is_fenced or has_forgotten(bench, put) else _corrected_step(bench, last, put, rows)
    bench.corrects = None if step is None else (manifest.base, manifest.replan)
    if step is None:
        check_options(bench, put)
        step = Step(last, put, done=(Effect.PLAN,))
    return step


def _step_again(bench: Workbench, last: Entry, rows: int) -> Step | None:
    """The step that repeats the plan which the newest fence replaces, under the next number: if that plan was put with
    other options, or if ``step_rows`` fixes the borders of steps. None if there is no such plan, if a source has
    forgotten its records, or if smaller steps are tried."""
    manifest = last.manifest
    if not manifest.replan or bench.adopts or manifest.id == bench.committed:
        return None
    put = bench.log.plan(manifest.base, manifest.replan - 1)
    if put is None or has_forgotten(bench, put):
        return None
    check_belongs(put, manifest, bench.job.storage.url)
    step = _corrected_step(bench, last, put, rows)
    if step is None and bench.options.step_rows is not None:
        step = Step(last, _next_number(put))
    return step


def _next_number(put: StepPlan) -> StepPlan:
    return structs.replace(put, number=put.number + 1, nonce=new_nonce())


def _corrected_step(bench: Workbench, last: Entry, put: StepPlan, rows: int) -> Step | None:
    """The step of a new plan for the records of the plan ``put``, with the present options and the next number; None if
    the options change nothing. A source whose records begin elsewhere by these options plans as if ``put`` did not
    exist."""
    manifest, sources, appended = last.manifest, dict(put.sources), dict[str, pa.Table]()
    for name, step in put.sources.items():
        source = bench.job.sources[name]
        state, whole = (
            bench.source_state(manifest, name, step.appended),
            SourcePlan(step.splits, step.end, step.cap, step.recorded),
        )
        planned = source.corrected(state, whole)
        if planned is None:
            anew = _plan_of(bench, manifest, name, _budget(bench, rows, manifest.replan))
            if canonical_json(anew.recorded) != canonical_json(step.recorded):
                sources[name] = _source_step(manifest.sources[name], anew, _lag_ms(source, anew))
                appended |= {} if anew.appended is None else {name: anew.appended}
                continue
            planned = source.corrected(replace(state, recorded=step.recorded), whole) or whole
        lag_ms = None if step.max_out_of_orderness_ms is None else _lag_ms(source, planned)
        sources[name] = structs.replace(
            step, cap=planned.cap, recorded=planned.recorded, max_out_of_orderness_ms=lag_ms
        )
    before = {id: put.task_of(id, part.clock.closed) for id, part in manifest.nodes.items()}
    bench.keep_zones({id: before[id].zone or part.zone for id, part in manifest.nodes.items()})
    tasks = {id: _task_again(bench.nodes[id], part, before[id]) for id, part in manifest.nodes.items()}
    max_future_ms = None if put.max_future_ms is None else bench.options.max_future_ms
    plan = structs.replace(put, sources=sources, tasks=tasks, max_future_ms=max_future_ms)
    if plan.encode() == put.encode():
        return None
    for name in (name for name, step in sources.items() if step.splits):
        _check_names(bench, manifest, name, sources[name].recorded)
    place = f"{bench.job.storage.url}/{plan_name(put.base, put.number)}"
    logger.warning("%s was put with other options, and never committed; the same records are planned anew", place)
    return Step(last, _next_number(plan), appended)


def _task_again(bench: NodeBench, part: NodePart, before: TaskStep) -> TaskStep:
    """What the step does with one node by the present options. ``before``: by the options of the plan put."""
    return structs.replace(_task_step(bench, part, part.zone, ends=before.ends), zone=before.zone)


def _new_step(bench: Workbench, last: Entry, rows: int) -> Step | None:
    """A step of a new plan; None if there is nothing to do."""
    job, manifest = bench.job, last.manifest
    nodes = manifest.nodes
    zones = {id: bench.nodes[id].next_zone(part) for id, part in nodes.items()}
    bench.keep_zones(zones)
    planned = _planned(bench, manifest, rows)
    lags = {name: _lag_ms(job.sources[name], plan) for name, plan in planned.items()}
    sources = {name: _source_step(manifest.sources[name], plan, lags[name]) for name, plan in planned.items()}
    reading = [name for name, plan in planned.items() if plan.splits]
    now, quiet_ms = wall_ms(), 0
    for name in reading:
        _check_names(bench, manifest, name, planned[name].recorded)
    ends = () if reading else _ending(bench, manifest, planned)
    tasks = {id: _task_step(bench.nodes[id], part, zones[id], ends=id in ends) for id, part in nodes.items()}
    if not reading:
        reached = watermark_after(sources, manifest.sources, lags)
        quiet_ms = _quiet_ms(bench, manifest, reached)
        joins = any(plan.joins or plan.skipped for plan in planned.values())
        moves = any(reached > node.clock.watermark for node in nodes.values()) or quiet_ms
        due = (_is_due(bench.nodes[id], manifest, tasks[id]) for id in nodes)
        if not (ends or moves or joins or any(due)):
            return None
    bench.busy = len(reading) or len(planned)
    for step in sources.values() if manifest.replan and not bench.adopts else ():
        logger.warning("a smaller step: reading from %s to %s", dict(step.start), dict(step.end))
    plan = StepPlan(
        job=manifest.job,
        base=manifest.base,
        number=manifest.replan,
        nonce=new_nonce(),
        wall_ms=now,
        sources=sources,
        tasks=tasks,
        max_future_ms=bench.options.max_future_ms,
        quiet_ms=quiet_ms,
        not_after=manifest.not_after,
    )
    return Step(last, plan, {name: source.appended for name, source in planned.items() if source.appended is not None})


def _check_names(bench: Workbench, manifest: Manifest, name: str, recorded: Mapping[str, Any]) -> None:
    """InvalidPipeline if the records to be read have no such key, or no such names of their senders. ``recorded``: by
    the plan of their source."""
    job = bench.job
    check_key(job.task, job.sources[name].schema(recorded))
    if name in job.dedupe:
        check_seen_columns(job, manifest, name, recorded)


def _ending(bench: Workbench, manifest: Manifest, planned: Mapping[str, SourcePlan]) -> tuple[str, ...]:
    """The states for which the input ends with this step."""
    if not bench.options.end_of_input:
        return ()
    ends = [id for id in bench.nodes if not manifest.nodes[id].clock.ended or _lacks_totals(bench.nodes[id], manifest)]
    return () if not ends or _is_held(planned, bench.job.storage.url) else tuple(ends)


def _task_step(bench: NodeBench, part: NodePart, zone: Zone | None, *, ends: bool) -> TaskStep:
    """What the step does with one node."""
    lateness, clock = bench.node.state.lateness, part.clock
    emit, passed = lateness.planned(part.passed, clock.watermark)
    close_at = lateness.closes(clock.closed, clock.watermark)
    if ends:
        close_at = max(close_at, bench.run_cache.largest_end(part.runs, clock.closed))
    final_at = lateness.final(part.final, close_at)
    zone = None if zone == part.zone else zone
    return TaskStep(close_at, ends, zone, final_at, emit, passed)


def _is_due(bench: NodeBench, manifest: Manifest, step: TaskStep) -> bool:
    """Whether the node has something to publish, although nothing is read."""
    part = manifest.nodes[bench.node.id]
    is_due = bench.run_cache.is_due(part.runs, part.clock.closed, step.close_at)
    return is_due or lacks_changes(bench.node, manifest, step.emit) or _lacks_closed(bench, manifest)


def _lacks_closed(bench: NodeBench, manifest: Manifest) -> bool:
    """Whether a sink that has just come, or that a rollback has emptied, lacks windows which have closed and are not
    final."""
    if bench.node.state.lateness.of_changes is not None or bench.node.state.window is None:
        return False
    part = manifest.nodes[bench.node.id]
    return bool(joining_sinks(bench.node, manifest)) and bench.run_cache.is_due(
        part.runs, part.final, part.clock.closed
    )


def _lacks_totals(bench: NodeBench, manifest: Manifest) -> bool:
    """Whether a sink lacks results of a state without windows, or does not know that a key has expired."""
    node, part = bench.node, manifest.nodes[bench.node.id]
    is_untold = bool(node.sinks) and bench.run_cache.is_untold(part.runs, part.shown_at, part.clock.closed)
    return is_untold or lacks_totals(node, manifest)


def _lag_ms(source: Source, planned: SourcePlan) -> int:
    """How far the clock stays behind the largest timestamp."""
    lag_ms = planned.max_out_of_orderness
    return source.max_out_of_orderness if lag_ms is None else lag_ms


def _quiet_ms(bench: Workbench, manifest: Manifest, reached: int) -> int:
    """The milliseconds in which nothing has come, if the clock moves on by them: a window is over then, or what has
    changed is published early. Otherwise 0: a clock that moved on at every look would put a checkpoint at each."""
    options = bench.options
    if options.quiet_after_ms is None or not options.follow:
        return 0
    quiet_ms = bench.quiet.lasts_ms(options.quiet_after_ms)
    is_over = any(_passes(node_bench, manifest, reached, quiet_ms) for node_bench in bench.nodes.values())
    return quiet_ms if is_over else 0


def _passes(bench: NodeBench, manifest: Manifest, reached: int, quiet_ms: int) -> bool:
    """Whether the clock of one node moves on in that time, and a window is over then, or changes are published."""
    part, lateness = manifest.nodes[bench.node.id], bench.node.state.lateness
    clock = part.clock
    moved = clock.quiet_from(reached) + quiet_ms
    if moved <= clock.watermark:
        return False
    is_over = bench.run_cache.is_due(part.runs, clock.closed, lateness.closes(clock.closed, moved))
    is_early = lateness.is_early_at(part.passed, moved) and lacks_changes(bench.node, manifest)
    return is_over or is_early


def _is_held(planned: Mapping[str, SourcePlan], url: str) -> bool:
    """Whether some records cannot be read yet, so that the input has not ended; logs a warning if so."""
    is_held = any(plan.held for plan in planned.values())
    if is_held:
        logger.warning(
            "%s: some records cannot be read yet, behind an open transaction: the windows stay open. Run "
            "again with end_of_input=True when it has ended (of a queue, when no other consumer keeps them)",
            url,
        )
    return is_held


def _planned(bench: Workbench, manifest: Manifest, rows: int) -> dict[str, SourcePlan]:
    """The plan of each source, in the order of their names, which is that of a plan found again."""
    budget, sources, began_s = _budget(bench, rows, manifest.replan), bench.job.sources, monotonic_s()
    planned = {name: _plan_of(bench, manifest, name, budget) for name in sorted(sources)}
    bench.quiet.saw(planned, manifest, began_s)
    if bench.options.max_drift_ms is not None:
        lags = {name: _lag_ms(sources[name], plan) for name, plan in planned.items()}
        watermark, drift_ms = manifest.clock.watermark, bench.options.max_drift_ms
        for name, ahead in too_far_ahead(planned, manifest.sources, lags, watermark, drift_ms).items():
            planned[name] = _plan_of(bench, manifest, name, replace(budget, ahead=ahead))
    check_places_apart(planned)
    if any(plan.appended is not None for plan in planned.values()):
        check_files_apart(sources, {name: bench.source_state(manifest, name).index for name in planned}, planned)
    return awake(planned, manifest.sources)


def _plan_of(bench: Workbench, manifest: Manifest, name: str, budget: Budget) -> SourcePlan:
    return bench.job.sources[name].plan(bench.source_state(manifest, name), budget, follow=bench.options.follow)


def awake(planned: Mapping[str, SourcePlan], parts: Mapping[str, SourcePart]) -> dict[str, SourcePlan]:
    """The plans without the partitions that the clock does not wait for: a source that is wholly idle holds back no
    other. If all are idle, the partition that is farthest ahead counts: the clock must not depend on the order in which
    they became idle."""
    resting = {name: plan for name, plan in planned.items() if plan.is_idle and plan.rests is not None}
    last = None
    if all(plan.is_idle for plan in planned.values()):
        last = max(
            resting, key=lambda name: (parts[name].largest.get(str(resting[name].rests), -1), name), default=None
        )
    return {name: _idle(plan) if name in resting and name != last else plan for name, plan in planned.items()}


def _idle(planned: SourcePlan) -> SourcePlan:
    return replace(planned, cap={}, idle=tuple(sorted((*planned.idle, str(planned.rests)))), rests=None)


def _source_step(source: SourcePart, planned: SourcePlan, lag_ms: int) -> SourceStep:
    return SourceStep(
        start=source.positions,
        end={**source.positions, **planned.end},
        splits=planned.splits,
        cap=planned.cap,
        recorded=planned.recorded,
        max_out_of_orderness_ms=lag_ms,
        codec=source.codec,
        joins=planned.joins,
        idle=planned.idle,
        skipped=planned.skipped,
    )


def _budget(bench: Workbench, rows: int, replan: int) -> Budget:
    """The share of one source, if as many sources have something to read as in the previous step. ``step_rows`` is not
    shared, but applies to each source, because the rows of a step must depend on the positions alone."""
    exact = bench.options.step_rows
    smaller = 0 if bench.adopts else replan
    wanted = exact if exact is not None else max(1, (rows >> (3 * smaller)) // bench.busy)
    splits = max(1, bench.engine.parallelism // bench.busy)
    return Budget(wanted, exact is not None, splits, bench.options.end_of_input, split_rows=bench.split_rows)


def check_places_apart(planned: Mapping[str, SourcePlan]) -> None:
    """InvalidPipeline if two sources read the same log, or the same topic, even through different servers. The check
    precedes the put of the plan that finds the second source: at most one source has read the place."""
    if len(planned) < 2:
        return
    seen: dict[str, str] = {}
    for name, plan in planned.items():
        place = place_id(plan.recorded)
        before = seen.setdefault(place, name) if place is not None else name
        if before != name:
            raise InvalidPipeline(
                f"source: {before!r} and {name!r} are the same topic or log ({place}): records that both read would "
                "count twice. Omit one"
            )


def check_files_apart(
    sources: Mapping[str, Source], indexes: Mapping[str, pa.Table | None], planned: Mapping[str, SourcePlan]
) -> None:
    """InvalidPipeline if a file that one source newly lists is listed by another source too. ``indexes``: the index of
    each source before its plan. The check precedes the put of that plan: at most one source has read the file."""
    listing = {name: source for name, source in sources.items() if source.lists}
    if len(listing) < 2:
        return
    there, new = {}, {}
    for name, source in listing.items():
        tables = [table for table in (indexes[name], planned[name].appended) if table is not None]
        if tables:
            index = pa.concat_tables(tables, promote_options="default")
            there[name] = source.listed(index, planned[name].recorded)
            appended = planned[name].appended
            new[name] = there[name].slice(index.num_rows - (0 if appended is None else appended.num_rows))
    for name, other_name in permutations(there, 2):
        both = new[name].filter(pc.is_in(new[name], value_set=there[other_name]))
        if len(both):
            first, second = sorted((name, other_name))
            raise InvalidPipeline(
                f"source: {first!r} and {second!r} both read "
                f"{both[0].as_py()}{f' and {len(both) - 1:,} more files' if len(both) > 1 else ''}: records that both "
                f"read would count twice. Narrow the path of {sources[first]!r} or of {sources[second]!r}"
            )
