"""The suite of sinks passes the sound ones, and finds the defect of each of the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persistent import MemorySink
from persistent.connect.marked import SinkMark
from persistent.connect.promises import Promise
from persistent.connect.sink import BatchSink, Claim, OutputBatch, Retreat
from persistent.storage import LocalStorage, Storage
from persistent.testing import SinkSuite
from persistent.testing.sink_driver import OnOperation
from tests.connect.ledger import Ledger, LedgerSink
from tests.connect.places import FileSuite, LedgerSuite, MemorySuite, SqliteSuite


class TestJsonLines(FileSuite):
    """FileSink, as text."""


@pytest.mark.check
class TestParquet(FileSuite):
    """FileSink on a disk, as it comes."""

    format = "parquet"

    def place(self, folder: Path) -> Storage:
        return LocalStorage(folder)


class TestMemory(MemorySuite):
    """MemorySink."""


class TestLedger(LedgerSuite):
    """The plainest sound batch sink."""


@pytest.mark.check
class TestSqliteAppend(SqliteSuite):
    """SqliteSink, adding."""


@pytest.mark.check
class TestSqliteUpsert(SqliteSuite):
    """SqliteSink, replacing."""

    mode = "upsert"


class Twice(LedgerSink):
    """Writes what is there already."""

    def deliver(self, batch: OutputBatch) -> None:
        self._write(self._read(), batch)


class Unguarded(LedgerSink):
    """Writes though the mark has moved since it was read."""

    def _commit(self, found: Any, mark: SinkMark, entries: Any) -> bool:
        self.step("commit")
        self.ledger.mark, self.ledger.entries = mark, list(entries)
        return True


class TwoTransactions(LedgerSink):
    """Commits the rows, then the mark."""

    def _commit(self, found: Any, mark: SinkMark, entries: Any) -> bool:
        return super()._commit(found, found, entries) and super()._commit(found, mark, self.ledger.entries)


class MarkFirst(LedgerSink):
    """Commits the mark, then the rows."""

    def _commit(self, found: Any, mark: SinkMark, entries: Any) -> bool:
        rows = list(entries)
        return super()._commit(found, mark, self.ledger.entries) and super()._commit(mark, mark, rows)


class MarkGoesBack(LedgerSink):
    """A rollback sets the mark to the batch that stays, so that who slept finds it there."""

    def retract(self, retreat: Retreat) -> None:
        super().retract(retreat)
        assert retreat.first is not None
        self.ledger.mark = SinkMark(retreat.job, retreat.first - 1)

    def deliver(self, batch: OutputBatch) -> None:
        found = self._read()
        if found is None or found.number < batch.number:
            self._write(found, batch)


class KeepsRows(LedgerSink):
    """A rollback moves the mark, and leaves the rows."""

    def retract(self, retreat: Retreat) -> None:
        self._commit(self._read(), SinkMark(retreat.job, retreat.number), self.ledger.entries)


class ForgetsWhatIsOwed(LedgerSink):
    """A rollback does not publish what was committed before."""

    def retract(self, retreat: Retreat) -> None:
        super().retract(Retreat(retreat.job, retreat.number, retreat.first, (), (), retreat.id, retreat.url))


class AnyJob(LedgerSink):
    """Lets everybody in."""

    def claim(self, claim: Claim) -> None:
        self.ledger.mark = SinkMark(claim.job, self.ledger.mark.number if self.ledger.mark else 0)


class AnyHeir(LedgerSink):
    """Lets an heir in, wherever the old job stands."""

    def claim(self, claim: Claim) -> None:
        mark = self.ledger.mark
        if mark is None or mark.job in claim.heir_of:
            self.ledger.mark = SinkMark(claim.job, mark.number if mark else 0)
            return
        super().claim(claim)


class FencesOnConnecting(LedgerSink):
    """Who connects last is the one."""

    def claim(self, claim: Claim) -> None:
        super().claim(claim)
        self.ledger.name, self.at = f"{self.ledger.name}", len(OPENED)
        OPENED.append(self)

    def deliver(self, batch: OutputBatch) -> None:
        from persistent.errors import Fenced

        if OPENED[-1] is not self:
            raise Fenced("another has connected")
        super().deliver(batch)


OPENED: list[Any] = []


class NeverPassed(LedgerSink):
    """Follows whatever is there."""

    def deliver(self, batch: OutputBatch) -> None:
        found = self._read()
        if found is None or found.number < batch.number:
            self._write(found, batch)


class Connected(LedgerSink):
    """Holds what cannot be pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "lock": self.ledger.lock}


class Visible(MemorySink):
    """Shows what is staged."""

    def rows(self) -> list[dict[str, Any]]:
        return [*super().rows(), *(row for table in self._staged.values() for row in table.to_pylist())]


class NoSweep(MemorySink):
    """Keeps what nobody will publish."""

    def sweep(self, live: Any, epoch: int, id: int) -> None: ...


