"""The history of a job is what its kept checkpoints say: what each added, its clock, the size of its state.

It is read from the manifests alone, whether the job runs or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.errors import CorruptCheckpoint, UnknownCheckpoint
from persistent.plots import Point, plotted
from persistent.storage import Storage
from persistent.storage.failures import without_secrets
from persistent.text.figures import utc_text

CHECKPOINTS_MAX: Final = 1_000
"""The newest so many are read."""


def plotted_history(storage: Storage) -> Any:
    """The kept checkpoints as an Altair chart. UnknownCheckpoint if they are too few, NoCheckpoint if there is none."""
    found = line(storage)
    place = without_secrets(storage.url)
    points = list(_points(found))
    if not points:
        raise UnknownCheckpoint(
            f"{place} keeps fewer than two checkpoints that were planned, so there is no history to plot: keep more, "
            "Pipeline(retention=Retention(last=100)), and run again; or plot the report of a run, report.plot()"
        )
    return plotted(points, f"checkpoints {found[0].id} to {found[-1].id} of {place}", of_day=True)


def line(storage: Storage) -> list[Manifest]:
    """The kept checkpoints that led to the newest one, oldest first: with a state of their own, and not abandoned by a
    rollback. NoCheckpoint if there is none."""
    log = Log(storage)
    newest = newest_of(log).manifest
    ids = [id for id in log.kept_ids(newest) if not newest.has_left(id)]
    return [one for id in ids[-CHECKPOINTS_MAX:] if (one := _read(log, id, newest)) is not None and one.is_base]


def _read(log: Log, id: int, newest: Manifest) -> Manifest | None:
    """The manifest; None if it was collected meanwhile."""
    if id == newest.id:
        return newest
    try:
        return log.read(id).manifest
    except CorruptCheckpoint:
        if id in log.kept_ids(newest_of(log).manifest):
            raise
        return None


def _points(found: Sequence[Manifest]) -> Iterator[Point]:
    """What each checkpoint added to the one before. A step reads its records after its plan: so the rate of a
    checkpoint lasts until the plan of the next, and that of the newest is not known yet."""
    for (before, one), after in zip(pairwise(found), [*found[2:], None]):
        if not one.committed_ms:
            continue
        runs = one.state_runs()
        rows = _added(before, one, "read")
        span_ms = after.committed_ms - one.committed_ms if after is not None else 0
        yield {
            "at": one.committed_ms,
            "when": f"checkpoint {one.id}, {utc_text(one.committed_ms)}",
            "rows": rows,
            "rows_per_second": 1000 * rows / span_ms if span_ms > 0 else None,
            "clock_ms": one.clock.watermark,
            "lag_ms": one.committed_ms - one.clock.watermark,
            "late": _added(before, one, "late"),
            "dead": _added(before, one, "dead"),
            "state_rows": sum(run.rows_left for run in runs),
            "state_bytes": sum(run.bytes for run in runs),
        }


def _added(before: Manifest, one: Manifest, fate: str) -> int:
    """How many records more; none after a rollback."""
    now, then = (sum(getattr(part, fate) for part in each.accounts.values()) for each in (one, before))
    return max(int(now - then), 0)
