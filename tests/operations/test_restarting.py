"""A job goes on as of a clock, over the same source or another."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Sum
from persistent import (
    FunctionSink,
    MemorySink,
    NonWindowState,
    Refused,
    Retention,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import restart
from persistent.state import PersistentState
from persistent.verify import verify
from tests.histories import ROWS, Totals, _is_known, pipeline, shown, totals


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
        return newest.manifest.operator.state.passed

    clock = next(clock for clock in range(150, 0, -10) if _is_known(job, clock))
    assert passed()["event"] > clock
    restart(job, clock, outputs="retract")
    assert passed() == {"event": clock} and verify(job.storage).ok


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
