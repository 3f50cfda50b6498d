"""Recovery takes over a checkpoint: it fences earlier drivers, repeats their unfinished work, sweeps their
leftovers, and brings the state to the current task.

Of a plan that was put, and whose step was never committed, it says whether this job runs it, or one with the next
number.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from persistent.checkpoint.commit_change import Decision, after, put_change
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.running import marks
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import CODECS, Positions
from persistent.driver.commit import with_sources
from persistent.driver.evolution import adapted, adopted, changes, check_emission
from persistent.driver.migration import migrated
from persistent.driver.notes import Notes
from persistent.driver.publish import (
    check_has_last,
    claim,
    collect,
    mark_retracted,
    newest_ids,
    publish,
    shown,
    sweep,
    take_back,
    taken_over,
)
from persistent.driver.step import TAKING_OVER, Effect
from persistent.driver.workbench import Workbench
from persistent.errors import CorruptCheckpoint, FingerprintChanged, NewerFormat
from persistent.names import Attempt, manifest_name, plan_name
from persistent.text.figures import shell_word
from persistent.worker.job import Job

logger = logging.getLogger("persistent.driver")

_FENCES_MAX = 3


def plan_number(bench: Workbench, last: Manifest) -> int:
    """The number of the plan to run. It is a new one if the plan that was put has other options, if a source has
    forgotten records of it, or, with smaller steps, after three fences on a plan that never committed."""
    if bench.corrects == (last.base, last.replan):
        return last.replan + 1
    if any(source.forgets for source in bench.job.sources.values()):
        put = bench.log.plan(last.base, last.replan)
        if put is not None and has_forgotten(bench, put):
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


def has_forgotten(bench: Workbench, put: StepPlan) -> bool:
    """Whether a source no longer has records of the plan, and may skip them."""
    for name, step in put.sources.items():
        source = bench.job.sources.get(name)
        if source is not None and source.has_forgotten(step.splits, step.recorded):
            return True
    return False


def check_options(bench: Workbench, put: StepPlan) -> None:
    """InvalidPipeline if the options of a source contradict what it has recorded with the plan."""
    for name, step in put.sources.items():
        first = CODECS[step.codec].first
        if step.splits or any(position != first for position in step.start.values()):
            bench.job.sources[name].schema(step.recorded)


def check_belongs(put: StepPlan, manifest: Manifest, url: str) -> None:
    """CorruptCheckpoint unless the plan is of this job, and reads its sources from where the checkpoint is. A plan that
    was put before a source joined does not mention it."""
    place = f"{url}/{plan_name(put.base, put.number)}"
    if put.sources.keys() - manifest.sources.keys():
        raise CorruptCheckpoint(
            f"{place}: reads {', '.join(put.sources)}, but the sources of the checkpoint and of this pipeline are "
            f"{', '.join(manifest.sources)}: it is the plan of another job, or of this one with a source that it no "
            "longer has. Nothing of its step was committed: give the pipeline that source again; or restore the file "
            "from a copy, or delete it and run again"
        )
    tasks = sorted({id.partition("/")[0] for id in put.tasks})
    if len(tasks) > len(manifest.tasks):
        raise CorruptCheckpoint(
            f"{place}: plans the tasks {', '.join(tasks)}, but the checkpoint has {', '.join(manifest.tasks)}: it is "
            "the plan of another job. Nothing of its step was committed: restore the file from a copy, or delete it "
            "and run again"
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
    first, *others = plain.values() or [plain]
    return str(plain if others else first)


def take_over(bench: Workbench, notes: Notes, last: Entry | None) -> Entry:
    """The manifest to continue from, which is ours: a fence, or the migration above it. ``last``: the newest; None
    without a checkpoint."""
    if last is None or last.manifest.id == 0:
        last = bench.log.create(bench.first)
        as_it_will_be(bench, last.manifest)
    claim(bench.job, last.manifest)
    newest = newest_ids(bench.job, last.manifest)
    check_has_last(bench.job, bench.log, last.manifest, newest)
    above = bench.log.check_whole(last.manifest, shown(bench.job, newest))
    _read_kept(bench, last.manifest)
    fence = last
    for effect in TAKING_OVER:
        fence = _performed(bench, fence, effect, above)
    return reading_all(bench, _evolved(bench, notes, fence))


def reading_all(bench: Workbench, entry: Entry) -> Entry:
    """The entry with the sources that join the job with its next step."""
    return replace(entry, manifest=with_sources(entry.manifest, bench.first))


def as_it_will_be(bench: Workbench, manifest: Manifest) -> Manifest:
    """The manifest with the state that this job needs; unchanged if it has that already."""
    view = adopted(manifest, bench.first)
    if view is not manifest:
        _check_abandoned(bench, manifest)
        bench.adopts = True
    evolve, dropped = bench.options.evolve, bench.options.dropped
    view = adapted(view, bench.first, evolve, dropped, bench.job.storage.url)
    check_emission(view, bench.first, bench.job.storage.url)
    return view


def is_lost(bench: Workbench, newest: Entry | None) -> bool:
    """Whether a newer checkpoint is lost, and no rollback has settled its outputs. Taking over then raises."""
    if newest is None or newest.manifest.target is not None:
        return False
    trace = shown(bench.job, newest_ids(bench.job, newest.manifest))
    return bench.log.lost(newest.manifest.base, newest.manifest.id, trace) is not None


def _performed(bench: Workbench, fence: Entry, effect: Effect, above: int) -> Entry:
    """The fence, after this effect; before the first, the newest entry."""
    job, log, manifest = bench.job, bench.log, fence.manifest
    match effect:
        case Effect.FENCE:
            return _fence(bench, fence, above)
        case Effect.CHECK:
            log.check(manifest.id)
            with log.unless_fenced(manifest.id):
                bench.kept = log.kept(manifest, bench.kept)
        case Effect.MARK:
            mark_retracted(job, manifest)
        case Effect.SWEEP:
            sweep(job, manifest)
        case Effect.TAKE_BACK:
            take_back(job, manifest)
        case Effect.PUBLISH:
            publish(job, log, manifest)
        case Effect.COLLECT:
            collect(job, manifest, bench.kept.values(), log.plan(manifest.base, manifest.replan))
    return fence


def _fence(bench: Workbench, last: Entry, above: int) -> Entry:
    number = plan_number(bench, last.manifest)
    fence = bench.log.fence(last, bench.nonce, number, changes=partial(_taken_over, bench.job), above=above)
    manifest = fence.manifest
    logger.info("epoch %d begins with %s", manifest.epoch, manifest_name(manifest.id))
    return fence


def _taken_over(job: Job, last: Entry) -> dict[str, Any]:
    """The places in sinks that this job takes over, each with what the sink has of it."""
    manifest = last.manifest
    places = {name: taken_over(job, manifest, name, place) for name, place in manifest.inherits.items()}
    return {} if places == manifest.inherits else {"inherits": places}


def _read_kept(bench: Workbench, last: Manifest) -> None:
    """Read the kept manifests before the fence is put, because every attempt would leave a fence. CorruptCheckpoint if
    a manifest is damaged."""
    try:
        bench.kept = bench.log.kept(last)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        if bench.log.ids()[-1:] != [last.id]:
            # Or a running driver collects them: read them once it is fenced.
            return
        url = bench.job.storage.url
        if not bench.log.names_what_is_there(last):
            raise CorruptCheckpoint(
                f"{error}, and runs of the newest state are missing too: restore the folder from a copy"
            ) from error
        raise CorruptCheckpoint(
            f"{error}. The newest state does not need it: 'persistent rollback {shell_word(url)} {last.id} "
            "--outputs=retract' continues from there without it, and takes back nothing; or restore it from a copy"
        ) from error


def _check_abandoned(bench: Workbench, manifest: Manifest) -> None:
    """Raise FingerprintChanged if a driver of the old task certainly runs."""
    changed = changes(manifest, bench.first)
    for mark in marks(bench.job.storage):
        if mark.epoch >= manifest.epoch and mark.runs:
            raise FingerprintChanged(
                f"{bench.job.storage.url}: the task has changed, {changed}, while a driver of the old task runs: "
                f"{mark}. Nothing is committed yet: stop it, and the next run adopts the new task"
            )


def _evolved(bench: Workbench, notes: Notes, fence: Entry) -> Entry:
    """The fence or, if the task has changed, the migration above it."""
    view = as_it_will_be(bench, fence.manifest)
    check_emission(view, bench.first, bench.job.storage.url, is_ours=True)
    if view is fence.manifest:
        return fence
    if view.replan != fence.manifest.replan:
        changed = changes(fence.manifest, bench.first)
        notes.note("task", f"the task has changed, {changed}: nothing was committed yet, so the new task is adopted")
    job = bench.job.in_zones({name: node.zone for name, node in view.nodes.items()})
    evolve, kept = bench.options.evolve, list(bench.kept.values())

    def write(attempt: Attempt) -> dict[str, Any]:
        return migrated(job, attempt, fence.manifest, view, evolve, kept)

    entry = put_change(bench.log, after(fence), Decision("migration", write=write))
    bench.kept[entry.manifest.id] = entry.manifest
    return entry
