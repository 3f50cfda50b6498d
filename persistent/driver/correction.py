"""A correction is one checkpoint of its own kind, which happens once for its name: records are put into the states, or
taken out, and the published results that this changes are published again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, check_name
from persistent.checkpoint.output_parts import Correction
from persistent.checkpoint.parts import NodePart
from persistent.checkpoint.plan import StepPlan, TaskStep
from persistent.checkpoint.running import check_not_running, running
from persistent.checkpoint.successor import Entry, succeed
from persistent.driver.commit import (
    aside_of,
    first_manifest,
    key_types,
    known_from,
    next_late_sink,
    next_sinks,
    retained,
)
from persistent.driver.open_job import open_job
from persistent.driver.options import Options
from persistent.driver.publish import check_folder, delete_dropped, publish
from persistent.driver.publish_after import is_told_anew, outputs_after
from persistent.driver.results import NodeResults, Results
from persistent.driver.same_job import check_same_job
from persistent.driver.step import NodeStep, Step, time_limit_of
from persistent.driver.workbench import NodeBench, Workbench
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline, NoCheckpoint, Refused
from persistent.names import new_nonce
from persistent.time.clock import wall_ms
from persistent.time.lateness import EARLY
from persistent.time.zone import Zone
from persistent.worker.correct_records import NOTHING, Form, Given, Kinds, digest, given_records
from persistent.worker.correct_states import CorrectedRows, Judged, corrected_rows
from persistent.worker.job import Job, MappedNode, Node
from persistent.worker.merge_runs import write_run


@dataclass(frozen=True)
class Asked:
    """A correction as it is asked for. ``takes_over``: even if a driver may run. ``of_rows``, ``of_files``: the sources
    that read its records."""

    name: str
    add: Any
    remove: Any
    takes_over: bool
    of_rows: type[Any]
    of_files: type[Any]


@dataclass(frozen=True)
class Amendment:
    """The records of a correction, under its name."""

    name: str
    added: Given
    removed: Given

    @property
    def sha256(self) -> str:
        return digest(self.added, self.removed)

    def applied(self, manifest: Manifest, url: str) -> Correction | None:
        """The account of the correction, if it was applied. Refused if it was applied with other records."""
        known = manifest.corrections.get(self.name)
        if known is not None and known.sha256 != self.sha256:
            raise Refused(
                f"{url}: checkpoint {known.checkpoint} has applied a correction {self.name!r} of other records "
                f"({known.added:,} added, {known.removed:,} removed). Give this one another name. {NOTHING}"
            )
        return known


def correct(job: Job, engine: Engine, options: Options, asked: Asked) -> Correction:
    """Apply a correction, unless it was applied already; returns its account."""
    log, url = Log(job.storage), job.storage.url
    newest = newest_of(log)
    if not newest.manifest.base:
        raise NoCheckpoint(f"{url}: nothing was counted yet, so there is nothing to correct: run the pipeline first")
    check_same_job(newest.manifest, first_manifest(job, ""), url)
    amendment = _amendment(asked, newest.manifest)
    known = amendment.applied(newest.manifest, url)
    if known is not None:
        _publish_owed(job, log, newest.manifest)
        return known
    _check_sinks(job, newest.manifest)
    check_not_running(job.storage, newest.manifest.epoch, take_over=asked.takes_over)
    check_folder(job, log, newest.manifest)
    # Before anything is written: a correction that is refused leaves no fence.
    _rows(job.in_zones(_zones(newest.manifest)), options, newest, amendment)
    opened = open_job(job, engine, options)
    # As it stands, without sources that would join with the next step.
    last = log.read(opened.take_over().manifest.id)
    known = amendment.applied(last.manifest, url)
    return _applied(opened.bench, last, amendment) if known is None else known


def _applied(bench: Workbench, last: Entry, amendment: Amendment) -> Correction:
    """The account of the correction that is applied on top of ``last``, which is ours."""
    log = bench.log
    bench.keep_zones(_zones(last.manifest))
    with log.unless_fenced(last.manifest.id):
        manifest = log.put(_corrected(bench, last, amendment)).manifest
        log.check(manifest.id)
        publish(bench.job, log, manifest, is_own=True)
        dropped = bench.keep(manifest)
        delete_dropped(bench.job, manifest, bench.kept.values(), dropped)
    return manifest.corrections[amendment.name]


def _zones(manifest: Manifest) -> dict[str, Zone | None]:
    """The rules of the time zone of the windows of each state."""
    return {name: node.zone for name, node in manifest.nodes.items()}


def _amendment(asked: Asked, manifest: Manifest) -> Amendment:
    try:
        check_name(asked.name, "the name of the correction")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error
    form = _form(manifest)
    kinds = Kinds(asked.of_rows, asked.of_files)
    added, removed = given_records("add", asked.add, form, kinds), given_records("remove", asked.remove, form, kinds)
    if not (added.rows or removed.rows):
        files = [repr(str(path)) for path in (asked.add, asked.remove) if isinstance(path, (str, os.PathLike))]
        where = f" in {' and '.join(files)}" if files else ""
        raise InvalidPipeline(f"give the records to add=, to remove=, or both: there are none{where}")
    return Amendment(asked.name, added, removed)


def _form(manifest: Manifest) -> Form | None:
    """The form of the records of all sources; None if it is unknown or differs between them."""
    forms = [Form.of(source.recorded) for source in manifest.sources.values()]
    return forms[0] if all(form == forms[0] for form in forms) else None


def _publish_owed(job: Job, log: Log, manifest: Manifest) -> None:
    """Publish what the process that applied the correction may have left, unless a driver does so."""
    if not running(job.storage, manifest.epoch) and manifest.retract is None:
        publish(job, log, manifest)


def _check_sinks(job: Job, manifest: Manifest) -> None:
    """Refused unless the job has the sinks of the last step: only a step gives a new sink what it lacks. A job that
    starts from a savepoint, or is a sum, and has made no step, can have any: they are treated as in its first step."""
    if manifest.publishes is None and not manifest.sinks:
        return
    had = sorted(name for name in manifest.sinks if manifest.publishes is not False or manifest.sinks[name].late)
    if sorted(job.all_sinks) != had:
        raise Refused(
            f"{job.storage.url}: the sinks of the last step are {', '.join(had) or 'none'}, and those of this pipeline "
            f"{', '.join(sorted(job.all_sinks)) or 'none'}: correct with the same ones, or run the pipeline before. "
            f"{NOTHING}"
        )


def _plan(job: Job, last: Entry) -> StepPlan:
    """The plan of a step that reads nothing, and closes no window. Nobody puts it."""
    manifest = last.manifest
    tasks = {id: _task(node, manifest.nodes[id]) for id, node in job.nodes.items()}
    now = wall_ms()
    return StepPlan(
        manifest.job, manifest.base, manifest.replan, new_nonce(), now, {}, tasks, not_after=manifest.not_after
    )


def _task(node: Node, part: NodePart) -> TaskStep:
    """What the plan does with one node."""
    lateness, closed = node.state.lateness, part.clock.closed
    final_at = None if lateness.final(part.final, closed) is None else part.final
    return TaskStep(close_at=closed, final_at=final_at, emit=lateness.of_changes)


def _rows(job: Job, options: Options, last: Entry, amendment: Amendment) -> CorrectedRows:
    """The rows that correct each state. Refused if there are none."""
    step = Step(last, _plan(job, last))
    limit = time_limit_of(step, options.max_future_ms).within(node.state.window for node in job.nodes.values())
    judged = {id: _judged(node) for id, node in step.nodes.items()}
    corrected = corrected_rows(job, judged, limit, amendment.added, amendment.removed)
    if not corrected.rows:
        raise Refused(f"the task makes no update for these records, so there is nothing to correct. {NOTHING}")
    return corrected


def _judged(step: NodeStep) -> Judged:
    """The clocks, key types and runs by which one node judges records."""
    before = step.before
    return Judged(before.clock.watermark, step.final, before.key_types, before.runs)


def _corrected(bench: Workbench, last: Entry, amendment: Amendment) -> Manifest:
    """The checkpoint of a correction. Its runs are written, and its outputs are staged."""
    job, old, step = bench.job, last.manifest, Step(last, _plan(bench.job, last))
    id, now_ms = step.attempt.id, step.plan.wall_ms
    corrected = _rows(job, bench.options, last, amendment)
    added, removed = amendment.added, amendment.removed
    results = Results(
        nodes={name: _results(bench.nodes[name], node, corrected.rows.get(name)) for name, node in step.nodes.items()}
    )
    written = [run for node in results.nodes.values() for run in node.delta]
    panes = min((run.pane_min for run in written), default=0), max((run.pane_max for run in written), default=0)
    correction = Correction(id, added.rows, removed.rows, panes, amendment.sha256, tuple(sorted(corrected.refused)))
    return succeed(
        last,
        "correction",
        **retained(old, {**old.bases, id: now_ms}, bench.options.retention),
        nodes={name: _with_delta(bench.nodes[name], node, results.nodes[name]) for name, node in step.nodes.items()},
        committed_ms=now_ms,
        sinks={
            sink: part
            for name, node in step.nodes.items()
            for sink, part in next_sinks(job.nodes[name], node, results.nodes[name]).items()
        }
        | next_late_sink(old.sinks, id, job.late_sink, ()),
        aside=aside_of(id, results),
        publishes=bool(job.sinks),
        corrections={**old.corrections, amendment.name: correction},
    )


def _written(bench: NodeBench, step: NodeStep, rows: GroupSums) -> MappedNode:
    """The rows as a run of the node."""
    id, types = step.attempt.id, tuple(str(column.type) for column in rows.keys)
    run, panes, agenda = write_run(bench.node, step.attempt, rows, id, id)
    bench.run_cache.learn(run, panes, agenda)
    return MappedNode(run, panes, agenda, types)


def _results(bench: NodeBench, step: NodeStep, rows: GroupSums | None) -> NodeResults:
    """The results of the correction for one node: its run, and the outputs that it changes: those of closed windows,
    or all in a state that is published as it changes. Without rows it changes nothing, but may have to publish."""
    node = bench.node
    if rows is None and not is_told_anew(node, step):
        return NodeResults()
    mapped = () if rows is None else (_written(bench, step, rows),)
    if not node.sinks or (node.state.lateness.of_changes is None and step.task.final_at is None):
        return NodeResults(mapped)
    closed, _, changes = outputs_after(bench, step, mapped)
    return NodeResults(mapped, closed, changes=changes)


def _with_delta(bench: NodeBench, step: NodeStep, results: NodeResults) -> NodePart:
    """The node after the correction, with its run and the marks of what is published. If a window is open now, the
    input no longer counts as ended, until it ends the next time."""
    state, before, runs = bench.node.state, step.before, (*step.before.runs, *results.delta)
    window, lateness, clock = state.window, state.lateness, before.clock
    is_open = bench.run_cache.largest_end(runs, clock.closed) > clock.closed
    after = replace(before, clock=replace(clock, ended=clock.ended and not is_open))
    if not (results.mapped or results.changes):
        return after
    panes = [*(run.pane_min for run in results.delta), *(() if before.lowest is None else (before.lowest,))]
    lowest = min(panes, default=None)
    if window is not None and lowest is not None:
        lowest = max(lowest, window.start_of(window.first_number(step.final)))
    return replace(
        after,
        key_types=key_types(before, results.mapped),
        runs=runs,
        lowest=lowest,
        published=step.attempt.id if results.changes else before.published,
        shown_at=before.shown_after(clock.closed, publishes=results.changes),
        known_from=known_from(before, state.known_from(clock.watermark)),
        final_at=None if step.task.final_at is None else step.final,
        late=lateness.answer,
        emit=lateness.of_changes,
        passed=before.passed if lateness.of_changes == EARLY else None,
    )
