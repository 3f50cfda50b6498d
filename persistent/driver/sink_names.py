"""A sink is known by its name: it has the name, and takes the state, that it had, or it is a new one.

A place that has rows under another name lacks what was published since; one that has rows of another state would hold
those of both.
"""

from __future__ import annotations

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Inheritance
from persistent.driver.output_batches import holder
from persistent.errors import InvalidPipeline
from persistent.sinks.protocol import BatchSink
from persistent.task import STATE, state_name
from persistent.worker.job import Job


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
    """Raise InvalidPipeline if a sink has outputs of this job, and the manifest knows none of its name: it had another
    name, or was left out for a while, and lacks what was published since."""
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


def _given_again(job: Job, name: str, other: str) -> str:
    """How to give the sink of that name another one."""
    given = f"{{{other!r}: ...}}"
    return f"sink={{{job.takes[name]!r}: {given}}}" if name in job.takes else f"sink={given}"


def _is_ours(job: Job, manifest: Manifest, name: str) -> bool:
    """Whether the place of a sink belongs to this job, as far as it can tell."""
    return not hasattr(job.all_sinks[name], "holder") or holder(job, name) == manifest.job


def _is_taken_back(job: Job, manifest: Manifest, name: str, newest: int) -> bool:
    """Whether what a folder has is of ids that this driver takes back there, such as that of a lost checkpoint."""
    is_of_files = not isinstance(job.all_sinks[name], BatchSink)
    return manifest.retract is not None and newest >= manifest.retract[0] and is_of_files


def check_inherits(job: Job, manifest: Manifest, name: str) -> None:
    """Raise InvalidPipeline if a sink has outputs of the job that this one started from, under another name: a place is
    taken over by the name that it had."""
    if name in {*manifest.sinks, *manifest.inherits} or not isinstance(job.all_sinks[name], BatchSink):
        return
    outlet = job.all_outlets()[name]
    for other, place in manifest.inherits.items():
        newest = [outlet.newest(one, 0) for one in place.jobs] if other not in job.all_sinks else []
        if any(number is not None and number >= 0 for number in newest):
            raise InvalidPipeline(
                f"{job.all_sinks[name]!r} has outputs of the job that this one started from, where it was called "
                f"{other!r}; here it is called {name!r}, and a place is taken over by its name. Give it the name that "
                f"it had, {_given_again(job, name, other)}"
            )
