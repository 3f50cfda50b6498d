"""A checkpoint belongs to one job: its states, their definitions, and the sources that it has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SourcePart
from persistent.checkpoint.shapes import is_of_several
from persistent.errors import FingerprintChanged, InvalidPipeline, OtherJob, UnknownCheckpoint
from persistent.task import STATE, task_name
from persistent.text.fingerprints import changes_text
from persistent.worker.job import Job


def check_same_job(found: Manifest, expected: Manifest, url: str) -> None:
    """Refuse the checkpoint of another job, or of another monoid, key or window under the same operator. A source that
    begins without partitions can have any, and a source that the checkpoint does not know can join."""
    _check_same_states(found, expected, url)
    for what, theirs, ours in _sources_compared(found.sources, expected.sources):
        if theirs != ours:
            raise OtherJob(
                f"{url} is the checkpoint of another job: its {what}: {theirs}, this pipeline's: {ours}. "
                "Give this pipeline a checkpoint of its own, or the task its old name"
            )
    missing = sorted(found.sources.keys() - expected.sources.keys())
    if missing:
        raise OtherJob(
            f"{url} has read the sources {', '.join(sorted(found.sources))}; this pipeline lacks {', '.join(missing)}, "
            f"and has {', '.join(sorted(expected.sources))}. The records of a source are counted under its name: give "
            f"each source its old name, source={{{missing[0]!r}: ...}}, and omit none; or give this pipeline a "
            "checkpoint of its own"
        )
    for name, operator in expected.operators.items():
        changed = changes_text(found.operators[name].described(), operator.described())
        if changed:
            raise FingerprintChanged(
                f"{url}: the state of {name} has another definition: {changed}. {_what_to_do(found, url)}"
            )


def chosen_state(job: Job, name: str | None) -> str:
    """The name of a state of the job; of the only one, if none is given. InvalidPipeline, with the names, if there are
    several, or none of that name."""
    names = [one.name for one in job.each().values()]
    if name is None and len(names) == 1:
        return names[0]
    if name is None:
        raise InvalidPipeline(f"{task_name(job.task)} has the states {', '.join(names)}: say which, name={names[0]!r}")
    if name not in names:
        there = f"has the states {', '.join(names)}" if names != [STATE] else "has one state, without a name: omit it"
        raise InvalidPipeline(f"name={name!r}: {task_name(job.task)} {there}")
    return name


def view_of(job: Job, manifest: Manifest, url: str) -> Manifest:
    """The manifest of the job's only state alone. UnknownCheckpoint if it was added to the task since. That of another
    task is returned as it is, to be refused."""
    if job.operator in manifest.operators:
        return manifest.of(job.operator)
    tasks = {name.partition("/")[0] for name in manifest.operators}
    if tasks == {task_name(job.task)} and (job.name != STATE or is_of_several(manifest.operators)):
        raise UnknownCheckpoint(
            f"{url}: checkpoint {manifest.id} is from before the state {job.name!r} was added: it has "
            f"{', '.join(manifest.operators)}. Choose a later checkpoint; if there is none, run the pipeline once"
        )
    return manifest


def _check_same_states(found: Manifest, expected: Manifest, url: str) -> None:
    """OtherJob unless both have the same states."""
    gone, new = (sorted(one.operators.keys() - other.operators.keys()) for one, other in _both(found, expected))
    if gone or new:
        theirs, ours = sorted(found.operators), sorted(expected.operators)
        remedy = "Give this pipeline a checkpoint of its own, or the task its old name"
        if not gone or len(theirs) > len(gone):
            remedy = "Give the task the states that it had" if gone else "Run the pipeline once: it adds them"
        drops = f"; or drop {'its state' if len(gone) == 1 else 'their states'}: Pipeline(allow_dropped={gone})"
        raise OtherJob(
            f"{url} is the checkpoint of {'another job' if gone else 'fewer states'}: its operators: {theirs}, this "
            f"pipeline's: {ours}. {remedy}{drops if gone else ''}"
        )


def _both(one: Manifest, other: Manifest) -> tuple[tuple[Manifest, Manifest], tuple[Manifest, Manifest]]:
    return (one, other), (other, one)


def _sources_compared(
    found: Mapping[str, SourcePart], expected: Mapping[str, SourcePart]
) -> Iterator[tuple[str, Any, Any]]:
    """What must be equal for each source in the checkpoint and in the job. If both have one source, with different
    names, the kind is compared."""
    pairs = [(f" of {name}", found[name], expected[name]) for name in found if name in expected]
    if len(found) == len(expected) == 1:
        (theirs,), (ours,) = found.values(), expected.values()
        pairs = [("", theirs, ours)]
    for of, theirs, ours in pairs:
        yield f"source{of}", theirs.kind, ours.kind
        yield f"positions{of}", theirs.codec, ours.codec
        yield f"partitions{of}", sorted(theirs.partitions), sorted(ours.partitions or theirs.partitions)


def _what_to_do(found: Manifest, url: str) -> str:
    if found.base == 0:
        return (
            "Nothing is committed there yet: the next run adopts the new task, unless a driver of the old one still "
            f"runs; or delete {url} (and the folder of the sink)"
        )
    return (
        "Restore the old task; or migrate its state, Pipeline(evolve=Evolution(...)); or give the new task a new "
        "checkpoint, and read the source again"
    )
