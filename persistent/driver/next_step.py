"""The next step follows from the newest manifest and the sources: the plan that was put, or a new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import new_nonce, plan_name
from persistent.checkpoint.parts import SourcePart
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.positions import CODECS
from persistent.checkpoint.successor import Entry
from persistent.clock import monotonic_s, wall_ms
from persistent.driver.commit import watermark_after
from persistent.driver.drift import too_far_ahead
from persistent.driver.effects import Effect
from persistent.driver.files_apart import check_files_apart, check_places_apart
from persistent.driver.output_batches import lacks_changes, lacks_totals
from persistent.driver.seen_part import check_names
from persistent.driver.state_bench import StateBench
from persistent.driver.step import Step
from persistent.driver.workbench import Workbench
from persistent.errors import CorruptCheckpoint
from persistent.sources.protocol import Budget, ForgettingSource, Positions, Source, SourcePlan
from persistent.task import check_key
from persistent.zone import Zone

logger = logging.getLogger("persistent.driver")

_FENCES_MAX = 3


def next_step(bench: Workbench, last: Entry, rows: int) -> Step | None:
    """The step after ``last``: the plan that was put for it, or a new one of about ``rows`` rows; None if there is
    nothing to do. Writes nothing."""
    manifest = last.manifest
    # After our own checkpoint only a driver that fences us can plan, and then the put of our plan finds its plan.
    put = bench.log.plan(manifest.base, manifest.replan) if manifest.id != bench.committed else None
    return _new_step(bench, last, rows) if put is None else _put_step(bench, last, put)


def _put_step(bench: Workbench, last: Entry, put: StepPlan) -> Step:
    """The step of a plan that was put. CorruptCheckpoint, InvalidPipeline if this job cannot run it."""
    job, manifest = bench.job, last.manifest
    put = put.named(next(iter(manifest.sources)), next(iter(manifest.operators)))
    _check_same_sources(put, manifest, job.storage.url)
    for name, step in put.sources.items():
        first = CODECS[step.codec].first
        if step.splits or any(position != first for position in step.start.values()):
            # The source has recorded its options, which those of this run must not contradict.
            job.sources[name].schema(step.recorded)
    return Step(last, put, done=(Effect.PLAN,))


def _new_step(bench: Workbench, last: Entry, rows: int) -> Step | None:
    """A step of a new plan; None if there is nothing to do."""
    job, manifest = bench.job, last.manifest
    zones = {one.job.operator: one.next_zone(view) for one, view in bench.each(manifest)}
    bench.keep_zones(zones)
    planned = _planned(bench, manifest, rows)
    lags = {name: _lag_ms(job.sources[name], one) for name, one in planned.items()}
    sources = {name: _source_step(manifest.sources[name], one, lags[name]) for name, one in planned.items()}
    reading = [name for name, one in planned.items() if one.splits]
    now, quiet_ms = wall_ms(), 0
    _check_records(bench, manifest, {name: planned[name] for name in reading})
    ends = () if reading else _ending(bench, manifest, planned)
    tasks = {
        one.job.operator: _task_step(one, view, zones[one.job.operator], now, ends=one.job.operator in ends)
        for one, view in bench.each(manifest)
    }
    if not reading:
        reached = watermark_after(sources, manifest.sources, lags)
        quiet_ms = _quiet_ms(bench, manifest, reached)
        joins = any(one.joins or one.skipped for one in planned.values())
        moves = any(reached > one.watermark for one in manifest.clocks.values()) or quiet_ms
        due = (_is_due(one, view, tasks[one.job.operator]) for one, view in bench.each(manifest))
        if not (ends or moves or joins or any(due)):
            return None
    bench.busy = len(reading) or len(planned)
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
    return Step(last, plan, {name: one.appended for name, one in planned.items() if one.appended is not None})


def _check_records(bench: Workbench, manifest: Manifest, reading: Mapping[str, SourcePlan]) -> None:
    """InvalidPipeline if the records to be read have no such key, or no such names of their senders."""
    job = bench.job
    for name, planned in reading.items():
        check_key(job.task, job.sources[name].schema(planned.recorded))
        if name in job.dedupe:
            check_names(job, manifest, name, planned.recorded)


def _ending(bench: Workbench, manifest: Manifest, planned: Mapping[str, SourcePlan]) -> tuple[str, ...]:
    """The states for which the input ends with this step."""
    if not bench.options.end_of_input:
        return ()
    ends = [
        one.job.operator
        for one, view in bench.each(manifest)
        if not view.clock.end_of_input or _lacks_totals(one, view)
    ]
    return () if not ends or _is_held(planned, bench.job.storage.url) else tuple(ends)


def _task_step(bench: StateBench, manifest: Manifest, zone: Zone | None, now: int, *, ends: bool) -> TaskStep:
    """What the step does with one state."""
    lateness, clock, state = bench.job.state.lateness, manifest.clock, manifest.operator.state
    emit, passed = lateness.planned(state.passed, clock.watermark, now)
    close_at = lateness.closes(clock.closed, clock.watermark)
    if ends:
        close_at = max(close_at, bench.run_cache.largest_end(bench.runs(manifest), clock))
    final_at = lateness.final(manifest.final, close_at)
    of_sessions = state.has_sessions and final_at is not None
    zone = None if zone == state.zone else zone
    return TaskStep(close_at, ends, zone, final_at, emit, passed, of_sessions or None)


def _is_due(bench: StateBench, manifest: Manifest, step: TaskStep) -> bool:
    """Whether the state has something to publish, although nothing is read."""
    is_due = bench.run_cache.is_due(bench.runs(manifest), manifest.clock, step.close_at)
    return is_due or lacks_changes(bench.job, manifest, step.emit)


def _lacks_totals(bench: StateBench, manifest: Manifest) -> bool:
    """Whether a sink does not know of all that holds of a state without windows, or of a key that has expired."""
    told, runs = manifest.operator.state.shown_at, bench.runs(manifest)
    is_untold = bool(bench.job.sinks) and bench.run_cache.is_untold(runs, told, manifest.clock.closed)
    return is_untold or lacks_totals(bench.job, manifest)


def _lag_ms(source: Source, planned: SourcePlan) -> int:
    """How far the clock stays behind the largest timestamp."""
    lag_ms = planned.max_out_of_orderness
    return source.max_out_of_orderness if lag_ms is None else lag_ms


def _quiet_ms(bench: Workbench, manifest: Manifest, reached: int) -> int:
    """For how long nothing has come, if the clock moves on by that: a window is over then, or what has changed is
    published early; otherwise 0. A clock that moved on at every look would put a checkpoint at every look."""
    options = bench.options
    if options.quiet_after_ms is None or not options.follow:
        return 0
    quiet_ms = bench.quiet.lasts_ms(options.quiet_after_ms)
    is_over = any(_passes(one, view, reached, quiet_ms) for one, view in bench.each(manifest))
    return quiet_ms if is_over else 0


def _passes(bench: StateBench, manifest: Manifest, reached: int, quiet_ms: int) -> bool:
    """Whether the clock of one state moves on in that time, and a window is over then, or changes are published."""
    clock = manifest.clock
    moved = manifest.clocks[manifest.task_name].quiet_from(reached) + quiet_ms
    if moved <= clock.watermark:
        return False
    lateness = bench.job.state.lateness
    is_over = bench.run_cache.is_due(bench.runs(manifest), clock, lateness.closes(clock.closed, moved))
    is_early = lateness.is_early_at(manifest.operator.state.passed, moved) and lacks_changes(bench.job, manifest)
    return is_over or is_early


def _is_held(planned: Mapping[str, SourcePlan], url: str) -> bool:
    """Whether some records cannot be read yet, so that the input has not ended; logs a warning if so."""
    held = any(one.held for one in planned.values())
    if held:
        logger.warning(
            "%s: some records cannot be read yet, behind an open transaction: the windows stay open. Run "
            "again with end_of_input=True when it has ended (of a queue, when no other consumer keeps them)",
            url,
        )
    return held


def _planned(bench: Workbench, manifest: Manifest, rows: int) -> dict[str, SourcePlan]:
    """The plan of each source, in the order of their names, which is that of a plan found again."""
    budget, sources, began_s = _budget(bench, rows, manifest.replan), bench.job.sources, monotonic_s()
    planned = {name: _plan_of(bench, manifest, name, budget) for name in sorted(sources)}
    bench.quiet.saw(planned, manifest, began_s)
    if bench.options.max_drift_ms is not None:
        lags = {name: _lag_ms(sources[name], one) for name, one in planned.items()}
        watermark, drift_ms = manifest.clock.watermark, bench.options.max_drift_ms
        for name, ahead in too_far_ahead(planned, manifest.sources, lags, watermark, drift_ms).items():
            planned[name] = _plan_of(bench, manifest, name, replace(budget, ahead=ahead))
    check_places_apart(planned)
    if any(one.appended is not None for one in planned.values()):
        check_files_apart(sources, {name: bench.source_state(manifest, name).index for name in planned}, planned)
    return awake(planned, manifest.sources)


def _plan_of(bench: Workbench, manifest: Manifest, name: str, budget: Budget) -> SourcePlan:
    return bench.job.sources[name].plan(bench.source_state(manifest, name), budget, follow=bench.options.follow)


def awake(planned: Mapping[str, SourcePlan], parts: Mapping[str, SourcePart]) -> dict[str, SourcePlan]:
    """The plans without the partitions that the clock does not wait for: a source that is wholly idle holds back no
    other. If all are idle, the partition that is farthest ahead counts: the clock must not depend on the order in which
    they became idle."""
    resting = {name: one for name, one in planned.items() if one.is_idle and one.rests is not None}
    last = None
    if all(one.is_idle for one in planned.values()):
        last = max(
            resting, key=lambda name: (parts[name].largest.get(str(resting[name].rests), -1), name), default=None
        )
    return {name: _idle(one) if name in resting and name != last else one for name, one in planned.items()}


def _idle(planned: SourcePlan) -> SourcePlan:
    return replace(planned, cap={}, idle=tuple(sorted((*planned.idle, str(planned.rests)))), rests=None)


def _check_same_sources(put: StepPlan, manifest: Manifest, url: str) -> None:
    """CorruptCheckpoint unless the plan reads sources of this job, from where the checkpoint is. A plan that was put
    before a source joined does not mention it."""
    place = f"{url}/{plan_name(put.base, put.number)}"
    if put.sources.keys() - manifest.sources.keys():
        raise CorruptCheckpoint(
            f"{place}: reads {', '.join(put.sources)}, but the sources of the checkpoint and of this pipeline are "
            f"{', '.join(manifest.sources)}: it is the plan of another job, or of this one with a source that it no "
            "longer has. Nothing of its step was committed: give the pipeline that source again; or restore the file "
            "from a copy, or delete it and run again"
        )
    there = {name: source for name, source in manifest.sources.items() if name in put.sources or source.recorded}
    if not put.starts_at(there):
        raise CorruptCheckpoint(
            f"{place}: starts at {_text(put.starts)}, but the checkpoint is at "
            f"{_text({name: source.positions for name, source in manifest.sources.items()})}. Nothing of its step was "
            "committed: delete the file and run again"
        )


def _text(starts: Mapping[str, Positions]) -> str:
    """Positions of sources, for people.

    >>> _text({"file": {"files": (0, 2)}}), _text({"a": {"0": 3}, "b": {}})
    ("{'files': (0, 2)}", "{'a': {'0': 3}, 'b': {}}")
    """
    plain = {name: dict(positions) for name, positions in starts.items()}
    return str(plain if len(plain) != 1 else next(iter(plain.values())))


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


def plan_number(bench: Workbench, last: Manifest) -> int:
    """The number of the plan to run. It is a new one if a source has forgotten records of the plan that was put, or,
    with smaller steps, after three fences on a plan that never committed."""
    if any(isinstance(source, ForgettingSource) for source in bench.job.sources.values()):
        put = bench.log.plan(last.base, last.replan)
        if put is not None and _has_forgotten(bench, put):
            plan = f"{bench.job.storage.url}/{plan_name(last.base, last.replan)}"
            logger.warning("%s: the source no longer has records of this plan; a new one replaces it", plan)
            return last.replan + 1
    if last.fences < _FENCES_MAX or bench.log.plan(last.base, last.replan) is None:
        return last.replan
    plan = f"{bench.job.storage.url}/{plan_name(last.base, last.replan)}"
    begun = f"the step of {plan} was begun {last.fences} times and never committed"
    if bench.options.step_rows is not None:
        logger.warning("%s; with step_rows its plan stays as it is (without, smaller steps are tried)", begun)
        return last.replan
    logger.warning("%s: trying smaller steps", begun)
    return last.replan + 1


def _has_forgotten(bench: Workbench, put: StepPlan) -> bool:
    for name, step in put.sources.items():
        source = bench.job.sources.get(name)
        if isinstance(source, ForgettingSource) and source.has_forgotten(step.splits, step.recorded):
            return True
    return False


def _budget(bench: Workbench, rows: int, replan: int) -> Budget:
    """The share of one source, if as many have something to read as in the previous step. ``step_rows`` applies to
    each, because the rows of a step must depend on the positions alone."""
    exact = bench.options.step_rows
    smaller = 0 if bench.adopts else replan
    wanted = exact if exact is not None else max(1, (rows >> (3 * smaller)) // bench.busy)
    splits = max(1, bench.engine.parallelism // bench.busy)
    return Budget(wanted, exact is not None, splits, bench.options.end_of_input)
