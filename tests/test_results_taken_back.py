"""A result that can no longer be had takes back the row that was published before it, whatever readers do with rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Monoid
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
    WindowState,
    tumbling,
)
from persistent.storage import MemoryStorage


class Capped(Monoid[int]):
    """The sum of numbers that are not negative, which has no value beyond ten: it raises when it is added up, or only
    when it is presented."""

    identity = 0
    commutative = True
    output_type = pa.int64()

    def __init__(self, where: str) -> None:
        self.where = where

    def combine(self, a: int, b: int) -> int:
        return self._checked(a + b, "combine")

    def present(self, element: int) -> int:
        return self._checked(element, "present")

    def _checked(self, value: int, where: str) -> int:
        if where == self.where and value > 10:
            raise ValueError(f"{value} is too much")
        return value


class Capping(PersistentTask):
    name = "capping"
    key = "key"

    def __init__(self, where: str, kind: str) -> None:
        self.where, self.kind = where, kind

    def persistent_state(self) -> Any:
        monoid = Capped(self.where)
        return {
            "late": lambda: WindowState(monoid, tumbling(10), allowed_lateness=100),
            "windows that change": lambda: WindowState(monoid, tumbling(10), emit="change", allowed_lateness=100),
            "totals that change": lambda: NonWindowState(monoid, emit="change"),
            "totals": lambda: NonWindowState(monoid),
        }[self.kind]()

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


KINDS = ("late", "windows that change", "totals that change", "totals")


def run(where: str, kind: str, rows: list[dict[str, Any]], storage: Any, sink: Any) -> Any:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    task, options = Capping(where, kind), {"max_future": "40000 days", "step_rows": 1, "on_error": "dead-letter"}
    job = Pipeline(source=source, task=task, sink=sink, checkpoint=storage, **options)
    return job.run(engine="embedded", end_of_input=kind == "totals")


def rows(*values: tuple[str, int]) -> list[dict[str, Any]]:
    """A record of another window closes the first one before each."""
    first = [{"ts": 5, "key": key, "n": n} for key, n in values[:2]]
    return [*first, {"ts": 15, "key": "z", "n": 1}, *({"ts": 5, "key": key, "n": n} for key, n in values[2:])]


@pytest.mark.parametrize("where", ["combine", "present"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_whose_new_value_cannot_be_had_is_taken_back(where: str, kind: str, tmp_path: Path) -> None:
    """It stayed: readers held a value that the state no longer has."""
    given, storage = rows(("a", 4), ("b", 5), ("a", 7), ("b", 1)), MemoryStorage(f"capped-{where}-{kind}")
    path = str(tmp_path / "t.db")
    sinks = {"every": MemorySink(), "table": SqliteSink(path, "rows", mode="upsert")}
    run(where, kind, given[:3], storage, sinks)
    report = run(where, kind, given, storage, sinks)
    assert report.dead == 0
    found = [(row["key"], row["value"], row["retracted"]) for row in sinks["every"].rows() if row["key"] != "z"]
    assert sorted(found[:2]) == [("a", 4, False), ("b", 5, False)]
    assert sorted(found[2:]) == [("a", 4, True), ("b", 6, False)]
    query = "SELECT key, value FROM rows WHERE NOT retracted AND key <> 'z'"
    assert sqlite3.connect(path).execute(query).fetchall() == [("b", 6)]
    storage.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_was_never_published_is_not_taken_back(kind: str) -> None:
    """A dead letter is all that readers get of it."""
    given, storage, sink = rows(("a", 11), ("b", 5), ("a", 1)), MemoryStorage(f"capped-never-{kind}"), MemorySink()
    run("present", kind, given[:3], storage, sink)
    run("present", kind, given, storage, sink)
    assert {row["key"] for row in sink.rows()} - {"z"} == {"b"}
    storage.clear()
