"""A request log on a real PostgreSQL: each request is done once, and a repeated one has the same reply."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from persistent.connect.postgres.session import Session
from persistent.errors import Refused, StorageError
from persistent.requests import PostgresRequestLog
from persistent.requests.postgres import WorkSession
from tests.servers.postgres import PostgresServer
from tests.servers.suites import PostgresSuite

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]


class Shop:
    """A table of what was done, in a schema of its own, and the work of a request."""

    def __init__(self, server: PostgresServer) -> None:
        self.table = f"{PostgresSuite().place(Path())}.done"
        self.schema = self.table.partition(".")[0]
        self.server = server
        self.log = PostgresRequestLog(server.url())
        server.ask(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        server.ask(f"CREATE TABLE {self.table} (id INT)")

    def work(self, session: Session | WorkSession) -> bytes:
        session.execute(f"INSERT INTO {self.table} VALUES (1)")
        return b"reply %d" % session.execute(f"SELECT count(*) FROM {self.table}").fetchone()[0]

    def done(self) -> int:
        return int(self.server.ask(f"SELECT count(*) FROM {self.table}")[0][0])


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


def test_an_id_reused_for_another_request_is_refused(shop: Shop) -> None:
    """It would get the reply to the other request, and never be done."""
    for content in (b"tea", b"tea", None):
        assert shop.log.answer(shop.table, 1, shop.work, content=content) == b"reply 1"
    with pytest.raises(Refused, match="with another content"):
        shop.log.answer(shop.table, 1, shop.work, content=b"milk")
    assert shop.done() == 1
    assert shop.log.answer(shop.table, 2, shop.work, content=b"milk") == b"reply 2"


def test_a_work_that_fails_has_done_nothing(shop: Shop) -> None:
    """It may be asked for again."""

    def failing(session: WorkSession) -> bytes:
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

    def cut_once(session: WorkSession) -> bytes:
        reply = shop.work(session)
        calls.append(reply)
        if len(calls) == 1:
            session.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return reply

    assert shop.log.answer(shop.table, 1, cut_once) == b"reply 1"
    assert len(calls) == 2 and shop.done() == 1


def test_threads_of_one_log_are_on_their_own(shop: Shop) -> None:
    """On one connection the COMMIT of one would take what another then undoes; and a work that fails cut the others."""
    both = threading.Barrier(2)
    raised = threading.Event()
    said: dict[str, object] = {}

    def fine(session: WorkSession) -> bytes:
        shop.work(session)
        both.wait(60)
        assert raised.wait(60)
        return b"fine"

    def failing(session: WorkSession) -> bytes:
        shop.work(session)
        both.wait(60)
        raise ZeroDivisionError

    def ask(name: str, work: Callable[[WorkSession], bytes]) -> None:
        try:
            said[name] = shop.log.answer(shop.table + name, 1, work)
        except ZeroDivisionError:
            said[name] = "failed"
            raised.set()

    threads = [threading.Thread(target=ask, args=words) for words in (("a", fine), ("b", failing))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert said == {"a": b"fine", "b": "failed"}
    assert shop.done() == 1 and [shop.log.last(shop.table + name) for name in "ab"] == [1, -1]


def test_a_session_s_transactions_take_turns(shop: Shop) -> None:
    """What one thread undoes would be in the COMMIT of another; a sink may be given to two pipelines."""
    session = Session(shop.log._settings, shop.log._patiences, "session")
    both, met = threading.Barrier(2), []

    def meeting(session: Session) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
            met.append(1)

    threads = [threading.Thread(target=session.transact, args=("meet", meeting)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not met and pickle.loads(pickle.dumps(session)).transact("ask", lambda it: it.transaction) == "INTRANS"
    session.close()


ENDED = "Leave COMMIT and ROLLBACK to the log"
SENT = [
    "COMMIT",
    " commit;",
    "; COMMIT",
    "END",
    "ABORT",
    "Rollback",
    "-- it is done\nCOMMIT",
    "/* /* */ */ COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK AND CHAIN",
    "PREPARE TRANSACTION 'a'",
    "SET CONSTRAINTS ALL IMMEDIATE",
]
SEVERAL = [
    "ROLLBACK; BEGIN",
    "INSERT INTO {done} VALUES (1); COMMIT",
    r"SELECT E'\''; COMMIT; BEGIN; --'",
    'SELECT 1 AS "a""b"; COMMIT; BEGIN',
    "ROLLBACK AND CHAIN; INSERT INTO {done} VALUES (1); COMMIT",
]


def in_bytes(session: WorkSession) -> None:
    session.execute(b"COMMIT")  # type: ignore[arg-type]


def composed(session: WorkSession) -> None:
    from psycopg import sql

    session.execute(sql.SQL("ROLLBACK"))  # type: ignore[arg-type]


ENDINGS: dict[str, Callable[[WorkSession], object]] = {
    **{text: lambda session, text=text: session.execute(text) for text in SENT},  # type: ignore[misc]
    "bytes": in_bytes,
    "composed": composed,
    "out of its hands": lambda session: session._session.execute("ROLLBACK"),
    "a new one, out of its hands": lambda session: session._session.execute("ROLLBACK; BEGIN"),
}


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("how", ENDINGS)
def test_a_work_cannot_end_its_transaction(how: str, swallows: bool, shop: Shop) -> None:
    """A reply would be stored, and nothing done; or done, and come again."""

    def ending(session: WorkSession) -> bytes:
        shop.work(session)
        with suppress(*([StorageError] if swallows else [])):
            ENDINGS[how](session)
        if swallows and "hands" not in how:
            # By itself it would be committed at once, or by the next COMMIT.
            for text in (f"INSERT INTO {shop.table} VALUES (2)", "COMMIT"):
                with suppress(StorageError):
                    session.execute(text)
        return b"paid"

    assert shop.log.answer(shop.table, 1, shop.work) == b"reply 1"
    for requester, id in ((shop.table, 2), (shop.table, 2), (shop.table + "new", 1)):
        with pytest.raises(StorageError, match=ENDED):
            shop.log.answer(requester, id, ending)
    assert shop.done() == 1 and [shop.log.last(shop.table + end) for end in ("", "new")] == [1, -1]
    assert shop.log.answer(shop.table, 2, shop.work) == b"reply 2"


@pytest.mark.parametrize("several", SEVERAL)
def test_a_session_takes_one_statement_at_a_time(several: str, shop: Shop) -> None:
    """Between two of them nobody looks: an effect after a ROLLBACK would be there without its reply, and come twice."""

    def doing(session: WorkSession) -> bytes:
        shop.work(session)
        session.execute(several.format(done=shop.table))
        return b"paid"

    for _ in range(2):
        with pytest.raises(StorageError, match="a work session takes one at a time"):
            shop.log.answer(shop.table, 1, doing)
    assert shop.done() == 0 and shop.log.last(shop.table) == -1


def test_a_commit_by_other_means_is_refused_by_the_server(shop: Shop) -> None:
    """A library that finds the connection would let the effect in without its reply."""

    def finding(session: WorkSession) -> bytes:
        shop.work(session)
        session._session._connection.commit()
        return b"paid"

    for _ in range(2):
        with pytest.raises(StorageError, match=ENDED):
            shop.log.answer(shop.table, 1, finding)
    assert shop.done() == 0 and shop.log.last(shop.table) == -1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE FUNCTION {done}_one() RETURNS int LANGUAGE SQL BEGIN ATOMIC SELECT 1; END",
        "DO $$ BEGIN PERFORM 1; END $$",
        "SELECT 'a; COMMIT', $a$; COMMIT; $a$ -- ; COMMIT",
        "SELECT CASE WHEN true THEN 1 END /* ; COMMIT */;",
        "SELECT 'commit %'",
        "LISTEN commit",
        "BEGIN",
    ],
)
def test_a_statement_may_hold_the_word(statement: str, shop: Shop) -> None:
    """Work that ends nothing is as good as any."""

    def fine(session: WorkSession) -> bytes:
        session.execute(statement.format(done=shop.table))
        return shop.work(session)

    assert shop.log.answer(shop.table, 1, fine) == b"reply 1" and shop.done() == 1


def test_an_error_that_a_work_swallows_is_no_lost_server(shop: Shop) -> None:
    """It was tried again, for minutes, until the patience with a server that is away was over."""
    calls: list[int] = []

    def swallowing(session: WorkSession, then: str = "") -> bytes:
        calls.append(1)
        shop.work(session)
        with suppress(Exception):
            session.execute("SELECT 1 / 0")
        if then:
            session.execute(then)
        return b"paid"

    with pytest.raises(StorageError, match="continued after an error of the database"):
        shop.log.answer(shop.table, 1, swallowing)
    with pytest.raises(StorageError, match=r"its error was caught.*Do not acknowledge"):
        shop.log.answer(shop.table, 1, lambda session: swallowing(session, "SELECT 1"))
    assert len(calls) == 2 and shop.done() == 0 and shop.log.last(shop.table) == -1


class Foreign(Exception):
    """An error of the work's own."""


