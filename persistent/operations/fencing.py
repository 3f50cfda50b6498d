"""An operation fences a checkpoint before it writes, so that no driver commits meanwhile."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.corrections import left_shown_text
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import new_nonce
from persistent.checkpoint.running import Mark, marks
from persistent.checkpoint.running import check_not_running as check_no_driver
from persistent.checkpoint.running import running as running_drivers
from persistent.checkpoint.subfolder import open_checkpoint
from persistent.checkpoint.successor import Entry
from persistent.errors import StillRunning
from persistent.storage import Storage

logger = logging.getLogger("persistent.operations")

_SESSIONS = (
    ". Sessions need the id of this rollback instead, undone=%d; if they are published as they change, only another "
    "rollback, with --outputs=retract, takes them back"
)

Location = str | os.PathLike[str] | Storage
"""A checkpoint: its storage or its URL."""


def log_of(place: Location) -> Log:
    return Log(open_checkpoint(place))


def running(log: Log, epoch: int) -> list[Mark]:
    """The drivers that may run: those with an unfenced mark."""
    return running_drivers(log.storage, epoch)


def check_not_running(log: Log, epoch: int, *, take_over: bool) -> None:
    """StillRunning if a driver of this epoch or a later one may run, unless ``take_over``."""
    check_no_driver(log.storage, epoch, take_over=take_over)


def check_none_runs(log: Log) -> None:
    """StillRunning if a driver certainly runs; one that may have died is ignored."""
    found = [mark for mark in marks(log.storage) if mark.runs]
    newest = log.newest() if found else None
    for mark in found if newest is not None else ():
        if newest is not None and mark.epoch >= newest.manifest.epoch:
            raise StillRunning(
                f"{log.storage.url}: a driver runs: {mark}. Stop it (SIGTERM ends it at a step's edge); or take over: "
                "with --take-over that driver is fenced and commits nothing more"
            )


def fenced(
    log: Log,
    *,
    take_over: bool,
    upgrade: bool = False,
    changes: Callable[[Manifest], Mapping[str, Any]] | None = None,
    goes_back: bool = False,
) -> Entry:
    """Put a fence: the newest state under a new epoch.

    ``changes``, ``upgrade``: as in ``Log.fence``. Raises CorruptCheckpoint if a newer manifest is lost, unless the
    operation ``goes_back`` behind it.
    """
    newest = newest_of(log)
    check_not_running(log, newest.manifest.epoch, take_over=take_over)
    above = log.check_whole(newest.manifest, goes_back=goes_back)
    fence = log.fence(newest, new_nonce(), upgrade=upgrade, changes=changes, above=above)
    log.check(fence.manifest.id)
    return fence


def committed(log: Log, manifest: Manifest, before: Manifest | None = None) -> Entry:
    """Put a manifest. Also Fenced if its id is free only because another driver collected it meanwhile. ``before``: the
    newest that it goes back behind; what that leaves to be seen of corrections is logged."""
    entry = log.put(manifest)
    log.check(manifest.id)
    gone = {} if before is None else {**before.corrections}
    for name in manifest.corrections:
        gone.pop(name, None)
    # Of those up to the target the outputs stay, even if all later ones are taken back.
    shown = manifest.target if manifest.retract is not None and manifest.target is not None else manifest.id
    undone = [name for name, one in gone.items() if one.checkpoint <= shown and not one.is_neutral]
    if undone and before is not None and before.result_sinks():
        states = [one.state for one in before.operators.values()]
        is_of_sessions = manifest.kind == "rollback" and any(state.has_sessions for state in states)
        said = left_shown_text(undone) + (_SESSIONS % manifest.id if is_of_sessions else "")
        logger.warning("%s: %s", log.storage.url, said)
    return entry
