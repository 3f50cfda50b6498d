"""Each request is done once, whatever kills the server, and a repeated one has the same reply."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from persistent.errors import InvalidPipeline, Refused, StorageError
from persistent.requests import SqliteRequestLog
from persistent.requests.protocol import TABLE
from tests.few import one_in

ROOT = Path(__file__).parents[2]


@pytest.fixture
def log(tmp_path: Path) -> SqliteRequestLog:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE done (id INTEGER)")
    return SqliteRequestLog(tmp_path / "a.db")


def work(database: sqlite3.Connection) -> bytes:
    database.execute("INSERT INTO done SELECT count(*) FROM done")
    return b"reply %d" % database.execute("SELECT count(*) FROM done").fetchone()[0]


def done(log: SqliteRequestLog) -> int:
    with closing(sqlite3.connect(log.path)) as database:
        return int(database.execute("SELECT count(*) FROM done").fetchone()[0])


def test_a_repeated_request_has_the_same_reply(log: SqliteRequestLog) -> None:
    """The first reply was lost on its way; another one would tell of an effect that was not."""
    assert [log.answer("a", id, work) for id in (1, 1, 7, 7, 7)] == [b"reply 1"] * 2 + [b"reply 2"] * 3
    assert log.answer("b", 1, work) == b"reply 3" and done(log) == 3
    with pytest.raises(Refused, match="request 1 of 'a' arrived after 7"):
        log.answer("a", 1, work)
    assert done(log) == 3 and (log.last("a"), log.last("c")) == (7, -1)


def test_effect_and_row_are_one(log: SqliteRequestLog) -> None:
    """A work that fails has done nothing, and may be asked for again."""

    def failing(database: sqlite3.Connection) -> bytes:
        work(database)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.answer("a", 1, failing)
    with pytest.raises(TypeError):
        log.answer("a", 1, lambda database: str(work(database)))  # type: ignore[arg-type, return-value]
    assert done(log) == 0 and log.answer("a", 1, work) == b"reply 1"


def committed_by_with(database: sqlite3.Connection) -> None:
    with database:
        work(database)


def rolled_back_by_sqlite(database: sqlite3.Connection) -> None:
    database.execute("CREATE TEMP TABLE one (x UNIQUE)")
    database.execute("INSERT INTO one VALUES (1)")
    with suppress(sqlite3.IntegrityError):
        database.execute("INSERT OR ROLLBACK INTO one VALUES (1)")


def rolled_back_then_written(database: sqlite3.Connection) -> None:
    rolled_back_by_sqlite(database)
    with suppress(sqlite3.DatabaseError):
        work(database)


ENDINGS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "COMMIT": lambda database: database.execute("COMMIT"),
    "commit": lambda database: database.commit(),
    "COMMIT and BEGIN": lambda database: [database.execute(words) for words in ("COMMIT", "BEGIN")],
    "rollback": lambda database: database.rollback(),
    "with": committed_by_with,
    "a script": lambda database: database.executescript("SELECT 1"),
    "an isolation": lambda database: setattr(database, "isolation_level", None),
    "ON CONFLICT ROLLBACK": rolled_back_by_sqlite,
    "writing after it": rolled_back_then_written,
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("how", ENDINGS)
def test_a_work_cannot_end_its_transaction(how: str, swallows: bool, raises: bool, log: SqliteRequestLog) -> None:
    """Its effect would be there without its reply, and come twice; or its reply without its effect."""

    def ending(database: sqlite3.Connection) -> bytes:
        work(database)
        with suppress(*([sqlite3.Error] if swallows else [])):
            ENDINGS[how](database)
        if raises:
            raise ConnectionError("the printer is away")
        return b"paid"

    # Where SQLite has rolled back, and nothing came after it, the error of the work is the whole story.
    whole = raises and how == "ON CONFLICT ROLLBACK"
    expected, said = (ConnectionError, "printer") if whole else (StorageError, "Leave COMMIT and ROLLBACK to the log")
    with pytest.raises(expected, match=said):
        log.answer("a", 1, ending)
    assert done(log) == 0 and log.last("a") == -1
    assert log.answer("a", 1, work) == b"reply 1" and done(log) == 1


def journaled_in_nothing(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode(OFF)")


REACHES: dict[str, tuple[Callable[[sqlite3.Connection], object], str]] = {
    "attached": (lambda database: database.execute("ATTACH ':memory:' AS more"), "attach or to replace a database"),
    "replaced": (lambda database: database.deserialize(database.serialize()), "attach or to replace a database"),
    "no journal": (journaled_in_nothing, "tried to set the journal mode"),
    "no authorizer": (lambda database: database.set_authorizer(None), "tried to set the authorizer"),
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("how", REACHES)
def test_a_work_cannot_reach_beyond_its_transaction(
    how: str, swallows: bool, raises: bool, log: SqliteRequestLog
) -> None:
    """A crash would keep one file of two; without a journal the work of a request that failed would stay."""
    act, said = REACHES[how]

    def reaching(database: sqlite3.Connection) -> bytes:
        with suppress(*([sqlite3.Error] if swallows else [])):
            act(database)
        work(database)
        if raises:
            raise ConnectionError("the printer is away")
        return b"paid"

    with pytest.raises(StorageError, match=said):
        log.answer("a", 1, reaching)
    assert done(log) == 0 and log.last("a") == -1
    assert log.answer("a", 1, work) == b"reply 1" and done(log) == 1


def test_a_work_may_ask_for_the_journal_mode(log: SqliteRequestLog) -> None:
    """That changes nothing."""
    asked = log.answer("a", 1, lambda database: database.execute("PRAGMA journal_mode").fetchone()[0].encode())
    assert asked == b"delete"


HIDDEN = {
    "a table": f"CREATE TEMP TABLE {TABLE} (requester TEXT PRIMARY KEY, id INTEGER, reply BLOB)",
    "a view": f"CREATE TEMP VIEW {TABLE} AS SELECT 'a' AS requester, 9 AS id, x'00' AS reply",
}


@pytest.mark.parametrize("statement", HIDDEN.values(), ids=HIDDEN)
def test_a_temporary_table_hides_no_reply(statement: str, log: SqliteRequestLog) -> None:
    """The reply went there, and with the connection away: each repeat did the work again."""

    def hiding(database: sqlite3.Connection) -> bytes:
        database.execute(statement)
        return work(database)

    assert [log.answer("a", 1, hiding) for _ in range(3)] == [b"reply 1"] * 3
    assert done(log) == 1 and log.last("a") == 1


@pytest.mark.parametrize(
    "act", ["BEFORE INSERT ON {} BEGIN SELECT RAISE(IGNORE); END", "AFTER INSERT ON {} BEGIN DELETE FROM {}; END"]
)
def test_a_reply_that_a_trigger_drops_is_found_out(act: str, log: SqliteRequestLog) -> None:
    """The effect would be there without its reply, and come twice."""
    log.last("a")
    with closing(sqlite3.connect(log.path)) as database:
        database.execute(f"CREATE TRIGGER dropping {act.format(TABLE, TABLE)}")
    for _ in range(2):
        with pytest.raises(StorageError, match=f"something in the database changes {TABLE}"):
            log.answer("a", 1, work)
    assert done(log) == 0


def test_rows_of_the_work_s_own_kind_end_with_it(log: SqliteRequestLog) -> None:
    """The log would read its own row by it."""

    def reading(database: sqlite3.Connection) -> bytes:
        database.row_factory = lambda cursor, row: {"n": row[4]}
        return work_blindly(database)

    def work_blindly(database: sqlite3.Connection) -> bytes:
        database.execute("INSERT INTO done VALUES (1)")
        return b"one"

    assert [log.answer("a", 1, reading) for _ in range(2)] == [b"one"] * 2 and done(log) == 1


def test_an_exception_that_is_kept_locks_nothing(log: SqliteRequestLog) -> None:
    """As in a Future: its frames hold a cursor, the cursor held the file, and every other request failed."""
    impatient = SqliteRequestLog(log.path, lock_timeout="1 ms")
    log.answer("a", 1, work)

    def failing(database: sqlite3.Connection) -> bytes:
        work(database)
        cursor = database.execute("SELECT id FROM done")
        raise LookupError(cursor.fetchone())

    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(log.answer, "a", 2, failing)
        assert isinstance(kept.exception(), LookupError)
        assert impatient.answer("b", 1, work) == b"reply 2" and impatient.last("a") == 1
    assert kept.exception() is not None


@pytest.mark.parametrize("closes", [False, True])
def test_a_cursor_that_is_kept_locks_nothing(closes: bool, log: SqliteRequestLog) -> None:
    """As in an object of the service; or with the connection that the work has closed."""
    impatient = SqliteRequestLog(log.path, lock_timeout="1 ms")
    kept: list[sqlite3.Cursor] = []

    def keeping(database: sqlite3.Connection) -> bytes:
        cursor = database.cursor()
        cursor.execute("INSERT INTO done VALUES (1), (2) RETURNING id")
        kept.append(cursor)
        reply = b"%d" % cursor.fetchone()[0]
        if closes:
            database.close()
        return reply

    if closes:
        with pytest.raises(StorageError, match=r"including commit\(\), rollback\(\), close\(\)"):
            log.answer("a", 1, keeping)
    else:
        assert log.answer("a", 1, keeping) == b"1"
    assert done(log) == (0 if closes else 2) and impatient.answer("b", 1, work) == (
        b"reply 1" if closes else b"reply 3"
    )
    with pytest.raises(sqlite3.ProgrammingError):
        kept[0].fetchone()


def test_a_savepoint_is_the_work_s_own(log: SqliteRequestLog) -> None:
    """It ends nothing."""

    def careful(database: sqlite3.Connection) -> bytes:
        work(database)
        database.execute("SAVEPOINT careful")
        work(database)
        database.execute("ROLLBACK TO careful")
        database.execute("RELEASE careful")
        return b"one"

    assert log.answer("a", 1, careful) == b"one" and done(log) == 1


def test_a_reply_outlasts_a_loss_of_power(log: SqliteRequestLog) -> None:
    """The journal would come back, and the stored reply with its effect go."""
    assert log.answer("a", 1, lambda database: b"%d" % database.execute("PRAGMA synchronous").fetchone()[0]) == b"3"


def test_its_space_is_one_row_a_requester(log: SqliteRequestLog) -> None:
    """It would grow with every request."""
    for id in range(30):
        log.answer("ab"[id % 2], id, work)
    with closing(sqlite3.connect(log.path)) as database:
        assert database.execute(f"SELECT requester, id FROM {TABLE} ORDER BY 1").fetchall() == [("a", 28), ("b", 29)]
    log.forget("a")
    assert (log.last("a"), log.last("b")) == (-1, 29)


def test_of_many_that_ask_at_once_one_is_done(log: SqliteRequestLog) -> None:
    """A requester that is impatient asks two servers."""
    replies: list[bytes] = []
    threads = [threading.Thread(target=lambda: replies.append(log.answer("a", 1, work))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert replies == [b"reply 1"] * 6 and done(log) == 1


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    """Nothing was done."""
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="Nothing of this request was done"):
        SqliteRequestLog(tmp_path / "a.db").answer("a", 1, work)
    with pytest.raises(InvalidPipeline, match="give the path of a file"):
        SqliteRequestLog(":memory:")


SERVER = textwrap.dedent(
    """
    import os, signal, sys
    from persistent.requests import SqliteRequestLog
    path, queue, replies, where = sys.argv[1:]
    def die(here):
        if here == where:
            os.kill(os.getpid(), signal.SIGKILL)
    def work(database):
        database.execute("INSERT INTO done SELECT count(*) FROM done")
        die("before the commit")
        return b"reply %d" % database.execute("SELECT count(*) FROM done").fetchone()[0]
    log = SqliteRequestLog(path)
    while os.path.getsize(queue):
        with open(queue) as file:
            ids = [int(word) for word in file.read().split()]
        reply = log.answer("a", ids[0], work)
        die("before the reply")
        with open(replies, "ab") as file:
            file.write(b"%d: %s;" % (ids[0], reply))
        die("before the acknowledgement")
        with open(queue + ".new", "w") as file:
            file.write(" ".join(map(str, ids[1:])))
        os.replace(queue + ".new", queue)
    """
)


@pytest.mark.crash
@pytest.mark.parametrize("where", one_in(3, ["before the commit", "before the reply", "before the acknowledgement"]))
def test_killed_with_9(where: str, log: SqliteRequestLog, tmp_path: Path) -> None:
    """Effect and row, reply, acknowledgement: in this order nothing is lost, and nothing done twice."""
    queue, replies = tmp_path / "queue", tmp_path / "replies"
    queue.write_text("1 2 3")
    for point in (where, where, "nowhere"):
        words = [sys.executable, "-c", SERVER, log.path, str(queue), str(replies), point]
        code = subprocess.run(words, cwd=ROOT, timeout=300).returncode
        assert code == (0 if point == "nowhere" else -9)
    said = [text for text in replies.read_text().split(";") if text]
    assert done(log) == 3 and sorted(set(said)) == ["1: reply 1", "2: reply 2", "3: reply 3"]
    assert len(said) == (5 if where == "before the acknowledgement" else 3)


def test_an_id_reused_for_another_request_is_refused(tmp_path: Path) -> None:
    """It would get the reply to the other request, and never be done."""
    path, done = tmp_path / "shop.db", []

    def ask(content: bytes | None, id: int = 1) -> bytes:
        return SqliteRequestLog(path).answer("till", id, lambda _: done.append(content) or b"ok", content=content)

    assert ask(b"tea") == ask(b"tea") == ask(None) == b"ok" and done == [b"tea"]
    with pytest.raises(Refused, match="with another content"):
        ask(b"milk")
    assert ask(b"milk", 2) == b"ok" and done == [b"tea", b"milk"]
