"""A ledger sink is the contract of a batch sink in its plainest form: rows and a mark, changed together."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.sink import BatchSink, Claim, OutputBatch, Retreat
from persistent.testing.sink_driver import OnOperation


class Ledger:
    """The place: rows with the number of their batch, and the mark. ``places``: all of them, by name, as a process that
    unpickles a sink finds them."""

    places: dict[str, Ledger] = {}

    def __init__(self, name: str = "") -> None:
        self.lock = threading.RLock()
        self.mark: SinkMark | None = None
        self.entries: list[tuple[int, dict[str, Any]]] = []
        self.name = name or str(id(self))
        Ledger.places[self.name] = self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "lock": threading.RLock()}
        Ledger.places.setdefault(self.name, self)

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, row in self.entries]


class LedgerSink(BatchSink):
    """Publishes into a ``Ledger`` of this process. A change is prepared, then made in one piece if the mark is still
    where it was found."""

    abilities = frozenset({"newest", "retract"})

    def __init__(self, ledger: Ledger, step: OnOperation | None = None) -> None:
        self.place = ledger.name
        self.step = step or (lambda what: None)

    def __repr__(self) -> str:
        return "LedgerSink()"

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(Ledger.places[state["place"]])  # type: ignore[misc]

    @property
    def ledger(self) -> Ledger:
        return Ledger.places[self.place]

    def claim(self, claim: Claim) -> None:
        found = self._read()
        self._commit(found, claimed(found, claim, repr(self)), self.ledger.entries)

    def deliver(self, batch: OutputBatch) -> None:
        while True:
            found = self._read()
            if is_published(found, batch, repr(self)) or self._write(found, batch):
                return

    def retract(self, retreat: Retreat) -> None:
        for batch in retreat.staged:
            while not is_settled(found := self._read(), batch, repr(self)):
                self._write(found, batch)
        while not has_retreated(found := self._read(), retreat, repr(self)):
            entries = [one for one in self.ledger.entries if retreat.first is None or one[0] < retreat.first]
            self._commit(found, SinkMark(retreat.job, retreat.number), entries)

    def newest(self, job: str) -> int:
        mark = self.ledger.mark
        return -1 if mark is None or mark.job != job else mark.number

    def _read(self) -> SinkMark | None:
        self.step("read the mark")
        return self.ledger.mark

    def _write(self, found: SinkMark | None, batch: OutputBatch) -> bool:
        rows = [(batch.number, row) for table in batch.tables() for row in table.to_pylist()]
        return self._commit(found, SinkMark(batch.job, batch.number), [*self.ledger.entries, *rows])

    def _commit(self, found: SinkMark | None, mark: SinkMark, entries: Iterable[tuple[int, dict[str, Any]]]) -> bool:
        """Whether the mark was still where it was found; then all is changed."""
        self.step("commit")
        with self.ledger.lock:
            if self.ledger.mark != found:
                return False
            self.ledger.mark, self.ledger.entries = mark, list(entries)
        self.step("committed")
        return True
