"""To collect garbage is to delete what no kept checkpoint names, by the manifests and never by age."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.errors import CorruptCheckpoint
from persistent.operations.entering import Place, fenced, log_of, running
from persistent.publish import collectable


def collect_garbage(storage: Place, *, dry_run: bool = False, take_over: bool = False) -> tuple[str, ...]:
    """Delete the runs, manifests, plans and marks that are no part of a kept checkpoint; returns their names.

    ``dry_run``: only say which; of a job that runs, those that its own driver would delete. What its sink has staged is
    swept by the next run, which knows the sink. StillRunning; CorruptCheckpoint where a kept manifest cannot be read:
    then nobody can say what is garbage.
    """
    log = log_of(storage)
    if dry_run:
        newest = newest_of(log).manifest
        if take_over or not running(log, newest.epoch):
            newest = replace(newest, id=newest.id + 1, epoch=newest.epoch + 1, kind="fence")
        return tuple(_names(log, newest))
    manifest = fenced(log, take_over=take_over).manifest
    log.check(manifest.id)
    names = []
    for name in _names(log, manifest):
        log.storage.delete(name)
        names.append(name)
    return tuple(names)


def _names(log: Log, manifest: Manifest) -> Iterator[str]:
    kept = log.kept(manifest)
    folders = dict.fromkeys(f"d/{name}" for one in _readable(log, kept) for name in one.operators)
    pending = log.plan(manifest.base, manifest.replan)
    yield from collectable(log.storage, folders, manifest, kept.values(), pending)
    for name in log.storage.list("r"):
        if not name.startswith(f"e{manifest.epoch}-"):
            yield f"r/{name}"


def _readable(log: Log, kept: dict[int, Manifest]) -> Iterator[Manifest]:
    """Also manifests that are no longer kept: an operator that was dropped may be named by them alone."""
    yield from kept.values()
    for id in log.ids():
        if id not in kept:
            with suppress(CorruptCheckpoint):
                yield log.read(id).manifest
