"""Each request is done once, whatever kills the server, and a repeated one has the same reply."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest

from persistent.errors import InvalidPipeline, Refused, StorageError
from persistent.requests import SqliteRequestLog
from persistent.requests.protocol import TABLE

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
    with pytest.raises(Refused, match="request 1 of 'a' comes after 7"):
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


def test_a_work_that_commits_is_found_out(log: SqliteRequestLog) -> None:
    """Its effect would be there without its row, and come twice."""

    def committing(database: sqlite3.Connection) -> bytes:
        database.execute("COMMIT")
        return b""

    with pytest.raises(StorageError, match="Leave COMMIT and ROLLBACK to the log"):
        log.answer("a", 1, committing)


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
@pytest.mark.parametrize("where", ["before the commit", "before the reply", "before the acknowledgement"])
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
