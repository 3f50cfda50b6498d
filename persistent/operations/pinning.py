"""Pinning keeps a checkpoint, and every file that it names, until it is unpinned."""

from __future__ import annotations

from contextlib import suppress

from persistent.checkpoint.commit_change import Decision, Location, Manifests, commit_change, log_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.successor import Entry
from persistent.errors import CorruptCheckpoint, UnknownCheckpoint


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
