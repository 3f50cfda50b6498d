"""Where a record that was set aside lands if a correction puts it in: which windows of which states hold its time, and
whether they still take it.

A correction (``persistent correct``) is refused for a record of which any window is final.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from persistent.checkpoint.manifest import Manifest
from persistent.errors import FingerprintChanged, InvalidPipeline, OtherJob
from persistent.reading.place import checked_job
from persistent.serve.shown import Shown
from persistent.session_window import SessionWindow
from persistent.task import STATE
from persistent.text.figures import utc_text
from persistent.window import AnyWindow
from persistent.worker.job import Job

_DAY = len("2024-05-06")

Landing = Callable[[int | None], str]


def landing(shown: Shown) -> Landing | None:
    """Says, for a timestamp, where its record would land now. None without the pipeline of the checkpoint."""
    if shown.pipeline is None:
        return None
    place = shown.place()
    try:
        names = [job.name for job in shown.pipeline.job().each().values()]
        jobs = [checked_job(shown.pipeline, place, name) for name in names]
    except (InvalidPipeline, OtherJob, FingerprintChanged):
        # The task has changed since: its windows are not those of the checkpoint.
        return None
    views = [(job, place.manifest.of(job.operator)) for job in jobs]

    def of(timestamp: int | None) -> str:
        if timestamp is None:
            return "needs a usable time"
        return "; ".join(f"{_named(job)}{_in_state(job, view, timestamp)}" for job, view in views)

    return of


def _named(job: Job) -> str:
    return "" if job.name == STATE else f"{job.name}: "


def _in_state(job: Job, view: Manifest, timestamp: int) -> str:
    window, clock = job.state.window, view.clock.watermark
    if window is None:
        life = job.state.time_to_live
        if life is not None and life.may_be_late(timestamp, clock):
            return "its key has expired by then"
        return "the sum of its key, at any time"
    if isinstance(window, SessionWindow):
        return "too old for a session" if window.may_be_late(timestamp, clock) else "a session that is open"
    if not bool(window.holds(np.array([timestamp]))[0]):
        return "no window holds it"
    return _in_windows(window, view, timestamp)


def _in_windows(window: AnyWindow, view: Manifest, timestamp: int) -> str:
    first, last = int(window.first_number(timestamp)), int(window.last_number(timestamp))
    start, end = int(window.start_of(first)), int(window.end_of(first))
    # The first of them that ends is the first to be final.
    if end <= view.final:
        fate = "is final"
    elif end <= view.clock.closed:
        fate = "is closed, and published anew"
    else:
        fate = "is open"
    others = f", the first of {last - first + 1:,} windows," if last > first else ""
    begins, ends = utc_text(start), utc_text(end)
    same_day = begins[:_DAY] == ends[:_DAY]
    return f"{begins} to {ends[_DAY + 1 :] if same_day else ends}{others} {fate}"
