"""Publishing makes visible the outputs that a committed manifest names; repeated, it changes nothing.

Taking back is the opposite, after a rollback. A mark makes it last, even if a fenced driver sleeps in the middle of a
publication. Collecting deletes what no kept manifest names and no driver works on. A driver that takes over does all
three, in the order of ``persistent.driver.step``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from persistent.checkpoint.log import Log, Trace
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import LATE_SINK, Inheritance, SinkPart, undoable
from persistent.checkpoint.plan import StepPlan
from persistent.connect.outlet import Outlet
from persistent.connect.sink import BatchSink, OutputBatch, Sink
from persistent.driver.output_batches import (
    batches_of,
    check_inherits,
    check_named_as_before,
    check_takes_as_before,
    claim_of,
    has_nothing,
    holder,
    part_of,
    retreat_of,
)
from persistent.errors import CorruptCheckpoint, Fenced, InvalidPipeline, PersistentError, SinkMismatch, StagedMissing
from persistent.names import (
    DEAD,
    LATE,
    MANIFESTS,
    PLANS,
    RETRACTED,
    STAGED,
    Staged,
    aside_name,
    entry_id,
    garbage,
    is_retracted,
    manifest_name,
    plan_name,
    retraction_name,
    retractions,
)
from persistent.storage.protocol import Storage, delete_all, put_once
from persistent.text.figures import shell_word
from persistent.worker.job import Job, Node

_ASIDE = (LATE, DEAD)


def claim(job: Job, manifest: Manifest) -> None:
    """Claim each sink for this job, before anything is staged or swept there. StorageError if it belongs to another
    job. InvalidPipeline if a sink is missing although the manifest lists outputs for it that must not be discarded, or
    outputs to take back."""
    _check_sinks(job, manifest)
    check_takes_as_before(job, manifest)
    for name, outlet in job.all_outlets().items():
        outlet.claim(claim_of(job, manifest, name))


def check_folder(job: Job, log: Log, manifest: Manifest) -> None:
    """Raise StorageError, before anything is written, if a sink's folder belongs to another job, or has nothing of
    what this one has published. InvalidPipeline if a sink has outputs of this job, or of one that it started from,
    under another name."""
    _check_kinds(job, manifest)
    check_takes_as_before(job, manifest)
    for name, sink in job.all_sinks.items():
        check_named_as_before(job, manifest, name)
        check_inherits(job, manifest, name)
        if "holder" in sink.abilities:
            _check_holder(job, log, manifest, name, holder(job, name))


def _check_kinds(job: Job, manifest: Manifest) -> None:
    """Raise InvalidPipeline if a sink of results has the name that the sink of late records had, or the reverse."""
    name = LATE_SINK
    part = manifest.sinks.get(name) if name in job.all_sinks else None
    if part is None or part.late == (job.late_sink is not None):
        return
    had, has = ("late records", "results") if part.late else ("results", "late records")
    raise InvalidPipeline(
        f"{job.all_sinks[name]!r} is to receive {has} under the name {name!r}, under which {had} of this job are "
        f"published: {'give it another name, sink={...}' if part.late else 'rename that sink in a new checkpoint'}"
    )


def _check_holder(job: Job, log: Log, manifest: Manifest, name: str, owner: str | None) -> None:
    if owner not in (None, manifest.job):
        # The loser of the race for the first manifest finds the winner's name here; that manifest was put before.
        newest = log.newest()
        if newest is None or newest.manifest.job != owner:
            job.all_outlets()[name].claim(claim_of(job, manifest, name))
    is_new = name not in manifest.sinks and (bool(manifest.sinks) or name not in job.sinks)
    if owner is None and manifest.publishes and not is_new:
        raise SinkMismatch(
            f"{job.all_sinks[name]!r} has none of the outputs of job {manifest.job} (no _published/JOB): its results "
            "would be split over two folders. Give the sink its old url, or move the whole old folder there; or, to "
            "publish only new results there, copy _published of the old folder"
        )


def taken_over(job: Job, manifest: Manifest, name: str, place: Inheritance) -> Inheritance:
    """The place with the number in the mark of the sink, which is claimed; unchanged once the sink has begun."""
    if name not in job.all_sinks or part_of(manifest, name).last is not None:
        return place
    newest = job.all_outlets()[name].newest(manifest.job, 0)
    return replace(place, here=None if newest is None else max(newest, 0))


def newest_ids(job: Job, manifest: Manifest) -> dict[str, int]:
    """By sink, if it reports it: the newest checkpoint with outputs there."""
    newest = {name: outlet.newest(manifest.job, manifest.revision_base) for name, outlet in job.all_outlets().items()}
    return {name: id for name, id in newest.items() if id is not None}


def shown(job: Job, newest: Mapping[str, int]) -> Trace:
    """The newest checkpoint with outputs in a sink, of these."""
    return max((Trace(id, f"{job.all_sinks[name]!r}") for name, id in newest.items()), default=Trace())


def check_has_last(job: Job, log: Log, manifest: Manifest, newest: Mapping[str, int]) -> None:
    """Raise SinkMismatch if a folder lacks the last outputs that were published under its name, as far as kept
    checkpoints tell. Such a folder is the place of another sink, given under this name, or an older copy."""
    for name, part in manifest.sinks.items():
        last = part.unpublished[0].before if part.unpublished else part.last
        if name not in job.all_sinks or last is None or "holder" not in job.all_sinks[name].abilities:
            continue
        if newest.get(name, last) < last and _was_given(log, manifest, name, last):
            raise SinkMismatch(
                f"{job.all_sinks[name]!r} has {_up_to(newest[name])}, but {name!r} was given those of checkpoint "
                f"{last}: it is the place of another sink, or an older copy, and lacks what was published since. Give "
                f"{name!r} the place that it had"
            )


def _up_to(id: int) -> str:
    return "no outputs of this job" if id < 0 else f"outputs of this job up to checkpoint {id}"


def _was_given(log: Log, manifest: Manifest, name: str, id: int) -> bool:
    """Whether a checkpoint has outputs for the sink of that name. A rollback since has an id as well, and none."""
    try:
        checkpoint = log.read(id).manifest if manifest.keeps(id) else manifest
    except CorruptCheckpoint:
        # Or collected meanwhile: whoever takes over says so.
        return False
    return any(batch.id == id for batch in checkpoint.sinks.get(name, SinkPart()).owed)


def publish(job: Job, log: Log, manifest: Manifest, *, is_own: bool = False) -> None:
    """Make visible the windows, late rows and dead letters that the manifest lists, each under the id that staged it.
    ``is_own``: this driver has just committed it.

    If one sink raises, the others still receive theirs: an unreachable sink holds back no other. InvalidPipeline,
    before anything is done, if windows are listed for a sink that the job no longer has."""
    _check_sinks(job, manifest)
    failures: dict[str, Exception] = {}
    try:
        for name, outlet in job.all_outlets().items():
            try:
                batches = batches_of(job, manifest, name, outlet.read)
                _check_whole(job, outlet, [batch for batch in batches if not is_own or batch.id != manifest.id])
                outlet.publish(batches, retreat_of(job, log, manifest, name, outlet.read))
            except Fenced:
                raise
            except Exception as error:
                failures[name] = error
        for aside in manifest.aside:
            for folder, staged in zip(_ASIDE, (aside.late, aside.dead)):
                for file in staged:
                    _publish_aside(job, aside_name(folder, aside.id, file), file)
        if failures:
            raise _named(failures, job.all_sinks)
    except StagedMissing:
        log.check(manifest.id)
        raise


def _check_whole(job: Job, outlet: Outlet, batches: Sequence[OutputBatch]) -> None:
    """Raise CorruptCheckpoint if a file that this driver has found staged has other bytes than were staged. Those of
    its own step were written just before: to read all of them again would make every driver as slow as its outputs."""
    place = outlet.damaged([file for batch in batches for file in batch.staged]) if batches else None
    if place is not None:
        url, first = shell_word(job.storage.url), batches[0].id
        raise CorruptCheckpoint(
            f"{place}: its bytes are not those that were staged, and are not published yet. Restore the file from a "
            f"copy; or go back to a checkpoint before {first}, after which the source is read again: 'persistent "
            f"history {url}' lists them, 'persistent rollback {url} ID --outputs=retract' does it"
        )


def _named(failures: Mapping[str, Exception], sinks: Collection[str]) -> Exception:
    """The error of the first sink that failed; with several sinks, it names those that lack their outputs."""
    first, *_ = failures.values()
    if len(sinks) == 1 or not isinstance(first, PersistentError):
        return first
    others = ", ".join(repr(name) for name in sinks if name not in failures)
    received = f"; {others} received theirs" if others else ""
    named = type(first)(
        f"sink {', '.join(map(repr, failures))}: {str(first).rstrip('.')}. The outputs that it lacks stay in the "
        f"checkpoint, and the next run begins with them{received}"
    )
    named.__cause__ = first
    return named


def joining_sinks(node: Node, manifest: Manifest) -> tuple[str, ...]:
    """The sinks that have no rows yet, of a state that had sinks before or came from a savepoint. The next step that
    publishes (without windows: the next end of the input) gives them every row that the state shows but final ones."""
    if not manifest.sinks_of(node.id) and manifest.origin is None:
        return ()
    lateness, names = node.state.lateness, [name for name in node.sinks if has_nothing(manifest, name)]
    if node.state.window is not None and lateness.of_changes is None:
        # What has closed is final, or is given to them in their first step, also if they refuse all of it.
        is_kept = lateness.final(0, 0) is not None
        names = [name for name in names if is_kept and (name not in manifest.sinks or manifest.sinks[name].emptied)]
    return tuple(names)


def mark_retracted(job: Job, manifest: Manifest) -> None:
    """Mark the outputs that a rollback takes back: they no longer count, even if a fenced driver still publishes them.
    Repeated, it changes nothing. InvalidPipeline, before anything is done, if a sink cannot take back."""
    if manifest.retract is None:
        return
    for sink in job.all_sinks.values():
        if not sink.abilities & {"retract", "undo"}:
            raise _cannot_take_back(job, sink, manifest)
    name = retraction_name(*_taken_back(manifest))
    put_once(job.storage, f"{RETRACTED}/{name}", f"{name}\n".encode())
    for outlet in job.all_outlets().values():
        outlet.mark(*_taken_back(manifest))


def sweep(job: Job, manifest: Manifest) -> None:
    """Delete the files staged in the sinks that no driver will publish."""
    for outlet in job.all_outlets().values():
        outlet.sweep(manifest.unpublished(), manifest.epoch, manifest.id)


def take_back(job: Job, manifest: Manifest) -> None:
    """Delete outputs published since the target of a rollback; repeated, it changes nothing. A batch sink does so when
    it publishes."""
    if manifest.retract is None:
        return
    for outlet in job.all_outlets().values():
        outlet.take_back(*_taken_back(manifest))
    delete_all(job.storage, list(_retracted_aside(job.storage, [range(*_taken_back(manifest))])))


def _taken_back(manifest: Manifest) -> tuple[int, int]:
    """The ids to take back: the first, and the id of this manifest, where they stop. They go beyond the rollback, as no
    manifest lists outputs lost or abandoned since; not higher, as a driver that fences this one publishes there."""
    assert manifest.retract is not None
    return manifest.retract[0], manifest.id


def _cannot_take_back(job: Job, sink: Sink, manifest: Manifest) -> InvalidPipeline:
    return InvalidPipeline(
        f"{job.storage.url} went back to checkpoint {manifest.target}, but {sink!r} cannot take back later "
        f"outputs. Roll back again with 'persistent rollback {shell_word(job.storage.url)} {manifest.base} "
        "--outputs=again': then later rows are published a second time"
    )


def _retracted_aside(storage: Storage, marks: Collection[range]) -> Iterator[str]:
    """The late rows and dead letters that these marks cover."""
    for folder in _ASIDE if marks else ():
        yield from (f"{folder}/{name}" for name in storage.list(folder) if is_retracted(name, marks))


def _live(manifest: Manifest, kept: Iterable[Manifest]) -> set[str]:
    return {name for old in kept for name in (*old.files(), *undoable(old.sinks))} | manifest.unpublished()


def no_longer_kept(manifest: Manifest, kept: Iterable[Manifest], dropped: Iterable[Manifest]) -> list[str]:
    """The files to delete with the ``dropped`` manifests: these, their plans, the files that only they name, and the
    staged outputs that waited at the previous checkpoint and no longer wait."""
    kept, dropped = tuple(kept), tuple(dropped)
    # With many kept manifests this is most of what a step costs, and mostly none is dropped.
    live, names = _live(manifest, kept) if dropped else set(), dict[str, None]()
    for old in dropped:
        files = garbage(sorted(old.files() | undoable(old.sinks)), live, manifest.epoch, manifest.id)
        plans = [plan_name(old.base, number) for number in range(old.replan + 1)] if old.base < manifest.oldest else []
        names |= dict.fromkeys((*files, *plans, manifest_name(old.id)))
    below = {old.id: old for old in kept if old.id < manifest.id}
    last = below[max(below)] if below else manifest
    waited = last.unpublished() - manifest.unpublished() - undoable(last.sinks)
    return [*names, *sorted(name for name in waited if name.startswith(f"{STAGED}/"))]


def delete_dropped(job: Job, manifest: Manifest, kept: Iterable[Manifest], dropped: Iterable[Manifest]) -> None:
    """Delete the files of manifests that are no longer kept."""
    delete_all(job.storage, no_longer_kept(manifest, kept, dropped))


def collect(job: Job, manifest: Manifest, kept: Iterable[Manifest], pending: StepPlan | None) -> None:
    """Delete every file that neither a kept manifest, nor the pending plan, nor an unpublished output names; and
    outputs that were published after they were taken back."""
    waiting = [STAGED] if any(isinstance(sink, BatchSink) for sink in job.all_sinks.values()) else []
    folders = dict.fromkeys((job.folder, *(node.folder for node in job.nodes.values()), *waiting))
    delete_all(job.storage, list(collectable(job.storage, folders, manifest, kept, pending)))
    for outlet in job.all_outlets().values():
        outlet.tidy()


def collectable(
    storage: Storage, folders: Iterable[str], manifest: Manifest, kept: Iterable[Manifest], pending: StepPlan | None
) -> Iterator[str]:
    """The files that ``collect`` deletes, in its order. ``folders``: those with runs of a state, or waiting outputs."""
    live = _live(manifest, kept)
    if pending is not None:
        live |= pending.files()
    # Until the plan of this base is put, a driver we have fenced may still put one that names its index runs.
    settled = manifest.kind == "checkpoint" or pending is not None
    indexes = manifest.index_folders()
    for folder in [*(folder for folder in folders if folder not in indexes), *(sorted(indexes) if settled else ())]:
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
    """The files that ``sweep`` deletes, if the sink lists them. StorageError if it belongs to another job."""
    live = {name.rpartition("/")[2] for name in manifest.unpublished()}
    names = {name.rpartition("/")[2]: name for name in outlet.staged(manifest.job)}
    return [names[name] for name in garbage(names, live, manifest.epoch, manifest.id)]


def _check_sinks(job: Job, manifest: Manifest) -> None:
    """Raise InvalidPipeline without a sink that is still needed: only the sink knows whether staged outputs were
    published, or those of an abandoned branch taken back."""
    for name in _others(job, manifest):
        if job.sinks or manifest.sinks[name].late:
            _check_not_needed(job, name, manifest)
    if job.sinks:
        return
    if manifest.retract is not None and manifest.publishes is not False:
        raise InvalidPipeline(
            f"{job.storage.url} went back to checkpoint {manifest.target}, and must take back later outputs, "
            "but this pipeline has no sink (sink=None). Run it with its old sink; or, if those rows can stay: "
            f"'persistent rollback {shell_word(job.storage.url)} {manifest.base} --outputs=again'"
        )
    if not job.discard_closed and any(part.owed for part in manifest.result_sinks().values()):
        raise InvalidPipeline(
            f"{job.storage.url}: checkpoint {manifest.base} has outputs for a sink, but this pipeline has none "
            "(sink=None): they might never be published. Run it with its old sink; or, if those outputs can be lost, "
            "with discard_closed=True"
        )


def _others(job: Job, manifest: Manifest) -> list[str]:
    """The names of the sinks that the manifest lists and the job no longer has."""
    return sorted(manifest.sinks.keys() - job.all_sinks.keys())


def _check_not_needed(job: Job, name: str, manifest: Manifest) -> None:
    """Raise InvalidPipeline if the sink of that name may still have something to publish or take back."""
    ours = ", ".join(f"{sink!r}" for sink in job.all_sinks.values()) or "none"
    url, place = job.storage.url, f"its old sink ({name!r}), but this pipeline has {ours}"
    if manifest.retract is not None and (manifest.publishes is not False or manifest.sinks[name].late):
        raise InvalidPipeline(
            f"{url} went back to checkpoint {manifest.target}, and must take back later outputs from "
            f"{place}. Run it with its old sink; or, if those rows can stay: 'persistent rollback {shell_word(url)} "
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
