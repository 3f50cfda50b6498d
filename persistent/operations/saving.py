"""A savepoint is a self-contained copy of one checkpoint: a folder that can be kept, moved, read and started from."""

from __future__ import annotations

from dataclasses import replace

from persistent.checkpoint.copies import Progress, Target, copied_while_running, newest_of
from persistent.checkpoint.inside import savepoint_folder
from persistent.checkpoint.log import Entry, Log, new_nonce
from persistent.checkpoint.manifest import FORMAT, Manifest, check_name
from persistent.errors import Fenced, Refused
from persistent.operations.entering import Place, log_of


def savepoint(storage: Place, name: str, *, at: int | None = None, on_progress: Progress | None = None) -> str:
    """Copy the newest checkpoint, or checkpoint ``at``, to ``URL/s/NAME``; returns that URL.

    The job may run: it is neither fenced nor touched, and where it collects what is being copied, the copy begins anew
    with what is newest then. The copy is a checkpoint of one manifest, of a job of its own:
    ``Pipeline(start_from=URL)`` begins with it, and it can be read like any other. What the job has published, late
    rows and dead letters among it, is no part of it; nor is what it had staged at that moment and not yet published.

    Its manifest is put last: one that was cut off is no checkpoint, and the same call makes it again. Refused where the
    name is none or is taken; UnknownCheckpoint. ``on_progress`` is called with bytes done and of how many.
    """
    log = log_of(storage)
    try:
        check_name(name, "savepoint")
    except ValueError as error:
        raise Refused(f"{log.storage.url}: {error}") from error
    there = Log(savepoint_folder(log.storage, name))
    _check_free(there)
    if at is None:
        log.check_whole(newest_of(log).manifest)

    def target(entry: Entry) -> Target:
        return Target(there.storage, 0, entry.manifest.base)

    copy = copied_while_running(log, at, target, on_progress)
    job = there.begin(new_nonce())
    try:
        there.put(_alone(copy, job))
    except Fenced as error:
        raise Refused(f"{there.storage.url}: another savepoint of this name was made meanwhile") from error
    _sweep(there, copy)
    return there.storage.url


def _check_free(there: Log) -> None:
    if there.ids():
        raise Refused(f"{there.storage.url}: there is a savepoint of this name; choose another")


def _alone(copy: Manifest, job: str) -> Manifest:
    """The manifest as the first and only one of its checkpoint."""
    return replace(
        copy,
        job=job,
        id=copy.base,
        kind="savepoint",
        oldest=copy.base,
        epoch=0,
        nonce=new_nonce(),
        parent=None,
        outputs=(),
        fences=0,
        replan=0,
        pins=(),
        bases={copy.base: copy.committed_ms},
        burnt=(),
        target=None,
        left=(),
        retract=None,
        origin=(copy.job, copy.base),
        format=FORMAT,
    )


def _sweep(there: Log, copy: Manifest) -> None:
    """Delete what earlier attempts have left."""
    for folder in sorted({f"d/{name}" for name in (*copy.operators, copy.source.kind)}):
        for name in there.storage.list(folder):
            if f"{folder}/{name}" not in copy.files():
                there.storage.delete(f"{folder}/{name}")
