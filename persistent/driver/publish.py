"""Publishing makes visible what a committed manifest names; repeated, it changes nothing.

Taking back is the opposite, after a rollback. A mark makes it last, even if a fenced driver still sleeps in the middle
of a publication. Collecting deletes what no kept manifest names and no driver still works on. A driver that takes over
does all three, in the order of ``persistent.driver.effects``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from persistent.checkpoint.garbage import garbage
from persistent.checkpoint.log import Log, Trace
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import (
    DEAD,
    LATE,
    MANIFESTS,
    PLANS,
    RETRACTED,
    STAGED,
    Staged,
    entry_id,
    is_retracted,
    manifest_name,
    plan_name,
    published_name,
    retraction_name,
    retractions,
)
from persistent.checkpoint.older_formats import SINK
from persistent.checkpoint.parts import default_name
from persistent.checkpoint.plan import StepPlan
from persistent.driver.output_batches import batches_of, claim_of, retreat_of
from persistent.errors import InvalidPipeline, StagedMissing, StorageError
from persistent.sinks.outlet import Outlet
from persistent.sinks.protocol import AnySink, BatchSink
from persistent.storage import Storage, delete_all, put_once
from persistent.worker.job import Job

_ASIDE = (LATE, DEAD)


def claim(job: Job, manifest: Manifest) -> None:
    """Claim the sink for this job, before anything is staged or swept there. StorageError if it is another job's.
    InvalidPipeline if there is no sink, though the manifest lists outputs that may not be discarded, or outputs to take
    back."""
    _check_sink(job, manifest)
    outlet = job.outlet
    if outlet is not None:
        outlet.claim(claim_of(job, manifest))


def check_folder(job: Job, log: Log, manifest: Manifest) -> None:
    """Raise StorageError, before anything is written, if the sink's folder belongs to another job, or has nothing of
    what this one has published."""
    holder = getattr(job.sink, "holder", None)
    if job.sink is None or holder is None:
        return
    found = holder()
    if found not in (None, manifest.job):
        # The loser of the race for the first manifest finds the winner's name here; that manifest was put before.
        newest = log.newest()
        if newest is None or newest.manifest.job != found:
            claim(job, manifest)
    if found is None and manifest.publishes:
        raise StorageError(
            f"{job.sink!r} has none of the outputs of job {manifest.job} (no _published/JOB): its results would be "
            "split over two folders. Give the sink its old url, or move the whole old folder there; or, to publish "
            "only new results there, copy _published of the old folder"
        )


def shown(job: Job, manifest: Manifest) -> Trace:
    """The newest checkpoint with outputs in the sink, if the sink reports it."""
    outlet = job.outlet
    found = None if outlet is None else outlet.newest(manifest.job, manifest.revision_base)
    return Trace() if found is None else Trace(found, f"{job.sink!r}")


def publish(job: Job, log: Log, manifest: Manifest) -> None:
    """Make visible the windows, late rows and dead letters that the manifest lists, each under the id that staged it.
    InvalidPipeline, before anything is done, if windows are listed and there is no sink."""
    _check_sink(job, manifest)
    try:
        outlet = job.outlet
        if outlet is not None:
            batches = batches_of(job, manifest, outlet.read)
            outlet.publish(batches, retreat_of(job, manifest, batches))
        for aside in manifest.aside:
            for folder, staged in zip(_ASIDE, (aside.late, aside.dead)):
                for one in staged:
                    _publish_aside(job, aside_name(folder, aside.id, one), one)
    except StagedMissing:
        log.check(manifest.id)
        raise


def mark_retracted(job: Job, manifest: Manifest) -> None:
    """Mark what a rollback takes back: it no longer counts, even if a fenced driver still publishes it. Repeated, it
    changes nothing. InvalidPipeline, before anything is done, if the sink cannot take back."""
    if manifest.retract is None:
        return
    if job.sink is not None and getattr(job.sink, "retract", None) is None:
        raise _cannot_take_back(job, manifest)
    name = retraction_name(*_taken_back(manifest))
    put_once(job.storage, f"{RETRACTED}/{name}", f"{name}\n".encode())
    if job.outlet is not None:
        job.outlet.ask("mark", *_taken_back(manifest))


def sweep(job: Job, manifest: Manifest) -> None:
    """Delete the files staged in the sink that no driver will publish."""
    if job.outlet is not None:
        job.outlet.sweep(manifest.unpublished(), manifest.epoch, manifest.id)


def take_back(job: Job, manifest: Manifest) -> None:
    """Delete what was published since the checkpoint that a rollback went back to; repeated, it changes nothing. A
    batch sink does so when it publishes."""
    if manifest.retract is None:
        return
    if job.outlet is not None:
        job.outlet.ask("retract", *_taken_back(manifest))
    delete_all(job.storage, list(_retracted_aside(job.storage, [range(*_taken_back(manifest))])))


def _taken_back(manifest: Manifest) -> tuple[int, int]:
    """The ids to take back. They reach up to ours, not only to the rollback: no manifest lists the outputs that were
    lost or left since. They never go above: a driver that fenced us while we slept publishes there."""
    assert manifest.retract is not None
    return manifest.retract[0], manifest.id


def _cannot_take_back(job: Job, manifest: Manifest) -> InvalidPipeline:
    return InvalidPipeline(
        f"{job.storage.url} went back to checkpoint {manifest.target}, and {job.sink!r} cannot take back what "
        f"was published since. Roll back again with 'persistent rollback {job.storage.url} {manifest.base} "
        "--outputs=again': then later rows are published a second time"
    )


def _retracted_aside(storage: Storage, marks: Collection[range]) -> Iterator[str]:
    """The late rows and dead letters that these marks cover."""
    for folder in _ASIDE if marks else ():
        yield from (f"{folder}/{name}" for name in storage.list(folder) if is_retracted(name, marks))


def _live(manifest: Manifest, kept: Iterable[Manifest]) -> set[str]:
    return {name for one in kept for name in one.files()} | manifest.unpublished()


def aside_name(folder: str, id: int, staged: Staged) -> str:
    """The published name of late rows or dead letters: ``late/<id>-<nonce>.arrow``."""
    return f"{folder}/{published_name(id, staged.name)}"


def no_longer_kept(manifest: Manifest, kept: Iterable[Manifest], dropped: Iterable[Manifest]) -> list[str]:
    """The files to delete with these manifests, which are no longer kept: their own, and what only they named; and the
    outputs that waited for the checkpoint before to be published."""
    kept = tuple(kept)
    live, names = _live(manifest, kept), dict[str, None]()
    for old in dropped:
        files = garbage(sorted(old.files()), live, manifest.epoch, manifest.id)
        plans = [plan_name(old.base, number) for number in range(old.replan + 1)] if old.base < manifest.oldest else []
        names |= dict.fromkeys((*files, *plans, manifest_name(old.id)))
    before = max((one for one in kept if one.id < manifest.id), key=lambda one: one.id, default=None)
    waited = before.unpublished() if before is not None else set()
    return [*names, *sorted(name for name in waited - live if name.startswith(f"{STAGED}/"))]


def collect(job: Job, manifest: Manifest, kept: Iterable[Manifest], pending: StepPlan | None) -> None:
    """Delete every file that neither a kept manifest, nor the pending plan, nor an unpublished output names; and what
    was published after it was taken back."""
    waiting = [STAGED] if isinstance(job.sink, BatchSink) else []
    delete_all(job.storage, list(collectable(job.storage, [job.folder(), *waiting], manifest, kept, pending)))
    if job.outlet is not None:
        job.outlet.ask("tidy")


def collectable(
    storage: Storage, folders: Iterable[str], manifest: Manifest, kept: Iterable[Manifest], pending: StepPlan | None
) -> Iterator[str]:
    """What ``collect`` deletes, in its order. ``folders``: those with runs of a state, or outputs that wait."""
    live = _live(manifest, kept)
    if pending is not None:
        live |= pending.files()
    # Until the plan of this base is put, a driver we have fenced may still put one that names its index runs.
    settled = manifest.kind == "checkpoint" or pending is not None
    indexes = manifest.index_folders()
    for folder in [*(one for one in folders if one not in indexes), *(sorted(indexes) if settled else ())]:
        names = [f"{folder}/{name}" for name in storage.list(folder)]
        yield from garbage(names, live, manifest.epoch, manifest.id)
    for folder in (MANIFESTS, PLANS):
        for name in storage.list(folder):
            id = entry_id(name)
            if (
                id is not None
                and id < manifest.id
                and not (manifest.keeps(id) if folder == MANIFESTS else id >= manifest.oldest)
            ):
                yield f"{folder}/{name}"
    yield from _retracted_aside(storage, retractions(storage.list(RETRACTED)))


def sweepable(outlet: Outlet, manifest: Manifest) -> list[str]:
    """The files that ``sweep`` deletes, if the sink lists them. StorageError if it is another job's."""
    live = {name.rpartition("/")[2] for name in manifest.unpublished()}
    names = {name.rpartition("/")[2]: name for name in outlet.staged(manifest.job)}
    return [names[name] for name in garbage(names, live, manifest.epoch, manifest.id)]


