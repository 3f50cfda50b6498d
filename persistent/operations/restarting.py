"""A restart keeps the state as of a clock, and reads the rest again from a source that has changed.

If a source still has the positions of a checkpoint, a run needs nothing else. If not (its files were rewritten, a topic
has moved), time is all that old and new source share:

    the state as of the clock + the records of the source from that clock on = the state of all records

So every record before the clock must be in that state, which comes from the newest checkpoint that knows the clock. A
source that was not read up to the clock is refused: its unread records from before the clock would be passed over. A
source that joined later, or of which nothing was read, is read whole. The seen records of deduplication are cut at the
clock as the state is:

    seen before the clock + the records of the source from the clock on = seen of all records

Only whole panes can be kept, so the pane that holds the clock is dropped whole. If copies have the timestamps of their
originals, those before the clock are already in the state, and are skipped when they are read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.commit_change import Decision, Manifests, commit_change, look_at_all
from persistent.checkpoint.corrections import check_holds, corrections_before
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.parts import Account, NodeClock, SeenPart, SourcePart, TaskPart
from persistent.checkpoint.positions import CODECS
from persistent.checkpoint.successor import Entry
from persistent.clock import Instant, bound_of, instant_ms
from persistent.codec import Run
from persistent.driver.commit import first_manifest
from persistent.driver.evolution import with_nodes
from persistent.driver.run_cache import RunCache
from persistent.driver.same_job import check_same_job
from persistent.driver.seen_part import begun, check_seen
from persistent.errors import Refused, UnknownCheckpoint
from persistent.operations.rolling_back import (
    check_can_take_back,
    check_left_out,
    check_outputs,
    rolled_back,
)
from persistent.pipeline import Pipeline
from persistent.sources.halves import has_switched
from persistent.sources.protocol import ContinuingSource, ListingSource, MeasuredSource, SourceState
from persistent.text.figures import utc_text
from persistent.worker.job import Job, Node
from persistent.worker.merge_runs import read_rows, write_run
from persistent.worker.seen_state import seen_node

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
        source = job.sources[name]
        if isinstance(source, ContinuingSource):
            begins[name] = source.from_clock(before.recorded, clock)
        else:
            first = dict.fromkeys(before.partitions, CODECS[before.codec].first)
            begins[name] = SourceState(first)
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


def check_cuts(job: Job, newest: Manifest, expected: Manifest, clock: int, dropped: Sequence[str]) -> None:
    """Refused if the seen records of a source cannot be cut at this clock: a copy with a timestamp of its own, after
    the clock, would count in addition to its original, before the clock. FingerprintChanged as in ``check_seen``."""
    check_seen(newest, expected, dropped, job.storage.url)
    for name, dedupe in job.dedupe.items():
        seen = newest.sources[name].seen if name in newest.sources else None
        if seen is not None and dedupe.restamped and clock % seen.pane_ms:
            below = clock // seen.pane_ms * seen.pane_ms
            raise Refused(
                f"{job.storage.url}: the seen records that recognise copies (dedupe=) are kept in panes of "
                f"{seen.pane_ms} ms, and cannot be cut at {clock}: a copy after it would count again. Restart as of "
                f"clock {below} or {below + seen.pane_ms}"
            )


def check_remembers(job: Job, target: Manifest, clock: int) -> None:
    """Raise Refused if seen records from before the clock are forgotten where copies after the clock may need them."""
    for name in job.dedupe:
        _check_remembers_of(job, target, name, clock)


def _check_remembers_of(job: Job, target: Manifest, name: str, clock: int) -> None:
    dedupe, seen = job.dedupe[name], target.sources[name].seen if name in target.sources else None
    if seen is None or not dedupe.restamped or not seen.expired:
        return
    pane = seen.pane_ms
    if (clock - dedupe.within_ms) // pane * pane >= seen.expired:
        return
    first = -(-(seen.expired + dedupe.within_ms) // pane) * pane
    raise Refused(
        f"{job.storage.url}: of the source {name!r}, what was seen before {utc_text(seen.expired)} is forgotten in "
        f"checkpoint {target.id} (within=): a copy after clock {utc_text(clock)} of such a record would count again. "
        f"Nothing was changed. Restart as of clock {first} or later, or go back to a checkpoint (persistent rollback)"
    )


def seen_until(job: Job, name: str, source: SourcePart, clock: int, attempt: Attempt) -> SeenPart | None:
    """The seen records of a source in the panes before the clock.

    The pane that holds the clock is read again: its records before the clock are in the state, as are copies with their
    timestamps; those after the clock are new.
    """
    if source.seen is None or name not in job.dedupe:
        return begun(job.dedupe.get(name))
    seen, border = source.seen, clock // source.seen.pane_ms * source.seen.pane_ms
    whose = seen_node(job, name, seen.pane_ms)
    runs = [
        write_run(whose, attempt, rows, run.first, run.last, run.low, run.high)[0]
        for run, rows in rows_between(whose, seen.runs, seen.expired, border)
    ]
    return replace(seen, expired=min(seen.expired, border), runs=tuple(runs))


def rows_between(node: Node, runs: Sequence[Run], start: int, stop: int) -> Iterator[tuple[Run, GroupSums]]:
    """The rows of each run in the panes ``start <= pane < stop``, one run at a time."""
    for run in runs:
        rows = read_rows(node, run, run.low, run.high)
        rows = rows.take(np.flatnonzero((rows.panes >= start) & (rows.panes < stop)))
        if len(rows):
            yield run, rows


def check_begins_again(job: Job) -> None:
    """Raise Refused if a source is read through a journal, which has only what no checkpoint has counted."""
    for name, source in job.sources.items():
        if not getattr(source, "begins_again", True):
            raise Refused(
                f"{job.storage.url}: the source {name!r}, {source!r}, reads a journal, which can be read neither from "
                "its beginning nor from a clock. Nothing was changed. Go back to a checkpoint instead (persistent "
                "rollback)"
            )


def check_read(job: Job, target: Manifest, clock: int) -> None:
    """Raise Refused if a source has not been read up to the clock: the clock never goes back to a source that joins."""
    if all(_is_over(node, target.nodes[id].clock, clock) for id, node in job.nodes.items()):
        return
    for name, part in target.sources.items():
        awake = dict.fromkeys(partition for partition in part.partitions if partition not in part.idle)
        reached = bound_of(part.largest, awake, job.sources[name].max_out_of_orderness)
        if len(target.sources) > 1 and was_read(target, name) and _has_unread(job, target, name):
            raise Refused(
                f"{job.storage.url}: the source {name!r} has files in checkpoint {target.id} that are not read, and "
                f"may hold records from before clock {utc_text(clock)}: they would be passed over. Nothing was "
                "changed. Run the job until all that is there has been read; or go back to a checkpoint (persistent "
                "rollback)"
            )
        if reached is None or max(reached, part.since or 0) >= clock or not was_read(target, name):
            continue
        raise Refused(
            f"{job.storage.url}: the source {name!r} has been read up to {utc_text(max(reached, part.since or 0))} in "
            f"checkpoint {target.id}, not up to clock {utc_text(clock)}: its records between would be passed over. "
            "Nothing was changed. Run the job until the source has come there (with end_of_input=True if the input is "
            "complete; idle_timeout= is for partitions without records), or restart as of an earlier clock"
        )


def check_own_times(job: Job, target: Manifest) -> None:
    """Raise Refused if a state holds an update later than every record. A restart would cut the update off at the
    clock, but would not read its record, from before the clock, again."""
    times = [time for part in target.sources.values() for time in (*part.largest.values(), (part.since or 0) - 1)]
    largest = max([0, *times])
    for id, node in job.nodes.items():
        part = target.nodes[id]
        pane = int(node.state.stored_panes(np.array([largest]), part.clock.watermark)[0])
        added = [correction.panes[1] for correction in target.corrections.values()]
        last = max((run.pane_max for run in part.runs), default=pane)
        if last > max([pane, *added]):
            raise Refused(
                f"{job.storage.url}: the state of {id} holds an update at {utc_text(last)} or later in "
                f"checkpoint {target.id}, and the last record that was read is of {utc_text(largest)}: the task "
                "updates at other times than those of its messages. Of a message before the clock, an update after it "
                "would be lost. Nothing was changed. Go back to a checkpoint ('persistent rollback'), or read the "
                "source into a new checkpoint and sink"
            )


def _is_over(node: Node, times: NodeClock, clock: int) -> bool:
    """Whether nothing is left to read, or all that is left before the clock is late, for one node."""
    window = node.state.window
    return times.ended or (window is not None and window.last_end(clock - 1) <= times.watermark)


def _has_unread(job: Job, target: Manifest, name: str) -> bool:
    """Whether a source that reads in no order of time has listed something that is not read. The clock waits for the
    records of a single source; a further source may have joined when the clock was past them."""
    source, part = job.sources[name], target.sources[name]
    if not (isinstance(source, ListingSource) and isinstance(source, MeasuredSource)) or has_switched(part.recorded):
        return False
    index = RunCache(job.storage, None).index(target, name)
    return not source.reached(SourceState(part.positions, part.recorded, index, part.largest)).is_all


def was_read(target: Manifest, source: str) -> bool:
    """Whether the state holds anything of a source."""
    accounts = target.inputs.get(source, {})
    return target.sources[source].since is not None or any(account.read for account in accounts.values())
