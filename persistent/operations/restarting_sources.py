"""What was read of each source decides whether a restart is possible at a clock.

    records before the clock: all of a source are in the state, or none

A restart cuts the seen records of a source at its clock, as it cuts the state.

    seen before the clock + the records of the source from the clock on = seen of all records

Only whole panes can be kept, so the pane that holds the clock is dropped whole. If copies have the timestamps of their
originals, those before the clock are already in the state, and are skipped when they are read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.parts import SeenPart, SourcePart
from persistent.clock import bound_of
from persistent.codec import Run
from persistent.driver.run_cache import RunCache
from persistent.driver.seen_part import begun, check_seen
from persistent.errors import Refused
from persistent.sources.halves import has_switched
from persistent.sources.protocol import ListingSource, MeasuredSource, SourceState
from persistent.text.figures import utc_text
from persistent.worker.job import Job
from persistent.worker.merge_runs import read_rows, write_run
from persistent.worker.seen_state import seen_job


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
    """Raise Refused if a source has not been read up to the clock: the clock does not go back for one that joins. Or if
    what was seen of it, before the clock, has been forgotten where copies after the clock may need it."""
    for name in job.dedupe:
        _check_remembers(job, target, name, clock)
    window, times = job.state.window, target.clock
    if times.end_of_input or (window is not None and window.last_end(clock - 1) <= times.watermark):
        # Nothing is left to read, or all that is left before the clock is late.
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


def _has_unread(job: Job, target: Manifest, name: str) -> bool:
    """Whether a source that reads in no order of time has listed something that is not read. Of one source alone, the
    clock has waited for that; another may have joined when the clock was past it."""
    source, part = job.sources[name], target.sources[name]
    if not (isinstance(source, ListingSource) and isinstance(source, MeasuredSource)) or has_switched(part.recorded):
        return False
    index = RunCache(job.storage, None).index(target, name)
    return not source.reached(SourceState(part.positions, part.recorded, index, part.largest)).is_all


def _check_remembers(job: Job, target: Manifest, name: str, clock: int) -> None:
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


def was_read(target: Manifest, source: str) -> bool:
    """Whether the state holds anything of a source."""
    accounts = target.ledger[target.task_name].get(source, {})
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


def seen_until(job: Job, name: str, source: SourcePart, clock: int, attempt: Attempt) -> SeenPart | None:
    """The seen records of a source in the panes before the clock.

    The pane that holds the clock is read again: its records before the clock are in the state, as are copies with their
    timestamps; those after the clock are new.
    """
    if source.seen is None or name not in job.dedupe:
        return begun(job.dedupe.get(name))
    seen, border = source.seen, clock // source.seen.pane_ms * source.seen.pane_ms
    whose = seen_job(job, name, seen.pane_ms)
    runs = [
        write_run(whose, attempt, rows, run.first, run.last, run.low, run.high)[0]
        for run, rows in rows_between(whose, seen.runs, seen.expired, border)
    ]
    return replace(seen, expired=min(seen.expired, border), runs=tuple(runs))


def rows_between(job: Job, runs: Sequence[Run], start: int, stop: int) -> Iterator[tuple[Run, GroupSums]]:
    """The rows of each run in the panes ``start <= pane < stop``, one run at a time."""
    for run in runs:
        rows = read_rows(job, run, run.low, run.high)
        rows = rows.take(np.flatnonzero((rows.panes >= start) & (rows.panes < stop)))
        if len(rows):
            yield run, rows
