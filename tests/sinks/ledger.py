"""A ledger sink is the contract of a batch sink in its plainest form: rows and a mark behind one lock."""

from __future__ import annotations

import threading
from typing import Any

from persistent.sinks.marks import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.sinks.protocol import Claim, OutputBatch, Retreat


class Ledger:
    """The place: rows with the number of their batch, and the mark."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.mark: SinkMark | None = None
        self.entries: list[tuple[int, dict[str, Any]]] = []

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, row in self.entries]


class LedgerSink:
    """Publishes into a ``Ledger`` of this process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __repr__(self) -> str:
        return "LedgerSink()"

    def claim(self, claim: Claim) -> None:
        with self.ledger.lock:
            self.ledger.mark = claimed(self.ledger.mark, claim, repr(self))

    def deliver(self, batch: OutputBatch) -> None:
        with self.ledger.lock:
            if not is_published(self.ledger.mark, batch, repr(self)):
                self._write(batch)

    def retract(self, retreat: Retreat) -> None:
        with self.ledger.lock:
            for batch in retreat.staged:
                if not is_settled(self.ledger.mark, batch, repr(self)):
                    self._write(batch)
            if not has_retreated(self.ledger.mark, retreat, repr(self)):
                if retreat.first is not None:
                    self.ledger.entries = [one for one in self.ledger.entries if one[0] < retreat.first]
                self.ledger.mark = SinkMark(retreat.job, retreat.number)

    def newest(self, job: str) -> int:
        mark = self.ledger.mark
        return -1 if mark is None or mark.job != job else mark.number

    def _write(self, batch: OutputBatch) -> None:
        rows = [row for table in batch.tables() for row in table.to_pylist()]
        self.ledger.entries += [(batch.number, row) for row in rows]
        self.ledger.mark = SinkMark(batch.job, batch.number)
