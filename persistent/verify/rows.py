"""Rows of a run are checked: sorted, with the hashes of their keys, in the key groups and panes of the manifest.

All checks work on Arrow columns, without user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.hashing import hash_keys, null_safe_equal
from persistent.codec import Run, common_key_types, decode_panes, decode_table, groups_of
from persistent.errors import CorruptCheckpoint

_KEY, _ELEMENT = "key:", "element:"
_PANES_MAX = 1 << 16

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or a parallel map that keeps the order."""


def state_faults(
    data: pa.Buffer, run: Run, place: str, key_names: Sequence[str], key_types: Sequence[str]
) -> Iterator[str]:
    """The faults of a run of state rows, after reading every byte. CorruptCheckpoint if it cannot be read."""
    yield from state_table_faults(decode_table(data, run.sha256, place), data, run, place, key_names, key_types)


def state_table_faults(
    table: pa.Table,
    data: pa.Buffer,
    run: Run,
    place: str,
    key_names: Sequence[str],
    key_types: Sequence[str],
    each: Each = map,
) -> Iterator[str]:
    """Likewise, for a run that is already verified and decoded; ``each`` maps over its batches in order."""
    yield from size_faults(table, data, run)
    names = list(table.schema.names)
    keys = [f"{_KEY}{name}" for name in key_names]
    others = names[len(keys) + 2 :]
    if names[: len(keys) + 2] != ["hash", *keys, "pane"] or not all(name.startswith(_ELEMENT) for name in others):
        yield f"has the columns {', '.join(names)}; the state's keys are {', '.join(key_names) or 'none'}"
        return
    for name, known in zip(keys, key_types):
        type_name = str(table.schema.field(name).type)
        if not _is_of(type_name, known):
            yield f"column {name} holds {type_name}, but {known} according to its manifest"
    listed = np.array(decode_panes(data, run, place), np.int64)
    count = len(keys)
    before: pa.RecordBatch | None = None
    panes = []
    for facts in each(lambda batch: _facts(batch, run, count, listed, place), table.to_batches()):
        yield from facts.faults
        if not facts.ends:
            continue
        panes.append(facts.panes)
        if before is not None:
            yield from _order_faults(pa.concat_batches([before, facts.ends[0]]), count)
        before = facts.ends[1]
    yield from _pane_faults(np.unique(np.concatenate(panes)) if panes else np.zeros(0, np.int64), listed, run)


def _is_of(type_name: str, known: str) -> bool:
    """Whether the type holds keys of type ``known``: the same type, all null, or wider decimals."""
    try:
        return common_key_types([[type_name], [known]]) == (known,)
    except (TypeError, ValueError):
        return False


def size_faults(table: pa.Table, data: pa.Buffer, run: Run) -> Iterator[str]:
    """Whether a file has the bytes and rows that its manifest says."""
    if data.size != run.bytes:
        yield f"has {data.size:,} bytes, but {run.bytes:,} according to its manifest"
    if table.num_rows != run.rows:
        yield f"has {table.num_rows:,} rows, but {run.rows:,} according to its manifest"


@dataclass(frozen=True)
class _BatchFacts:
    """The check of one batch: its faults, its ``panes`` ascending, and its first and last row."""

    faults: tuple[str, ...]
    panes: Integers
    ends: tuple[pa.RecordBatch, pa.RecordBatch] | None


def _facts(batch: pa.RecordBatch, run: Run, keys: int, listed: Integers, place: str) -> _BatchFacts:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error
    if not len(batch):
        return _BatchFacts((), np.zeros(0, np.int64), None)
    panes = _panes_held(np.asarray(batch.column(keys + 1)), listed)
    return _BatchFacts(tuple(_batch_faults(batch, run, keys)), panes, (batch.slice(0, 1), batch.slice(len(batch) - 1)))


def _panes_held(panes: Integers, listed: Integers) -> Integers:
    """The distinct panes of a batch. Listed panes are counted instead of sorted, because there are few values."""
    if not len(listed):
        return np.unique(panes)
    step = int(np.gcd.reduce(np.diff(listed))) if len(listed) > 1 else 1
    count = (int(listed[-1]) - int(listed[0])) // max(step, 1) + 1
    if step < 1 or count > _PANES_MAX or panes.min() < listed[0] or panes.max() > listed[-1]:
        return np.unique(panes)
    numbers = (panes - listed[0]) // step
    if not np.array_equal(numbers * step + listed[0], panes):
        return np.unique(panes)
    distinct: Integers = np.flatnonzero(np.bincount(numbers, minlength=count))
    distinct *= step
    distinct += listed[0]
    return distinct


def _pane_faults(panes: Integers, listed: Integers, run: Run) -> Iterator[str]:
    if len(panes) and (int(panes[0]), int(panes[-1])) != (run.pane_min, run.pane_max):
        yield f"holds panes {panes[0]} to {panes[-1]}, but {run.pane_min} to {run.pane_max} according to its manifest"
    if not np.array_equal(listed, panes):
        yield "its index lists panes that differ from those of its rows"


def _batch_faults(batch: pa.RecordBatch, run: Run, keys: int) -> Iterator[str]:
    hashes = np.asarray(batch.column(0))
    low, high = groups_of(np.array([hashes.min(), hashes.max()])).tolist()
    if low < run.start or high >= run.high:
        yield f"holds key groups {low} to {high}, but {run.start} up to {run.high} according to its manifest"
    wrong = int((hash_keys(batch.columns[1 : 1 + keys], len(batch)) != hashes).sum())
    if wrong:
        yield f"{wrong:,} rows have a hash that is not that of their key"
    yield from _order_faults(batch, keys)


def _order_faults(batch: pa.RecordBatch, keys: int) -> Iterator[str]:
    """Rows are sorted by (hash, key, pane), and each (key, pane) is unique. The order of keys with equal hashes is not
    checked."""
    hashes, panes = np.asarray(batch.column(0)), np.asarray(batch.column(keys + 1))
    descending = int((hashes[1:] < hashes[:-1]).sum())
    if descending:
        yield f"{descending:,} rows precede a row with a smaller hash"
    same: Any = hashes[1:] == hashes[:-1]
    for column in batch.columns[1 : 1 + keys]:
        same = same & null_safe_equal(column[1:], column[:-1])
    disordered = int((same & (panes[1:] <= panes[:-1])).sum())
    if disordered:
        yield f"{disordered:,} rows of a key precede a row of the same or an earlier pane"
