"""What a PostgresSink does before it meets a server; the rest is in tests/servers/test_postgres.py."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import tenacity

from persistent import InvalidPipeline, PostgresSink, StorageError
from persistent.connect.postgres import session
from persistent.connect.sink import Claim
from persistent.storage.failures import FaultKind

SECRET = "h1dden-word"
CUT = [
    f"postgresql://u:{word}@h{port}/d{query}"
    for word in (f"x@{SECRET}", f"x/{SECRET}", f"1/{SECRET}", f"x/{SECRET}?connect_timeout=1", f"{SECRET}/x")
    for port in ("", ":5432")
    for query in ("", "?sslmode=require")
]
"""A special character that is not escaped cuts the password in two."""
DSN = f"postgresql://writer:{SECRET}@127.0.0.1:1/results"


def test_a_password_is_nowhere_to_be_seen() -> None:
    """Errors and logs are read by many."""
    sink = PostgresSink(DSN, "visits", connect_timeout="1 ms")
    assert "127.0.0.1:1/results" in repr(sink) and SECRET not in repr(sink) + repr(sink._session)
    with pytest.raises(StorageError, match=r"cannot claim PostgresSink.*Start the server") as error:
        sink.claim(Claim("job"))
    assert SECRET not in f"{error.value!r}{error.value.__context__!r}"
    for dsn in (f"host=x password='{SECRET}", f"postgresql://u:{SECRET}%zz@h/d", "", None, *CUT):
        with pytest.raises(InvalidPipeline, match="dsn= cannot be parsed") as refused:
            PostgresSink(dsn, "visits")  # type: ignore[arg-type]
        assert SECRET not in f"{refused.value!r}{refused.value.__context__!r}{refused.value.__cause__!r}"
        assert "/ as %2F, ? as %3F, # as %23, @ as %40, % as %25" in str(refused.value)


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://u:x%40y%2Fz@h/d", "h:5432/d"),
        ("postgresql://u:x?y#z:,@h:1/d?user=a@b", "h:1/d"),
        ("postgres://u:x@h1:1,h2:2/d", "h1,h2:1,2/d"),
        ("postgresql:///d?host=/tmp&user=a@b", "/tmp:5432/d"),
        ("host=/tmp user=a@b password=x@y/z dbname=d", "/tmp:5432/d"),
    ],
)
def test_a_dsn_whose_password_is_whole(dsn: str, place: str) -> None:
    """It is refused for nothing."""
    assert PostgresSink(dsn, "visits").place == place


def test_options_that_cannot_be_are_refused() -> None:
    """A misspelled mode would add what was to be replaced."""
    tables = ["a.b.c", "", ".b", "persistent_marks", "public.persistent_before_visits", "Persistent_Incoming"]
    wrong: list[dict[str, Any]] = [{"mode": "replace"}, *({"table": table} for table in tables)]
    for options in wrong:
        with pytest.raises(InvalidPipeline, match=r"PostgresSink (mode|table)="):
            PostgresSink(**{"dsn": DSN, "table": "visits", **options})
    for name in ("t" * 64, "public." + "é" * 32, "s" * 64 + ".t"):
        with pytest.raises(InvalidPipeline, match="truncates names after 63 bytes"):
            PostgresSink(DSN, name)
    assert PostgresSink(DSN, "s" * 63 + "." + "t" * 63).mode == "append"
    with pytest.raises(InvalidPipeline, match="a null in the key column 'page'"):
        PostgresSink(DSN, "visits", mode="upsert").check(pa.table({"page": [None]}), ("page",))


def test_names_are_looked_at_before_the_server_is_asked() -> None:
    """The first batch would end the run, and every run after it."""
    sink = PostgresSink(DSN, "visits", connect_timeout="1 ms")
    with pytest.raises(InvalidPipeline, match="a system column 'xmin'"):
        sink.claim(Claim("job", schema=pa.schema([("xmin", pa.int64())])))
    with pytest.raises(InvalidPipeline, match="a system column 'ctid'"):
        sink.check(pa.table({"ctid": [1]}), ())


def test_text_is_sent_in_utf8_whatever_the_dsn_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would take the bytes for LATIN1, and every letter beyond ASCII for two others."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(psycopg, "connect", lambda **settings: given.append(settings))
    PostgresSink(f"{DSN}?client_encoding=LATIN1", "visits")._session._connect()
    assert given[0]["client_encoding"] == "UTF8" and given[0]["password"] == SECRET


@pytest.mark.parametrize(("patience_s", "hangs_from"), [(6, 0.0), (6, 3.0), (60, 55.0)])
def test_the_last_try_ends_with_the_patience(
    patience_s: int, hangs_from: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs after it has refused would be waited for nearly twice as long as was said."""
    now = 0.0

    def connect(**settings: Any) -> None:
        nonlocal now
        if now >= hangs_from:
            now += settings["connect_timeout"]
            raise psycopg.errors.ConnectionTimeout("connection timeout expired")
        raise psycopg.OperationalError("connection refused")

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(session, "monotonic_s", lambda: now)
    monkeypatch.setattr(tenacity.nap, "sleep", sleep)
    with pytest.raises(StorageError, match="cannot claim PostgresSink"):
        PostgresSink(DSN, "visits", connect_timeout=f"{patience_s} s").claim(Claim("job"))
    assert patience_s / 2 < now <= patience_s + 2


