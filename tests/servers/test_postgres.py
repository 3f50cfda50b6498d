"""A table of a real PostgreSQL has each batch once, whatever happens to the driver, the server and the connection."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from persistent import Fenced, InvalidPipeline, PostgresSink, StorageError
from persistent.connect.postgres.session import Session
from persistent.connect.sink import Claim, OutputBatch, Retreat
from persistent.connect.sql import quoted
from tests.connect.places import outputs_of
from tests.connect.rollbacks import roll_back_twice
from tests.few import share
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.shared import shared_postgres
from tests.servers.suites import PostgresSuite, stepped

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]

KEY = ("page",)


def batch(number: int, before: int, outputs: pa.Table, key: tuple[str, ...] = KEY, oldest: int = 0) -> OutputBatch:
    class Batch(OutputBatch):
        def tables(self) -> Any:
            return iter([outputs] if outputs.num_rows else [])

    return Batch("job", number, before, oldest, number, "file:///c", key, (), lambda staged: outputs)


@pytest.fixture
def table(postgres: PostgresServer) -> str:
    """A table that is not there yet, in a schema of its own."""
    return f"{PostgresSuite().place(Path())}.visits"


def test_every_value_comes_back(postgres: PostgresServer, table: str) -> None:
    """A number that is rounded, or a time that moves by a zone, is another result."""
    time_of_day = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=datetime.UTC)
    columns = {
        "page": pa.array(["a", "", "q\"u'o\n,te\\.", None]),
        "int": pa.array([2**63 - 1, -(2**63), 0, None]),
        "big": pa.array([2**64 - 1, 1, 0, None], pa.uint64()),
        "float": pa.array([0.1, float("inf"), float("nan"), None]),
        "single": pa.array([0.5, 1e-40, -0.0, None], pa.float32()),
        "flag": pa.array([True, False, True, None]),
        "time": pa.array([time_of_day] * 3 + [None], pa.timestamp("ms", "Asia/Tokyo")),
        "plain": pa.array([time_of_day.replace(tzinfo=None)] * 3 + [None], pa.timestamp("us")),
        "day": pa.array([time_of_day.date()] * 3 + [None], pa.date32()),
        "exact": pa.array([decimal.Decimal("0.10"), decimal.Decimal("-1.00"), None, None], pa.decimal128(10, 2)),
        "bytes": pa.array([b"\0\xff", b"", b"a", None]),
        "list": pa.array([[1, 2], [], None, [3]]),
        "struct": pa.array([{"a": 'x"y'}, None, {"a": None}, None]),
    }
    sink = PostgresSink(postgres.url(), table)
    sink.claim(Claim("job"))
    sink.deliver(batch(7, 0, pa.table(columns)))
    sink.close()
    import psycopg

    with psycopg.connect(postgres.url()) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        first, second, third, last = (dict(zip(names, row)) for row in cursor.fetchall())
    assert first == {
        "page": "a",
        "int": 2**63 - 1,
        "big": decimal.Decimal(2**64 - 1),
        "float": 0.1,
        "single": 0.5,
        "flag": True,
        "time": time_of_day,
        "plain": time_of_day.replace(tzinfo=None),
        "day": time_of_day.date(),
        "exact": decimal.Decimal("0.10"),
        "bytes": b"\0\xff",
        "list": [1, 2],
        "struct": {"a": 'x"y'},
        "revision": 7,
    }
    assert (second["page"], second["bytes"], second["list"]) == ("", b"", []) and second["float"] == float("inf")
    assert third["page"] == "q\"u'o\n,te\\." and str(third["float"]) == "nan" and third["struct"] == {"a": None}
    assert {name for name, value in last.items() if value is not None} == {"list", "revision"}


def test_an_upsert_replaces_and_a_rollback_puts_back(postgres: PostgresServer, table: str) -> None:
    """A key that was there before would keep what was taken back, or be gone."""
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    sink.claim(Claim("job", key=KEY, schema=outputs_of({}).schema))

    def rows() -> set[tuple[Any, ...]]:
        return set(postgres.ask(f"SELECT page, value, revision FROM {table}"))

    states: list[tuple[int, set[tuple[Any, ...]]]] = []
    for number, values in ((1, {"a": 1, "b": 1}), (2, {"a": 2, "c": 2}), (5, {"a": 5, "d": 5}), (6, {"c": 6, "e": 6})):
        sink.deliver(batch(number, states[-1][0] if states else 0, outputs_of(values)))
        states.append((number, rows()))
    assert states[-1][1] == {("a", 5, 5), ("b", 1, 1), ("c", 6, 6), ("d", 5, 5), ("e", 6, 6)}
    for _ in range(2):
        sink.retract(Retreat("job", 9, 3, (), KEY, 9, "c"))
        assert rows() == states[1][1] == {("a", 2, 2), ("b", 1, 1), ("c", 2, 2)}
    for number in (10, 11):
        sink.deliver(batch(number, number - 1, outputs_of({"a": number}), oldest=9))
    with pytest.raises(InvalidPipeline, match=r"batches up to 9 can no longer be taken back.*--outputs=again"):
        sink.retract(Retreat("job", 12, 9, (), KEY, 12, "c"))
    sink.retract(Retreat("job", 12, 10, (), KEY, 12, "c"))
    assert rows() == states[1][1] and sink.newest("job") == 12 and sink.newest("other") == -1
    sink.close()


@pytest.mark.parametrize("before", ["upsert", "append"])
def test_a_second_rollback_goes_back_behind_the_first(postgres: PostgresServer, table: str, before: str) -> None:
    """The first one moves the mark, and nothing was there to be replaced. Accepted, and then refused, it would end
    every run."""
    roll_back_twice(lambda mode: PostgresSink(postgres.url(), table, mode=mode), (before, "upsert"))
    found = postgres.ask(f"SELECT extract(minute FROM window_start)::int, value FROM {table} ORDER BY 1")
    assert found == [(0, 3), (1, 3)]


def test_a_column_that_left_the_outputs_is_put_back_as_it_was(postgres: PostgresServer, table: str) -> None:
    """The rollback of a job that has dropped a field would leave NULL where its value still stood."""
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    both = outputs_of({"a": 1}).append_column("debug", pa.array([50]))
    sink.claim(Claim("job", key=KEY))
    sink.deliver(batch(1, 0, both))
    sink.deliver(batch(2, 1, outputs_of({"a": 2})))
    sink.deliver(batch(3, 2, outputs_of({"a": 3}).append_column("debug", pa.array([7]))))
    sink.retract(Retreat("job", 4, 2, (), KEY, 4, "c"))
    assert postgres.ask(f"SELECT page, value, debug, revision FROM {table}") == [("a", 1, 50, 1)]
    sink.close()


def test_what_was_replaced_has_the_types_of_the_table(postgres: PostgresServer, table: str) -> None:
    """1.4 would come back as 1, and the key 1.25 would be looked for as 1.3."""
    postgres.ask(f"CREATE TABLE {table} (price numeric PRIMARY KEY, value bigint, revision bigint)")
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    sink.claim(Claim("job", key=("price",)))

    def outputs(values: dict[str, float], kind: pa.DataType) -> pa.Table:
        exact = [decimal.Decimal(price) for price in values]
        return pa.table({"price": pa.array(exact), "value": pa.array(values.values(), kind)})

    sink.deliver(batch(1, 0, outputs({"1.5": 1, "1.3": 1}, pa.int64()), ("price",)))
    sink.deliver(batch(2, 1, outputs({"1.5": 2}, pa.int64()), ("price",)))
    postgres.ask(f"ALTER TABLE {table} ALTER COLUMN value TYPE double precision")
    sink.deliver(batch(3, 2, outputs({"1.25": 1.4}, pa.float64()), ("price",)))
    sink.deliver(batch(4, 3, outputs({"1.25": 2.7, "12.255": 5.3}, pa.float64()), ("price",)))
    sink.retract(Retreat("job", 5, 4, (), ("price",), 5, "c"))
    found = postgres.ask(f"SELECT price::text, value, revision FROM {table} ORDER BY price")
    assert found == [("1.25", 1.4, 3), ("1.3", 1.0, 1), ("1.5", 2.0, 2)]
    sink.retract(Retreat("job", 6, 2, (), ("price",), 6, "c"))
    found = postgres.ask(f"SELECT price::text, value, revision FROM {table} ORDER BY price")
    assert found == [("1.3", 1.0, 1), ("1.5", 1.0, 1)]
    sink.close()


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_text_is_text_in_every_encoding(
    encoding: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every letter beyond ASCII would be two others, and nobody would be told."""
    database = f"in_{encoding.lower()}"
    postgres.ask(f"CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    sink = PostgresSink(f"{postgres.url(database=database)}?options=-c%20client_encoding%3DLATIN1", "visits")
    sink.claim(Claim("job"))
    sink.deliver(batch(1, 0, outputs_of({"Zürich": 1})))
    monkeypatch.delenv("PGCLIENTENCODING")
    assert postgres.ask("SELECT page, length(page) FROM visits", database) == [("Zürich", 6)]
    if encoding == "LATIN1":
        with pytest.raises(StorageError, match="give the sink a database in UTF8"):
            sink.deliver(batch(2, 1, outputs_of({"日本": 1})))
    sink.close()
    postgres.ask(f"DROP DATABASE {database}")


def shape(columns: str) -> Callable[[str], str]:
    return lambda table: f"CREATE TABLE {table} ({columns})"


SHAPES: dict[str, tuple[str, str, str]] = {
    "lacks a column": ("append", "page text, revision bigint", r"'value' is missing.*Add it: ALTER TABLE .* bigint"),
    "has another type": (
        "append",
        "page text, value integer, revision bigint",
        r"'value' is of type integer, but the outputs need bigint \(int64\).*ALTER COLUMN \"value\" TYPE bigint",
    ),
    "wants more": ("append", "page text, value bigint, revision bigint, note text NOT NULL", "'note' is text NOT NULL"),
    "has no key": ("upsert", "page text, value numeric, revision bigint, note text", "CREATE UNIQUE INDEX"),
}


@pytest.mark.parametrize(("mode", "columns", "text"), SHAPES.values(), ids=SHAPES)
def test_a_table_of_another_shape_is_refused_at_the_start(
    mode: str, columns: str, text: str, postgres: PostgresServer, table: str
) -> None:
    """The first window that closes would end the run, hours later; and the remedy must be one."""
    postgres.ask(f"CREATE TABLE {table} ({columns})")
    sink = PostgresSink(postgres.url(), table, mode=mode)
    claim = Claim("job", schema=outputs_of({}).schema, key=KEY)
    for _ in range(4):
        try:
            sink.claim(claim)
        except StorageError as error:
            assert sink.newest("job") == -1, "claimed all the same"
            found = str(error)
            statement = found[min(at for at in (found.find("ALTER"), found.find("CREATE")) if at >= 0) :]
            postgres.ask(statement.partition("; or")[0])
            text = text if text == "" else _matched(text, found)
    assert text == "", "no error said so"
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    sink.close()


KINDS: dict[str, tuple[str, str, str]] = {
    "loses its rows": ("UNLOGGED", "page text PRIMARY KEY, value bigint", "is UNLOGGED: .*SET LOGGED"),
    "computes": ("", "page text PRIMARY KEY, value bigint GENERATED ALWAYS AS (7) STORED", "'value' is computed by"),
    "ignores case": (
        "",
        "page text COLLATE blind PRIMARY KEY, value bigint",
        "'page' is compared by blind, which treats",
    ),
}


@pytest.mark.parametrize(("kind", "columns", "text"), KINDS.values(), ids=KINDS)
def test_a_table_that_would_lose_rows_is_refused(
    kind: str, columns: str, text: str, postgres: PostgresServer, table: str
) -> None:
    """Two keys would be one row, or a crash of the server would leave the mark of rows that are gone."""
    columns = columns.replace("blind", f"{table.partition('.')[0]}.blind")
    if "blind" in columns:
        provider = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        postgres.ask(f"CREATE COLLATION {table.partition('.')[0]}.blind ({provider})")
    postgres.ask(f"CREATE {kind} TABLE {table} ({columns}, revision bigint)")
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    with pytest.raises(StorageError, match=text):
        sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
    assert sink.newest("job") == -1
    sink.close()


def _matched(pattern: str, text: str) -> str:
    import re

    assert re.search(pattern, text), text
    return ""


def test_wide_columns_and_a_schema_with_odd_names_are_taken(postgres: PostgresServer) -> None:
    """A table that others made has types of its own; a name with a quote in it would end the statement."""
    postgres.ask('CREATE SCHEMA "Odd ""one"""')
    for mode in ("append", "upsert"):
        name = f'a "b" {mode}; --'
        whole = quoted('Odd "one"', name)
        postgres.ask(
            f"CREATE TABLE {whole} (page varchar PRIMARY KEY, value numeric, revision numeric, "
            "note text NOT NULL DEFAULT 'x', at timestamptz DEFAULT now())"
        )
        sink = PostgresSink(postgres.url(), f'Odd "one".{name}', mode=mode)
        sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
        sink.deliver(batch(1, 0, outputs_of({"a": 1})))
        sink.retract(Retreat("job", 3, 1, (), KEY, 3, "c"))
        sink.deliver(batch(4, 3, outputs_of({"a": 2, "b": 3})))
        sink.close()
        assert set(postgres.ask(f"SELECT page, value, note FROM {whole}")) == {("a", 2, "x"), ("b", 3, "x")}


def test_what_a_server_refuses_is_said_without_the_password(postgres: PostgresServer, caplog: Any) -> None:
    """A wrong word costs an afternoon; a password in a log costs more."""
    caplog.set_level(logging.DEBUG)
    postgres.ask("CREATE USER stranger PASSWORD 'wh1sper-it'")
    postgres.ask("CREATE SCHEMA closed")
    cases: dict[str, tuple[str, str]] = {
        postgres.url(password="wr0ng-one"): ("visits", r"password authentication failed.*credentials"),
        postgres.url(user="nobody-there"): ("visits", r"password authentication failed.*credentials"),
        postgres.url(database="nowhere"): ("visits", r'database "nowhere" does not exist.*in the dsn, or create it'),
        postgres.url(): ("nowhere.visits", r'schema "nowhere" does not exist.*Create the schema'),
        postgres.url(user="stranger"): (
            "closed.visits",
            r"permission denied for schema closed.*Grant this user",
        ),
    }
    for url, (table, text) in cases.items():
        began = time.monotonic()
        sink = PostgresSink(url, table)
        with pytest.raises(StorageError, match=text) as error:
            sink.claim(Claim("job"))
        assert time.monotonic() - began < 10, "what cannot succeed was repeated"
        whole = f"{error.value!r} {error.value.__context__!r} {error.value.__cause__!r} {sink!r} {sink._session!r}"
        for secret in (PASSWORD, "wr0ng-one"):
            assert secret not in whole + caplog.text
        sink.close()


def test_a_server_that_is_away(postgres: PostgresServer, table: str) -> None:
    """A run would hang for ever; or end where a short wait was enough; or begin an hour of trying at a wrong port."""
    down = PostgresSink(postgres.url(port=1), table, connect_timeout="1 s")
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"cannot claim PostgresSink.*Connection refused.* tr.*Start the server"):
        down.claim(Claim("job"))
    assert time.monotonic() - began < 20
    sink = PostgresSink(postgres.url(), table, call_timeout="1 s", server_away="2 s")
    sink.claim(Claim("job"))
    postgres.pause()
    try:
        with pytest.raises(StorageError, match="cannot publish to PostgresSink"):
            sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    finally:
        postgres.resume()
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    assert postgres.ask(f"SELECT page, value FROM {table}") == [("a", 1)]
    sink.close()


