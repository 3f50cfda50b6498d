"""The seen records are a state of their own: by (origin, epoch) and pane of event time, numbers and a timestamp.

 numbers     the sequences of the seen records, as ranges
 latest      the largest timestamp (ms) among them

Its runs are stored with the index of the source, and are folded, copied and collected like all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from monoids import Max, Monoid, Ranges, record
from monoids.column import Ragged
from monoids.groupby.cells import Integers
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.checkpoint.runs import read_run, run_place, with_recovery_advice
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.lru_cache import LruCache
from persistent.codec.runs import decode_run, groups_of
from persistent.state.state import WindowState
from persistent.storage.protocol import Storage
from persistent.task.task import PersistentTask
from persistent.time.window import Window
from persistent.worker.job import Job, Node
from persistent.worker.seen_items import SeenBefore

_PIECE_BYTES = 1 << 20
_PIECES_MAX = 256
"""The number of decoded pieces of about 1 MB that a worker keeps, which bounds the memory for seen records."""
_FILES_MAX = 4


@cache
def seen_monoid() -> Monoid[Any]:
    """The monoid of the seen records. Made on first use, so that importing the package stays cheap."""
    return record(numbers=Ranges(), latest=Max())


class _SeenTask(PersistentTask):
    """The task that gives the runs their key and folder."""

    def __init__(self, keys: tuple[str, ...], folder: str) -> None:
        self.key = keys
        self.name = folder


def seen_node(job: Job, source: str, pane_ms: int) -> Node:
    """The node whose state is the seen records of this source, to write, read and fold its runs."""
    task = _SeenTask(job.dedupe[source].keys, job.sources[source].kind)
    return Node(task.name, task, WindowState(seen_monoid(), Window(pane_ms, pane_ms)), job.storage)


def numbers_of(rows: GroupSums) -> Ragged:
    """The ranges of numbers of each row."""
    table: Ragged = rows.columns[0]
    return table


def latest_of(rows: GroupSums) -> Integers:
    """The newest timestamp of each row."""
    latest: Integers = rows.columns[1]
    return latest


@dataclass(frozen=True)
class SeenCache:
    """Pieces of runs that a worker has read: runs never change. It is never part of a pickle."""

    @cached_property
    def pieces(self) -> LruCache[GroupSums]:
        """The pieces, by store, run and key groups."""
        return LruCache[GroupSums](_PIECES_MAX)

    def parts(self, storage: Storage, before: SeenBefore, hashes: Words) -> Iterator[GroupSums]:
        """The rows of each run in the pieces that can hold keys of these ascending hashes, oldest run first."""
        groups = np.flatnonzero(np.bincount(groups_of(hashes), minlength=KEY_GROUPS))
        files: LruCache[object] = LruCache(_FILES_MAX)
        for run in before.runs:
            if run.pane_max < before.horizon:
                continue
            for low, high in _pieces(run):
                at = int(np.searchsorted(groups, low))
                if at < len(groups) and groups[at] < high:
                    yield self.pieces.get(
                        (storage.url, run.name, low, high),
                        lambda run=run, low=low, high=high: _decoded(storage, run, low, high, files),  # type: ignore[misc]
                    )


def _pieces(run: Run) -> Iterator[tuple[int, int]]:
    """The key groups of a run in ranges of about a megabyte each."""
    count = min(KEY_GROUPS, max(1, run.bytes // _PIECE_BYTES))
    for number in range(count):
        low, high = KEY_GROUPS * number // count, KEY_GROUPS * (number + 1) // count
        if low < run.high and run.low < high:
            yield max(low, run.low), min(high, run.high)


def _decoded(storage: Storage, run: Run, low: int, high: int, files: LruCache[object]) -> GroupSums:
    data = files.get(run.name, lambda: read_run(storage, run))
    with with_recovery_advice(storage.url):
        return decode_run(seen_monoid(), data, run, run_place(storage, run), low, high)
