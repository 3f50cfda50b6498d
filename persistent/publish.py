"""To publish is to make visible what a committed manifest names: repeated, it changes nothing.

To collect is the opposite: to delete what no kept manifest names and nobody still works for.
"""

from __future__ import annotations

from collections.abc import Iterable

from persistent.checkpoint.garbage import garbage
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.errors import InvalidPipeline, StagedMissing
from persistent.job import Job
from persistent.sinks.protocol import Staged

_DIGITS = 20


def claim(job: Job, manifest: Manifest) -> None:
    """Make the sink this job's own, before anything is staged or swept there. StorageError if it is another's,
    InvalidPipeline if there is none though the manifest lists outputs for it."""
    _check_sink(job, manifest)
    if job.sink is not None:
        job.sink.claim(manifest.job)


def publish(job: Job, log: Log, manifest: Manifest) -> None:
    """Make visible the windows, late rows and dead letters that the manifest lists, each under the id that
    staged it. InvalidPipeline, before anything is done, where windows are listed and there is no sink."""
    _check_sink(job, manifest)
    for outputs in manifest.outputs:
        try:
            if job.sink is not None and outputs.sink:
                job.sink.publish(outputs.id, outputs.sink)
            for folder, staged in (("late", outputs.late), ("dead", outputs.dead)):
                for one in staged:
                    _publish_aside(job, aside_name(folder, outputs.id, one), one)
        except StagedMissing:
            log.check(manifest.id)
            raise


def aside_name(folder: str, id: int, staged: Staged) -> str:
    """Where late rows or dead letters are once published: ``late/<id>-<uuid>.arrow``."""
    return f"{folder}/{id:0{_DIGITS}d}-{staged.name.rpartition('-')[2]}"


def collect(job: Job, manifest: Manifest, kept: Iterable[Manifest], pending: StepPlan | None) -> None:
    """Delete what neither a kept manifest, nor the pending plan, nor an unpublished output names."""
    unpublished = {name for outputs in manifest.outputs for name in outputs.names()}
    live = {name for one in kept for name in one.files()} | unpublished
    if pending is not None:
        live |= {run.name for run in pending.appended}
    # Until the plan of this base is put, a driver we have fenced may still put one that names its index runs.
    settled = manifest.kind == "checkpoint" or pending is not None
    for folder in (job.folder(), index_folder(job)) if settled else (job.folder(),):
        names = [f"{folder}/{name}" for name in job.storage.list(folder)]
        for name in garbage(names, live, manifest.epoch, manifest.id):
            job.storage.delete(name)
    for folder in ("m", "p"):
        for name in job.storage.list(folder):
            if name[:_DIGITS].isdigit() and int(name[:_DIGITS]) < manifest.oldest:
                job.storage.delete(f"{folder}/{name}")
    if job.sink is not None:
        job.sink.sweep(unpublished, manifest.epoch, manifest.id)


def index_folder(job: Job) -> str:
    """Where the runs of the source's index are."""
    return f"d/{job.source.kind}"


def _check_sink(job: Job, manifest: Manifest) -> None:
    """Nobody but the sink knows whether outputs that were staged have been published."""
    if job.sink is None and any(outputs.sink for outputs in manifest.outputs):
        raise InvalidPipeline(
            f"{job.storage.url}: checkpoint {manifest.base} has outputs for a sink, and this pipeline has none "
            "(sink=None): they might never be seen. Run it with the sink it had; without one, give it a checkpoint of "
            "its own"
        )


def _publish_aside(job: Job, target: str, staged: Staged) -> None:
    try:
        job.storage.rename(staged.name, target)
    except FileExistsError:
        return
    except FileNotFoundError as error:
        folder, _, name = target.rpartition("/")
        if name not in job.storage.list(folder):
            place = f"{job.storage.url}/{staged.name}"
            raise StagedMissing(f"{place}: neither there nor published as {target}: restore the file") from error
