"""A session with a PostgreSQL server: it retries until a timeout, then reports the cause.

At the start of a run it waits ``connect_timeout``; once the server has answered, ``server_away``. Each call is limited:
by the timeout of the server, and if the server does not answer at all, by cutting the connection.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

from persistent.connect.marked import Moved
from persistent.connect.secrets import ESCAPED, is_cut, without
from persistent.errors import InvalidPipeline, StorageError
from persistent.storage.failures import FaultKind, Patience, Retrying, StoreFailure, without_secrets
from persistent.time.clock import monotonic_s

T = TypeVar("T")

_TRIES_MAX = 1_000_000
_ENDLESS_PAUSES = (
    "-c idle_in_transaction_session_timeout=0 "
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
_CONNECT_SECONDS_MIN, _CONNECT_SECONDS_MAX = 2, 10
"""The bounds of one attempt, which otherwise lasts for the time left. The client treats one second as two."""
_AWAY = "Start the server, or check the network"
_MISUSED = "Correct the statement, or its parameters"
_AFTER_A_RUN = "Then run again: the last checkpoint is good"
_REMEDIES = {
    "28": "Give valid credentials: in the dsn, PGPASSWORD or a password file",
    "3D000": "Correct the name of the database in the dsn, or create it",
    "3F000": "Create the schema, or correct the name of the table",
    "42501": "Grant this user CREATE and USAGE on the schema; SELECT, INSERT, UPDATE and DELETE on its tables",
    "53100": "Free some space on the server",
    "57014": "The call took longer than call_timeout: end what holds the table, or give it more time",
    "55P03": "The call took longer than call_timeout: end what holds the table, or give it more time",
    "TLS demanded": "The server demands TLS: give sslmode=require in the dsn; or sslmode=verify-full and sslrootcert=, "
    "the certificates that sign the server's",
    "TLS missing": "The server has no TLS: turn it on there (ssl=on), or omit sslmode= from the dsn",
    "TLS trust": "Give the certificates that sign the server's, sslrootcert= in the dsn, and the host by the name "
    "in its certificate; if the server demands a certificate of the client, sslcert= and sslkey=",
    "22P05": "The encoding of the database has no such character: give the sink a database in UTF8",
    "23505": "A row with the same key is there already, perhaps of another program",
    "42601": "Correct the statement; a work session takes one at a time",
    "25P02": "An earlier statement failed, and its error was caught: let it propagate, or begin a SAVEPOINT before a "
    "statement that can fail, and roll back to it",
    "23502": "Let the column be null: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL",
    "23514": "Change the constraint; or, if the table is partitioned, create the partition of the row",
}
"""By SQLSTATE, or its class."""
_TRANSIENT = ("08", "53300", "53400", "57P", "40", "55P03", "57014", "25P03")
_REFUSED = {
    "no encryption": "TLS demanded",
    "pg_hba.conf": "28",
    "password": "28",
    "authentication": "28",
    "role ": "28",
    "database ": "3D000",
    "does not support SSL": "TLS missing",
    "certificate": "TLS trust",
    "unknown ca": "TLS trust",
    "private key": "TLS trust",
}
"""Words in the text of a refused connection, which has no SQLSTATE."""
_PASSES = ("the database system is", "SSL SYSCALL", "SSL connection has been closed")
"""Words of a server that is starting or stopping, and of a lost TLS connection: not a refusal."""


@dataclass(frozen=True)
class Patiences:
    """How long to wait, in milliseconds: for a server at first, for a call, and for a server that has answered before.
    ``limits_pauses``: whether the server ends a transaction that pauses for longer than ``call_ms`` between two
    statements; if not, it ends only transactions whose client is dead."""

    connect_ms: int
    call_ms: int
    away_ms: int
    limits_pauses: bool = True


class Session:
    """A connection to the server of ``settings``, opened when it is needed and reopened when it is lost. ``name``: for
    errors; ``after``: what to do once their cause is fixed. Threads take turns. Pickled, it is only its settings."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        patiences: Patiences,
        name: str,
        *,
        after: str = _AFTER_A_RUN,
        has_answered: bool = False,
    ) -> None:
        self._settings = dict(settings)
        self._patiences = patiences
        self._name = name
        self._after = after
        self._turn = threading.Lock()
        self._has_answered = has_answered
        self._until_s = 0.0
        self._connection: Any = None
        self._failures: list[BaseException] = []

    def __repr__(self) -> str:
        return f"Session({self._name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_has_answered": False, "_turn": None, "_failures": []}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.Lock())

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def transact(self, what: str, act: Callable[[Session], T]) -> T:
        """Do ``act`` in a transaction, and repeat it as a whole if the server was away. StorageError for an error of
        this session; any other error of ``act`` is raised as it is."""
        with self._turn:
            return self._transacted(what, act)

    def _transacted(self, what: str, act: Callable[[Session], T]) -> T:
        wait_ms = self._patiences.away_ms if self._has_answered else self._patiences.connect_ms
        patience = Patience(_TRIES_MAX, wait_ms / 1000, clock=monotonic_s)
        self._until_s = monotonic_s() + wait_ms / 1000
        retrying = Retrying(what, self._name, patience, explain=self._failure_of)
        while True:
            value, answer = retrying(lambda: self._once(act))
            if answer is None:
                return value  # type: ignore[return-value]
            if not isinstance(answer, Moved):
                raise answer
            self._until_s = monotonic_s() + wait_ms / 1000

    def reset(self) -> None:
        """Reset the settings of the connection; if that fails, close it."""
        if self._connection is not None:
            try:
                self.execute("DISCARD ALL")
            except Exception:
                self.close()

    @property
    def transaction(self) -> str:
        """The state of the transaction: INTRANS, INERROR, IDLE; UNKNOWN if the connection is lost."""
        return str(self._connection.info.transaction_status.name)

    def execute(self, statement: str, words: Iterable[Any] = ()) -> Any:
        """The cursor of a statement. ``words``: its parameters in order, or a mapping by name."""
        with self._asking():
            return self._connection.execute(statement, _parameters(words))

    def execute_alone(self, statement: str, words: Iterable[Any] = ()) -> Any:
        """As ``execute``, by a protocol in which the server refuses a text of several statements."""
        with self._asking(), self._connection.pipeline():
            return self._connection.execute(statement, _parameters(words))

    def copy(self, statement: str, pieces: Iterable[bytes]) -> int:
        """Send pieces of a file to a COPY; returns how many rows it took. The time limit is per piece."""
        with self._connection.cursor() as cursor, ExitStack() as stack:
            with self._asking():
                copy = stack.enter_context(cursor.copy(statement))
            for piece in pieces:
                with self._asking():
                    copy.write(piece)
            with self._asking():
                stack.close()
            return int(cursor.rowcount)

    def _once(self, act: Callable[[Session], T]) -> tuple[T | None, Exception | None]:
        """The result of ``act``, or the error that ``act`` raised itself. An error of the server is raised."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            self.execute("BEGIN")
            value, answer = self._acted(act)
            if answer is not None:
                # The server rolls back with the connection.
                self.close()
                return None, answer
            done = self.execute("COMMIT").statusmessage
            if done != "COMMIT":
                raise StorageError(f"{self._name}: the server rolled back a failed transaction ({done})")
        except BaseException:
            self.close()
            raise
        finally:
            self._failures.clear()
        self._has_answered = True
        return value, None

    def _acted(self, act: Callable[[Session], T]) -> tuple[T | None, Exception | None]:
        try:
            return act(self), None
        except Exception as error:
            if any(error is failure for failure in self._failures):
                raise
            return None, error

    def _connect(self) -> Any:
        ms, left_s = self._patiences.call_ms, self._until_s - monotonic_s()
        limits = f"-c statement_timeout={ms} -c lock_timeout={ms} "
        limits += f"-c idle_in_transaction_session_timeout={ms}" if self._patiences.limits_pauses else _ENDLESS_PAUSES
        settings = {
            "application_name": "persistent",
            "keepalives_idle": 30,
            **self._settings,
            # The encoding of the COPY data, whatever the dsn, the environment or the database says.
            "client_encoding": "UTF8",
            "options": f"{self._settings.get('options', '')} {limits}".strip(),
            "connect_timeout": max(_CONNECT_SECONDS_MIN, min(_CONNECT_SECONDS_MAX, ceil(left_s))),
        }
        return psycopg().connect(**settings, autocommit=True, prepare_threshold=None)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Cut the connection if the server answers long after its timeout. Errors are noted as the server's."""
        connection = self._connection
        timer = threading.Timer(self._patiences.call_ms * 1.2 / 1000 + 1, _cut, [connection])
        timer.daemon = True
        timer.start()
        try:
            yield
        except (psycopg().Error, OSError) as error:
            self._failures.append(error)
            raise
        finally:
            timer.cancel()

    def _failure_of(self, error: BaseException) -> StoreFailure:
        """The meaning of an error of the server."""
        text = self._scrubbed(str(error).strip().partition("\n")[0])
        state = getattr(error, "sqlstate", None)
        client = psycopg()
        if not state and isinstance(error, client.ProgrammingError | client.DataError | client.NotSupportedError):
            return StoreFailure(FaultKind.PERMANENT, text, f"{_MISUSED}. {self._after}")
        state = state or _refusal(text)
        if not state:
            return StoreFailure(FaultKind.UNANSWERED, text, f"{_AWAY}. {self._after}")
        fault = FaultKind.UNANSWERED if state.startswith(_TRANSIENT) else FaultKind.PERMANENT
        remedy = next((remedy for code, remedy in _REMEDIES.items() if state.startswith(code)), "")
        return StoreFailure(fault, text, f"{remedy}. {self._after}" if remedy else self._after)

    def _scrubbed(self, text: str) -> str:
        hidden = [str(self._settings.get(name) or "") for name in ("password", "sslpassword")]
        return without_secrets(without(hidden, text, "..."))


