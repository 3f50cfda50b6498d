"""What was read of each source decides whether a restart is possible at a clock.

records before the clock: all of a source are in the state, or none
updates before the clock: those of these records, and no others

A restart cuts the seen records of a source at its clock, as it cuts the state.

    seen before the clock + the records of the source from the clock on = seen of all records

Only whole panes can be kept, so the pane that holds the clock is dropped whole. If copies have the timestamps of their
originals, those before the clock are already in the state, and are skipped when they are read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodeClock, SeenPart, SourcePart
from persistent.codec.fields import Run
from persistent.connect.halves import has_switched
from persistent.connect.source import SourceState
from persistent.driver.results import first_seen
from persistent.driver.run_cache import RunCache
from persistent.driver.same_job import check_seen
from persistent.errors import Refused
from persistent.names import Attempt
from persistent.text.figures import utc_text
from persistent.time.clock import bound_of
from persistent.worker.job import Job, Node
from persistent.worker.merge_runs import read_rows, write_run
from persistent.worker.seen_state import seen_node


def check_begins_again(job: Job) -> None:
    """Raise Refused if a source is read through a journal, which has only what no checkpoint has counted."""
    for name, source in job.sources.items():
        if not source.begins_again:
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
    if not source.lists or has_switched(part.recorded):
        return False
    index = RunCache(job.storage, None).index(target, name)
    reached = source.reached(SourceState(part.positions, part.recorded, index, part.largest))
    return reached is not None and not reached.is_all


def was_read(target: Manifest, source: str) -> bool:
    """Whether the state holds anything of a source."""
    accounts = target.inputs.get(source, {})
    return target.sources[source].since is not None or any(account.read for account in accounts.values())


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
        return first_seen(job.dedupe.get(name))
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