def test_a_table_that_another_holds_is_waited_for(postgres: PostgresServer, table: str) -> None:
    """A lock that is never given would hold the run without a word."""
    import psycopg

    sink = PostgresSink(postgres.url(), table, call_timeout="300 ms", server_away="1 s")
    sink.claim(Claim("job"))
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    with psycopg.connect(postgres.url()) as other:
        other.execute(f"LOCK TABLE {table}")
        with pytest.raises(StorageError, match=r"timeout.*longer than call_timeout"):
            sink.deliver(batch(2, 1, outputs_of({"a": 2})))
    sink.deliver(batch(2, 1, outputs_of({"a": 2})))
    assert postgres.ask(f"SELECT count(*) FROM {table}") == [(2,)]
    sink.close()


def at_each_statement(mode: str, strike: Callable[[], None], every: int = 1) -> int:
    """Strike once before a statement of a delivery, an upsert and a rollback, for each statement of this run's share,
    one in so many; the number of statements."""
    server, count = shared_postgres(), 1
    # Before none, which counts them.
    cases = [-1]
    for at in cases:
        place = PostgresSuite().place(Path())
        done = 0

        def step(what: str, at: int = at) -> None:
            nonlocal done
            done += 1
            if done - 1 == at:
                strike()

        sink = stepped(PostgresSink(server.url(), f"{place}.visits", mode=mode, server_away="30 s"), step)
        sink.claim(Claim("job", key=KEY))
        sink.deliver(batch(1, 0, outputs_of({"a": 1, "b": 1})))
        sink.deliver(batch(2, 1, outputs_of({"b" if mode == "upsert" else "x": 2, "c": 2})))
        sink.retract(Retreat("job", 4, 2, (), KEY, 4, "c"))
        sink.deliver(batch(5, 4, outputs_of({"d": 5})))
        sink.close()
        found = set(server.ask(f"SELECT page, value FROM {place}.visits"))
        assert found == {("a", 1), ("b", 1), ("d", 5)}, (mode, at)
        assert server.ask(f"SELECT number FROM {place}.persistent_marks") == [(5,)]
        if at < 0:
            count = done
            cases += share(every, range(count))
    return count


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_connection_that_is_cut_at_every_statement(mode: str) -> None:
    """The answer to COMMIT is lost too: nobody knows whether the batch is there, and both guesses can be wrong."""

    def cut() -> None:
        shared_postgres().ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'persistent'"
        )

    assert at_each_statement(mode, cut, every=3) > 20


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_server_killed_in_the_middle_of_publishing(mode: str) -> None:
    """kill -9 of the server, and a start a moment later."""
    server = shared_postgres()

    def kill() -> None:
        server.kill()
        server.restart()

    assert at_each_statement(mode, kill, every=6) > 20
    server.wait()


