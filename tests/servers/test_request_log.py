"""A request log on a real PostgreSQL: each request is done once, and a repeated one has the same reply."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from persistent.clients.postgres_session import Session
from persistent.errors import Refused
from persistent.requests import PostgresRequestLog
from tests.servers.postgres import PostgresServer
from tests.servers.suites import PostgresSuite

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]


class Shop:
    """A table of what was done, in a schema of its own, and the work of a request."""

    def __init__(self, server: PostgresServer) -> None:
        self.table = f"{PostgresSuite().place(Path())}.done"
        self.schema = self.table.partition(".")[0]
        self.log = PostgresRequestLog(server.url())
        server.ask(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        server.ask(f"CREATE TABLE {self.table} (id INT)")

    def work(self, session: Session) -> bytes:
        session.execute(f"INSERT INTO {self.table} VALUES (1)")
        return b"reply %d" % session.execute(f"SELECT count(*) FROM {self.table}").fetchone()[0]

    def done(self) -> int:
        return int(
            self.log._session.transact(
                "count", lambda session: session.execute(f"SELECT count(*) FROM {self.table}").fetchone()[0]
            )
        )


@pytest.fixture
def shop(postgres: PostgresServer) -> Shop:
    return Shop(postgres)


def test_a_repeated_request_has_the_same_reply(shop: Shop) -> None:
    """The first reply was lost on its way."""
    name = shop.table
    assert shop.log.last(name) == -1
    assert [shop.log.answer(name, id, shop.work) for id in (1, 1, 7, 7)] == [b"reply 1"] * 2 + [b"reply 2"] * 2
    with pytest.raises(Refused, match="request 1 of"):
        shop.log.answer(name, 1, shop.work)
    assert shop.done() == 2 and shop.log.last(name) == 7
    shop.log.forget(name)
    assert shop.log.last(name) == -1
    shop.log.close()


def test_a_work_that_fails_has_done_nothing(shop: Shop) -> None:
    """It may be asked for again."""

    def failing(session: Session) -> bytes:
        shop.work(session)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shop.log.answer(shop.table, 1, failing)
    assert shop.done() == 0 and shop.log.last(shop.table) == -1
    assert shop.log.answer(shop.table, 1, shop.work) == b"reply 1"


def test_of_many_that_ask_at_once_one_is_done(shop: Shop, postgres: PostgresServer) -> None:
    """A requester that is impatient asks several servers."""
    replies: list[bytes] = []
    logs = [PostgresRequestLog(postgres.url()) for _ in range(5)]
    threads = [
        threading.Thread(target=lambda log=log: replies.append(log.answer(shop.table, 1, shop.work)))  # type: ignore[misc]
        for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert replies == [b"reply 1"] * 5 and shop.done() == 1


def test_a_connection_that_is_lost_under_way_changes_nothing(shop: Shop) -> None:
    """The work is called again, and its first changes are gone."""
    calls = []

    def cut_once(session: Session) -> bytes:
        reply = shop.work(session)
        calls.append(reply)
        if len(calls) == 1:
            session.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return reply

    assert shop.log.answer(shop.table, 1, cut_once) == b"reply 1"
    assert len(calls) == 2 and shop.done() == 1