def test_it_travels_as_settings() -> None:
    """Workers are sent the sink, and have no connection."""
    copy = pickle.loads(pickle.dumps(PostgresSink(DSN, "visits", mode="upsert")))
    assert (copy.table, copy.mode, copy.place) == ("visits", "upsert", "127.0.0.1:1/results")
    copy.close()


def test_without_the_client_the_extra_is_named() -> None:
    """ "No module named psycopg" does not say what to install; and nobody else should need it."""
    code = """
import sys, persistent
assert "psycopg" not in sys.modules
sys.modules["psycopg"] = None
try:
    persistent.PostgresSink("host=x", "t")
except persistent.InvalidPipeline as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'persistent-monoids[postgres]'" in done.stdout


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("FATAL:  the database system is starting up", FaultKind.UNANSWERED),
        ("FATAL:  the database system is not yet accepting connections", FaultKind.UNANSWERED),
        ("FATAL:  the database system is shutting down", FaultKind.UNANSWERED),
        ("consuming input failed: SSL connection has been closed unexpectedly", FaultKind.UNANSWERED),
        ("consuming input failed: SSL SYSCALL error: EOF detected", FaultKind.UNANSWERED),
        ("server closed the connection unexpectedly", FaultKind.UNANSWERED),
        ('FATAL:  database "results" does not exist', FaultKind.PERMANENT),
        ('FATAL:  role "writer" does not exist', FaultKind.PERMANENT),
        (
            'FATAL:  no pg_hba.conf entry for host "::1", user "writer", database "results", SSL off',
            FaultKind.PERMANENT,
        ),
        ("server does not support SSL, but SSL was required", FaultKind.PERMANENT),
        ("SSL error: certificate verify failed", FaultKind.PERMANENT),
    ],
)
def test_a_server_that_starts_is_waited_for_and_a_refusal_is_not(said: str, fault: FaultKind) -> None:
    """A job would end at a restart of the server, with the advice to correct the name of its database."""
    found = PostgresSink(DSN, "visits")._session._failure_of(psycopg.OperationalError(f"connection failed: {said}"))
    assert found.fault is fault
    assert ("Start the server" in found.remedy) == (fault is FaultKind.UNANSWERED)


@pytest.mark.parametrize("kind", [psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError])
def test_what_the_client_refuses_is_refused_at_once(kind: type[psycopg.Error]) -> None:
    """It has no code of the server, and was tried again for minutes, with the advice to start the server."""
    found = PostgresSink(DSN, "visits")._session._failure_of(kind("the query has 1 placeholders but 2 were passed"))
    assert found.fault is FaultKind.PERMANENT and "Correct the statement" in found.remedy