def serialization_failure() -> Exception:
    import psycopg

    return psycopg.errors.SerializationFailure("of another database")


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("template.html"), TimeoutError("the mail server"), ConnectionError(), Foreign()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_work_is_raised_as_it_is(error: Exception, shop: Shop) -> None:
    """It read as a server that is away: the work was called again for minutes, with the advice to start the server."""
    check_raised_once(shop, error)


def test_an_error_of_another_database_is_the_work_s_too(shop: Shop) -> None:
    """The work was called again, although nothing of this database had failed."""
    check_raised_once(shop, serialization_failure())


def check_raised_once(shop: Shop, error: Exception) -> None:
    calls: list[int] = []

    def failing(session: WorkSession) -> bytes:
        calls.append(1)
        shop.work(session)
        raise error

    with pytest.raises(type(error)) as found:
        shop.log.answer(shop.table, 1, failing)
    assert found.value is error and len(calls) == 1 and shop.done() == 0


def test_a_work_may_think_longer_than_a_statement_may_take(postgres: PostgresServer, shop: Shop) -> None:
    """The server ended its transaction, the work was called again for minutes, and never succeeded."""
    log = PostgresRequestLog(postgres.url(), call_timeout="100 ms", server_away="1 s")
    calls: list[int] = []

    def thinking(session: WorkSession) -> bytes:
        calls.append(1)
        reply = shop.work(session)
        time.sleep(0.5)
        shown = [session.execute(f"SHOW {name}").fetchone()[0] for name in ("tcp_keepalives_idle", "statement_timeout")]
        assert shown == ["30", "100ms"]
        return reply

    assert log.answer(shop.table, 1, thinking) == b"reply 1" and calls == [1]
    log.close()


