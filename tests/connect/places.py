"""Places of our own sinks for the suite, with a step before each operation."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from persistent import FileSink, MemorySink, SqliteSink
from persistent.storage import MemoryStorage, Storage
from persistent.testing import AskingStorage, SinkSuite
from persistent.testing.sink_driver import OnOperation
from tests.connect.ledger import Ledger, LedgerSink


class OfOwnPlace(SinkSuite):
    """Sinks with a place of their own, which need keep no mark."""

    test_a_batch_follows_the_one_before = None  # type: ignore[assignment]
    test_the_heir_of_a_savepoint_takes_over = None  # type: ignore[assignment]
    test_it_travels_without_a_connection = None  # type: ignore[assignment]


class FileSuite(OfOwnPlace):
    """A folder, here in memory."""

    format = "jsonl"

    def place(self, folder: Path) -> Storage:
        return MemoryStorage(f"file-suite-{uuid.uuid4().hex}")

    def make(self, place: Storage, step: OnOperation) -> FileSink:
        return FileSink(AskingStorage(place, lambda verb, name: step(verb)), format=self.format)

    def rows(self, place: Storage) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name in FileSink(place, format=self.format).published():
            data = place.read(name)
            if self.format == "parquet":
                rows += pq.read_table(pa.BufferReader(data)).to_pylist()
            else:
                rows += [json.loads(line) for line in data.to_pybytes().splitlines()]
        return rows


class MemorySuite(OfOwnPlace):
    """This process."""

    def place(self, folder: Path) -> MemorySink:
        return MemorySink()

    def make(self, place: MemorySink, step: OnOperation) -> MemorySink:
        return place

    def rows(self, place: MemorySink) -> list[dict[str, Any]]:
        return place.rows()


class LedgerSuite(SinkSuite):
    """The plainest batch sink."""

    sink: type[LedgerSink] = LedgerSink

    def place(self, folder: Path) -> Ledger:
        return Ledger()

    def make(self, place: Ledger, step: OnOperation) -> LedgerSink:
        return self.sink(place, step)

    def rows(self, place: Ledger) -> list[dict[str, Any]]:
        return place.rows()


class SteppedConnection(sqlite3.Connection):
    """A connection that takes a step before each statement."""

    step: OnOperation

    def execute(self, sql: str, *words: Any) -> sqlite3.Cursor:
        self.step(sql)
        return super().execute(sql, *words)

    def executemany(self, sql: str, *words: Any) -> sqlite3.Cursor:
        self.step(sql)
        return super().executemany(sql, *words)


class SteppedSqliteSink(SqliteSink):
    """A sink whose every statement takes a step."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def step(self, what: str) -> None:
        """Nothing happens, unless the suite says otherwise."""

    def _connect(self) -> sqlite3.Connection:
        seconds = self.lock_ms / 1000
        connection = sqlite3.connect(self.path, timeout=seconds, isolation_level=None, factory=SteppedConnection)
        connection.step = self.step
        # Only a loss of power needs more, and here processes die.
        connection.execute("PRAGMA synchronous = OFF")
        return connection


class SqliteSuite(SinkSuite):
    """A file of SQLite."""

    mode = "append"
    sink: type[SqliteSink] = SteppedSqliteSink

    def place(self, folder: Path) -> Path:
        return folder / "results.db"

    def make(self, place: Path, step: OnOperation) -> SqliteSink:
        made = self.sink(place, "visits", mode=self.mode)
        made.step = step  # type: ignore[attr-defined]
        return made

    def rows(self, place: Path) -> list[dict[str, Any]]:
        return sqlite_rows(place, "visits")


def sqlite_rows(path: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table; none if it is not there."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []
        return [dict(row) for row in database.execute(f'SELECT * FROM "{table}"')]


def outputs_of(values: dict[str, int]) -> pa.Table:
    """Outputs without windows."""
    return pa.table({"page": list(values), "value": pa.array(values.values(), pa.int64())})
