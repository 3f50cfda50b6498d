"""Garbage collection deletes files that no kept checkpoint names. Manifests decide, never file ages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace

from persistent.checkpoint.commit_change import Decision, Location, commit_change, log_of
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.running import fenced_marks, running
from persistent.connect.outlet import outlet
from persistent.connect.sink import Claim, Sink
from persistent.driver.naming import named_sinks
from persistent.driver.publish import collectable, sweepable
from persistent.errors import CorruptCheckpoint, NewerFormat
from persistent.names import STAGED
from persistent.storage.protocol import Storage
from persistent.text.figures import shell_word


def collect_garbage(
    storage: Location,
    *,
    sink: Sink | Mapping[str, Sink] | None = None,
    dry_run: bool = False,
    take_over: bool = False,
) -> tuple[str, ...]:
    """Delete runs, manifests, plans and marks outside kept checkpoints, and staged files of ``sink`` (one, or several
    by name) that will never be published; returns their names, those in a sink with its URL.

    ``dry_run``: only return the names; for a running job, those that its own driver would delete. Without ``sink`` its
    staged files are left to the next run. Raises StillRunning; CorruptCheckpoint if a kept manifest cannot be read,
    because garbage is unknown then; StorageError if the sink belongs to another job.
    """
    log, sinks = log_of(storage), named_sinks(sink).values()
    if dry_run:
        newest, known, pending = _read(log)
        if take_over or not running(log.storage, newest.epoch):
            newest = replace(newest, id=newest.id + 1, epoch=newest.epoch + 1, kind="fence")
        waiting = (name for each_sink in sinks for name in _staged_names(each_sink, log.storage, newest))
        return (*_names(log, newest, {**known, newest.id: newest}, pending), *waiting)
    # Before the fence: if a manifest cannot be read, nothing has changed.
    _, known, _ = _read(log)
    manifest = commit_change(log, lambda manifests: Decision("fence"), take_over=take_over).manifest
    staged = [_staged_names(each_sink, log.storage, manifest) for each_sink in sinks]
    for each_sink in (each_sink for each_sink, files in zip(sinks, staged, strict=True) if files):
        place = outlet(each_sink, log.storage)
        place.claim(Claim(manifest.job))
        place.sweep(sorted(manifest.unpublished()), manifest.epoch, manifest.id)
    names = [name for files in staged for name in files]
    pending = log.plan(manifest.base, manifest.replan)
    for name in _names(log, manifest, log.kept(manifest, known), pending):
        log.storage.delete(name)
        names.append(name)
    return tuple(names)


def _staged_names(sink: Sink, storage: Storage, manifest: Manifest) -> list[str]:
    """The staged files of a sink to delete, each with its place."""
    place = "sink" if sink.storage is None else sink.storage.url
    return [f"{place}/{name}" for name in sweepable(outlet(sink, storage), manifest)]


def _read(log: Log) -> tuple[Manifest, dict[int, Manifest], StepPlan | None]:
    """The newest manifest, the manifests whose files are kept, and the pending plan, all of which must be readable. If
    the job commits meanwhile, all are read again, until they are of one moment."""
    newest = newest_of(log).manifest
    try:
        return newest, log.kept(newest), log.plan(newest.base, newest.replan)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        if newest_of(log).manifest.id == newest.id:
            url = log.storage.url
            raise CorruptCheckpoint(
                f"{error}. What it names is unknown, and would be taken for garbage. Nothing was deleted. Restore the "
                f"file from a copy of {url}; or 'persistent verify {shell_word(url)}' says how to continue without it"
            ) from error
        return _read(log)


def _names(log: Log, manifest: Manifest, kept: dict[int, Manifest], pending: StepPlan | None) -> Iterator[str]:
    folders = dict.fromkeys(folder for readable in _readable(log, kept) for folder in sorted(readable.folders()))
    yield from collectable(log.storage, [*folders, STAGED], manifest, kept.values(), pending)
    yield from fenced_marks(log.storage, manifest.epoch)


def _readable(log: Log, kept: dict[int, Manifest]) -> Iterator[Manifest]:
    """All readable manifests. A dropped node may be named only by a manifest that is no longer kept."""
    yield from kept.values()
    for id in log.ids():
        if id not in kept:
            with suppress(CorruptCheckpoint):
                yield log.read(id).manifest
