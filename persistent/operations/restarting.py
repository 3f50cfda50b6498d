"""A restart keeps the state as of a clock, and reads the rest again from a source that has changed.

If a source still has the positions of a checkpoint, a run needs nothing else. If not (its files were rewritten, a topic
has moved), time is all that old and new source share:

    the state as of the clock + the records of the source from that clock on = the state of all records

So every record before the clock must be in that state. It is that of the newest checkpoint that knows the clock, and a
source that was not read up to the clock is refused: its unread records before it would be passed over. A source of
which nothing was read, or that joined later, is read whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.corrections import check_holds, corrections_before
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.parts import Account, SeenPart, SourcePart, TaskClock
from persistent.checkpoint.positions import CODECS
from persistent.checkpoint.successor import Entry, at_all
from persistent.clock import Instant, instant_ms
from persistent.codec import Run
from persistent.driver.commit import first_manifest
from persistent.driver.evolution import holds_deltas
from persistent.driver.same_job import check_same_job
from persistent.errors import Refused, UnknownCheckpoint
from persistent.operations.fencing import check_not_running, committed, fenced
from persistent.operations.restarting_seen import check_cuts, check_remembers, rows_between, seen_until
from persistent.operations.restarting_sources import check_begins_again, check_own_times, check_read, was_read
from persistent.operations.rolling_back import (
    check_can_take_back,
    check_left_out,
    check_outputs,
    readable,
    rolled_back,
)
from persistent.pipeline import Pipeline
from persistent.sources.layout import carried
from persistent.sources.protocol import ContinuingSource, Source, SourceState
from persistent.worker.job import Job
from persistent.worker.merge_runs import write_run

_FIRST_PANE = -(1 << 63)


def restart(pipeline: Pipeline, clock: Instant, *, outputs: str, take_over: bool = False) -> Entry:
    """Set the job to the state as of ``clock`` (on the grid of the state); the next run reads the pipeline's source
    from its beginning.

    Records before the clock are already in the state, and count as duplicates. So the source must hold every record
    from the clock on, and no earlier record that was not read before; and the task must update at the timestamps of its
    messages, as the clock divides both. ``outputs``: as in ``rollback``, for outputs published after the checkpoint
    that provides the state, the newest that knows the clock. A state without windows publishes every key again at the
    next end of the input. The account starts again from zero. Raises UnknownCheckpoint, with the known range, if no
    checkpoint knows that clock; Refused if a source has not been read up to it, or cannot be read again, or if the
    state holds times that no record has; StillRunning.
    """
    check_outputs(outputs)
    clock = instant_ms(clock)
    job = pipeline.job()
    log = Log(job.storage)
    kept = readable(log)
    check_not_running(log, kept.newest.manifest.epoch, take_over=take_over)
    check_can_take_back(kept.newest.manifest, outputs, log.storage.url)
    check_same_job(kept.newest.manifest, first_manifest(job, ""), job.storage.url)
    _check_adds_up(kept.newest.manifest, log.storage.url)
    check_cuts(job, kept.newest.manifest, first_manifest(job, ""), clock, pipeline.allow_dropped)
    states = {one.name: one.state for one in job.each().values()}
    try:
        found = checkpoint_as_of(log, job.task, states, clock, unpublished=True)
    except UnknownCheckpoint as error:
        said = str(error).removesuffix(", or a kept checkpoint (persistent state --at ID)")
        to_one = "to go back to a kept checkpoint: 'persistent rollback'"
        raise UnknownCheckpoint(f"{said}. Nothing was changed; {to_one}") from error
    job = _in_zones_of(job, found.manifest)
    check_begins_again(job)
    check_remembers(job, found.manifest, clock)
    check_read(job, found.manifest, clock)
    check_own_times(job, found.manifest)
    _check_corrections(found.manifest, kept.newest.manifest, clock, log.storage.url)
    check_left_out(kept, found.manifest.id, outputs, log.storage.url)
    last = fenced(log, take_over=True)
    with log.unless_fenced(last.manifest.id):
        target = checkpoint_as_of(log, job.task, states, clock, unpublished=True).manifest
        job = _in_zones_of(job, target)
        check_remembers(job, target, clock)
        check_read(job, target, clock)
        check_own_times(job, target)
        _check_corrections(target, last.manifest, clock, log.storage.url)
        attempt = Attempt(last.manifest.epoch, last.manifest.id + 1)
        begins = {name: _begins(job.sources[name], source, clock) for name, source in target.sources.items()}
        seen = {name: seen_until(job, name, source, clock, attempt) for name, source in target.sources.items()}
        copy = _as_of(target, clock, begins, seen, _runs_before(job, target, clock, attempt), job.storage.url)
    if copy.id == last.manifest.id and last.manifest.parent is not None:
        # A copy of our own fence is one of what it stands on: of that it is known what it has published.
        copy = replace(copy, id=last.manifest.parent[0])
    back = rolled_back(last, copy, kept, attempt.id, attempt.epoch, take_back=outputs == "retract")
    return committed(log, back, last.manifest)


def _check_corrections(target: Manifest, newest: Manifest, clock: int, url: str) -> None:
    """Refused if the state of the target before the clock has a part of a correction, or lacks one."""
    corrections_before(target.corrections, clock, url)
    check_holds(target.corrections, newest.corrections, clock, target.id, url)


def _check_adds_up(newest: Manifest, url: str) -> None:
    """Refused if windows that were published in deltas would be published anew, and added twice; or if sessions that
    were published while they were open would stay."""
    if any(one.has_sessions and one.emit for part in newest.operators.values() for one in part.states.values()):
        raise Refused(
            f'{url}: its sessions are published as they change (emit="change", early=), and the state as of a clock '
            "has none that began later: nobody would take those back that were published. Nothing was changed. Roll "
            "back to a checkpoint ('persistent rollback'), or read the source into a new checkpoint and sink"
        )
    if any(holds_deltas(newest.of(name)) for name in newest.operators):
        raise Refused(
            f'{url}: the state is published early with late="delta", and its sinks hold a part of windows that still '
            "take records: published anew after the restart, it would be added twice. Nothing was changed. Read the "
            "source into a new checkpoint and sink"
        )


def _begins(source: Source, before: SourcePart, clock: int) -> SourceState:
    """The positions to read from: those of the clock if the source knows them, otherwise the beginning."""
    if isinstance(source, ContinuingSource):
        return source.from_clock(before.recorded, clock)
    first = CODECS[before.codec].first
    return SourceState(dict.fromkeys(before.partitions, first), carried(before.recorded))


def _as_of(
    target: Manifest,
    clock: int,
    begins: Mapping[str, SourceState],
    seen: Mapping[str, SeenPart | None],
    runs: Mapping[str, tuple[Run, ...]],
    url: str,
) -> Manifest:
    """The manifest of the state before the clock, over sources that continue from these positions."""
    unread = {
        name: replace(
            target.sources[name],
            partitions=tuple(begin.positions),
            positions=begin.positions,
            recorded=begin.recorded,
            largest={},
            index=(),
            since=clock if was_read(target, name) else None,
            idle=(),
            readings=(),
            seen=seen[name],
        )
        for name, begin in begins.items()
    }
    return replace(
        target,
        corrections=corrections_before(target.corrections, clock, url),
        **at_all(
            target,
            clocks={
                name: TaskClock(watermark=clock, closed=min(one.closed, clock)) for name, one in target.clocks.items()
            },
            sources=unread,
            operators={
                name: one.with_state(
                    runs=runs[name],
                    lowest=one.state.lowest if runs[name] else None,
                    final=None,
                    passed=one.state.passed_by(clock),
                ).unpublished()
                for name, one in target.operators.items()
            },
            accounts={name: dict.fromkeys(begin.positions, Account()) for name, begin in begins.items()},
        ),
    )


def _in_zones_of(job: Job, manifest: Manifest) -> Job:
    """The job, whose windows are by the rules that a manifest has."""
    return job.in_zones({name: one.state.zone for name, one in manifest.operators.items()})


def _runs_before(job: Job, target: Manifest, clock: int, attempt: Attempt) -> dict[str, tuple[Run, ...]]:
    """The runs of each state without the rows after the clock, read one at a time."""
    return {
        name: tuple(
            write_run(one, attempt, rows, run.first, run.last, run.low, run.high)[0]
            for run, rows in rows_between(one, target.operators[name].state.runs, _FIRST_PANE, clock)
        )
        for name, one in job.each().items()
    }
