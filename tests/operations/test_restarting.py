"""A job goes on as of a clock, over the same source or another."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Sum
from persistent import (
    FunctionSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    Retention,
    RetentionGap,
    UnknownCheckpoint,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import restart
from persistent.state.state import PersistentState
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.histories import ROWS, Totals, _is_known, pipeline, shown, totals
from tests.single import only


@pytest.mark.parametrize("order", ["as they were", "another way"])
def test_a_job_goes_on_as_of_a_clock_over_another_source(order: str) -> None:
    """A topic that has moved has other positions: without time to go by, the job would have to begin anew."""
    job = pipeline(rows=ROWS[:60])
    job.run(engine="embedded")
    clock = Log(job.storage).newest().manifest.clock.watermark // 10 * 10 - 20  # type: ignore[union-attr]
    rows = ROWS if order == "as they were" else sorted(ROWS, key=lambda row: (row["ts"], row["n"]))
    moved = pipeline(url=job.storage.url, rows=[row for row in rows if row["ts"] >= 20])
    restart(moved, clock, outputs="again")
    assert shown(moved.state()) == totals(row for row in ROWS if row["ts"] < clock)
    report = moved.run(engine="embedded")
    assert shown(moved.state()) == totals(ROWS)
    account = report.ledger["memory"]
    assert account.duplicate == sum(20 <= row["ts"] < clock for row in ROWS) and account.balances
    assert verify(moved.storage).ok
    assert moved.run(engine="embedded").steps == 0


def test_windows_go_on_as_of_a_clock_and_are_published_once() -> None:
    """Windows that were closed since the clock are taken back, and published again when the clock comes there."""
    task, sink = Totals(WindowState(Sum(), tumbling(40), interval_ms=10)), MemorySink()
    calm = pipeline(task, sink=(expected := MemorySink()))
    calm.run(engine="embedded", end_of_input=True)
    job = pipeline(task, sink=sink, rows=ROWS[:60])
    job.run(engine="embedded")
    clock = next(clock for clock in range(150, 40, -10) if _is_known(job, clock))
    moved = pipeline(task, sink=sink, url=job.storage.url, rows=sorted(ROWS, key=lambda row: row["ts"]))
    restart(moved, clock, outputs="retract")
    moved.run(engine="embedded", end_of_input=True)
    assert sorted(map(str, sink.rows())) == sorted(map(str, expected.rows()))


def test_the_clock_of_early_results_goes_back_with_that_of_the_state() -> None:
    """Ahead of it, it would be at another multiple than the first step, and publish at once. Time of day stays."""
    task = Totals(NonWindowState(Sum(), interval_ms=10, history=50, early=1_000))
    job = pipeline(task, sink=MemorySink(), rows=ROWS[:60])
    job.run(engine="embedded")

    def passed() -> Any:
        newest = Log(job.storage).newest()
        assert newest is not None
        return only(newest.manifest.nodes).passed

    clock = next(clock for clock in range(150, 0, -10) if _is_known(job, clock))
    assert passed() > clock
    restart(job, clock, outputs="retract")
    assert passed() == clock and verify(job.storage).ok


def test_restart_goes_behind_what_a_state_without_windows_has_closed() -> None:
    """What such a state has closed says nothing of its sums; ahead of the clock it would end the job for good."""
    job = pipeline(retention=Retention(last=1))
    job.run(engine="embedded", end_of_input=True)
    clock = next(clock for clock in range(0, 300, 10) if _is_known(job, clock))
    restart(job, clock, outputs="again")
    assert verify(job.storage).ok
    job.run(engine="embedded")
    assert shown(job.state()) == totals(ROWS)


@pytest.mark.parametrize("sink", [None, MemorySink()])
def test_a_restart_goes_back_to_a_checkpoint_and_not_to_its_own_fence(sink: MemorySink | None) -> None:
    """What that fence has published nobody knows: a job that never had a sink would have to bring one."""
    job = pipeline(sink=sink, rows=ROWS[:60])
    before = job.run(engine="embedded").checkpoint
    clock = next(clock for clock in range(300, 0, -10) if _is_known(job, clock))
    manifest = restart(job, clock, outputs="retract").manifest
    assert (manifest.target, manifest.left) == (before, ((before + 1, manifest.id, True),))
    assert manifest.publishes is (sink is not None)
    assert job.run(engine="embedded").steps and shown(job.state()) == totals(ROWS[:60])


class Shifted(Totals):
    """Updates at another time than that of the message."""

    def __init__(self, shift: int, state: PersistentState | None = None) -> None:
        super().__init__(state)
        self.shift = shift

    def process_message(self, state: Any, message: Any) -> None:
        state.update(max(0, message.timestamp + self.shift), message.value["n"])


IN_ORDER = sorted(ROWS, key=lambda row: row["ts"])


@pytest.mark.parametrize("windows", [None, tumbling(10)])
def test_updates_later_than_all_records_refuse_a_restart(windows: Any) -> None:
    """Cut off at the clock, they would be lost: their records before it are not read again."""
    task = Shifted(15, windows and WindowState(Sum(), windows))
    job = pipeline(task, sink=MemorySink(), rows=IN_ORDER)
    job.run(engine="embedded")
    newest = Log(job.storage).newest()
    clock = next(clock for clock in range(300, 0, -10) if _is_known(job, clock))
    with pytest.raises(Refused, match=r"holds an update at .* the last record that was read is of .* would be lost"):
        restart(job, clock, outputs="retract")
    assert Log(job.storage).newest() == newest


def test_an_update_before_the_clock_of_a_restart_ends_the_run() -> None:
    """The state as of the clock has it already, from a record that was read after the clock."""
    job = pipeline(Shifted(-15), sink=MemorySink(), rows=IN_ORDER)
    job.run(engine="embedded")
    clock = next(clock for clock in range(300, 0, -10) if _is_known(job, clock))
    restart(job, clock, outputs="retract")
    with pytest.raises(UserCodeError, match="before the clock of a restart"):
        job.run(engine="embedded")


def test_a_sink_that_cannot_take_back_refuses_a_restart_that_needs_it() -> None:
    """Set to the clock, the job could not run."""
    job = pipeline(sink=FunctionSink(lambda table, id: None))
    job.run(engine="embedded")
    newest = Log(job.storage).newest()
    with pytest.raises(Refused, match=r"the sink 'function' of this job cannot take back"):
        restart(job, 0, outputs="retract")
    assert Log(job.storage).newest() == newest
    restart(job, 0, outputs="again")
    assert job.run(engine="embedded").steps


class Both(PersistentTask):
    """Two states, of which the second can be dropped."""

    key = "page"

    def __init__(self, *names: str) -> None:
        self.names = names

    def persistent_state(self) -> Any:
        return {name: NonWindowState(Sum(), interval_ms=10, history=20) for name in self.names}

    def process_message(self, state: Any, message: Any) -> None:
        for name in self.names:
            state[name].update(message.timestamp, message.value["n"])


def test_a_restart_behind_a_dropped_state_drops_it_again_or_is_refused_before_it_writes() -> None:
    """It left a fence, and ended with a KeyError."""
    rows = [{"ts": 10 * number, "page": "ab"[number % 2], "n": number} for number in range(16)]
    storage = MemoryStorage(uuid.uuid4().hex)

    def job(*names: str, rows: Any = rows, **options: Any) -> Pipeline:
        source = MemorySource(rows, ordered=True)
        return Pipeline(source=source, task=Both(*names), checkpoint=storage, step_rows=4, **options)

    job("kept", "gone", rows=rows[:8]).run(engine="embedded")
    job("kept", allow_dropped=["Both/gone"]).run(engine="embedded")
    before = Log(storage).ids()
    with pytest.raises(Refused, match=r"with the state Both/gone; .* give the pipeline allow_dropped=\['Both/gone'\]"):
        restart(job("kept"), 20, outputs="retract")
    assert Log(storage).ids() == before
    with pytest.raises(UnknownCheckpoint, match=r"the nearest are .*00\.030Z and .*00\.050Z. Nothing") as raised:
        restart(job("kept"), 40, outputs="retract")
    assert Log(storage).ids() == before, raised
    restart(job("kept", allow_dropped=["Both/gone"]), 20, outputs="retract")
    after = job("kept")
    after.run(engine="embedded")
    assert {row["page"]: row["value"] for row in after.state().to_pylist()} == {"a": 56, "b": 64}
    assert verify(storage).findings == []


def test_a_source_that_has_lost_the_clock_refuses_before_anything_is_written() -> None:
    """It raised after a fence, which stops a driver that could have gone on."""

    class Shortened(MemorySource):
        def from_clock(self, recorded: Any, clock: int) -> Any:
            raise RetentionGap("records since the clock were deleted")

    storage = MemoryStorage(uuid.uuid4().hex)
    rows = [{"ts": 10 * number, "page": "a", "n": 1} for number in range(8)]
    task = Totals(NonWindowState(Sum(), interval_ms=10, history=50))
    job = Pipeline(source=Shortened(rows, ordered=True), task=task, checkpoint=storage)
    job.run(engine="embedded")
    before = Log(storage).ids()
    with pytest.raises(RetentionGap):
        restart(job, 50, outputs="retract")
    assert Log(storage).ids() == before


def test_the_advice_of_a_refused_clock_works() -> None:
    """An error that sends the reader to the next error is worse than none."""
    storage = MemoryStorage(uuid.uuid4().hex)
    rows = [{"ts": 10 * number, "page": "a", "n": 1} for number in range(20)]
    source = MemorySource(rows, ordered=True)
    task = Totals(NonWindowState(Sum(), interval_ms=10, history=20))
    job = Pipeline(source=source, task=task, checkpoint=storage, step_rows=5)
    job.run(engine="embedded")
    with pytest.raises(UnknownCheckpoint, match="grid") as raised:
        restart(job, 63, outputs="again")
    advised = str(raised.value).rpartition("the previous one is ")[2].partition(". Nothing")[0]
    with pytest.raises(UnknownCheckpoint, match="the nearest are") as raised:
        restart(job, advised, outputs="again")
    found = str(raised.value).partition("the nearest are ")[2].partition(". Nothing")[0].split(" and ")
    assert len(found) == 2
    for clock in reversed(found):
        restart(job, clock, outputs="again")
        job.run(engine="embedded")
        (row,) = job.state().to_pylist()
        assert row["value"] == 20
