"""The batches of a manifest for each sink: who claims it, which batches to publish, and how far a rollback goes back.

Sinks number checkpoints by their revision, which continues from a job to one that started from its savepoint; so the
mark in a sink never decreases.

A sink is known by its name: under its old name it takes the same state as before, under another name it is a new sink.
A place that has rows under another name lacks what was published since; a place that has rows of another state would
hold rows of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa
from msgspec.structs import replace

from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import LATE_SINK, Inheritance, SinkBatch, SinkPart
from persistent.codec.fields import Run, type_of
from persistent.connect.outlet import abilities
from persistent.connect.sink import BatchSink, Claim, OutputBatch, Retreat, StagingSink
from persistent.driver.undoing import adds_up, batches_since, undoing_rows
from persistent.errors import InvalidPipeline, SinkMismatch
from persistent.names import STATE, Staged, state_name
from persistent.task.task import key_names
from persistent.text.figures import shell_word
from persistent.time.lateness import CHANGE
from persistent.worker.job import Job, Node
from persistent.worker.output_tables import RETRACTED, empty_outputs, marks_of, newest_rows, output_key

_NOTHING = Inheritance((), 0)


def claim_of(job: Job, manifest: Manifest, sink: str) -> Claim:
    """The claim of the manifest's job on the sink of that name."""
    part, heir = part_of(manifest, sink), _place(manifest, sink)
    before = part.unpublished[0].before if part.unpublished else part.last
    # A rollback may have lost manifests above its target, with batches that nothing records.
    is_known = manifest.target is None
    return Claim(
        job=manifest.job,
        shown=0 if before is None or not is_known else manifest.revision_base + before,
        # Batches that a run without a sink discarded do not prove a claim.
        began=is_known and (part.last is not None or bool(part.owed)),
        heir_of=heir.jobs,
        inherited=heir.number,
        schema=_schema(job, manifest, sink),
        key=_key(job, sink),
        url=job.storage.url,
    )


def batches_of(job: Job, manifest: Manifest, sink: str, read: Callable[[Staged], pa.Table]) -> tuple[OutputBatch, ...]:
    """The batches of a sink that may still be unpublished, oldest first. A sink that keeps one row of a key and window
    gets only the newest row of each, file by file: all rows of a key are staged in one file."""
    return tuple(_batch(job, manifest, sink, batch, read) for batch in part_of(manifest, sink).unpublished)


def _batch(
    job: Job, manifest: Manifest, sink: str, batch: SinkBatch, read: Callable[[Staged], pa.Table]
) -> OutputBatch:
    key = _key(job, sink)

    def read_newest(staged: Staged) -> pa.Table:
        return newest_rows(read(staged), key)

    return OutputBatch(
        job=manifest.job,
        number=manifest.revision_base + batch.id,
        before=_number(manifest, sink, batch.before),
        oldest=manifest.revision_base + manifest.oldest,
        id=batch.id,
        url=job.storage.url,
        key=key,
        staged=batch.staged,
        read=read_newest if job.all_sinks[sink].replaces else read,
    )


def retreat_of(job: Job, log: Log, manifest: Manifest, sink: str, read: Callable[[Staged], pa.Table]) -> Retreat | None:
    """The rollback that the manifest follows, if the sink had begun by then; until the next checkpoint."""
    if manifest.target is None or sink not in manifest.sinks:
        return None
    retreat = Retreat(
        job=manifest.job,
        number=manifest.revision_base + manifest.base,
        first=None if manifest.retract is None else manifest.revision_base + manifest.retract[0],
        staged=batches_of(job, manifest, sink, read),
        key=_key(job, sink),
        id=manifest.base,
        url=job.storage.url,
    )
    if manifest.retract is None or not SinkPart(abilities(job.all_sinks[sink])).is_undone_by_rows:
        return retreat
    before = log.read(manifest.base).manifest.parent
    assert before is not None
    left = log.read(before[0]).manifest
    since = list(batches_since(lambda id: log.read(id).manifest, left, sink, manifest.retract[0]))[::-1]
    staged = (*retreat.staged, *(_batch(job, manifest, sink, batch, read) for batch in since))

    def undoing(mark: int) -> OutputBatch:
        last = _number(manifest, sink, part_of(left, sink).last)
        if mark > last:
            raise SinkMismatch(
                f"{job.all_sinks[sink]!r} is at batch {mark}, beyond {last}, the last that the checkpoint knows: a "
                "checkpoint was lost, and what it published cannot be taken back by rows. Roll back again with "
                f"'persistent rollback {shell_word(job.storage.url)} {manifest.base} --outputs=again'"
            )
        tables = [read(staged) for batch in since for staged in batch.staged]
        node = manifest.sinks[sink].node
        signed = node is not None and adds_up(manifest.nodes[node])
        places = [name for name in retreat.key if name != RETRACTED]
        rows = undoing_rows(tables, places, retreat.number, both_signs=signed) if tables else None
        files = (replace(since[0].staged[0], rows=len(rows)),) if rows else ()
        empty = _batch(job, manifest, sink, SinkBatch(manifest.base), lambda _: rows)
        return dataclasses.replace(empty, before=mark, staged=files)

    return dataclasses.replace(retreat, staged=staged, undoing=undoing)


