"""No sink stops a job for the keys and results that it can hold."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from persistent import FileSink, LogSink, MemorySink, SqliteSink
from persistent.log import SegmentedLog
from tests.connect.limits import (
    KEYS,
    RESULTS,
    Place,
    check_a_sink_joins,
    check_keys_are_judged,
    check_results_are_set_aside,
)

Make = Callable[[Path], Place]


def _memory(folder: Path) -> Place:
    sink = MemorySink()

    def values() -> list[Any]:
        return [1] * (0 if sink.table is None else sink.table.num_rows)

    return Place(lambda: sink, values, frozenset(), frozenset())


def _file(folder: Path, format: str, limits: frozenset[str]) -> Place:
    def values() -> list[Any]:
        found: list[Any] = []
        for name in FileSink(folder / "f", format=format).published():
            path = folder / "f" / name
            if format == "parquet":
                found += [1] * pq.read_metadata(path).num_rows
            else:
                found += [1 for line in path.read_text().splitlines() if json.loads(line)]
        return found

    return Place(lambda: FileSink(folder / "f", format=format), values, limits, limits)


def _sqlite(folder: Path, mode: str) -> Place:
    def values() -> list[Any]:
        with closing(sqlite3.connect(folder / "x.db")) as database:
            return [1 for _ in database.execute("SELECT * FROM t")]

    years = frozenset({"years", "afar"})
    keys = years | {"null", "nan"} if mode == "upsert" else years
    return Place(lambda: SqliteSink(folder / "x.db", "t", mode=mode), values, keys, years | {"unsigned"})


def _log(folder: Path) -> Place:
    def values() -> list[Any]:
        return [1 for batch in SegmentedLog(folder / "log").read(on_gap="earliest") for _ in range(len(batch))]

    limits = frozenset({"huge"})
    return Place(lambda: LogSink(folder / "log"), values, limits, limits)


PLACES: dict[str, Make] = {
    "memory": _memory,
    "parquet": lambda folder: _file(folder, "parquet", frozenset()),
    "jsonl": lambda folder: _file(folder, "jsonl", frozenset()),
    "sqlite append": lambda folder: _sqlite(folder, "append"),
    "sqlite upsert": lambda folder: _sqlite(folder, "upsert"),
    "log": _log,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_key_is_judged_with_its_record(place: str, kind: str, tmp_path: Path) -> None:
    """It would count, and then stop every run of all keys when its result is due."""
    check_keys_are_judged(PLACES[place](tmp_path), kind)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_sink_joins_a_state_that_holds_any_key(place: str, kind: str, tmp_path: Path) -> None:
    """No run would publish anything to any sink."""
    check_a_sink_joins(PLACES[place](tmp_path), kind)


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("place", PLACES)
def test_a_result_is_published_or_set_aside(place: str, kind: str, tmp_path: Path) -> None:
    """One total would withhold those of all other keys, for ever."""
    check_results_are_set_aside(PLACES[place](tmp_path), kind)
