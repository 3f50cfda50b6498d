"""Runs are checked in parallel: one is read and hashed while the rows of another are checked.

Rows of a run are sorted, with the hashes of their keys, in the key groups and panes of the manifest. All checks work on
Arrow columns, without user code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.hashing import hash_keys, null_safe_equal
from persistent.checkpoint.copies import OnProgress
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart
from persistent.codec.fields import Run, common_key_types
from persistent.codec.runs import decode_panes, groups_of
from persistent.codec.sealed import decode_table
from persistent.errors import CorruptCheckpoint, PersistentError
from persistent.storage.protocol import Storage
from persistent.verify.findings import MISSING, Verification

_KEY, _ELEMENT = "key:", "element:"
_PANES_MAX = 1 << 16

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or a parallel map that keeps the order."""

UNREADABLE = (CorruptCheckpoint, pa.ArrowException, ValueError, KeyError, TypeError, IndexError)
"""Errors of decoding damaged bytes."""

_AHEAD = 2
"""The number of runs read ahead; more would only use memory."""


@dataclass(frozen=True)
class _Read:
    """A run as read: its bytes, and its table or its fault."""

    data: pa.Buffer | None = None
    table: pa.Table | None = None
    fault: str | None = None


def check_runs(
    storage: Storage,
    runs: Mapping[str, tuple[Run, Manifest]],
    verification: Verification,
    *,
    threads: int,
    on_progress: OnProgress | None = None,
) -> set[str]:
    """Read every run and add its faults to ``verification``; returns the names of the bad runs."""
    bad: set[str] = set()
    total, done = sum(run.bytes for run, _ in runs.values()), 0
    with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
        for name, (run, manifest), read in _ahead(pool, storage, runs):
            holders = (*manifest.nodes.values(), *_seen(manifest))
            node = next((holder for holder in holders if any(run.name == name for run in holder.runs)), None)
            part = "index runs" if node is None else "state runs"
            if read.data is not None:
                verification.count(part, read.data.size, run.rows)
            for text in dict.fromkeys(_faults(read, run, node, pool.map)):
                bad.add(name)
                verification.fault(part, name, text)
            done += run.bytes
            if on_progress is not None:
                on_progress(done, total)
    return bad


def _ahead(
    pool: ThreadPoolExecutor, storage: Storage, runs: Mapping[str, tuple[Run, Manifest]]
) -> Iterator[tuple[str, tuple[Run, Manifest], _Read]]:
    """Each run with its content, in order, a few of them read ahead."""
    waiting: deque[tuple[str, tuple[Run, Manifest], Future[_Read]]] = deque()
    for name, named in runs.items():
        waiting.append((name, named, pool.submit(_read, storage, named[0])))
        if len(waiting) > _AHEAD:
            name, named, future = waiting.popleft()
            yield name, named, future.result()
    for name, named, future in waiting:
        yield name, named, future.result()


def _read(storage: Storage, run: Run) -> _Read:
    try:
        data = storage.read(run.name)
    except FileNotFoundError:
        return _Read(fault=MISSING)
    except PersistentError as error:
        return _Read(fault=str(error))
    try:
        return _Read(data, decode_table(data, run.sha256, run.name))
    except UNREADABLE as error:
        return _Read(data, fault=str(error))


def _faults(read: _Read, run: Run, node: NodePart | None, each: Each) -> list[str]:
    if read.data is None or read.table is None:
        return [str(read.fault)]
    try:
        if node is None:
            read.table.validate(full=True)
            return list(size_faults(read.table, read.data, run))
        names, types = node.key_names, node.key_types
        return list(state_table_faults(read.table, read.data, run, run.name, names, types, each))
    except UNREADABLE as error:
        return [str(error)]


def _seen(manifest: Manifest) -> Iterator[NodePart]:
    """The seen records of each source, as a node."""
    for source in manifest.sources.values():
        if source.seen is not None:
            columns = source.seen.columns
            names = (*columns.origin, *([columns.epoch] if columns.epoch else []))
            types = ("binary",) * len(names)
            yield NodePart({}, key_names=names, key_types=types, runs=source.seen.runs)


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
