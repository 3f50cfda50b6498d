"""What a split tells of what it has seen, and the pieces of runs that a worker reads for it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count
from monoids.groupby.summing import group_by
from monoids.hashing import hash_keys
from persistent import Dedupe, MemorySource, NonWindowState, PersistentTask
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import groups_of
from persistent.names import STATE, Attempt
from persistent.storage import MemoryStorage
from persistent.worker import seen_state
from persistent.worker.job import Job, Node
from persistent.worker.merge_runs import write_run
from persistent.worker.seen_items import SeenBefore, SeenSpan, silence_ms
from persistent.worker.seen_state import SeenCache, latest_of, numbers_of, seen_monoid, seen_node

BY_NUMBER = Dedupe(origin="origin", sequence="n")
KEYS = 400


def span(key: int, first: int, last: int, begin: int, end: int, before: int) -> SeenSpan:
    columns = (np.array([value]) for value in (first, last, begin, end, before))
    return SeenSpan(np.array([key], np.uint64), *columns)


def test_a_span_holds_the_bounds_of_each_key() -> None:
    """A bound too narrow hides an overlap, and a message counts twice."""
    hashes, before = np.array([3, 5, 9], np.uint64), np.array([-1, 40, 7])
    codes = np.array([2, 0, 2, 0])
    found = SeenSpan.of(codes, hashes, np.array([8, 4, 6, 5]), np.array([80, 41, 60, 50]), before)
    assert found.hashes.tolist() == [3, 9] and found.before.tolist() == [-1, 7]
    assert (found.firsts.tolist(), found.lasts.tolist()) == ([4, 6], [5, 8])
    assert (found.begins.tolist(), found.ends.tolist()) == ([41, 60], [50, 80])
    both = SeenSpan.joined([found, span(9, 1, 2, 90, 95, 7)])
    assert both.hashes.tolist() == [3, 9]
    assert (both.firsts.tolist(), both.lasts.tolist()) == ([4, 1], [5, 8])
    assert (both.begins.tolist(), both.ends.tolist(), both.before.tolist()) == ([41, 60], [50, 95], [-1, 7])
    assert not len(SeenSpan.joined([]).hashes)


def test_the_span_of_ids_is_their_hashes() -> None:
    """A split has as many ids as records: a bound for each would be sent to the driver for nothing."""
    one = SeenSpan.of_ids(np.array([9, 3, 9], np.uint64))
    both = SeenSpan.joined([one, SeenSpan.of_ids(np.array([4, 3], np.uint64))])
    assert one.hashes.tolist() == [3, 9] and both.hashes.tolist() == [3, 4, 9]
    assert one.is_of_ids and not len(both.before) and not span(7, 0, 0, 0, 0, 0).is_of_ids
    assert silence_ms([one, both]) == 0


def test_the_longest_silence_is_that_between_what_was_seen_and_what_comes() -> None:
    """A sender that is new was not silent, and one that two splits read is not silent in between."""
    assert silence_ms([]) == 0
    assert silence_ms([span(7, 0, 0, 500, 600, -1)]) == 0
    assert silence_ms([span(7, 0, 0, 500, 600, 480)]) == 20
    assert silence_ms([span(7, 0, 0, 500, 600, 100), span(7, 0, 0, 110, 490, 100)]) == 10
    assert (
        silence_ms([span(7, 0, 0, 500, 600, -1), span(7, 0, 0, 900, 990, -1), span(8, 0, 0, 5_000, 5_000, -1)]) == 300
    )


class Visits(PersistentTask):
    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    yield (made := MemoryStorage("seen-state"))
    made.clear()


def written(storage: Any, panes: list[int]) -> tuple[Node, list[Run]]:
    """A run for each pane, in which 400 senders have sent the number of the pane."""
    of, dedupe = {"memory": MemorySource([])}, {"memory": BY_NUMBER}
    job = Job(Visits(), {STATE: NonWindowState(Count())}, of, {}, storage, False, dedupe=dedupe)
    node = seen_node(job, "memory", 10)
    runs = []
    for id, pane in enumerate(panes, 1):
        keys = [pa.array([f"{key}".encode() for key in range(KEYS)])]
        columns = seen_monoid().pack([(((pane, pane),), pane + 1)] * KEYS)
        rows = group_by(seen_monoid(), keys, np.full(KEYS, pane), columns, 10)
        runs.append(write_run(node, Attempt(1, id), rows, id, id)[0])
    return node, runs


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1_000])
def test_the_pieces_hold_every_row_of_the_keys(storage: Any, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key group left out is a sender whose copies all count. Whatever the size of a piece, and only where it is."""
    monkeypatch.setattr(seen_state, "_PIECE_BYTES", piece_bytes)
    _, runs = written(storage, [0, 20, 40])
    assert all(run.name.startswith("d/MemorySource/") for run in runs), "where the source's index is: all rules hold"
    before, cache = SeenBefore(tuple(runs), 20, 10), SeenCache()
    for key in range(0, KEYS, 37):
        hashes = hash_keys((pa.array([f"{key}".encode()]),), 1)
        parts = list(cache.parts(storage, before, hashes))
        found = [part.take(np.flatnonzero(part.hashes == hashes[0])) for part in parts]
        assert [(one.panes.tolist(), latest_of(one).tolist()) for one in found] == [([20], [21]), ([40], [41])]
        assert [numbers_of(one).flat()[0].tolist() for one in found] == [[20], [40]]
        groups = {int(group) for part in parts for group in groups_of(part.hashes)}
        assert (len(groups) < KEY_GROUPS // 4) == (piece_bytes == 1_000), "a piece is a part of the run"


def test_a_piece_is_read_once(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch of each split asks for the same rows."""
    _, runs = written(storage, [0])
    cache, hashes = SeenCache(), np.array([5], np.uint64)
    first = list(cache.parts(storage, SeenBefore(tuple(runs), 0, 10), hashes))
    storage.clear()
    assert list(cache.parts(storage, SeenBefore(tuple(runs), 0, 10), hashes)) == first and len(first) == 1
    assert not pickle.loads(pickle.dumps(cache)).pieces._values
