"""What SQLite and PostgreSQL share: the statements that make their tables, which users have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from persistent import SqliteSink
from persistent.connect.postgres.table import PostgresTable
from persistent.connect.sink import Claim, OutputBatch, Retreat
from persistent.connect.sqlite.table import SqliteTable
from persistent.errors import SinkMismatch
from tests.connect.places import outputs_of, sqlite_rows
from tests.connect.sqlite.test_sink_and_sql import batch

COLUMNS = pa.schema(
    [("page", "string"), ("price", pa.decimal128(9, 2)), ("revision", "int64"), ("retracted", pa.bool_())]
)
KEY = ("page", "price")


def test_tables_are_created_as_they_were() -> None:
    """A new version would refuse, or fill in another way, the table of an older one."""
    sqlite = SqliteTable("a.db", "visits", "upsert")
    postgres = PostgresTable("host:1/db", "visits", "upsert", ("shop",))
    assert sqlite.creation(COLUMNS, KEY) == (
        'CREATE TABLE "visits" ("page" TEXT NOT NULL, "price" TEXT NOT NULL, "revision" INTEGER, '
        '"retracted" INTEGER DEFAULT false, PRIMARY KEY ("page", "price"))'
    )
    assert postgres.creation(COLUMNS, KEY) == (
        'CREATE TABLE "shop"."visits" ("page" text, "price" numeric, "revision" bigint, '
        '"retracted" boolean DEFAULT false, PRIMARY KEY ("page", "price"))'
    )
    assert PostgresTable("host:1/db", "visits", "append").creation(COLUMNS, KEY) == (
        'CREATE TABLE "visits" ("page" text, "price" numeric, "revision" bigint, "retracted" boolean DEFAULT false)'
    )
    assert (str(sqlite), str(postgres)) == ("a.db: table 'visits'", "host:1/db: table shop.visits")


def test_the_tables_of_the_sink_stay_as_they_were(tmp_path: Path) -> None:
    """An older run has made them, and the next one reads its mark there, and the rows that it takes back."""
    path = tmp_path / "results.db"
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=("page",), schema=outputs_of({}).schema))
    for number in (1, 2, 3):
        sink.deliver(batch(number, number - 1, outputs_of({"a": number}), oldest=number - 1))
    with closing(sqlite3.connect(path)) as database:
        statements = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    assert statements == {
        "CREATE TABLE persistent_marks (target TEXT COLLATE NOCASE PRIMARY KEY, job TEXT NOT NULL, "
        "number INTEGER NOT NULL, mode TEXT NOT NULL, kept_from INTEGER NOT NULL, made INTEGER NOT NULL)",
        'CREATE TABLE "visits" ("page" TEXT NOT NULL, "value" INTEGER, "revision" INTEGER, PRIMARY KEY ("page"))',
        'CREATE TABLE "persistent_before_visits" ("persistent_batch" INTEGER, "page", "value", "revision")',
        'CREATE INDEX "persistent_before_visits_batch" ON "persistent_before_visits" ("persistent_batch")',
    }
    mark = {"target": "visits", "job": "job", "number": 3, "mode": "upsert", "kept_from": 2, "made": 1}
    assert sqlite_rows(path, "persistent_marks") == [mark]
    image = {"persistent_batch": 3, "page": "a", "value": 2, "revision": 2}
    assert sqlite_rows(path, "persistent_before_visits") == [image]


def test_a_batch_of_several_files_is_replaced_and_put_back_at_once(tmp_path: Path) -> None:
    """The rows of the second file would be missing in the table, or among the rows that a rollback restores."""

    class Several(OutputBatch):
        def tables(self) -> Any:
            return iter([outputs_of({"a": 2}), outputs_of({"b": 2, "d": 2})])

    path, key = tmp_path / "results.db", ("page",)
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=key, schema=outputs_of({}).schema))
    sink.deliver(batch(1, 0, outputs_of({"a": 1, "b": 1, "c": 1})))
    sink.deliver(Several("job", 2, 1, 0, 2, "u", key, (), lambda staged: outputs_of({})))
    assert {row["page"]: row["value"] for row in sqlite_rows(path, "visits")} == {"a": 2, "b": 2, "c": 1, "d": 2}
    sink.retract(Retreat("job", 3, 2, (), key, 3, "u"))
    assert {row["page"]: row["value"] for row in sqlite_rows(path, "visits")} == {"a": 1, "b": 1, "c": 1}


def test_a_sink_that_is_claimed_again_looks_at_its_table_again(tmp_path: Path) -> None:
    """The sink of one job would take the table of another for its own, and a rollback delete the rows of that."""
    path = tmp_path / "results.db"
    sink = SqliteSink(path, "visits")
    sink.claim(Claim("job", key=("page",), schema=outputs_of({}).schema))
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM persistent_marks")
    with pytest.raises(SinkMismatch, match="but no mark of the job that wrote them"):
        sink.claim(Claim("other", key=("page",), schema=outputs_of({}).schema))
        sink.deliver(replace(batch(1, 0, outputs_of({"b": 1})), job="other"))
