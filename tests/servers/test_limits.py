"""No sink on a real server stops a job for the keys and results that it can hold."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from persistent import KafkaSink, Pipeline, PostgresSink, RabbitQueueSink, RabbitStreamSink, UserCodeError
from tests.connect.limits import (
    KEYS,
    RESULTS,
    Counted,
    Place,
    check_a_sink_joins,
    check_keys_are_judged,
    check_results_are_set_aside,
    fresh,
    job,
    run,
)
from tests.servers.postgres import PostgresServer
from tests.servers.queues import fresh_queue, taken
from tests.servers.reading import committed
from tests.servers.shared import shared_kafka, shared_postgres, shared_rabbit
from tests.servers.streams import LOGIN, Streams
from tests.servers.suites import PostgresSuite

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]


def _postgres(mode: str) -> Place:
    server, table = shared_postgres(), f"{PostgresSuite().place(Path())}.t"

    def values() -> list[Any]:
        return [1] * int(server.ask(f"SELECT count(*) FROM {table}")[0][0])

    years = frozenset({"years", "afar", "nul"})
    keys = years | {"null", "long", "huge"} if mode == "upsert" else years
    return Place(lambda: PostgresSink(server.url(), table, mode=mode), values, keys, years | {"fine"})


_HUGE = frozenset({"huge"})


def _kafka() -> Place:
    server = shared_kafka()
    topic = server.create()
    sink: Callable[[], Any] = lambda: KafkaSink(server.bootstrap, topic)  # noqa: E731
    return Place(sink, lambda: [1 for one in committed(server, topic) if json.loads(one.value())], _HUGE, _HUGE)


def _rabbit() -> Place:
    server = shared_rabbit()
    queue = fresh_queue(server)
    sink: Callable[[], Any] = lambda: RabbitQueueSink(server.url(), queue)  # noqa: E731
    return Place(sink, lambda: [1 for _, body in taken(server, queue) if json.loads(body)], _HUGE, _HUGE)


def _stream() -> Place:
    streams = Streams(shared_rabbit())
    name = streams.create()
    sink: Callable[[], Any] = lambda: RabbitStreamSink(streams.address, name, client=LOGIN)  # noqa: E731
    return Place(sink, lambda: [1 for _ in streams.rows(name)], _HUGE, _HUGE)


TABLES = {"append": lambda: _postgres("append"), "upsert": lambda: _postgres("upsert")}
BROKERS: dict[str, Callable[[], Place]] = {"kafka": _kafka, "rabbit": _rabbit, "stream": _stream}
_TEXTS = ["text", "huge text", "moment", "several"]
"""All rows of brokers are JSON lines, which tests/connect/test_limits.py tries with every type."""
PAIRS = [(TABLES[mode], kind) for mode in TABLES for kind in KEYS] + [
    (BROKERS[broker], kind) for broker in BROKERS for kind in _TEXTS
]
NAMES = [f"{mode}-{kind}" for mode in TABLES for kind in KEYS] + [
    f"{broker}-{kind}" for broker in BROKERS for kind in _TEXTS
]


@pytest.mark.parametrize(("place", "kind"), PAIRS, ids=NAMES)
def test_a_key_is_judged_with_its_record(place: Callable[[], Place], kind: str) -> None:
    """It would count, and then stop every run of all keys when its result is due."""
    check_keys_are_judged(place(), kind)


@pytest.mark.parametrize(("place", "kind"), PAIRS, ids=NAMES)
def test_a_sink_joins_a_state_that_holds_any_key(place: Callable[[], Place], kind: str) -> None:
    """No run would publish anything to any sink."""
    check_a_sink_joins(place(), kind)


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("place", TABLES)
def test_a_result_is_published_or_set_aside(place: str, kind: str) -> None:
    """One total would withhold those of all other keys, for ever."""
    check_results_are_set_aside(TABLES[place](), kind)


def test_a_text_that_the_encoding_of_the_database_lacks(postgres: PostgresServer) -> None:
    """The server refuses it with its batch, in every run."""
    database = f"latin_{uuid.uuid4().hex}"
    with closing(psycopg.connect(postgres.url(), autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {database} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")

    def visits(texts: list[str], sink: Any, checkpoint: str, **options: Any) -> Pipeline:
        return job(Counted(("k",)), {"k": pa.array(texts)}, sink, checkpoint, **options)

    def latin() -> PostgresSink:
        return PostgresSink(postgres.url(database=database), "t", mode="upsert")

    checkpoint, texts = fresh(), ["a", "é", "😀"]
    with pytest.raises(UserCodeError, match="iso8859-1, does not have"):
        run(visits(texts, latin(), checkpoint))
    assert run(visits(texts, latin(), checkpoint, on_error="dead-letter")).dead == 1
    with closing(psycopg.connect(postgres.url(database=database))) as connection:
        assert connection.execute("SELECT k FROM t ORDER BY k").fetchall() == [("a",), ("é",)]


@pytest.mark.parametrize("place", BROKERS)
def test_a_result_larger_than_a_message_is_set_aside(place: str) -> None:
    """One total would withhold those of all other keys, for ever."""
    check_results_are_set_aside(BROKERS[place](), "huge text")
