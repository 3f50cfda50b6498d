"""Why a run has published nothing, and when it would publish something."""

from __future__ import annotations

from dataclasses import dataclass

from persistent.sources.protocol import Reached
from persistent.text.figures import clock_text, utc_text

_COMPLETE = "if the input is complete, run with --end-of-input (from Python end_of_input=True)"
_NO_UPDATE = (
    "the task has updated no window: process_message adds what a message contributes with state.update(timestamp, "
    "value), itself and not in a generator that nobody reads"
)
_STATE = "'persistent state' and pipeline.state() show it"


@dataclass(frozen=True)
class Ended:
    """The end of a run. ``first_end``: the end of the first open window; ``ended``: whether the input was declared
    complete; ``reached``: how far the source has been read, if known; ``of_changes``: whether each step publishes what
    it has changed; ``of_sessions``: whether its windows are sessions, which messages make longer; ``early``: whether
    it is published early."""

    rows: int
    late: int
    dead: int
    has_sink: bool
    has_windows: bool
    open_windows: int
    first_end: int | None
    clock_ms: int
    ended: bool
    reached: Reached | None
    of_changes: bool = False
    of_sessions: bool = False
    early: bool = False


def why(run: Ended) -> str:
    """Why the run has published nothing.

    >>> why(Ended(9, 5, 4, True, True, 0, None, 0, False, None))
    'all 9 records read were set aside (5 late, 4 dead letters)'
    """
    reason = _reason(run)
    return reason if run.rows else f"there was nothing new to read{_of_files(run.reached)}; {reason}"


def _reason(run: Ended) -> str:
    if not run.has_sink:
        kept = "only its open windows are kept" if run.has_windows else "the state is the result"
        return f"the pipeline has no sink, {kept}: {_STATE}"
    if run.rows and run.late + run.dead >= run.rows:
        return f"all {run.rows:,} records read were set aside ({run.late:,} late, {run.dead:,} dead letters)"
    if run.of_changes:
        return "nothing has changed since it was published"
    if not run.has_windows:
        if run.ended:
            return "no key has changed since its value was published"
        if run.early:
            return f"a state without windows is published early once the clock has passed a multiple; {_COMPLETE}"
        return f"a state without windows is published at the end of the input: {_COMPLETE}"
    if not run.open_windows:
        return "no window is open" if not run.rows else _NO_UPDATE
    return f"{_open(run)}; {_waits(run)}"


def _open(run: Ended) -> str:
    """Which windows wait for the clock."""
    end = "" if run.first_end is None else utc_text(run.first_end)
    if run.of_sessions:
        return f"sessions are open, and none closes before the clock reaches {end}"
    if run.open_windows == 1:
        return f"1 window is open, until the clock reaches {end}"
    return f"{run.open_windows:,} windows are open, the first until the clock reaches {end}"


def _waits(run: Ended) -> str:
    """The event that the clock waits for."""
    stands = f"it is at {clock_text(run.clock_ms)}" if run.clock_ms else "it has not begun"
    if run.reached is not None and not run.reached.is_all:
        return f"{stands}, and waits for listed files that are not read yet (ordered=True: for none)"
    return f"{stands} until later records arrive; {_COMPLETE}"


def _of_files(reached: Reached | None) -> str:
    if reached is None or not reached.files:
        return ""
    return f", {reached.files_done:,} of {reached.files:,} files were read before"
