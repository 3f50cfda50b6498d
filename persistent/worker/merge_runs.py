"""Reading, folding and writing runs: the state of a job is their sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from monoids.groupby.cells import Integers, distinct_panes
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.checkpoint.runs import read_run, run_place, with_recovery_advice, write_new
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import decode_run, encode_run, find_in_run, is_wide
from persistent.errors import PersistentError, UserCodeError
from persistent.names import STATE, Attempt, state_name
from persistent.state.rows import Agenda, agenda_of, fold, in_panes
from persistent.state.views import fold_by_key
from persistent.task.task import PersistentTask, key_names
from persistent.text.readable import readable
from persistent.text.user_errors import error_text, users_line
from persistent.time.session_window import sessions_after
from persistent.worker.job import Folded, FoldRuns, Node

_BEFORE_ALL = -(1 << 62)


def fold_runs(
    node: Node, runs: Sequence[Run], low: int = 0, high: int = KEY_GROUPS, panes: tuple[int, int] | None = None
) -> GroupSums | None:
    """The sum of runs, oldest first, in some key groups and panes ``from <= pane < to``; None if there are no rows."""
    parts = parts_of(node, runs, low, high, panes)
    with monoid_errors(node.task, node.id):
        return fold(node.state.monoid, parts, node.state.panes.step) if parts else None


def fold_keys(
    node: Node, runs: Sequence[Run], low: int = 0, high: int = KEY_GROUPS, until: int | None = None
) -> GroupSums | None:
    """The sum of runs by key alone, in some key groups, over the panes before ``until`` (None: all)."""
    parts = parts_of(node, runs, low, high, None if until is None else (_BEFORE_ALL, until))
    with monoid_errors(node.task, node.id):
        return fold_by_key(node.state.monoid, parts, node.state.panes.step) if parts else None


def parts_of(
    node: Node,
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
        rows = read_rows(node, run, low, high) if hashes is None else find_rows(node, run, hashes)
        if panes and (run.pane_min < panes[0] or run.pane_max >= panes[1]):
            rows = rows.take(np.flatnonzero((rows.panes >= panes[0]) & (rows.panes < panes[1])))
        if len(rows):
            parts.append(rows)
    return parts


def read_rows(node: Node, run: Run, low: int, high: int) -> GroupSums:
    """The verified rows of a run in some key groups."""
    data = read_run(node.storage, run)
    with with_recovery_advice(node.storage.url):
        return decode_run(node.state.monoid, data, run, run_place(node.storage, run), low, high)


def find_rows(node: Node, run: Run, hashes: Words) -> GroupSums:
    """The verified rows of keys with these hashes (ascending, each once) in a run."""
    data = read_run(node.storage, run)
    with with_recovery_advice(node.storage.url):
        return find_in_run(node.state.monoid, data, run, run_place(node.storage, run), hashes)


def key_text(rows: GroupSums, row: int) -> str:
    """The key of a row, for a message."""
    return ", ".join(repr(readable(column[row])) for column in rows.keys)


def write_run(
    node: Node, attempt: Attempt, rows: GroupSums, first: int, last: int, low: int = 0, high: int = KEY_GROUPS
) -> tuple[Run, Integers, Agenda | None]:
    """Write rows as a run of the deltas ``first`` to ``last``; returns it, its panes in ascending order, and the agenda
    of its sessions, if it has some."""
    panes = distinct_panes(rows.panes, node.state.panes.step)
    with monoid_errors(node.task, node.id):
        data, sha256 = encode_run(node.state.monoid, rows, key_names(node.task), panes.tolist())
    name = write_new(node.storage, node.folder, attempt, data)
    run = Run(name, len(rows), len(data), sha256, low, low, high, int(panes[0]), int(panes[-1]), first, last)
    run = replace(run, wide=True) if is_wide(node.state.monoid, data) else run
    gaps = node.state.gaps
    return run, panes, None if gaps is None else agenda_of(gaps, rows)


def compact_runs(node: Node, item: FoldRuns) -> Folded:
    """Fold neighbouring runs into one, without the panes needed only by final windows, and without sessions that are
    over. If the fold raises, the runs stay unchanged."""
    try:
        return _compacted(node, item)
    except UserCodeError as error:
        return Folded(None, None, str(error))


def _compacted(node: Node, item: FoldRuns) -> Folded:
    merge, window, gaps = item.merge, node.state.window, node.state.gaps
    rows = fold_runs(node, merge.inputs, merge.low, merge.high)
    if rows is not None and window is not None:
        needed = window.last_end(rows.panes) > item.final
        rows = rows if needed.all() else rows.take(np.flatnonzero(needed))
    if rows is not None and gaps is not None:
        rows = sessions_after(gaps, rows, item.over)
    if rows is None or not len(rows):
        return Folded(None, None)
    with monoid_errors(node.task, node.id):
        panes = node.state.folded_panes(rows.panes, item.final)
        rows = rows if panes is rows.panes else in_panes(node.state.monoid, rows, panes)
    first = min(run.first for run in merge.inputs)
    last = max(run.last for run in merge.inputs)
    run, panes, agenda = write_run(node, item.attempt, rows, first, last, merge.low, merge.high)
    return Folded(run, panes, agenda=agenda)


class monoid_errors:
    """Re-raise failures of the user's monoid as UserCodeError: they belong to a sum, not to one message. ``node``:
    whose sum, if that is known."""

    __slots__ = ("_node", "_task")

    def __init__(self, task: PersistentTask, node: str = "") -> None:
        self._task, self._node = task, node

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, PersistentError | OSError | MemoryError):
            return
        task, state = self._task, state_name(self._node)
        name, key = type(task).__name__, ", ".join(key_names(task))
        line, of = users_line(error), "" if state == STATE else f" in the state {state!r}"
        raise UserCodeError(
            f"{name}: the updates{f' of its keys ({key})' if key else ''} cannot be summed up{of}"
            f"{f', at {line}' if line else ''}: {error_text(error)}. Committed state stays; fix "
            "the task, its monoid or the values"
        ) from error
