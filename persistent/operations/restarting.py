"""A restart keeps the state as of a clock, and reads the rest again from a source that has changed.

If a source still has the positions of a checkpoint, a run needs nothing else. If not (its files were rewritten, a topic
has moved), time is all that old and new source share:

    the state as of the clock + the records of the source from that clock on = the state of all records

So every record before the clock must be in that state, which comes from the newest checkpoint that knows the clock. A
source that was not read up to the clock is refused: its unread records from before the clock would be passed over. A
source that joined later, or of which nothing was read, is read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.commit_change import Decision, Manifests, commit_change, look_at_all
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import check_holds, corrections_before
from persistent.checkpoint.parts import Account, NodeClock, SeenPart, TaskPart
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import CODECS, Run
from persistent.connect.source import SourceState
from persistent.driver.commit import first_manifest
from persistent.driver.evolution import with_nodes
from persistent.driver.same_job import check_same_job
from persistent.errors import Refused, UnknownCheckpoint
from persistent.names import Attempt
from persistent.operations.restarting_sources import (
    check_begins_again,
    check_cuts,
    check_own_times,
    check_read,
    check_remembers,
    rows_between,
    seen_until,
    was_read,
)
from persistent.operations.rolling_back import (
    check_can_take_back,
    check_left_out,
    check_outputs,
    rolled_back,
)
from persistent.pipeline import Pipeline
from persistent.text.figures import utc_text
from persistent.time.clock import Instant, instant_ms
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
    log, url = Log(job.storage), job.storage.url
    states = job.states

    def decide(manifests: Manifests) -> Decision:
        newest, first = manifests.newest.manifest, first_manifest(job, "")
        check_can_take_back(newest, outputs, url)
        check_same_job(newest, first, url)
        _check_sessions_close(newest, url)
        check_cuts(job, newest, first, clock, pipeline.allow_dropped)
        try:
            manifest = checkpoint_as_of(log, job.task, states, clock, unpublished=True).manifest
        except UnknownCheckpoint as error:
            reason = str(error).removesuffix(", or a kept checkpoint (persistent state --at ID)")
            to_one = "to go back to a kept checkpoint: 'persistent rollback'"
            raise UnknownCheckpoint(f"{reason}. Nothing was changed; {to_one}") from error
        target = _without_dropped(manifest, job, pipeline.allow_dropped, clock)
        in_zones = _in_zones_of(job, target)
        check_begins_again(in_zones)
        check_remembers(in_zones, target, clock)
        check_read(in_zones, target, clock)
        check_own_times(in_zones, target)
        _check_corrections(target, newest, clock, url)
        # A source that cannot continue at the clock refuses it now, before there is a fence.
        begins = _begins(in_zones, target, clock)
        if target.id == newest.id and newest.kind == "fence" and newest.parent is not None:
            # A fence adds no outputs of its own: what is published is known of its parent.
            target = replace(target, id=newest.parent[0])
        check_left_out(manifests, target.id, outputs, url)

        def write(attempt: Attempt) -> dict[str, Any]:
            seen = {name: seen_until(in_zones, name, part, clock, attempt) for name, part in target.sources.items()}
            runs = _runs_before(in_zones, target, clock, attempt)
            return rolled_back(
                manifests, _as_of(target, clock, begins, seen, runs, url), take_back=outputs == "retract"
            )

        return Decision("rollback", write=write)

    return commit_change(log, decide, look=look_at_all, take_over=take_over)


def _without_dropped(target: Manifest, job: Job, dropped: Sequence[str], clock: int) -> Manifest:
    """The target without states that the task no longer has. Refused unless these may be dropped."""
    gone = [name for name in target.nodes if name not in job.nodes]
    if any(name not in dropped for name in gone):
        raise Refused(
            f"{job.storage.url}: the newest checkpoint that knows {utc_text(clock)} is {target.id}, with the state "
            f"{', '.join(gone)}; the task no longer has it. Nothing was changed. To drop it again, give the pipeline "
            f"allow_dropped={gone}"
        )
    return with_nodes(target, {name: target.nodes[name] for name in job.nodes}) if gone else target


def _check_corrections(target: Manifest, newest: Manifest, clock: int, url: str) -> None:
    """Refused if the state of the target before the clock has a part of a correction, or lacks one."""
    corrections_before(target.corrections, clock, url)
    check_holds(target.corrections, newest.corrections, clock, target.id, url)


def _check_sessions_close(newest: Manifest, url: str) -> None:
    """Refused if sessions that were published while they were open would stay published."""
    if any(node.has_sessions and node.emit for node in newest.nodes.values()):
        raise Refused(
            f'{url}: its sessions are published as they change (emit="change", early=), and the state as of a clock '
            "has none that began later: nobody would take those back that were published. Nothing was changed. Roll "
            "back to a checkpoint ('persistent rollback'), or read the source into a new checkpoint and sink"
        )


def _begins(job: Job, target: Manifest, clock: int) -> dict[str, SourceState]:
    """The positions to read each source from: its positions at the clock if it knows them, otherwise the beginning."""
    begins = {}
    for name, before in target.sources.items():
        first = SourceState(dict.fromkeys(before.partitions, CODECS[before.codec].first))
        begins[name] = job.sources[name].from_clock(before.recorded, clock) or first
    return begins


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
    accounts = {name: dict.fromkeys(begin.positions, Account()) for name, begin in begins.items()}
    return replace(
        target,
        corrections=corrections_before(target.corrections, clock, url),
        sources=unread,
        tasks=dict.fromkeys(target.tasks, TaskPart(accounts)),
        nodes={
            name: replace(
                node,
                clock=NodeClock(watermark=clock, closed=min(node.clock.closed, clock)),
                runs=runs[name],
                lowest=node.lowest if runs[name] else None,
                final_at=None,
                passed=None if node.passed is None else min(node.passed, clock),
            ).unpublished()
            for name, node in target.nodes.items()
        },
    )


def _in_zones_of(job: Job, manifest: Manifest) -> Job:
    """The job with windows by the rules of their time zones that the manifest holds."""
    return job.in_zones({name: node.zone for name, node in manifest.nodes.items()})


def _runs_before(job: Job, target: Manifest, clock: int, attempt: Attempt) -> dict[str, tuple[Run, ...]]:
    """The runs of each state without the rows after the clock, read one at a time."""
    return {
        name: tuple(
            write_run(node, attempt, rows, run.first, run.last, run.low, run.high)[0]
            for run, rows in rows_between(node, target.nodes[name].runs, _FIRST_PANE, clock)
        )
        for name, node in job.nodes.items()
    }
