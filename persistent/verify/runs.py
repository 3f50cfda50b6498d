"""Runs are checked in parallel: one is read and hashed while the rows of another are checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from persistent.checkpoint.copies import OnProgress
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart
from persistent.codec import Run, decode_table
from persistent.errors import CorruptCheckpoint, PersistentError
from persistent.storage import Storage
from persistent.verify.findings import MISSING, Verification
from persistent.verify.rows import Each, size_faults, state_table_faults

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
