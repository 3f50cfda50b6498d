"""A culprit is a key, and a window of it, whose result cannot be had: its fold raises, or the monoid cannot present it.

It is found by halving what raises: rows that are to be shown, or the keys, then the windows, of what is to be summed
up. So one key names itself, and the others have their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.encoding import to_json
from monoids.groupby.cells import Integers
from persistent.codec import encode_table
from persistent.errors import PersistentError, UserCodeError
from persistent.sinks.protocol import Staged
from persistent.task import key_names
from persistent.text.figures import utc_text
from persistent.window import Window
from persistent.worker.job import Attempt, Job
from persistent.worker.state_rows import Rows

NumberedRows = tuple[Rows, Integers | None]
"""Rows, and the window number of each, if there are windows."""

SumUp = Callable[[Sequence[Rows], int | None], Sequence[NumberedRows]]
"""The sums of rows that are in the order of their hashes; of one window (its number), None: of all."""

_NOT_OF_A_ROW = (PersistentError, OSError, MemoryError)


@dataclass(frozen=True)
class Culprit:
    """``window``: start and end (ms), None of a state without windows. ``element``: encoded, where there is one."""

    key: tuple[Any, ...]
    window: tuple[int, int] | None
    error: Exception
    element: bytes | None = None

    def told(self, names: Sequence[str]) -> str:
        """Where it is, and what was raised."""
        parts = (
            [f"key ({', '.join(f'{name}={value!r:.200}' for name, value in zip(names, self.key))})"] if names else []
        )
        if self.window is not None:
            parts.append(f"window {utc_text(self.window[0])} to {utc_text(self.window[1])}")
        return f"{', '.join(parts) or 'the whole state'}: {type(self.error).__name__}: {self.error}"


def refusal(job: Job, culprit: Culprit) -> UserCodeError:
    """The error that stops a run, or a read."""
    error = UserCodeError(
        f"{type(job.task).__name__}: no result for {culprit.told(key_names(job.task))}. What was committed stays. Keep "
        "the state and give it another monoid, with Pipeline(evolve=Evolution(before=..., change=...)); or set such "
        'results aside, with their reason, and have all others: on_error="dead-letter"'
    )
    error.__cause__ = culprit.error
    return error


def shown(
    job: Job, table_of: Callable[[Rows, Integers | None], pa.Table], sums: NumberedRows, found: list[Culprit]
) -> Iterator[pa.Table]:
    """The rows as ``table_of`` shows them, without those for which it raises: these are ``found``. Unless the job has
    dead letters, one is enough."""
    rows, numbers = sums
    if found and not job.dead_letters:
        return
    try:
        table = table_of(rows, numbers)
    except _NOT_OF_A_ROW:
        raise
    except Exception as error:
        if len(rows) == 1:
            found.append(_culprit(job, rows, None if numbers is None else int(numbers[0]), error, with_element=True))
            return
        middle = len(rows) // 2
        for start, stop in ((0, middle), (middle, len(rows))):
            part = None if numbers is None else numbers[start:stop]
            yield from shown(job, table_of, (rows.slice(start, stop), part), found)
        return
    yield table


def summed(
    job: Job, parts: Sequence[Rows], sum_up: SumUp, windows: tuple[int, int] | None, found: list[Culprit]
) -> Iterator[NumberedRows]:
    """What ``sum_up`` makes of parts, oldest first, each in the order of its hashes, without the keys and windows for
    which it raises. ``windows``: the first and the last number."""
    parts = [part for part in parts if len(part)]
    if not parts or (found and not job.dead_letters):
        return
    try:
        sums = sum_up(parts, None)
    except _NOT_OF_A_ROW:
        raise
    except Exception as error:
        hashes = np.unique(np.concatenate([part.hashes for part in parts]))
        if len(hashes) == 1:
            yield from _summed_key(job, parts, sum_up, windows, found, error)
            return
        middle = int(hashes[len(hashes) // 2])
        for low, high in ((0, middle), (middle, 1 << 64)):
            yield from summed(job, [part.between(low, high) for part in parts], sum_up, windows, found)
        return
    yield from sums


def _summed_key(
    job: Job,
    parts: Sequence[Rows],
    sum_up: SumUp,
    windows: tuple[int, int] | None,
    found: list[Culprit],
    error: Exception,
) -> Iterator[NumberedRows]:
    """The windows of one key that can be summed up; different keys may share a hash."""
    keys = [list(zip(*(column.to_pylist() for column in part.keys))) or [()] * len(part) for part in parts]
    for key in dict.fromkeys(map(repr, (key for of_part in keys for key in of_part))):
        own = [
            part.take(np.flatnonzero(np.array([repr(one) == key for one in of_part], np.bool_)))
            for part, of_part in zip(parts, keys, strict=True)
        ]
        own = [part for part in own if len(part)]
        window = job.state.window
        for number in _windows(own, window, windows) if window and windows else [None]:
            try:
                sums = sum_up(own, number)
            except _NOT_OF_A_ROW:
                raise
            except Exception as raised:
                found.append(_culprit(job, own[0].slice(0, 1), number, raised))
            else:
                yield from sums


def _windows(parts: Sequence[Rows], window: Window, windows: tuple[int, int]) -> list[int]:
    """The windows in this range that hold a pane of these."""
    panes = np.unique(np.concatenate([part.panes for part in parts]))
    ranges = zip(np.maximum(window.first_number(panes), windows[0]), np.minimum(window.last_number(panes), windows[1]))
    return sorted({number for low, high in ranges for number in range(int(low), int(high) + 1)})


def _culprit(job: Job, rows: Rows, number: int | None, error: Exception, *, with_element: bool = False) -> Culprit:
    window = job.state.window
    times = None
    if window is not None and number is not None:
        times = number * window.every_ms, number * window.every_ms + window.size_ms
    element = _encoded(job.state.monoid, rows) if with_element else None
    return Culprit(tuple(column[0].as_py() for column in rows.keys), times, error, element)


def _encoded(monoid: Monoid[Any], rows: Rows) -> bytes | None:
    """The element of a row, where it can be encoded: what is set aside should not be lost."""
    try:
        return monoid.encode(monoid.unpack(rows.columns)[0])
    except Exception:
        return None


def stage_culprits(job: Job, attempt: Attempt, found: Sequence[Culprit]) -> Staged | None:
    """Write them as dead letters: of no partition or record, and so none of the ledger's."""
    if not found:
        return None
    names, rows = key_names(job.task), len(found)
    nothing = pa.nulls(rows, pa.int64())
    columns = {
        "partition": pa.array([""] * rows),
        "file": pa.array([""] * rows),
        "ordinal": nothing,
        "offset": nothing,
        "timestamp": pa.array([one.window[0] if one.window else None for one in found], pa.int64()),
        "reason": pa.array([f"no result for {one.told(names)}" for one in found], pa.string()),
        "checkpoint": pa.array([attempt.id] * rows, pa.int64()),
        "value": pa.nulls(rows),
        "data": pa.array([_facts(one, names) for one in found], pa.binary()),
    }
    data, sha256 = encode_table(pa.table(columns))
    name = attempt.run_name(job.folder())
    job.storage.write(name, data)
    return Staged(name, rows, len(data), sha256)


def _facts(culprit: Culprit, names: Sequence[str]) -> bytes:
    """Which result it is, for a program: JSON with the key, the window (ms) and the element in hexadecimal digits."""
    start, end = culprit.window or (None, None)
    element = None if culprit.element is None else culprit.element.hex()
    key = dict(zip(names, culprit.key))
    return to_json({"key": key, "window_start": start, "window_end": end, "element": element}).encode(
        "utf-8", "replace"
    )
