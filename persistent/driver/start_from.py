"""A job starts from a savepoint when its empty checkpoint gets a copy of it as its first content."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from persistent.checkpoint.commit_change import Decision, Manifests, commit_change
from persistent.checkpoint.copies import Target, copied_while_running, renumbered, renumbered_source
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Inheritance
from persistent.driver.commit import check_can_begin
from persistent.driver.evolution import Evolutions, adapted, adopted
from persistent.driver.same_job import check_same_job
from persistent.errors import NoCheckpoint, OtherJob
from persistent.storage.protocol import Storage
from persistent.time.clock import wall_ms

logger = logging.getLogger("persistent.driver.start_from")


def start(
    storage: Storage,
    first: Manifest,
    origin: Storage,
    evolve: Evolutions = MappingProxyType({}),
    dropped: Sequence[str] = (),
) -> None:
    """Start this checkpoint from ``origin``: an empty one becomes a copy of it; one that began there stays as it is.

    ``first``: the empty checkpoint of the job. The new job has an id of its own, and its sink a folder of its own, or
    the place of the old job in a sink that keeps a mark.

    Outputs of the old job, published or only staged, are not included. After a kill at any point, the next start
    completes it. OtherJob if the checkpoint began otherwise, or ``origin`` belongs to another job. The state of an old
    task is copied unchanged: the first driver migrates it, according to ``evolve`` and ``dropped``.
    """
    log, theirs = Log(storage), Log(origin)
    own_newest = log.newest()
    if own_newest is not None and own_newest.manifest.base != 0:
        _check_origin(own_newest.manifest, theirs, storage.url)
        return
    newest = theirs.newest() if theirs.ids() else None
    if newest is None:
        raise NoCheckpoint(
            f"start_from={origin.url!r}: no checkpoint exists there, or the savepoint is unfinished: make it again"
        )
    check_can_begin(first)
    adapted(newest.manifest, first, evolve, dropped, origin.url)
    log.create(first)

    def decide(manifests: Manifests) -> Decision | None:
        if manifests.newest.manifest.base != 0:
            # Another driver has begun meanwhile.
            _check_origin(manifests.newest.manifest, theirs, storage.url)
            return None
        # It can be of the old task: from a start that died, whose contents are ours to give.
        check_same_job(adopted(manifests.newest.manifest, first), first, storage.url)
        return Decision("savepoint", write=lambda attempt: _copied(theirs, Target(storage, attempt)))

    commit_change(log, decide, take_over=True)


def _copied(theirs: Log, target: Target) -> dict[str, Any]:
    """The fields of the new job, once all runs are copied."""
    copy, now_ms = copied_while_running(theirs, None, lambda entry: target), wall_ms()
    logger.info("%s starts from checkpoint %d of %s", target.storage.url, copy.id, theirs.storage.url)
    return {
        "sources": {name: renumbered_source(source) for name, source in copy.sources.items()},
        "tasks": copy.tasks,
        "nodes": {name: renumbered(node) for name, node in copy.nodes.items()},
        "commits": ((target.attempt.id, now_ms),),
        "committed_ms": now_ms,
        "origin": (copy.job, copy.id),
        "revision_base": copy.revision,
        "inherits": _inherited(copy),
        "not_after": copy.not_after,
        "corrections": copy.corrections,
    }


def _inherited(copy: Manifest) -> dict[str, Inheritance]:
    """The place of the old job in its sink. A savepoint has an id of its own, and publishes nothing under it."""
    holder = copy.origin[0] if copy.origin is not None and copy.kind == "savepoint" else copy.job
    places = {}
    # A job that has begun without a sink goes on without its place.
    for name in copy.sinks or copy.inherits:
        before, part = copy.inherits.get(name, Inheritance((), 0)), copy.sinks.get(name)
        node = before.node if part is None else part.node
        if part is None or part.last is None:
            number = before.number if before.here is None else before.here
            places[name] = Inheritance((*before.jobs, copy.job, holder), number, node, empty=before.empty)
        else:
            number = copy.revision_base + part.last
            places[name] = Inheritance((copy.job, holder), number, node, empty=part.emptied)
    return places


def _check_origin(manifest: Manifest, theirs: Log, url: str) -> None:
    """Raise OtherJob unless the checkpoint began there. A place that no longer exists is not compared."""
    newest = theirs.newest() if theirs.ids() else None
    if manifest.origin is not None and (newest is None or newest.manifest.job == manifest.origin[0]):
        return
    began = "with nothing" if manifest.origin is None else f"from checkpoint {manifest.origin[1]} of another job"
    raise OtherJob(
        f"{url} began {began}, not from start_from={theirs.storage.url!r}. Omit start_from to continue this "
        "checkpoint, or give the pipeline a new one (and its sink a new folder)"
    )
