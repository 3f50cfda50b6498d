"""State as of a clock: what was before it, whatever has come since."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Count, ListConcat, Sum, record
from persistent import (
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    Pipeline,
    Retention,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.errors import UnknownCheckpoint
from persistent.operations import pin, restart, rollback
from persistent.state.state import PersistentState
from persistent.storage import MemoryStorage
from tests.histories import ROWS, Totals, _is_known, pipeline, shown, totals


def test_state_as_of_every_clock_of_the_grid() -> None:
    """Without panes, the state of an hour ago can only be had by reading the source again from its beginning."""
    job = pipeline()
    job.run(engine="embedded")
    last = int(job.run(engine="embedded").clock_ms)
    known = 0
    for clock in range(0, last + 1, 10):
        table = job.state(as_of=clock)
        assert shown(table) == totals(row for row in ROWS if row["ts"] < clock), clock
        known += 1
    assert known == last // 10 + 1 > 20
    assert shown(job.state()) == totals(ROWS)


def test_history_ends_where_it_was_said_to() -> None:
    """Panes that are kept for ever make a state that grows for ever; panes that are folded are not made up again."""
    job = pipeline(retention=Retention(last=1))
    job.run(engine="embedded")
    newest = Log(job.storage).newest()
    assert newest is not None
    watermark = newest.manifest.clock.watermark
    known = [clock for clock in range(0, watermark + 1, 10) if _is_known(job, clock)]
    assert known == list(range((watermark - 50) // 10 * 10, watermark + 1, 10))
    for clock in known:
        assert shown(job.state(as_of=clock)) == totals(row for row in ROWS if row["ts"] < clock)


def test_panes_older_than_the_history_are_folded() -> None:
    """The state has to stay as large as its keys and its history, however long the job runs."""
    rows = [{"ts": 10 * number, "page": "ab"[number % 2], "n": 1} for number in range(600)]
    job = pipeline(rows=rows, step_rows=20, retention=Retention(last=1))
    job.run(engine="embedded")
    newest = Log(job.storage).newest()
    assert newest is not None
    runs = newest.manifest.nodes["Totals"].runs
    assert sum(run.rows_left for run in runs) < 300
    assert shown(job.state()) == {"a": 300, "b": 300}


def test_windows_as_of_a_clock() -> None:
    """Of a state with windows, those are seen that were open then, without what came later."""

    class Updates(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, {"n": message.value["n"], "rows": 1})

    job = pipeline(Updates(WindowState(record(n=Sum(), rows=Count()), tumbling(40), interval_ms=10)), step_rows=4)
    job.run(engine="embedded")
    seen = 0
    for clock in range(40, 240, 10):
        if not _is_known(job, clock):
            continue
        seen += 1
        expected: dict[tuple[str, int], list[int]] = {}
        for row in ROWS:
            start = row["ts"] // 40 * 40
            if row["ts"] < clock < start + 40:
                held = expected.setdefault((row["page"], start), [0, 0])
                held[0], held[1] = held[0] + row["n"], held[1] + 1
        rows = job.state(as_of=clock).to_pylist()
        starts = {(row["page"], int(row["window_start"].timestamp() * 1000)): [row["n"], row["rows"]] for row in rows}
        assert starts == expected, clock
    assert seen > 10


def test_a_timeline_that_was_left_is_not_seen() -> None:
    """After going back, what the abandoned steps had summed up is no past of this state."""
    job = pipeline(step_rows=10)
    job.run(engine="embedded")
    ids = [id for id, kept in sorted(Log(job.storage).kept(Log(job.storage).newest().manifest).items()) if kept.is_base]  # type: ignore[union-attr]
    rollback(job.storage, ids[2], outputs="again")
    watermark = Log(job.storage).newest().manifest.clock.watermark  # type: ignore[union-attr]
    assert shown(job.state(as_of=watermark // 10 * 10)) == totals(
        row for row in ROWS if row["ts"] < watermark // 10 * 10
    )
    with pytest.raises(UnknownCheckpoint, match="their clocks are 1970-01-01 00:00:00Z to"):
        job.state(as_of=watermark // 10 * 10 + 10)
    job.run(engine="embedded")
    assert shown(job.state(as_of=200)) == totals(row for row in ROWS if row["ts"] < 200)


def test_outputs_at_the_end_are_whole_values() -> None:
    """What is published is the sum of all panes of a key, not a row for each."""
    sink = MemorySink()
    job = pipeline(sink=sink)
    job.run(engine="embedded", end_of_input=True)
    assert {row["page"]: row["value"] for row in sink.rows()} == totals(ROWS)
    assert len(sink.rows()) == 3


@pytest.mark.parametrize(
    ("state", "clock", "says"),
    [
        (NonWindowState(Sum()), 60_000, "Declare how far back"),
        (
            NonWindowState(Sum(), interval_ms=10, history=50),
            55,
            "and it is not on the grid of this state, clocks every 10 ms: the previous one is 1970-01-01 00:00:00.050Z",
        ),
        (NonWindowState(Sum(), interval_ms=10, history=50), 10_000, "Choose a clock in that range"),
    ],
)
def test_a_clock_that_is_not_known_is_refused(state: PersistentState, clock: int, says: str) -> None:
    """A state of about that time would be taken for the state of that time."""
    job = pipeline(Totals(state))
    job.run(engine="embedded")
    with pytest.raises(UnknownCheckpoint, match=says):
        job.state(as_of=clock)


def test_history_is_refused_where_it_cannot_be_kept() -> None:
    """Summing by panes of event time is another order than that of the messages."""
    with pytest.raises(TypeError, match="not declared commutative"):
        NonWindowState(ListConcat(int), history="1 h")
    with pytest.raises(InvalidPipeline, match="give one of them"):
        pipeline().state(at=1, as_of=10)


def test_another_grid_is_another_state() -> None:
    """Panes of two grids overlap: their sums would count twice."""
    url = f"memory://{uuid.uuid4().hex}"
    pipeline(url=url).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match="interval_ms"):
        pipeline(Totals(NonWindowState(Sum(), interval_ms=20, history=50)), url=url).run(engine="embedded")
    longer = pipeline(Totals(NonWindowState(Sum(), interval_ms=10, history=500)), url=url)
    assert longer.run(engine="embedded").steps == 0


def test_what_a_restart_has_replaced_does_not_come_back() -> None:
    """The checkpoint that it went back to has what the old source had after the clock."""
    url, long = f"memory://{uuid.uuid4().hex}", NonWindowState(Sum(), interval_ms=10, history="1 day")

    def of(number: int, *times: int) -> Pipeline:
        source = MemorySource([{"ts": ts, "page": "a", "n": number} for ts in times], timestamp="ts")
        return Pipeline(source=source, task=Totals(long), checkpoint=url, step_rows=3, retention=Retention(last=1_000))

    of(1_000, 10, 60, 120, 200).run(engine="embedded")
    corrected = of(1, 10, 60, 120, 200)
    restart(corrected, 50, outputs="again")
    of(1, 10, 60).run(engine="embedded")
    assert shown(corrected.state(as_of=50)) == {"a": 1_000}
    with pytest.raises(UnknownCheckpoint):
        corrected.state(as_of=150)
    with pytest.raises(UnknownCheckpoint):
        restart(corrected, 150, outputs="again")
    corrected.run(engine="embedded")
    assert shown(corrected.state(as_of=150)) == {"a": 1_002}


def test_what_was_before_the_clock_of_a_restart_stays() -> None:
    """It is what the restart has kept; only what comes after is read anew."""
    url, short = f"memory://{uuid.uuid4().hex}", NonWindowState(Sum(), interval_ms=10, history="60 ms")

    def of(*times: int) -> Pipeline:
        source = MemorySource([{"ts": ts, "page": "a", "n": 1} for ts in times], timestamp="ts", ordered=True)
        return Pipeline(source=source, task=Totals(short), checkpoint=url, retention=Retention(last=1))

    of(10, 100).run(engine="embedded")
    pin(url, Log(MemoryStorage(url.removeprefix("memory://"))).newest().manifest.id)  # type: ignore[union-attr]
    restart(of(10, 60, 200), 50, outputs="again")
    of(10, 60, 200).run(engine="embedded")
    of(10, 60, 200, 300).run(engine="embedded")
    assert shown(of().state(as_of=50)) == {"a": 1}
    with pytest.raises(UnknownCheckpoint):
        of().state(as_of=60)
