"""What is due and open of sessions equals the plain definition over the fragments of all runs."""

from __future__ import annotations

import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, record
from monoids.containers.intervals import Sessions
from monoids.hashing import hash_keys
from persistent.checkpoint.runs import write_new
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import encode_run, groups_of
from persistent.driver.run_cache import SessionCache
from persistent.names import Attempt
from persistent.state.rows import agenda_of
from persistent.storage import MemoryStorage
from persistent.time.session_window import group_sessions, session
from persistent.worker.job import CloseShard
from tests.few import examples

WINDOW = session(5, cut=20)
MONOID = Sessions(5, record(n=Count()))
RUNS = st.lists(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 30)), min_size=1, max_size=8), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=examples(60))
@given(RUNS, st.integers(0, 110), st.integers(0, 50), st.booleans())
def test_what_is_due_is_as_defined(
    inputs: list[list[tuple[int, int]]], closed: int, ahead: int, restarted: bool
) -> None:
    """A session overlooked is never published. After a restart the runs themselves are read, once."""
    storage = MemoryStorage(uuid.uuid4().hex)
    cache = SessionCache(storage, WINDOW)
    runs, ends = [], []
    for number, some in enumerate(inputs):
        times, keys = np.array([time for time, _ in some]), pa.array([key for _, key in some])
        rows = group_sessions(MONOID, WINDOW, [keys], times, MONOID.inner.lift_rows({"n": 1}, len(some)))
        data, sha256 = encode_run(MONOID, rows, ["key"], np.unique(rows.panes).tolist())
        name = write_new(storage, "d/V", Attempt(1, number), data)
        low, high = int(rows.panes.min()), int(rows.panes.max())
        runs.append(Run(name, len(rows), len(data), sha256, 0, 0, KEY_GROUPS, low, high, number, number))
        if not restarted:
            cache.learn(runs[-1], np.unique(rows.panes), agenda_of(WINDOW, rows))
        ends += [
            (min(last + 5, last // 20 * 20 + 20), int(hash_))
            for hash_, element in zip(rows.hashes, MONOID.unpack(rows.columns))
            for _, last, _ in element
        ]
    close_at = closed + ahead
    due = sorted({hash_ for end, hash_ in ends if closed < end <= close_at})
    later = [end for end, _ in ends if end > closed]
    assert cache.is_due(runs, closed, close_at) == bool(due)
    assert cache.largest_end(runs, closed) == max(later, default=0)
    assert cache.first_end(runs, closed) == min(later, default=None)
    assert cache.open_windows(runs, closed) == len({(end - 1) // 20 for end in later})
    closing = CloseShard(Attempt(1, 9), "V", tuple(runs), 0, KEY_GROUPS, closed, close_at, (), 1)
    shards = [replace(closing, low=low, high=low + 256) for low in range(0, KEY_GROUPS, 256)]
    found = cache.with_due(shards)
    assert [hash_ for one in found for hash_ in ([] if one.hashes is None else one.hashes.tolist())] == due
    for one in found:
        assert one.hashes is not None and len(one.hashes)
        assert all(one.low <= group < one.high for group in groups_of(one.hashes))
    storage.clear()
    cache.forget_all_but(runs[:1])
    assert cache.largest_end(runs[:1], 0) > 0, "read no second time"


def test_the_hashes_are_those_of_the_keys() -> None:
    rows = group_sessions(MONOID, WINDOW, [pa.array([7])], np.array([3]), MONOID.inner.lift_rows({"n": 1}, 1))
    agenda = agenda_of(WINDOW, rows)
    assert agenda is not None and agenda.hashes.tolist() == hash_keys([pa.array([7])], 1).tolist()
