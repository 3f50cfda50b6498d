"""A savepoint is a self-contained copy of one checkpoint: a folder to keep, move, read, or start a job from.

Pinning keeps a checkpoint, and every file that it names, until it is unpinned.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from persistent.checkpoint.commit_change import Decision, Location, Manifests, commit_change, log_of
from persistent.checkpoint.copies import OnProgress, Target, checkpoint_at, copied_while_running, newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, check_name
from persistent.checkpoint.successor import Entry
from persistent.errors import CorruptCheckpoint, Fenced, Refused, UnknownCheckpoint
from persistent.names import CLAIM, Attempt, new_nonce
from persistent.storage.protocol import delete_all, put_once
from persistent.storage.subfolder import savepoint_folder


def savepoint(storage: Location, name: str, *, at: int | None = None, on_progress: OnProgress | None = None) -> str:
    """Copy the newest checkpoint, or checkpoint ``at``, to ``URL/s/NAME``; returns that URL.

    The job can run, and is not fenced. If it collects files that are being copied, the copy begins again with the
    newest checkpoint. The copy is a checkpoint with one manifest and a job id of its own, readable like any other;
    ``Pipeline(start_from=URL)`` starts from it. It contains no published outputs, late rows or dead letters, and no
    staged outputs that were not yet published.

    Its manifest is put last: an interrupted copy is not a checkpoint, and the same call repeats it. Of several
    concurrent calls one succeeds. Raises Refused if the name is invalid or taken; UnknownCheckpoint. ``on_progress``
    receives the bytes copied and the total bytes.
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
    if _is_claimed(there):
        return _completed(there, checkpoint_at(log, at).manifest.base)

    def target(entry: Entry) -> Target:
        return Target(there.storage, Attempt(0, entry.manifest.base))

    copy = copied_while_running(log, at, target, on_progress)
    ours = _alone(copy, there.begin(new_nonce()))
    won = _claimed(there, ours)
    _put(there, won)
    if won.nonce != ours.nonce:
        delete_all(there.storage, sorted(copy.files() - won.files()))
        raise Refused(
            f"{there.storage.url}: another savepoint of this name was created meanwhile, of checkpoint {won.id}"
        )
    return there.storage.url


def _claimed(there: Log, ours: Manifest) -> Manifest:
    """The manifest of this savepoint: ours, or the manifest of an earlier call."""
    claim = put_once(there.storage, CLAIM, ours.encode())
    return Manifest.decode(claim, f"{there.storage.url}/{CLAIM}")


def _is_claimed(there: Log) -> bool:
    return CLAIM in there.storage.list("")


def _completed(there: Log, base: int) -> str:
    """The URL of a savepoint, after completing an interrupted call. Refused if that call copied a checkpoint other than
    ``base``."""
    data = there.storage.read(CLAIM).to_pybytes()
    won = Manifest.decode(data, f"{there.storage.url}/{CLAIM}")
    _put(there, won)
    if won.id != base:
        raise Refused(
            f"{there.storage.url}: a call that was interrupted, or still runs, created this savepoint of checkpoint "
            f"{won.id}, not of {base}. It is complete; choose another name"
        )
    return there.storage.url


def _put(there: Log, won: Manifest) -> None:
    """Put the manifest. Every run was put before the claim, by whichever call made it."""
    try:
        there.put(won)
    except Fenced as error:
        raise Refused(f"{there.storage.url}: another savepoint of this name was created meanwhile") from error
    if there.ids() == [won.id]:
        _sweep(there, won)


def _check_free(there: Log) -> None:
    if there.ids():
        raise Refused(f"{there.storage.url}: a savepoint of this name exists; choose another")


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
        sinks={name: replace(sink, unpublished=()) for name, sink in copy.sinks.items()},
        aside=(),
        fences=0,
        replan=0,
        pins=(),
        commits=((copy.base, copy.committed_ms),),
        burnt=(),
        target=None,
        left=(),
        retract=None,
        origin=(copy.job, copy.base),
    )


def _sweep(there: Log, won: Manifest) -> None:
    """Delete files of interrupted or losing attempts."""
    files = won.files()
    for folder in sorted(won.folders() | won.index_folders()):
        names = [f"{folder}/{name}" for name in there.storage.list(folder)]
        delete_all(there.storage, [name for name in names if name not in files])


def _why_none(log: Log, id: int) -> str:
    """Why there is no checkpoint of that id to pin, though the history may list it."""
    manifest = None
    with suppress(CorruptCheckpoint):
        manifest = log.read(id).manifest if id in log.ids() else None
    if manifest is None or manifest.base == id:
        return f"{log.storage.url} keeps no checkpoint {id}"
    what = f"{id} is a {manifest.kind} of checkpoint {manifest.base}, and no checkpoint of its own"
    return f"{log.storage.url}: {what}"


def pin(storage: Location, id: int, *, remove: bool = False, take_over: bool = False) -> Entry:
    """Keep checkpoint ``id`` whatever the retention policy; ``remove``: unpin it.

    Pins survive steps, fences and rollbacks. The next collection deletes unpinned files. If nothing changes, returns
    the newest manifest. Raises UnknownCheckpoint with the kept ids; StillRunning.
    """
    log = log_of(storage)

    def decide(manifests: Manifests) -> Decision | None:
        manifest = manifests.newest.manifest
        if remove and id not in manifest.pins:
            there = ", ".join(map(str, manifest.pins)) or "none"
            raise UnknownCheckpoint(f"{log.storage.url}: checkpoint {id} is not pinned; pinned: {there}")
        if not remove and id not in manifest.bases:
            kept = ", ".join(map(str, sorted(manifest.bases)))
            raise UnknownCheckpoint(f"{_why_none(log, id)}; it keeps {kept}")
        pins = {*manifest.pins} - {id} if remove else {*manifest.pins, id}
        return None if pins == {*manifest.pins} else Decision("fence", {"pins": tuple(sorted(pins))})

    return commit_change(log, decide, take_over=take_over)
