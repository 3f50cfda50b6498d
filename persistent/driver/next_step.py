"""The next step follows from the newest manifest and the source: it is the plan that was put, or a new one."""

from __future__ import annotations

import logging

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import new_nonce, plan_name
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.positions import CODECS
from persistent.checkpoint.successor import Entry
from persistent.clock import wall_ms
from persistent.driver.effects import Effect
from persistent.driver.step import Step
from persistent.driver.workbench import Workbench
from persistent.errors import CorruptCheckpoint
from persistent.sources.protocol import Budget, ForgettingSource, SourcePlan
from persistent.task import check_key

logger = logging.getLogger("persistent.driver")

_FENCES_MAX = 3


def next_step(bench: Workbench, last: Entry, rows: int) -> Step | None:
    """The step after ``last``: the plan that was put for it, or a new one of about ``rows`` rows; None if there is
    nothing to do. Writes nothing."""
    job, log, run_cache, options = bench.job, bench.log, bench.run_cache, bench.options
    manifest = last.manifest
    # After our own checkpoint only a driver that fences us can plan: then the put of our plan finds theirs.
    put = log.plan(manifest.base, manifest.replan) if manifest.id != bench.committed else None
    if put is not None:
        put = put.named(manifest.source_name, manifest.task_name)
        _check_same_source(put, manifest, job.storage.url)
        if put.starts != {name: source.positions for name, source in manifest.sources.items()}:
            raise CorruptCheckpoint(
                f"{job.storage.url}/{plan_name(put.base, put.number)}: starts at {dict(put.source.start)}, the "
                f"checkpoint is at {dict(manifest.source.positions)}. Nothing of its step was committed: delete "
                "the file and run again"
            )
        first = CODECS[put.source.codec].first
        if put.source.splits or any(position != first for position in put.source.start.values()):
            # The source has recorded its options: those of this run must not contradict them.
            job.source.schema(put.source.recorded)
        return Step(last, put, done=(Effect.PLAN,))
    clock, runs = manifest.clock, bench.runs(manifest)
    budget = _budget(bench, rows, manifest.replan)
    planned = job.source.plan(bench.source_state(manifest), budget, follow=options.follow)
    close_at, ends = clock.watermark, False
    if planned.splits:
        check_key(job.task, job.source.schema(planned.recorded))
    else:
        ends = options.end_of_input and not clock.end_of_input
        if ends and planned.held:
            logger.warning(
                "%s: records are there that cannot be read yet, behind an open transaction: the windows stay open. Run "
                "again with end_of_input=True when it has ended",
                job.storage.url,
            )
            ends = False
        if ends:
            close_at = max(close_at, run_cache.largest_end(runs, clock))
        moves = clock.advanced({}, planned.cap, job.source.max_out_of_orderness).watermark > clock.watermark
        joins = bool(planned.joins or planned.skipped)
        if not (ends or moves or joins or run_cache.is_due(runs, clock, close_at)):
            return None
    plan = StepPlan(
        job=manifest.job,
        base=manifest.base,
        number=manifest.replan,
        nonce=new_nonce(),
        wall_ms=wall_ms(),
        sources={manifest.source_name: _source_step(manifest, planned, job.source.max_out_of_orderness)},
        tasks={manifest.task_name: TaskStep(close_at, ends)},
        max_future_ms=options.max_future_ms,
    )
    return Step(last, plan, planned.appended)


def _check_same_source(put: StepPlan, manifest: Manifest, url: str) -> None:
    """CorruptCheckpoint unless the plan reads the source of the checkpoint."""
    if put.sources.keys() != manifest.sources.keys():
        raise CorruptCheckpoint(
            f"{url}/{plan_name(put.base, put.number)}: reads {', '.join(put.sources)}, the source of the checkpoint is "
            f"{', '.join(manifest.sources)}: it is the plan of another job. Nothing of its step was committed: restore "
            "the file from a copy, or delete it and run again"
        )


def _source_step(manifest: Manifest, planned: SourcePlan, lag_ms: int) -> SourceStep:
    return SourceStep(
        start=manifest.source.positions,
        end={**manifest.source.positions, **planned.end},
        splits=planned.splits,
        cap=planned.cap,
        recorded=planned.recorded,
        max_out_of_orderness_ms=lag_ms,
        codec=manifest.source.codec,
        joins=planned.joins,
        idle=planned.idle,
        skipped=planned.skipped,
    )


def plan_number(bench: Workbench, last: Manifest) -> int:
    """The number of the plan to run: a new one if the source has forgotten records of the one that was put, and, of
    smaller steps, after three fences on a plan that never committed."""
    source = bench.job.source
    if isinstance(source, ForgettingSource):
        put = bench.log.plan(last.base, last.replan)
        if put is not None and source.has_forgotten(put.source.splits, put.source.recorded):
            plan = f"{bench.job.storage.url}/{plan_name(last.base, last.replan)}"
            logger.warning("%s: the source no longer has records of this plan; a new one takes its place", plan)
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


def _budget(bench: Workbench, rows: int, replan: int) -> Budget:
    exact = bench.options.step_rows
    smaller = 0 if bench.adopts else replan
    wanted = exact if exact is not None else max(1, rows >> (3 * smaller))
    return Budget(wanted, exact is not None, bench.engine.parallelism)
