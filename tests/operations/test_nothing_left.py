"""Operations leave nothing behind that nobody names, and tell the truth beside a run."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from monoids import Sum
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    Retention,
    UnknownCheckpoint,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import collect_garbage, compact, pin, restart, rollback
from persistent.storage import MemoryStorage
from persistent.verify import verify

ROWS = [{"ts": 10 * number if number % 9 else 0, "page": "ab"[number % 2], "n": number} for number in range(60)]


class Totals(PersistentTask):
    """Sums by page; one row in seven is bad."""

    key = "page"

    def __init__(self, state: Any) -> None:
        self.state = state

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] % 7 == 3:
            raise ValueError("bad")
        state.update(message.timestamp, message.value["n"])


STATES = {
    "windows": WindowState(Sum(), tumbling(40), interval_ms=10),
    "totals": NonWindowState(Sum(), interval_ms=10, history=20),
}


class Job:
    """One checkpoint that keeps few manifests, and one sink."""

    def __init__(self, state: str = "windows", last: int = 3) -> None:
        self.storage = MemoryStorage(uuid.uuid4().hex)
        self.sink, self.task, self.last = MemorySink(), Totals(STATES[state]), last

    def pipeline(self, rows: int) -> Pipeline:
        source = MemorySource(ROWS[:rows], ordered=True)
        options: Any = {"step_rows": 4, "on_error": "dead-letter", "retention": Retention(last=self.last)}
        return Pipeline(source=source, task=self.task, sink=self.sink, checkpoint=self.storage, **options)

    def run(self, rows: int) -> None:
        self.pipeline(rows).run(engine="embedded")


def restarted(job: Job) -> Any:
    for clock in range(400, -10, -10):
        try:
            return restart(job.pipeline(40), clock, outputs="again")
        except UnknownCheckpoint:
            continue
    raise AssertionError("no clock is known")


OPERATIONS: dict[str, Callable[[Job], Any]] = {
    "a run": lambda job: None,
    "correct": lambda job: job.pipeline(40).correct(
        add=MemorySource([{"ts": 388, "page": "a", "n": 1}]), name="one", engine="embedded"
    ),
    "rollback": lambda job: rollback(job.storage, Log(job.storage).ids()[-2], outputs="retract"),
    "restart": restarted,
    "pin": lambda job: pin(job.storage, Log(job.storage).ids()[-1]),
    "compact": lambda job: compact(job.pipeline(40)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_verify_finds_nothing_after_an_operation_and_the_runs_that_follow(operation: str, state: str) -> None:
    """It warned of files "left by an interrupted run" after a correction, and for ever of what was set aside before a
    restart: who is used to warnings reads none."""
    job = Job(state)
    job.run(40)
    OPERATIONS[operation](job)
    assert verify(job.storage).findings == []
    for rows in (40, 50, 60):
        job.run(rows)
        assert verify(job.storage).findings == []


class Beside(MemoryStorage):
    """Something happens before its operation of that number."""

    def __init__(self, name: str, at: int, happens: Callable[[], None]) -> None:
        super().__init__(name)
        self.left, self.happens = at, happens

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.happens()

    def read(self, name: str) -> pa.Buffer:
        self._count()
        return super().read(name)

    def list(self, folder: str) -> list[str]:
        self._count()
        return super().list(folder)


def test_a_dry_run_beside_a_run_that_collects_names_only_garbage() -> None:
    """It took a manifest that the run had collected meanwhile for a damaged checkpoint."""
    count = 0
    while True:
        count += 1
        job = Job(last=2)
        job.run(12)
        before = set(job.storage._files)
        beside = Beside(job.storage.url.removeprefix("memory://"), count, lambda: job.run(40))  # noqa: B023
        told = collect_garbage(beside, dry_run=True)
        assert set(told) <= before
        if beside.left > 0:
            break
        assert verify(job.storage).findings == []
    assert count > 8


def test_each_checkpoint_that_a_refused_rollback_names_can_be_gone_back_to() -> None:
    """It named those whose outputs an earlier rollback had taken back, and refused them next."""
    job = Job(last=20)
    job.run(40)
    rollback(job.storage, sorted(Log(job.storage).ids())[4], outputs="retract")
    job.run(60)
    newest = Log(job.storage).newest()
    assert newest is not None
    ((first, stop, _),) = newest.manifest.left
    for to, error in ((9_999, UnknownCheckpoint), (stop - 3, Refused)):
        with pytest.raises(error, match="you can go back to ") as raised:
            rollback(job.storage, to, outputs="retract")
        named = [int(id) for id in str(raised.value).rpartition("you can go back to ")[2].split(", ")]
        assert len(named) > 3 and not set(named) & set(range(first, stop))
        for id in named:
            copy = MemoryStorage(uuid.uuid4().hex)
            copy._files.update(job.storage._files)
            rollback(copy, id, outputs="retract")