class SweepsAll(MemorySink):
    """Deletes what a driver is about to publish."""

    def sweep(self, live: Any, epoch: int, id: int) -> None:
        self._staged.clear()


def memory_suite(sink: type[MemorySink]) -> SinkSuite:
    class Suite(MemorySuite):
        def place(self, folder: Path) -> MemorySink:
            return sink()

    return Suite()


def ledger_suite(broken: type[LedgerSink]) -> SinkSuite:
    class Suite(LedgerSuite):
        sink = broken

    return Suite()


ONCE, SLEPT, KILLED = (
    "test_a_batch_is_published_once",
    "test_a_driver_that_slept_publishes_nothing_taken_back",
    "test_killed_anywhere_and_resumed",
)
DEFECTS: list[tuple[str, SinkSuite]] = [
    (ONCE, ledger_suite(Twice)),
    ("test_two_drivers_publish_a_batch_once", ledger_suite(Twice)),
    (SLEPT, ledger_suite(Unguarded)),
    (KILLED, ledger_suite(TwoTransactions)),
    (KILLED, ledger_suite(MarkFirst)),
    (SLEPT, ledger_suite(MarkGoesBack)),
    ("test_what_is_retracted_is_gone", ledger_suite(KeepsRows)),
    ("test_what_a_rollback_owes_is_published_before", ledger_suite(ForgetsWhatIsOwed)),
    ("test_another_job_is_refused", ledger_suite(AnyJob)),
    ("test_the_heir_of_a_savepoint_takes_over", ledger_suite(AnyHeir)),
    ("test_connecting_fences_nobody", ledger_suite(FencesOnConnecting)),
    ("test_a_batch_follows_the_one_before", ledger_suite(NeverPassed)),
    ("test_it_travels_without_a_connection", ledger_suite(Connected)),
    ("test_what_is_staged_is_invisible", memory_suite(Visible)),
    ("test_a_sweep_takes_what_nobody_publishes", memory_suite(NoSweep)),
    ("test_a_sweep_takes_what_nobody_publishes", memory_suite(SweepsAll)),
    (SLEPT, memory_suite(NoSweep)),
]


@pytest.mark.parametrize(("rule", "suite"), DEFECTS, ids=[rule for rule, _ in DEFECTS])
def test_each_rule_finds_its_defect(rule: str, suite: SinkSuite, tmp_path: Path) -> None:
    """A rule that every sink passes promises nothing."""
    with pytest.raises(Exception) as found:
        getattr(suite, rule)(tmp_path)
    assert not isinstance(found.value, (AttributeError, NameError, NotImplementedError)), found.value


def test_each_rule_has_a_defect() -> None:
    """One that nobody has seen fail may be one that cannot."""
    rules = {name for name, _ in inspect.getmembers(SinkSuite, inspect.isfunction) if name.startswith("test_")}
    assert rules == {rule for rule, _ in DEFECTS}


class AtLeastOnce(BatchSink):
    """A batch sink without a mark: it may write a batch again."""

    def __init__(self, ledger: Ledger, step: OnOperation) -> None:
        self.place, self._make = ledger.name, step

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "_make": None}

    def guarantee(self) -> Promise:
        return Promise("at-least-once", "nobody remembers")

    def claim(self, claim: Claim) -> None: ...

    def deliver(self, batch: OutputBatch) -> None:
        Ledger.places[self.place].entries += [
            (batch.number, row) for table in batch.tables() for row in table.to_pylist()
        ]


class TestAtLeastOnce(LedgerSuite):
    """Rows that are there twice are what such a sink promises; rows that are missing are not."""

    test_what_is_retracted_is_gone = None  # type: ignore[assignment]
    test_what_a_rollback_owes_is_published_before = None  # type: ignore[assignment]
    test_a_driver_that_slept_publishes_nothing_taken_back = None  # type: ignore[assignment]
    test_another_job_is_refused = None  # type: ignore[assignment]
    test_a_batch_follows_the_one_before = None  # type: ignore[assignment]
    test_the_heir_of_a_savepoint_takes_over = None  # type: ignore[assignment]

    def make(self, place: Ledger, step: OnOperation) -> Any:
        return AtLeastOnce(place, step)


def test_rows_that_are_missing_are_found_there_too(tmp_path: Path) -> None:
    """A sink that promises little would be let off with nothing."""

    class Lossy(AtLeastOnce):
        def deliver(self, batch: OutputBatch) -> None: ...

    class Suite(LedgerSuite):
        def make(self, place: Ledger, step: OnOperation) -> Any:
            return Lossy(place, step)

    act: Callable[[Path], None] = Suite().test_a_batch_is_published_once
    with pytest.raises(AssertionError, match=r"a reader sees \[\], but \[1, 2, 3\] were published"):
        act(tmp_path)
