"""An operation looks and decides, fences, looks and decides again, writes, and puts one manifest.

    look     the manifests that can be read
    decide   what changes, as a function of them, and of what sources, folds and other logs say; or raise why not
    fence    the newest state under a new epoch: no driver commits any more
    write    the files of the change, under the epoch and the id of its manifest
    put      the manifest, unless another driver came first

An operation that is refused at first leaves no fence. An operation that dies leaves the job as it was or as it is to
be, and can be repeated. No fence is possible over a lost newest manifest: the change is put above every id that was
used, and its epoch is its id, because epochs never exceed ids.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log, Trace
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.running import check_not_running
from persistent.checkpoint.successor import Entry, succeed
from persistent.errors import CorruptCheckpoint, NewerFormat
from persistent.names import Attempt, new_nonce
from persistent.storage.protocol import Storage
from persistent.storage.subfolder import open_checkpoint

logger = logging.getLogger("persistent.operations")

Location = str | os.PathLike[str] | Storage
"""A checkpoint: its storage or its URL."""


def log_of(place: Location) -> Log:
    return Log(open_checkpoint(place))


@dataclass(frozen=True)
class Manifests:
    """The manifests of a log that an operation decides by.

    ``newest``: the newest that can be read. ``attempt``: epoch and id of the manifest that the operation would put.
    ``is_lost``: whether a manifest above the newest is damaged, so that no fence is possible. ``entries``: all that can
    be read and are kept, by id; ``unreadable``: the ids of the others, and an id that is never to be used. ``above``:
    the highest id whose manifest is lost, as a trace shows; -1 if there is none.
    """

    newest: Entry
    attempt: Attempt
    is_lost: bool = False
    entries: Mapping[int, Entry] = field(default_factory=dict)
    unreadable: tuple[int, ...] = ()
    above: int = -1

    def bases(self) -> dict[int, Manifest]:
        """The readable manifests that name files of their own, and are kept."""
        known = self.newest.manifest.bases
        return {id: entry.manifest for id, entry in self.entries.items() if id in known}

    def keeps(self, target: Manifest) -> bool:
        """Whether no driver may delete a file of ``target``: kept checkpoints name all its files; or ``target`` is a
        fence of a kept checkpoint that is damaged, and nothing is collected until the damage is mended."""
        damaged = self.newest.manifest.bases.keys() - self.entries.keys()
        if any(target.base <= id <= target.id for id in damaged):
            return True
        kept = [self.newest.manifest, *self.bases().values()]
        return target.files() <= {name for manifest in kept for name in manifest.files()}

    def may_lose(self, target: Manifest) -> bool:
        """Whether a driver that no fence has stopped may be deleting files of ``target``: the driver of a later, lost
        manifest, of which nobody knows what it keeps."""
        return any(id > target.id for id in (*self.newest.manifest.burnt, *self.unreadable, self.above))


def look_at_newest(log: Log) -> Manifests:
    """The newest manifest alone. NoCheckpoint; CorruptCheckpoint if it is damaged."""
    return after(newest_of(log))


def after(newest: Entry) -> Manifests:
    """What is decided after this manifest alone."""
    return Manifests(newest, Attempt(newest.manifest.epoch, newest.manifest.id + 1))


def look_at_all(log: Log) -> Manifests:
    """All kept manifests that can be read. NewerFormat if one needs a newer release: that one is sound."""
    _check_begun(log)
    entries, unreadable = dict[int, Entry](), list[int]()
    ids = log.ids()
    for id in reversed(ids):
        newest = entries[max(entries)].manifest if entries else None
        if newest is not None and not newest.keeps(id):
            continue
        try:
            entries[id] = log.read(id)
        except NewerFormat:
            raise
        except CorruptCheckpoint:
            if id in log.ids():
                unreadable.append(id)
            elif not entries:  # A driver that runs has collected it, and perhaps all that was listed.
                return look_at_all(log)
    if not entries:
        raise CorruptCheckpoint(f"{log.storage.url}: no manifest can be read: restore the folder from a copy")
    look = replace(after(entries[max(entries)]), entries=entries, unreadable=tuple(sorted(unreadable)))
    if ids[-1] == look.newest.manifest.id:
        return look
    lost = log.lost(ids[-1], ids[-1]) or Trace()
    id = max(ids[-1], lost.id) + 1
    return replace(look, attempt=Attempt(id, id), is_lost=True, unreadable=(*look.unreadable, id - 1))


def _check_begun(log: Log) -> None:
    """Raise unless the checkpoint has a good FORMAT: only manifests may be damaged, and none may be of a newer
    release."""
    try:
        newest_of(log)
    except NewerFormat:
        raise
    except CorruptCheckpoint as error:
        if f"{log.storage.url}/FORMAT" in str(error):
            raise


@dataclass(frozen=True)
class Decision:
    """What an operation changes: the fields of a manifest of this ``kind``, by the table of succession. A fence carries
    its fields itself. ``write`` writes files under the names of an attempt, and returns the fields that name them."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[Attempt], Mapping[str, Any]] | None = None


Decide = Callable[[Manifests], Decision | None]
"""What to change; None if there is nothing to do. It changes nothing itself."""


def commit_change(
    log: Log,
    decide: Decide,
    *,
    look: Callable[[Log], Manifests] = look_at_newest,
    take_over: bool = False,
    goes_back: bool = False,
) -> Entry:
    """Commit what ``decide`` decides, and return its manifest; the newest one if there is nothing to do.

    ``goes_back``: the operation goes back behind manifests that are lost, and decides the fate of their outputs. Else
    CorruptCheckpoint if one is lost. StillRunning if a driver may run, unless ``take_over``; Fenced if another driver
    came first.
    """
    seen = look(log)
    check_not_running(log.storage, seen.newest.manifest.epoch, take_over=take_over)
    decision = decide(seen)
    if decision is None:
        return seen.newest
    if not (goes_back and seen.is_lost):
        newest = newest_of(log)
        above = log.check_whole(newest.manifest, goes_back=goes_back)
        fields = _fields(decide) if decision.kind == "fence" else None
        fence = log.fence(newest, new_nonce(), changes=fields, above=above)
        log.check(fence.manifest.id)
        if decision.kind == "fence":
            return fence
        seen = replace(look(log), above=above)
        log.check(fence.manifest.id)
        decision = decide(seen)
    return seen.newest if decision is None else put_change(log, seen, decision)


def _fields(decide: Decide) -> Callable[[Entry], Mapping[str, Any]]:
    """The fields of a fence, decided over whatever manifest it follows."""

    def fields(last: Entry) -> Mapping[str, Any]:
        decision = decide(after(last))
        return {} if decision is None else decision.fields

    return fields


def put_change(log: Log, seen: Manifests, decision: Decision) -> Entry:
    """Write the files of a decision, and put its manifest after the newest that was ``seen``. Fenced if another driver
    came first, also if its id is free only because that driver has collected it meanwhile."""
    last, attempt = seen.newest, seen.attempt
    with log.unless_fenced(attempt.id - 1):
        written = {} if decision.write is None else decision.write(attempt)
    entry = log.put(succeed(last, decision.kind, id=attempt.id, **decision.fields, **written))
    log.check(attempt.id)
    return entry
