"""Reading, folding and writing runs: the state of a job is their sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from monoids.groupby.cells import Integers, distinct_panes
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.agenda import Agenda, agenda_of
from persistent.checkpoint.names import Attempt
from persistent.checkpoint.runs import read_run, run_place, with_recovery_advice, write_new
from persistent.codec import KEY_GROUPS, Run, decode_run, encode_run, find_in_run, is_wide
from persistent.errors import PersistentError, UserCodeError
from persistent.session_window import sessions_after
from persistent.state_rows import OPEN_PANE, fold, in_panes
from persistent.task import STATE, key_names
from persistent.text.user_errors import error_text, users_line
from persistent.time_to_live import gaps_of
from persistent.worker.job import Folded, FoldRuns, Job

_PANES_MAX = 1 << 20
_BEFORE_ALL = -(1 << 62)


def fold_runs(
    job: Job, runs: Sequence[Run], low: int = 0, high: int = KEY_GROUPS, panes: tuple[int, int] | None = None
) -> GroupSums | None:
    """The sum of runs, oldest first, in some key groups and panes ``from <= pane < to``; None if there are no rows."""
    parts = parts_of(job, runs, low, high, panes)
    with monoid_errors(job):
        return fold(job.state.monoid, parts, job.state.panes.step) if parts else None


def fold_keys(
    job: Job, runs: Sequence[Run], low: int = 0, high: int = KEY_GROUPS, until: int | None = None
) -> GroupSums | None:
    """The sum of runs by key alone, in some key groups, over the panes before ``until`` (None: all)."""
    parts = parts_of(job, runs, low, high, None if until is None else (_BEFORE_ALL, until))
    with monoid_errors(job):
        return fold_by_key(job, parts) if parts else None


def fold_by_key(job: Job, parts: Sequence[GroupSums]) -> GroupSums:
    """The sum of parts, oldest first, by key alone. Failures of the user's monoid are raised as they are."""
    rows = fold(job.state.monoid, parts, job.state.panes.step)
    if int(rows.panes.max()) == int(rows.panes.min()) == OPEN_PANE:
        return rows
    return in_panes(job.state.monoid, rows, np.full(len(rows), OPEN_PANE))