def test_an_answer_to_commit_that_is_lost(postgres: PostgresServer, table: str) -> None:
    """The rows are there, and the driver does not know: repeated, they would be there twice, or it would be fenced."""
    sink = PostgresSink(postgres.url(), table)
    sink.claim(Claim("job"))
    session, lost = sink._session, []

    class Lossy(Session):
        def execute(self, statement: str, words: Iterable[Any] = ()) -> Any:
            found = super().execute(statement, words)
            if statement == "COMMIT" and not lost:
                import psycopg

                lost.append(statement)
                raise psycopg.OperationalError("the connection is lost")
            return found

    session.__class__ = Lossy
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    assert lost and postgres.ask(f"SELECT count(*) FROM {table}") == [(1,)]
    sink.close()


def test_drivers_killed_with_kill_9_between_every_statement(postgres: PostgresServer, tmp_path: Path) -> None:
    """Whole runs, each in a process of its own that kills itself: the table equals a plain count."""
    place = PostgresSuite().place(Path())
    done = subprocess.run(
        [sys.executable, "-m", "tests.servers.postgres_drivers", postgres.url(), place, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] > 13 and found["wrong"] == []


def test_a_fenced_driver_publishes_nothing(postgres: PostgresServer, table: str) -> None:
    """A second driver has taken the batches over: the first must neither add to them nor go on."""
    first, second = (PostgresSink(postgres.url(), table) for _ in range(2))
    for sink in (first, second):
        sink.claim(Claim("job"))
    second.deliver(batch(1, 0, outputs_of({"a": 1})))
    first.deliver(batch(1, 0, outputs_of({"a": 1})))
    second.deliver(batch(3, 1, outputs_of({"b": 1})))
    with pytest.raises(Fenced, match="is at batch 3, beyond our 2"):
        first.deliver(batch(2, 1, outputs_of({"c": 1})))
    assert set(postgres.ask(f"SELECT page FROM {table}")) == {("a",), ("b",)}
    for sink in (first, second):
        sink.close()
