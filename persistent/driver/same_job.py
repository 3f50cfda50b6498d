"""A checkpoint belongs to one job: its states, their definitions, the sources that it has read, and the columns by
which copies are recognised there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SeenPart, SourcePart
from persistent.codec.documents import canonical_json
from persistent.errors import FingerprintChanged, InvalidPipeline, OtherJob, UnknownCheckpoint
from persistent.names import STATE
from persistent.task.dedupe import Dedupe, check_columns, kinds_of
from persistent.task.task import node_name, task_name
from persistent.text.fingerprints import changes_text
from persistent.worker.job import Job, Node


def check_same_job(manifest: Manifest, expected: Manifest, url: str) -> None:
    """Refuse the checkpoint of another job, or of another monoid, key or window in the same node. A source that
    begins without partitions can have any, and a source that the checkpoint does not know can join."""
    _check_same_states(manifest, expected, url)
    _check_same_sources(manifest, expected, url)
    for id in expected.nodes:
        _check_same_state(manifest, expected, id, url)


def check_same_task(manifest: Manifest, expected: Manifest, url: str) -> None:
    """OtherJob for the checkpoint of another task, or of other sources. The states of the task may have changed."""
    if not manifest.tasks.keys() & expected.tasks.keys():
        _check_same_states(manifest, expected, url)
    _check_same_sources(manifest, expected, url)


def _check_same_sources(manifest: Manifest, expected: Manifest, url: str) -> None:
    """OtherJob unless the job has the sources that the checkpoint has read, and its task reads all of them."""
    for what, theirs, ours in _sources_compared(manifest.sources, expected.sources):
        if theirs != ours:
            raise OtherJob(
                f"{url} is the checkpoint of another job: its {what}: {theirs}, this pipeline's: {ours}. "
                "Give this pipeline a checkpoint of its own, or the task its old name"
            )
    for name, task in manifest.tasks.items():
        unread = sorted(manifest.sources.keys() - task.inputs.keys())
        if unread:
            raise OtherJob(
                f"{url} is the checkpoint of another job: {name} does not read {', '.join(unread)}, "
                "and the task of a pipeline reads every source. Give this pipeline a checkpoint of its own"
            )
    missing = sorted(manifest.sources.keys() - expected.sources.keys())
    if missing:
        raise OtherJob(
            f"{url} has read the sources {', '.join(sorted(manifest.sources))}; this pipeline lacks "
            f"{', '.join(missing)}, and has {', '.join(sorted(expected.sources))}. The records of a source are "
            f"counted under its name: give each source its old name, source={{{missing[0]!r}: ...}}, and omit none; or "
            "give this pipeline a checkpoint of its own"
        )


def check_same_node(manifest: Manifest, expected: Manifest, id: str, url: str) -> None:
    """As ``check_same_job``, for one node of the job alone. UnknownCheckpoint if it was added to its task since."""
    task, _, name = id.partition("/")
    if id not in manifest.nodes and manifest.tasks.keys() == {task}:
        raise UnknownCheckpoint(
            f"{url}: checkpoint {manifest.id} is from before the state {name or STATE!r} was added: it has "
            f"{', '.join(manifest.nodes)}. Choose a later checkpoint; if there is none, run the pipeline once"
        )
    if id not in manifest.nodes:
        _check_same_states(manifest, expected, url)
    _check_same_sources(manifest, expected, url)
    _check_same_state(manifest, expected, id, url)


def chosen_node(job: Job, name: str | None) -> Node:
    """The node of the state of that name; the only one, if none is given. InvalidPipeline, with the names, if there are
    several, or none of that name."""
    task, names = task_name(job.task), list(job.states)
    if name is None and len(names) == 1:
        (name,) = names
    if name is None:
        raise InvalidPipeline(f"{task} has the states {', '.join(names)}: say which, name={names[0]!r}")
    if name not in names:
        there = f"has the states {', '.join(names)}" if names != [STATE] else "has one state, without a name: omit it"
        raise InvalidPipeline(f"name={name!r}: {task} {there}")
    return job.nodes[node_name(job.task, name)]


def _check_same_state(manifest: Manifest, expected: Manifest, id: str, url: str) -> None:
    """FingerprintChanged if a node has another monoid, key or window."""
    old, new = manifest.nodes[id], expected.nodes[id]
    changed = changed_parts(old, new)
    if changed:
        # A sum by key and pane cannot be split again.
        can_evolve = changed == ["monoid"] and not (old.has_sessions or old.has_time_to_live)
        raise FingerprintChanged(
            f"{url}: the state of {id} has another definition: {changes_text(old.described(), new.described())}. "
            f"{_what_to_do(manifest, can_evolve, url)}"
        )


def changed_parts(old: NodePart, new: NodePart) -> list[str]:
    """The parts of the definition of a state that differ: its monoid, key, window, time to live."""
    was, now = old.described(), new.described()
    return [part for part in sorted({*was, *now}) if canonical_json(was.get(part)) != canonical_json(now.get(part))]


def _check_same_states(manifest: Manifest, expected: Manifest, url: str) -> None:
    """OtherJob unless both have the same states."""
    gone, new = (sorted(left.nodes.keys() - right.nodes.keys()) for left, right in _both(manifest, expected))
    if gone or new:
        theirs, ours = sorted(manifest.nodes), sorted(expected.nodes)
        remedy = "Give this pipeline a checkpoint of its own, or the task its old name"
        if not gone or len(theirs) > len(gone):
            remedy = "Give the task the states that it had" if gone else "Run the pipeline once: it adds them"
        drops = f"; or drop {'its state' if len(gone) == 1 else 'their states'}: Pipeline(allow_dropped={gone})"
        raise OtherJob(
            f"{url} is the checkpoint of {'another job' if gone else 'fewer states'}: its states: {theirs}, this "
            f"pipeline's: {ours}. {remedy}{drops if gone and len(manifest.tasks) == 1 else ''}"
        )


def _both(left: Manifest, right: Manifest) -> tuple[tuple[Manifest, Manifest], tuple[Manifest, Manifest]]:
    return (left, right), (right, left)


def _sources_compared(
    sources: Mapping[str, SourcePart], expected: Mapping[str, SourcePart]
) -> Iterator[tuple[str, Any, Any]]:
    """What must be equal for each source in the checkpoint and in the job. If both have one source, with different
    names, the kind is compared."""
    pairs = [(f" of {name}", sources[name], expected[name]) for name in sources if name in expected]
    if len(sources) == len(expected) == 1:
        (theirs,), (ours,) = sources.values(), expected.values()
        pairs = [("", theirs, ours)]
    for of, theirs, ours in pairs:
        yield f"source{of}", theirs.kind, ours.kind
        yield f"positions{of}", theirs.codec, ours.codec
        yield f"partitions{of}", sorted(theirs.partitions), sorted(ours.partitions or theirs.partitions)


def _what_to_do(manifest: Manifest, can_evolve: bool, url: str) -> str:
    if manifest.base == 0:
        return (
            "Nothing is committed there yet: the next run adopts the new task, unless a driver of the old one still "
            f"runs; or delete {url} (and the folder of the sink)"
        )
    migrate = "migrate its state, Pipeline(evolve=Evolution(...)); or " if can_evolve else ""
    return f"Restore the old task; or {migrate}give the new task a new checkpoint, and read the source again"


_DEDUPE = "dedupe"
"""The name in ``allow_dropped`` by which a run without deduplication forgets the seen records."""


def check_seen_columns(job: Job, manifest: Manifest, source: str, recorded: Mapping[str, Any]) -> None:
    """InvalidPipeline unless the records of this plan have the columns that identify them. FingerprintChanged if these
    columns have another kind of value than in the seen records."""
    reader, dedupe = job.sources[source], job.dedupe[source]
    schema = reader.schema(recorded)
    check_columns(dedupe, schema, reader.text_columns(recorded) if reader.infers else ())
    _check_kinds(manifest, dedupe, source, schema, job.storage.url)


def _check_kinds(manifest: Manifest, dedupe: Dedupe, source: str, schema: pa.Schema, url: str) -> None:
    """FingerprintChanged if the seen records have names of another kind than this schema: no copy would be
    recognised."""
    seen = manifest.sources[source].seen
    for name, kind in kinds_of(dedupe, schema).items() if seen is not None and seen.runs else ():
        had = seen.kinds.get(name, kind) if seen is not None else kind
        if had != kind:
            where = f" of {source}" if len(manifest.sources) > 1 else ""
            raise FingerprintChanged(
                f"{url}: copies{where} were recognised by {name!r}, which held {had} and is now read as {kind}: none "
                "would be recognised, and each would count again. Give the source the type that it had (schema=); or "
                "read it again into a new checkpoint and sink"
            )


def check_seen(manifest: Manifest, expected: Manifest, dropped: Sequence[str], url: str) -> None:
    """FingerprintChanged if the checkpoint recognises copies, but this pipeline would not, or by other columns."""
    for name, source in manifest.sources.items() if manifest.base else ():
        has = expected.sources[name].seen if name in expected.sources else None
        where = f" of {name}" if len(manifest.sources) > 1 else ""
        if source.seen is not None:
            _check_columns(source.seen, has, dropped, url, where)


def _check_columns(had: SeenPart, has: SeenPart | None, dropped: Sequence[str], url: str, where: str) -> None:
    if has is not None and has.columns != had.columns:
        raise FingerprintChanged(
            f"{url}: copies{where} were recognised by {_columns(had)}, but this pipeline has dedupe by "
            f"{_columns(has)}. Restore it; or read the source again into a new checkpoint and sink"
        )
    if has is None and _DEDUPE not in dropped:
        raise FingerprintChanged(
            f"{url}: copies{where} are recognised by {_columns(had)}, but this pipeline has no dedupe=: they would "
            f"count. Restore it; or forget the seen records: Pipeline(allow_dropped=[{_DEDUPE!r}])"
        )


def dedupe_notes(manifest: Manifest, dedupe: Mapping[str, Dedupe]) -> Iterator[tuple[str, str]]:
    """Notes on the consequences of beginning or ending deduplication."""
    for name, source in manifest.sources.items() if manifest.base else ():
        where = f" of {name}" if len(manifest.sources) > 1 else ""
        if name in dedupe and source.seen is None:
            yield (
                f"dedupe{where}",
                f"deduplication{where} begins after checkpoint {manifest.base}: earlier records are unknown, so a copy "
                "of them counts again",
            )
        if name not in dedupe and source.seen is not None:
            yield (
                f"dedupe{where}",
                f"deduplication{where} ends: the seen records are forgotten, and copies count from now on",
            )


def _columns(seen: SeenPart) -> str:
    names = [*seen.columns.origin, *filter(None, (seen.columns.epoch, seen.columns.sequence))]
    return f"({', '.join(names)})"
