"""Where a record that was set aside lands if a correction puts it in: which windows of which states hold its time, and
whether they still take it.

A correction (``persistent correct``) is refused for a record of which any window is final.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from persistent.clock import wall_ms
from persistent.errors import PersistentError
from persistent.serve.shown import Shown
from persistent.serve.state_reading import StateReading, Wanted, names_of, reading
from persistent.session_window import SessionWindow
from persistent.text.figures import utc_text
from persistent.window import AnyWindow

_DAY = len("2024-05-06")

Landing = Callable[[int | None], str]


def landing(shown: Shown) -> Landing | None:
    """Says, for a timestamp, where its record would land now. None without the pipeline of the checkpoint."""
    if shown.pipeline is None:
        return None
    names, manifest = names_of(shown.pipeline), shown.look().newest.manifest
    limit = max(wall_ms(), manifest.furthest) + shown.pipeline.max_future_ms
    limit = limit if manifest.not_after is None else min(limit, manifest.not_after)
    try:
        states = [reading(shown, Wanted(name=name)) for name in names or ("",)]
    except PersistentError:
        # The task has changed since: its windows are not those of the checkpoint.
        return None

    def of(timestamp: int | None) -> str:
        if timestamp is None:
            return "needs a usable time"
        if timestamp < 0:
            return "needs a time from 1970 on"
        if timestamp > limit:
            return f"needs a time up to {utc_text(limit)}"
        named = [f"{name}: " for name in names] or [""]
        return "; ".join(f"{name}{_in_state(state, timestamp)}" for name, state in zip(named, states))

    return of


def _in_state(found: StateReading, timestamp: int) -> str:
    state, clock = found.job.state, found.manifest.clock.watermark
    window = state.window
    if window is None:
        life = state.time_to_live
        if life is not None and life.may_be_late(timestamp, clock):
            return "its key has expired by then"
        return "the sum of its key, at any time"
    if isinstance(window, SessionWindow):
        return "too old for a session" if window.may_be_late(timestamp, clock) else "a session that is open"
    if not bool(window.holds(np.array([timestamp]))[0]):
        return "no window holds it"
    return _in_windows(window, found.manifest.final, found.manifest.clock.closed, timestamp)


def _in_windows(window: AnyWindow, final: int, closed: int, timestamp: int) -> str:
    first, last = int(window.first_number(timestamp)), int(window.last_number(timestamp))
    start, end = int(window.start_of(first)), int(window.end_of(first))
    # The first of them that ends is the first to be final.
    if end <= final:
        fate = "is final"
    elif end <= closed:
        fate = "is closed, and published anew"
    else:
        fate = "is open"
    others = f", the first of {last - first + 1:,} windows," if last > first else ""
    begins, ends = utc_text(start), utc_text(end)
    same_day = begins[:_DAY] == ends[:_DAY]
    return f"{begins} to {ends[_DAY + 1 :] if same_day else ends}{others} {fate}"