@pytest.mark.parametrize("swallows", [False, True])
def test_a_copy_is_refused_by_name(swallows: bool, shop: Shop) -> None:
    """It leaves the connection in the middle of the data: that read as a server that is away."""
    calls: list[int] = []

    def copying(session: WorkSession) -> bytes:
        calls.append(1)
        shop.work(session)
        with suppress(*([Exception] if swallows else [])):
            session.execute(f"COPY {shop.table} FROM STDIN")
        return b"paid"

    with pytest.raises(StorageError, match="began a COPY"):
        shop.log.answer(shop.table, 1, copying)
    assert calls == [1] and shop.done() == 0 and shop.log.last(shop.table) == -1


@pytest.mark.parametrize("words", [[1, 2], [object()]], ids=["too many", "of no type"])
def test_words_that_do_not_fit_are_refused_at_once(words: list[Any], shop: Shop) -> None:
    """The client refuses them, without a code of the server: that read as a server that is away."""
    calls: list[int] = []

    def misusing(session: WorkSession) -> bytes:
        calls.append(1)
        session.execute(f"INSERT INTO {shop.table} VALUES (%s)", words)
        return b"paid"

    with pytest.raises(StorageError, match="Correct the statement, or its parameters"):
        shop.log.answer(shop.table, 1, misusing)
    assert calls == [1]


def test_a_session_ends_with_its_work(shop: Shop) -> None:
    """A thread that is left behind would write into the transaction of the next request."""
    kept: list[WorkSession] = []
    assert shop.log.answer(shop.table, 1, lambda session: kept.append(session) or shop.work(session)) == b"reply 1"  # type: ignore[func-returns-value]
    with pytest.raises(StorageError, match="the work of a request is over"):
        shop.work(kept[0])
    assert shop.done() == 1


def test_a_savepoint_is_the_work_s_own(shop: Shop) -> None:
    """What may fail is tried behind one."""

    def careful(session: WorkSession) -> bytes:
        shop.work(session)
        session.execute("SAVEPOINT a")
        with suppress(Exception):
            session.execute("SELECT 1 / 0")
        session.execute("ROLLBACK TO a")
        return b"one"

    assert shop.log.answer(shop.table, 1, careful) == b"one" and shop.done() == 1


def test_what_a_work_sets_ends_with_it(shop: Shop) -> None:
    """The next request would ask a table of another schema, and find nothing answered."""

    def moving(session: WorkSession) -> bytes:
        shop.work(session)
        session.execute(f"SET search_path TO {shop.schema}")
        session.execute("CREATE TABLE IF NOT EXISTS persistent_requests (requester TEXT, id BIGINT, reply BYTEA)")
        return b"moved"

    assert shop.log.answer(shop.table, 1, moving) == b"moved" == shop.log.answer(shop.table, 1, moving)
    path: list[Any] = []
    shop.log.answer(shop.table, 2, lambda session: path.extend(session.execute("SHOW search_path").fetchone()) or b"")
    assert shop.done() == 1 and shop.schema not in path[0]


def test_a_fork_has_connections_of_its_own(shop: Shop) -> None:
    """Two processes on one connection read each other's replies."""
    assert shop.log.answer(shop.table, 1, shop.work) == b"reply 1"
    taken = shop.log._idle[os.getpid()][0]
    child = os.fork()
    if child == 0:
        with suppress(BaseException), shop.log._session() as session:
            os._exit(0 if session is not taken else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with shop.log._session() as session:
        assert session is taken
    shop.log.close()
    assert pickle.loads(pickle.dumps(shop.log)).last(shop.table) == 1
