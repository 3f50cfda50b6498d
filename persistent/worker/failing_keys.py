"""A failing key is a key, or one window of it, without a result: its fold raises, or the monoid cannot present its sum.

It is found by bisection: of the rows to present, or of the keys and then the windows to fold. All other keys get their
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.encoding import to_json
from monoids.groupby.summing import GroupSums
from persistent.checkpoint.aside_columns import aside_rows
from persistent.checkpoint.names import Attempt, Staged
from persistent.checkpoint.runs import write_table
from persistent.codec.sealed import HASH_LIMIT
from persistent.errors import PersistentError, UserCodeError
from persistent.session_window import ends_of, result_columns, values_of
from persistent.task import STATE, key_names
from persistent.text.figures import utc_text
from persistent.time_to_live import gaps_of
from persistent.window import WindowRange
from persistent.worker.job import Job

FoldWindows = Callable[[Sequence[GroupSums], int | None], Sequence[GroupSums]]
"""The sums of parts in the order of their hashes: of one window (its number), or of all (None)."""

_NOT_OF_A_ROW = (PersistentError, OSError, MemoryError)


@dataclass(frozen=True)
class FailingKey:
    """``window``: start and end (ms), None without windows. ``element``: encoded, if it exists."""

    key: tuple[Any, ...]
    window: tuple[int, int] | None
    error: Exception
    element: bytes | None = None

    def text(self, names: Sequence[str]) -> str:
        """Its key and window, and the error."""
        parts = (
            [f"key ({', '.join(f'{name}={value!r:.200}' for name, value in zip(names, self.key))})"] if names else []
        )
        if self.window is not None:
            parts.append(f"window {utc_text(self.window[0])} to {utc_text(self.window[1])}")
        return f"{', '.join(parts) or 'the whole state'}: {type(self.error).__name__}: {self.error}"


def of_state(job: Job) -> str:
    """Which state it is, of a task with several."""
    return "" if job.name == STATE else f", of the state {job.name!r}"


def no_result(job: Job, failing: FailingKey) -> UserCodeError:
    """The error that stops a run, or a read."""
    another = "Keep the state and give it another monoid, with Pipeline(evolve=Evolution(before=..., change=...))"
    if gaps_of(job.state.window, job.state.time_to_live) is not None:
        another = "Give the task another monoid and a new checkpoint, and read the source again"
    key = f"{failing.text(key_names(job.task))}{of_state(job)}"
    error = UserCodeError(
        f"{type(job.task).__name__}: no result for {key}. Committed state stays. "
        f'{another}; or set such results aside, with their reason, and get all others: on_error="dead-letter"'
    )
    error.__cause__ = failing.error
    return error


def present_rows(
    job: Job, table_of: Callable[[GroupSums], pa.Table], rows: GroupSums, failing: list[FailingKey]
) -> Iterator[pa.Table]:
    """The output tables of rows. Rows for which ``table_of`` raises go to ``failing`` instead. Without dead letters in
    the job, the first one ends the search."""
    if failing and not job.dead_letters:
        return
    try:
        table = table_of(rows)
    except _NOT_OF_A_ROW:
        raise
    except Exception as error:
        if len(rows) == 1:
            failing.append(failing_key(job, rows, error))
            return
        middle = len(rows) // 2
        for start, stop in ((0, middle), (middle, len(rows))):
            yield from present_rows(job, table_of, rows.slice(start, stop), failing)
        return
    yield table


def presented(table_of: Callable[[GroupSums], pa.Table], rows: GroupSums) -> pa.Table | Exception:
    """The output table of one row, or why it has none."""
    try:
        return table_of(rows)
    except _NOT_OF_A_ROW:
        raise
    except Exception as error:
        return error


def failing_key(job: Job, rows: GroupSums, error: Exception) -> FailingKey:
    """The key of one row that has no result."""
    start, window = int(rows.panes[0]), job.state.window
    times = None if window is None else (start, int(ends_of(window, rows.slice(0, 1))[0]))
    return FailingKey(_first_key(rows), times, error, _encoded(job.state.monoid, rows))


def fold_apart(
    job: Job,
    parts: Sequence[GroupSums],
    fold_windows: FoldWindows,
    windows: WindowRange | None,
    failing: list[FailingKey],
) -> Iterator[GroupSums]:
    """The sums of parts, oldest first, each in the order of its hashes. Keys and windows for which ``fold_windows``
    raises go to ``failing`` instead. ``windows``: up to a last one; None if the state has none."""
    parts = [part for part in parts if len(part)]
    if not parts or (failing and not job.dead_letters):
        return
    try:
        sums = fold_windows(parts, None)
    except _NOT_OF_A_ROW:
        raise
    except Exception:
        hashes = np.unique(np.concatenate([part.hashes for part in parts]))
        if len(hashes) == 1:
            yield from _fold_key(parts, fold_windows, windows, failing)
            return
        middle = int(hashes[len(hashes) // 2])
        for low, high in ((0, middle), (middle, HASH_LIMIT)):
            yield from fold_apart(job, [part.between(low, high) for part in parts], fold_windows, windows, failing)
        return
    yield from sums


def _fold_key(
    parts: Sequence[GroupSums],
    fold_windows: FoldWindows,
    windows: WindowRange | None,
    failing: list[FailingKey],
) -> Iterator[GroupSums]:
    """The windows of one key that can be folded; different keys may share a hash."""
    keys = [list(zip(*(column.to_pylist() for column in part.keys))) or [()] * len(part) for part in parts]
    for key in dict.fromkeys(map(repr, (key for of_part in keys for key in of_part))):
        own = [
            part.take(np.flatnonzero(np.array([repr(one) == key for one in of_part], np.bool_)))
            for part, of_part in zip(parts, keys)
        ]
        own = [part for part in own if len(part)]
        for number, times in _windows(own, windows):
            try:
                sums = fold_windows(own, number)
            except _NOT_OF_A_ROW:
                raise
            except Exception as error:
                failing.append(FailingKey(_first_key(own[0]), times, error))
            else:
                yield from sums


def _windows(
    parts: Sequence[GroupSums], windows: WindowRange | None
) -> Sequence[tuple[int | None, tuple[int, int] | None]]:
    """The windows of the range that hold a pane of these parts: the number of each, its start and end."""
    if windows is None:
        return [(None, None)]
    assert windows.last is not None
    window = windows.window
    panes = np.unique(np.concatenate([part.panes for part in parts]))
    lows = np.maximum(window.first_number(panes), windows.first)
    highs = np.minimum(window.last_number(panes), windows.last)
    numbers = sorted({number for low, high in zip(lows, highs) for number in range(int(low), int(high) + 1)})
    return [(number, (window.start_of(number), window.end_of(number))) for number in numbers]


def _first_key(rows: GroupSums) -> tuple[Any, ...]:
    return tuple(column[0].as_py() for column in rows.keys)


def _encoded(monoid: Monoid[Any], rows: GroupSums) -> bytes | None:
    """The element of a row, for its dead letter, by the monoid of its value; None if it cannot be encoded."""
    values = values_of(monoid)
    try:
        return values.encode(values.unpack(result_columns(monoid, rows.columns))[0])
    except Exception:
        return None


def stage_failing_keys(job: Job, attempt: Attempt, failing: Sequence[FailingKey]) -> Staged | None:
    """Write them as dead letters. They belong to no record, so the ledger does not count them."""
    if not failing:
        return None
    names, rows = key_names(job.task), len(failing)
    found = aside_rows(
        rows,
        partition="",
        file="",
        timestamp=[one.window[0] if one.window else None for one in failing],
        reason=[f"no result for {one.text(names)}{of_state(job)}" for one in failing],
        checkpoint=attempt.id,
        data=[_facts(one, names) for one in failing],
    )
    return write_table(job.storage, job.folder(), attempt, pa.Table.from_batches([found]))


def _facts(failing: FailingKey, names: Sequence[str]) -> bytes:
    """The key, the window (ms) and the element (hexadecimal) as JSON, for programs."""
    start, end = failing.window or (None, None)
    element = None if failing.element is None else failing.element.hex()
    key = dict(zip(names, failing.key))
    return to_json({"key": key, "window_start": start, "window_end": end, "element": element}).encode(
        "utf-8", "replace"
    )