def part_of(manifest: Manifest, sink: str) -> SinkPart:
    """The part of a sink in the manifest."""
    return manifest.sinks.get(sink, SinkPart())


def has_nothing(manifest: Manifest, sink: str) -> bool:
    """Whether a sink has no rows: a rollback took back all of them; or it was given none, and continues no sink of
    another job."""
    part = part_of(manifest, sink)
    return part.emptied or (part.last is None and not _place(manifest, sink).continues)


def _place(manifest: Manifest, sink: str) -> Inheritance:
    """The place that a sink takes over: none if the job has begun without it."""
    is_left_out = bool(manifest.sinks) and sink not in manifest.sinks
    return _NOTHING if is_left_out else manifest.inherits.get(sink, _NOTHING)


def lacks_totals(node: Node, manifest: Manifest) -> bool:
    """Whether a state without windows holds something for a sink, although the input has ended: the sink has come
    since, or the state was migrated."""
    return node.state.window is None and _lacks(node, manifest)


def lacks_changes(node: Node, manifest: Manifest, emit: str | None = CHANGE) -> bool:
    """Whether a state that is published as it changes holds something for a sink. ``emit``: as its plan says, if it is
    published early."""
    lacks = _lacks if emit == CHANGE else lacks_all
    return node.state.lateness.of_changes is not None and lacks(node, manifest)


def lacks_all(node: Node, manifest: Manifest) -> bool:
    """Whether a sink lacks all that the state holds: it has come since; or it has what the state was before it evolved
    or was rolled back."""
    if not (node.sinks and manifest.nodes[node.id].runs):
        return False
    is_left = _was_published(manifest, node.id) or _leaves_sessions(manifest, node.id)
    new = {name for name in node.sinks if name not in manifest.sinks or part_of(manifest, name).emptied}
    return is_left or any(has_nothing(manifest, name) for name in new)


def told_anew(manifest: Manifest, node: str) -> tuple[Run, ...] | None:
    """The runs of a node whose rows the sinks may have from before a rollback, if the next step publishes the whole
    node to these sinks again; None if it does not."""
    state, sinks = manifest.nodes[node], manifest.sinks_of(node).values()
    if _leaves_sessions(manifest, node):
        return tuple(run for run in state.runs if run.first <= state.published)
    goes_back = manifest.target is not None and not any(part.emptied for part in sinks)
    return state.runs if goes_back and _was_published(manifest, node) else None


def _leaves_sessions(manifest: Manifest, node: str) -> bool:
    """Whether a rollback has left outputs in the sinks of a node whose sessions are published as they change. The runs
    up to the number ``published`` hold what was published at the target of the rollback; later runs hold the rest."""
    state = manifest.nodes[node]
    if not (state.has_sessions and state.emit is not None and state.published > 0 and _leaves_outputs(manifest)):
        return False
    sinks = manifest.sinks_of(node).values()
    return any(part.last is not None for part in sinks) and not any(part.emptied for part in sinks)


def _leaves_outputs(manifest: Manifest) -> bool:
    """Whether the manifest is a rollback that has left later outputs, or one to such a rollback."""
    if manifest.target is None or manifest.retract is None:
        return manifest.target is not None
    base = max((id for id in manifest.bases if id <= manifest.target), default=None)
    return any(stop == base and not is_taken_back for _, stop, is_taken_back in manifest.left)


def _was_published(manifest: Manifest, node: str) -> bool:
    state = manifest.nodes[node]
    # Runs of number 0 were published by the job whose savepoint this one started from.
    is_fresh = state.published <= 0 and len(state.fresh()) == len(state.runs)
    return is_fresh and any(part.last is not None for part in manifest.sinks_of(node).values())


def _lacks(node: Node, manifest: Manifest) -> bool:
    return lacks_all(node, manifest) or (bool(node.sinks) and bool(manifest.nodes[node.id].fresh()))


def holder(job: Job, sink: str) -> str | None:
    """The job that the place of a sink belongs to, if it can tell."""
    place = job.all_sinks[sink]
    return place.holder() if isinstance(place, StagingSink) else None


def _number(manifest: Manifest, sink: str, id: int | None) -> int:
    """The number of a batch of this job; for None, that of the last batch of the job whose place it takes over."""
    if id is not None:
        return manifest.revision_base + id
    place = _place(manifest, sink)
    return place.number if place.here is None else place.here