def _parameters(words: Iterable[Any]) -> Any:
    """The parameters as the client takes them; None, for none, leaves every % in the statement as it is."""
    return (words if isinstance(words, Mapping) else tuple(words)) or None


def _refusal(text: str) -> str:
    """The class of SQLSTATE for the text of a refused connection, "" if a retry can succeed."""
    if any(word in text for word in _PASSES):
        return ""
    return next((code for word, code in _REFUSED.items() if word in text), "")


def _cut(connection: Any) -> None:
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def psycopg(what: str = "PostgresSink") -> Any:
    """The client of PostgreSQL. InvalidPipeline, with the extra to install, if it is missing."""
    try:
        import psycopg as client
    except ImportError as error:
        raise InvalidPipeline(
            f"{what} needs the client of PostgreSQL ({error}): pip install 'persistent-monoids[postgres]'"
        ) from error
    return client


def settings_of(dsn: str, what: str = "PostgresSink") -> dict[str, Any]:
    """The settings in a connection string or URL. InvalidPipeline if it cannot be parsed; the error shows no part of
    it, because a part may be the password."""
    client = psycopg(what)
    settings: dict[str, Any] | None = None
    if isinstance(dsn, str) and dsn:
        with suppress(client.Error):
            settings = client.conninfo.conninfo_to_dict(dsn)
    if settings is None or _is_cut(dsn, settings):
        raise InvalidPipeline(
            f"{what} dsn= cannot be parsed (it is not shown, as it can hold a password): give "
            "'host=... dbname=... user=...', or 'postgresql://user:password@host:5432/database', with "
            f"{ESCAPED}, % as %25"
        )
    return settings


def _is_cut(dsn: str, settings: Mapping[str, Any]) -> bool:
    """Whether a part of a password may have become the host, the port or the database."""
    if not dsn.startswith(("postgresql://", "postgres://")):
        return False
    authority, _, rest = dsn.partition("://")[2].partition("/")
    host = authority.partition("@")[2].partition("?")[0]
    ports = str(settings.get("port", "")).split(",")
    return is_cut(host, "/" + rest.partition("?")[0]) or any(port and not port.isdecimal() for port in ports)
