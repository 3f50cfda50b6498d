"""A restart cuts the seen records of a source at its clock, as it cuts the state.

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
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.parts import SeenPart, SourcePart
from persistent.codec import Run
from persistent.driver.seen_part import begun, check_seen
from persistent.errors import Refused
from persistent.text.figures import utc_text
from persistent.worker.job import Job, Node
from persistent.worker.merge_runs import read_rows, write_run
from persistent.worker.seen_state import seen_node


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