def _key(job: Job, sink: str) -> tuple[str, ...]:
    if _is_late(job, sink):
        return LATE_KEY
    node = job.node_of(sink)
    return output_key(node.state, key_names(node.task), node.sinks[sink])


def _is_late(job: Job, sink: str) -> bool:
    """Whether the sink of that name is the sink of late records."""
    return job.late_sink is not None and sink == LATE_SINK


def _schema(job: Job, manifest: Manifest, sink: str) -> pa.Schema:
    """The columns of the outputs for a sink, as far as their types are known."""
    if _is_late(job, sink):
        return LATE_SCHEMA
    node = job.node_of(sink)
    kinds = [type_of(name) for name in manifest.nodes[node.id].key_types] if node.id in manifest.nodes else []
    return empty_outputs(node.state, key_names(node.task), kinds, marks_of(node.state, 0)).schema


def check_takes_as_before(job: Job, manifest: Manifest) -> None:
    """Raise InvalidPipeline if a sink has rows of another state of this job, or of the one that it started from: its
    place would hold rows of both."""
    for name in job.sinks:
        known = manifest.sinks.get(name) or manifest.inherits.get(name)
        is_begun = known is not None and (isinstance(known, Inheritance) or known.last is not None or known.owed)
        # A sink of late records is another matter, and a task may have been renamed.
        taken = STATE if known is None or known.node is None else state_name(known.node)
        if not is_begun or taken == job.node_of(name).name:
            continue
        was, now = (
            "the only state" if state == STATE else f"the state {state!r}" for state in (taken, job.node_of(name).name)
        )
        raise InvalidPipeline(
            f"{job.storage.url}: the sink {name!r}, {job.sinks[name]!r}, has rows of {was}, and would now get those of "
            f"{now}. Give each state the sinks that it had, sink={{{taken!r}: {{{name!r}: ...}}}}; or "
            "give this state a sink of another name and place"
        )


def check_named_as_before(job: Job, manifest: Manifest, name: str) -> None:
    """Raise InvalidPipeline if a sink has outputs of this job, but the manifest knows no sink of that name: the sink
    had another name, or was left out for a while, and lacks what was published since."""
    is_known = not manifest.sinks or name in manifest.sinks
    if manifest.base == 0 or is_known or not _is_ours(job, manifest, name):
        return
    newest = job.all_outlets()[name].newest(manifest.job, manifest.revision_base)
    if newest is None or newest <= 0 or _is_taken_back(job, manifest, name, newest):
        return
    others = sorted(manifest.sinks.keys() - job.all_sinks.keys())
    was = ", ".join(map(repr, others))
    raise InvalidPipeline(
        f"{job.all_sinks[name]!r} has outputs of this job up to checkpoint {newest}, but not under the name {name!r}: "
        + (f"if it was {was}, give it that name again, {_given_again(job, name, others[0])}; else " if others else "")
        + "it was left out meanwhile, and lacks what was published since: give it a new place"
    )


def _given_again(job: Job, name: str, old_name: str) -> str:
    """The option ``sink=`` that gives a sink its old name."""
    text = f"{{{old_name!r}: ...}}"
    return f"sink={{{job.takes[name]!r}: {text}}}" if name in job.takes else f"sink={text}"


def _is_ours(job: Job, manifest: Manifest, name: str) -> bool:
    """Whether the place of a sink belongs to this job, as far as it can tell."""
    return "holder" not in job.all_sinks[name].abilities or holder(job, name) == manifest.job


def _is_taken_back(job: Job, manifest: Manifest, name: str, newest: int) -> bool:
    """Whether the newest outputs in a folder have an id that this driver takes back, such as the id of a lost
    checkpoint."""
    is_of_files = not isinstance(job.all_sinks[name], BatchSink)
    return manifest.retract is not None and newest >= manifest.retract[0] and is_of_files


def check_inherits(job: Job, manifest: Manifest, name: str) -> None:
    """Raise InvalidPipeline if a sink has outputs of the job that this one started from, under another name: a place is
    taken over by the name that it had."""
    if name in {*manifest.sinks, *manifest.inherits} or not isinstance(job.all_sinks[name], BatchSink):
        return
    outlet = job.all_outlets()[name]
    for old_name, place in manifest.inherits.items():
        newest = [outlet.newest(predecessor, 0) for predecessor in place.jobs] if old_name not in job.all_sinks else []
        if any(number is not None and number >= 0 for number in newest):
            raise InvalidPipeline(
                f"{job.all_sinks[name]!r} has outputs of the job that this one started from, where it was called "
                f"{old_name!r}; here it is called {name!r}, and a place is taken over by its name. Give it the name "
                f"that it had, {_given_again(job, name, old_name)}"
            )