def fold_panes(job: Job, runs: Sequence[Run], low: int, high: int, panes: tuple[int, int]) -> Iterator[GroupSums]:
    """The sum of runs in some key groups and panes ``from <= pane < to``, in pieces that each hold whole panes.

    A pane that is in only one run needs no fold; with time-ordered input most are.
    """
    step = job.state.panes.step
    parts = parts_of(job, runs, low, high, panes)
    if len(parts) < 2:
        yield from parts
        return
    first = min(int(part.panes.min()) for part in parts)
    size = (max(int(part.panes.max()) for part in parts) - first) // step + 1
    if size > _PANES_MAX:
        with monoid_errors(job):
            yield fold(job.state.monoid, parts, step)
        return
    numbers = [(part.panes - first) // step for part in parts]
    holders = np.zeros(size, np.int64)
    for number in numbers:
        holders += np.bincount(number, minlength=size) > 0
    is_shared = holders > 1
    shared = []
    for part, number in zip(parts, numbers):
        mask = is_shared[number]
        if mask.any():
            shared.append(part.take(np.flatnonzero(mask)))
            part = part.take(np.flatnonzero(~mask))
        if len(part):
            yield part
    if shared:
        with monoid_errors(job):
            yield fold(job.state.monoid, shared, step)


def parts_of(
    job: Job,
    runs: Sequence[Run],
    low: int,
    high: int,
    panes: tuple[int, int] | None = None,
    hashes: Words | None = None,
) -> list[GroupSums]:
    """The rows of each run in some key groups and panes ``from <= pane < to``, oldest first; runs without any are
    omitted. ``hashes``: of the keys to look up, ascending, all in these groups; None: all."""
    parts = []
    for run in runs:
        if high <= run.low or run.high <= low or (panes and (run.pane_max < panes[0] or run.pane_min >= panes[1])):
            continue
        rows = read_rows(job, run, low, high) if hashes is None else find_rows(job, run, hashes)
        if panes and (run.pane_min < panes[0] or run.pane_max >= panes[1]):
            rows = rows.take(np.flatnonzero((rows.panes >= panes[0]) & (rows.panes < panes[1])))
        if len(rows):
            parts.append(rows)
    return parts


def read_rows(job: Job, run: Run, low: int, high: int) -> GroupSums:
    """The verified rows of a run in some key groups."""
    data = read_run(job.storage, run)
    with with_recovery_advice(job.storage.url):
        return decode_run(job.state.monoid, data, run, run_place(job.storage, run), low, high)


def find_rows(job: Job, run: Run, hashes: Words) -> GroupSums:
    """The verified rows of keys with these hashes (ascending, each once) in a run."""
    data = read_run(job.storage, run)
    with with_recovery_advice(job.storage.url):
        return find_in_run(job.state.monoid, data, run, run_place(job.storage, run), hashes)


def write_run(
    job: Job, attempt: Attempt, rows: GroupSums, first: int, last: int, low: int = 0, high: int = KEY_GROUPS
) -> tuple[Run, Integers, Agenda | None]:
    """Write rows as a run of the deltas ``first`` to ``last``; returns it, its panes in ascending order, and the agenda
    of its sessions, if it has some."""
    panes = distinct_panes(rows.panes, job.state.panes.step)
    with monoid_errors(job):
        data, sha256 = encode_run(job.state.monoid, rows, key_names(job.task), panes.tolist())
    name = write_new(job.storage, job.folder(), attempt, data)
    run = Run(name, len(rows), len(data), sha256, low, low, high, int(panes[0]), int(panes[-1]), first, last)
    run = replace(run, wide=True) if is_wide(job.state.monoid, data) else run
    return run, panes, agenda_of(job.state.window, rows, job.state.time_to_live)


def compact_runs(job: Job, item: FoldRuns) -> Folded:
    """Fold neighbouring runs into one, without the panes needed only by final windows, and without sessions that are
    over. If the fold raises, the runs stay unchanged."""
    try:
        return _compacted(job, item)
    except UserCodeError as error:
        return Folded(None, None, str(error))


def _compacted(job: Job, item: FoldRuns) -> Folded:
    merge, window = item.merge, job.state.window
    gaps = gaps_of(window, job.state.time_to_live)
    rows = fold_runs(job, merge.inputs, merge.low, merge.high)
    if rows is not None and window is not None:
        needed = window.last_end(rows.panes) > item.final
        rows = rows if needed.all() else rows.take(np.flatnonzero(needed))
    if rows is not None and gaps is not None:
        rows = sessions_after(gaps, rows, item.over)
    if rows is None or not len(rows):
        return Folded(None, None)
    with monoid_errors(job):
        panes = job.state.folded_panes(rows.panes, item.final)
        rows = rows if panes is rows.panes else in_panes(job.state.monoid, rows, panes)
    first = min(run.first for run in merge.inputs)
    last = max(run.last for run in merge.inputs)
    run, panes, agenda = write_run(job, item.attempt, rows, first, last, merge.low, merge.high)
    return Folded(run, panes, agenda=agenda)


@contextmanager
def monoid_errors(job: Job) -> Iterator[None]:
    """Re-raise failures of the user's monoid as UserCodeError: they belong to a sum, not to one message."""
    try:
        yield
    except (PersistentError, OSError, MemoryError):
        raise
    except Exception as error:
        name, key = type(job.task).__name__, ", ".join(key_names(job.task))
        line, of = users_line(error), "" if job.name == STATE else f" in the state {job.name!r}"
        raise UserCodeError(
            f"{name}: the updates{f' of its keys ({key})' if key else ''} cannot be summed up{of}"
            f"{f', at {line}' if line else ''}: {error_text(error)}. Committed state stays; fix "
            "the task, its monoid or the values"
        ) from error
