"""A copy of a checkpoint holds the same runs under new names, each read to its last byte and verified on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SourcePart
from persistent.checkpoint.runs import write_new
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import Run
from persistent.codec.sealed import decode_table
from persistent.errors import CorruptCheckpoint, NoCheckpoint, Refused, UnknownCheckpoint
from persistent.names import Attempt
from persistent.storage.protocol import Storage

_TRIES_MAX = 10

T = TypeVar("T")
OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the total."""


@dataclass(frozen=True)
class Target:
    """Where copies go, and the attempt that makes them."""

    storage: Storage
    attempt: Attempt


def verified_runs(storage: Storage, manifest: Manifest) -> Iterator[tuple[Run, pa.Buffer]]:
    """Every run that the manifest names, with its bytes. CorruptCheckpoint at the first that is missing or differs."""
    for run in manifest.all_runs():
        place = f"{storage.url}/{run.name}"
        try:
            data = storage.read(run.name)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{place}: missing, although checkpoint {manifest.id} names it") from error
        if data.size != run.bytes:
            raise CorruptCheckpoint(
                f"{place}: has {data.size:,} bytes, but {run.bytes:,} according to checkpoint {manifest.id}"
            )
        decode_table(data, run.sha256, place)
        yield run, data


def copied(source: Storage, manifest: Manifest, target: Target, on_progress: OnProgress | None = None) -> Manifest:
    """The manifest with the names of the copied runs, once all copies are written."""
    all_bytes = sum(run.bytes for run in manifest.all_runs())
    done_bytes = 0
    names: dict[str, str] = {}
    for run, data in verified_runs(source, manifest):
        folder = run.name.rpartition("/")[0]
        names[run.name] = write_new(target.storage, folder, target.attempt, data)
        done_bytes += run.bytes
        if on_progress is not None:
            on_progress(done_bytes, all_bytes)

    def renamed(runs: tuple[Run, ...]) -> tuple[Run, ...]:
        return tuple(replace(run, name=names[run.name]) for run in runs)

    return replace(
        manifest,
        nodes={name: replace(node, runs=renamed(node.runs)) for name, node in manifest.nodes.items()},
        sources={name: with_runs(source, renamed) for name, source in manifest.sources.items()},
    )


def with_runs(source: SourcePart, changed: Callable[[tuple[Run, ...]], tuple[Run, ...]]) -> SourcePart:
    """The same source with its runs changed."""
    seen = source.seen and replace(source.seen, runs=changed(source.seen.runs))
    return replace(source, index=changed(source.index), seen=seen)


def copied_while_running(
    log: Log, at: int | None, target: Callable[[Entry], Target], on_progress: OnProgress | None = None
) -> Manifest:
    """A copy of checkpoint ``at``, by default the newest, while the job can be running. If a driver collects the newest
    meanwhile, its successor is copied; UnknownCheckpoint if ``at`` is collected."""
    return read_while_running(
        log,
        lambda: checkpoint_at(log, at),
        lambda entry: copied(log.storage, entry.manifest, target(entry), on_progress),
    )


def read_while_running(log: Log, find: Callable[[], Entry], read: Callable[[Entry], T]) -> T:
    """Find a checkpoint and read it, while the job can be running. If a driver collects it meanwhile, find another. So
    CorruptCheckpoint means damage; Refused means that the job is too fast."""
    for _ in range(_TRIES_MAX):
        entry = find()
        try:
            return read(entry)
        except CorruptCheckpoint:
            if newest_of(log).manifest.keeps(entry.manifest.id):
                raise
    raise Refused(
        f"{log.storage.url}: the job commits faster than a checkpoint can be read ({_TRIES_MAX} attempts). Stop it, "
        "pin a checkpoint, and read that one"
    )


def newest_of(log: Log) -> Entry:
    """The newest manifest. NoCheckpoint if there is none."""
    newest = log.newest()
    if newest is None:
        raise NoCheckpoint(f"{log.storage.url}: there is no checkpoint here; check the URL, or run the pipeline first")
    return newest


def checkpoint_at(log: Log, id: int | None) -> Entry:
    """Checkpoint ``id``, by default the newest. UnknownCheckpoint if it is not kept."""
    newest = newest_of(log)
    if id is None or id == newest.manifest.id:
        return newest
    check_kept(log, newest.manifest, id)
    try:
        return log.read(id)
    except CorruptCheckpoint:
        # It was collected since we looked, or is damaged.
        check_kept(log, newest_of(log).manifest, id)
        raise


def check_kept(log: Log, newest: Manifest, id: int) -> None:
    """Raise UnknownCheckpoint, with the kept ids, unless ``id`` is one of them."""
    kept = [number for number in log.ids() if newest.keeps(number)]
    if id not in kept:
        ids = ", ".join(map(str, kept))
        raise UnknownCheckpoint(f"{log.storage.url} keeps no checkpoint {id}; it keeps {ids}")


def renumbered(node: NodePart) -> NodePart:
    """The same node in another job, which is at its second manifest: its runs sum the deltas numbered from 0 to 2.

    Published runs stay apart from unpublished ones; runs that a fold has begun, and later ones, from earlier ones.
    """
    runs = node.runs
    published = sum(run.last <= node.published for run in runs)
    first = min((run.first for run in runs if run.low > run.start), default=0)
    before = sum(run.last < first for run in runs)
    cuts = {cut for cut in (published, before) if cut}
    numbers = [(0 if published else 1) + sum(cut <= place for cut in cuts) for place in range(len(runs))]
    return replace(
        node,
        runs=tuple(replace(run, first=number, last=number) for run, number in zip(runs, numbers, strict=True)),
        published=numbers[published - 1] if published else 0,
    )


def renumbered_source(source: SourcePart) -> SourcePart:
    """The same source in another job. Its seen records are a state as well."""
    if source.seen is None:
        return source
    runs = renumbered(NodePart({}, runs=source.seen.runs)).runs
    return replace(source, seen=replace(source.seen, runs=runs))