def _check_sink(job: Job, manifest: Manifest) -> None:
    """Raise InvalidPipeline without a sink that is still needed: only the sink knows whether staged outputs were
    published, or those of an abandoned branch taken back."""
    if job.sink is not None:
        for name in _others(job.sink, manifest):
            _check_not_needed(job, name, manifest)
    if job.sink is None and manifest.retract is not None and manifest.publishes is not False:
        raise InvalidPipeline(
            f"{job.storage.url} went back to checkpoint {manifest.target}, and must take back what was published "
            "since, but this pipeline has no sink (sink=None). Run it with its old sink; or, if those rows may stay: "
            f"'persistent rollback {job.storage.url} {manifest.base} --outputs=again'"
        )
    if job.sink is None and not job.discard_closed and manifest.sink.owed:
        raise InvalidPipeline(
            f"{job.storage.url}: checkpoint {manifest.base} has outputs for a sink, but this pipeline has none "
            "(sink=None): they might never be published. Run it with its old sink; or, if those outputs may be lost, "
            "with discard_closed=True"
        )


def _others(sink: AnySink, manifest: Manifest) -> list[str]:
    """The names of the sinks that the manifest lists, unless this is the one."""
    # Older formats do not record its name. And a place that knows this job is the one, whatever class writes there.
    known = {default_name(type(sink).__name__, "sink"), SINK}
    holder = getattr(sink, "holder", None)
    if not manifest.sinks or known & manifest.sinks.keys() or (holder is not None and holder() == manifest.job):
        return []
    return sorted(manifest.sinks)


def _check_not_needed(job: Job, name: str, manifest: Manifest) -> None:
    """Raise InvalidPipeline if the sink of that name may still have something to publish or take back."""
    url, place = job.storage.url, f"its old sink ({name!r}), but this pipeline has {job.sink!r}"
    if manifest.retract is not None and manifest.publishes is not False:
        raise InvalidPipeline(
            f"{url} went back to checkpoint {manifest.target}, and must take back what was published since from "
            f"{place}. Run it with its old sink; or, if those rows may stay: 'persistent rollback {url} "
            f"{manifest.base} --outputs=again'"
        )
    if manifest.sinks[name].owed:
        raise InvalidPipeline(
            f"{url}: checkpoint {manifest.base} has outputs for {place}: only the old one knows whether they were "
            "published. Run it with its old sink, which publishes them. Another can follow here after a step without "
            f"outputs, and at once in a new checkpoint that starts from this one (start_from={url!r})"
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
            raise StagedMissing(f"{place}: missing, and not published as {target}: restore the file") from error
