"""Recovery takes over a checkpoint: it fences earlier drivers, repeats their unfinished work, sweeps their
leftovers, and brings the state to the current task."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from persistent.checkpoint.commit_change import Decision, after, put_change
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.running import marks
from persistent.checkpoint.successor import Entry
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
from persistent.driver.put_plan import plan_number
from persistent.driver.step import TAKING_OVER, Effect
from persistent.driver.workbench import Workbench
from persistent.errors import CorruptCheckpoint, FingerprintChanged, NewerFormat
from persistent.names import Attempt, manifest_name
from persistent.text.figures import shell_word
from persistent.worker.job import Job

logger = logging.getLogger("persistent.driver")


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
