"""Pinning keeps a checkpoint, and every file that it names, until it is unpinned."""

from __future__ import annotations

from contextlib import suppress

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.successor import Entry
from persistent.errors import CorruptCheckpoint, UnknownCheckpoint
from persistent.operations.fencing import Location, fenced, log_of


def _why_none(log: Log, id: int) -> str:
    """Why there is no checkpoint of that id to pin, though the history may list it."""
    found = None
    with suppress(CorruptCheckpoint):
        found = log.read(id).manifest if id in log.ids() else None
    if found is None or found.base == id:
        return f"{log.storage.url} keeps no checkpoint {id}"
    what = f"{id} is a {found.kind} of checkpoint {found.base}, and no checkpoint of its own"
    return f"{log.storage.url}: {what}"


def pin(storage: Location, id: int, *, remove: bool = False, take_over: bool = False) -> Entry:
    """Keep checkpoint ``id`` whatever the retention policy; ``remove``: unpin it.

    Pins survive steps, fences and rollbacks. The next collection deletes unpinned files. If nothing changes, returns
    the newest manifest. Raises UnknownCheckpoint with the kept ids; StillRunning.
    """
    log = log_of(storage)

    def pins(manifest: Manifest) -> tuple[int, ...]:
        if remove:
            if id not in manifest.pins:
                there = ", ".join(map(str, manifest.pins)) or "none"
                raise UnknownCheckpoint(f"{log.storage.url}: checkpoint {id} is not pinned; pinned: {there}")
            return tuple(one for one in manifest.pins if one != id)
        if id not in manifest.bases:
            kept = ", ".join(map(str, sorted(manifest.bases)))
            raise UnknownCheckpoint(f"{_why_none(log, id)}; it keeps {kept}")
        return tuple(sorted({*manifest.pins, id}))

    newest = newest_of(log)
    log.check_upgraded(newest.manifest)
    if pins(newest.manifest) == newest.manifest.pins:
        return newest
    return fenced(log, take_over=take_over, changes=lambda manifest: {"pins": pins(manifest)})
