"""An agenda lists the end of each fragment of a run, whether from its rows or from its file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from monoids import Count, record
from monoids.containers.intervals import Sessions
from persistent.codec.runs import encode_run
from persistent.codec.sealed import decode_table
from persistent.state.rows import agenda_of, agenda_of_table
from persistent.state.state import NonWindowState, WindowState
from persistent.time.session_window import group_sessions, session
from persistent.time.window import tumbling

WINDOW = session(5, cut=20)
MONOID = Sessions(5, record(n=Count()))


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abc")), min_size=1, max_size=15))
def test_it_has_each_end_in_order_with_the_hash_of_its_key(inputs: list[tuple[int, str]]) -> None:
    """After a restart it is read from the file: another one would close others."""
    times = np.array([time for time, _ in inputs])
    values = MONOID.inner.lift_rows({"n": 1}, len(times))
    rows = group_sessions(MONOID, WINDOW, [pa.array([key for _, key in inputs])], times, values)
    agenda = agenda_of(WINDOW, rows)
    expected = sorted(
        (min(last + 5, last // 20 * 20 + 20), int(hash_))
        for hash_, element in zip(rows.hashes, MONOID.unpack(rows.columns))
        for _, last, _ in element
    )
    assert sorted(zip(agenda.ends.tolist(), agenda.hashes.tolist())) == expected
    assert agenda.ends.tolist() == [end for end, _ in expected]
    data, sha256 = encode_run(MONOID, rows, ["key"])
    again = agenda_of_table(WINDOW, decode_table(pa.py_buffer(data), sha256, "here"))
    assert (again.ends.tolist(), again.hashes.tolist()) == (agenda.ends.tolist(), agenda.hashes.tolist())
    chosen = agenda.ends[agenda.between(25, 60)].tolist()
    assert chosen == [end for end, _ in expected if 25 < end <= 60]


def test_other_windows_have_none() -> None:
    """A run of them would be looked up for sessions, which it has not."""
    states = (WindowState(Count(), tumbling(20)), NonWindowState(Count()))
    assert [state.gaps for state in states] == [None, None]
    assert WindowState(Count(), WINDOW).gaps == WINDOW and NonWindowState(Count(), ttl=5).gaps is not None
