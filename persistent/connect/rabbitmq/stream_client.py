"""A client of RabbitMQ streams: it retries until a timeout, then reports the cause.

At the start of a run it waits ``connect_timeout``; once the broker has answered, ``server_away``. It asks the leader
of a stream, at the address that the broker advertises.

The meaning of an error of a stream connection: whether a retry can help, and what to do about it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from persistent.connect.offsets import Kept
from persistent.connect.rabbitmq.event_loop import EventLoop
from persistent.connect.rabbitmq.stream_connection import (
    FIRST,
    LAST,
    OFFSET,
    TIMESTAMP,
    Chunk,
    Lost,
    NotTaken,
    StreamConnection,
)
from persistent.connect.rabbitmq.stream_settings import Address, StreamAccess
from persistent.errors import InvalidPipeline, PersistentError, SourceError, StorageError
from persistent.storage.failures import FaultKind, Patience, Retrying, StoreFailure
from persistent.time.clock import monotonic_s

T = TypeVar("T")
Wait: TypeAlias = Callable[..., Any]
"""Waits for a coroutine, at most a number of seconds."""

_TRIES_MAX: Final = 1_000_000
_CALL_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
_LOOK_AGAIN_SECONDS: Final = 3.0
_SILENT_SECONDS: Final = 30.0
"""After this time without a chunk, another connection is tried."""
_SURE_SECONDS: Final = 3.0
"""How long a broker is asked again before its answer that the stream does not exist is believed."""
_IDLE_CONNECTIONS: Final = 4
_CREDIT: Final = 8


class StreamClient:
    """Asks one broker, or the nodes of one cluster. Each source and sink has one in each process. ``failure``: the
    error to raise."""

    def __init__(self, access: StreamAccess, failure: type[PersistentError] = SourceError) -> None:
        _library()
        self._access = access
        self._failure = failure
        self._has_answered = False
        self._asked = 0
        self._lock = Lock()
        self._own_loop: EventLoop | None = None
        self._leaders: dict[str, Address] = {}
        self._idle: dict[Address, list[StreamConnection]] = {}

    def __repr__(self) -> str:
        return f"RabbitMQ at {self._access.text}"

    def kept(self, streams: Sequence[str]) -> dict[str, Kept]:
        """The offsets that are kept and durable in the log of the broker."""
        return {
            stream: self.asked(f"find the end of stream {stream!r} of", stream, _kept_of(stream)) for stream in streams
        }

    def last(self, stream: str) -> Chunk | None:
        """The newest chunk, None for an empty stream."""
        return self.asked(f"find the end of stream {stream!r} of", stream, _last_of(stream))

    def at_time(self, stream: str, ms: int) -> int:
        """The first offset of the first chunk that the broker wrote at ``ms`` or later; without one, the end as it was
        before the request."""
        end = self.last(stream)
        chunk = self.chunk(stream, TIMESTAMP, max(ms, 0))
        return chunk.first if chunk is not None else 0 if end is None else end.stop

    def chunk(self, stream: str, kind: str, value: int | None = None) -> Chunk | None:
        """The chunk where a reader from this place would begin, None if there is none yet."""
        what = f"look into stream {stream!r} of"
        return self.asked(what, stream, lambda connection: connection.chunk(stream, kind, value))

    def chunks(self, stream: str, start: int, stop: int, look: Callable[[int], None]) -> Iterator[list[Chunk]]:
        """The chunks with the records ``start <= offset < stop``, in batches; the first and the last can have other
        records too. It ends with a chunk that reaches ``stop``. ``look(offset)`` is called while nothing arrives, and
        raises what waiting does not fix."""
        silent_since = looked = monotonic_s()
        while start < stop:
            connection = self._subscribed(stream, start)
            began = monotonic_s()
            try:
                while start < stop and monotonic_s() - max(silent_since, began) < _SILENT_SECONDS:
                    chunks = self._loop.run(connection.take(_POLL_SECONDS), _CALL_SECONDS)
                    now = monotonic_s()
                    if chunks:
                        silent_since = looked = now
                        start = chunks[-1].stop
                        if start < stop:
                            self._loop.run(connection.more(len(chunks)), _CALL_SECONDS)
                        yield chunks
                    elif now - looked > _LOOK_AGAIN_SECONDS:
                        looked = now
                        look(start)
                    if now - silent_since > self.server_away_s:
                        raise self.away(f"read stream {stream!r} of", "it sends nothing", now - silent_since)
                self._loop.run(connection.unsubscribe(), _CALL_SECONDS)
            except (Lost, OSError) as error:
                self._dropped(stream, connection)
                if monotonic_s() - silent_since > self.server_away_s:
                    raise self.away(f"read stream {stream!r} of", str(error), monotonic_s() - silent_since) from None
            except BaseException:
                self._dropped(stream, connection)
                raise
            else:
                self._loop.run(self._given_back(connection), _CALL_SECONDS)

    def _subscribed(self, stream: str, start: int) -> StreamConnection:
        async def begin() -> StreamConnection:
            connection = await self._taken(stream)
            try:
                await connection.subscribe(stream, OFFSET, start, _CREDIT)
            except BaseException:
                await self._drop(stream, connection)
                raise
            return connection

        return self.repeated(f"read stream {stream!r} of", lambda: self._loop.run(begin(), _CALL_SECONDS), stream)

    def asked(
        self,
        what: str,
        stream: str,
        ask: Callable[[StreamConnection], Coroutine[Any, Any, T]],
        answers: tuple[type[Exception], ...] = (),
        seconds: float = _CALL_SECONDS,
    ) -> T:
        """The answer of the leader of a stream, with retries. ``answers``: errors of ``ask`` that are raised unchanged;
        ``seconds``: the longest time of one attempt."""

        async def once() -> T:
            connection = await self._taken(stream)
            try:
                answer = await ask(connection)
            except BaseException:
                await self._drop(stream, connection)
                raise
            await self._given_back(connection)
            return answer

        return self.repeated(what, lambda: self._loop.run(once(), seconds), stream, answers)

    @contextmanager
    def connection(self, stream: str) -> Iterator[tuple[StreamConnection, Wait]]:
        """A connection to the leader of a stream for one caller at a time, and a function that waits for its answers.
        A connection that failed is not used again."""
        connection = self._loop.run(self._taken(stream), _CALL_SECONDS)
        try:
            yield connection, self._loop.run
        except BaseException:
            self._dropped(stream, connection)
            raise
        self._loop.run(self._given_back(connection), _CALL_SECONDS)

    def repeated(self, what: str, act: Callable[[], T], stream: str, answers: tuple[type[Exception], ...] = ()) -> T:
        """``act()``, repeated with growing pauses as long as a broker may be away."""
        seconds = self.server_away_s if self._has_answered else self._access.connect_timeout_ms / 1_000
        began = monotonic_s()

        def tried() -> T:
            try:
                answer = act()
            except Exception as error:
                if type(error).__name__ == "StreamDoesNotExist" and monotonic_s() - began > min(
                    _SURE_SECONDS, seconds / 2
                ):
                    raise NoStream from None
                raise
            self._has_answered = True
            return answer

        retrying = Retrying(
            what, repr(self), Patience(_TRIES_MAX, seconds), (*answers, NoStream, PersistentError), self._failure_of
        )
        try:
            return retrying(tried)
        except NoStream:
            text = (
                f"{self!r} has no stream {stream!r}. Create it, or correct the name or client={{'vhost': ...}}; a "
                "queue of that name is not a stream, and is for RabbitQueueSource and RabbitQueueSink"
            )
        except StorageError as error:
            if type(error) is not StorageError:
                raise
            text = str(error)
        raise self._failure(text)

    def away(self, what: str, cause: str, seconds: float) -> PersistentError:
        """The error for a broker that did not do ``what`` in time."""
        failure = self._failure_of(Lost(cause))
        return self._failure(f"cannot {what} {self!r}: {failure.cause} ({seconds:.0f} s). {failure.remedy}")

    def _failure_of(self, error: BaseException) -> StoreFailure:
        return stream_failure(error, self._access.redacted)

    @property
    def server_away_s(self) -> float:
        return self._access.server_away_ms / 1_000

    # -- connections, all in the loop --------------------------------------------------------------

    @property
    def _loop(self) -> EventLoop:
        with self._lock:
            if self._own_loop is None:
                self._own_loop = EventLoop("persistent-streams")
            return self._own_loop

    async def _seed(self) -> StreamConnection:
        """A connection to any of the given servers."""
        servers = self._access.servers
        self._asked += 1
        return await self._connected(servers[self._asked % len(servers)])

    async def _taken(self, stream: str) -> StreamConnection:
        """A connection to the leader of a stream, for one task alone."""
        if stream in self._leaders:
            return await self._connected(self._leaders[stream])
        seed = await self._seed()
        try:
            leader = await seed.leader(stream)
        except BaseException:
            await seed.close()
            raise
        if leader in (seed.advertised, seed.address):
            self._leaders[stream] = seed.address
            return seed
        await self._given_back(seed)
        connection = await self._connected(leader)
        self._leaders[stream] = leader
        return connection

    async def _connected(self, address: Address) -> StreamConnection:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_alive:
                return connection
            await self._end(connection)
        return await StreamConnection.opened(self._access, address)

    async def _given_back(self, connection: StreamConnection) -> None:
        idle = self._idle.setdefault(connection.address, [])
        if connection.is_alive and len(idle) < _IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            await self._end(connection)

    async def _drop(self, stream: str, connection: StreamConnection) -> None:
        self._leaders.pop(stream, None)
        await self._end(connection)

    async def _end(self, connection: StreamConnection) -> None:
        """Close a connection without waiting for it."""
        self._loop.spawn(connection.close())

    def _dropped(self, stream: str, connection: StreamConnection) -> None:
        with suppress(Exception):
            self._loop.run(self._drop(stream, connection), _CALL_SECONDS)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            loop, self._own_loop = self._own_loop, None
        if loop is not None:
            with suppress(Exception):
                loop.run(self._end_all(), _CALL_SECONDS)
            loop.close()

    async def _end_all(self) -> None:
        idle, self._idle, self._leaders = self._idle, {}, {}
        for connections in idle.values():
            for connection in connections:
                await connection.close()


class NoStream(Exception):
    """The stream does not exist."""


def _last_of(stream: str) -> Callable[[StreamConnection], Coroutine[Any, Any, Chunk | None]]:
    async def ask(connection: StreamConnection) -> Chunk | None:
        chunk = await connection.chunk(stream, LAST)
        if chunk is not None or await connection.chunk(stream, FIRST) is None:
            return chunk
        # The newest chunk has not reached enough members of the cluster yet.
        chunk = await connection.chunk(stream, LAST, seconds=_CALL_SECONDS / 2)
        if chunk is None:
            raise TimeoutError("the end of the stream is not confirmed")
        return chunk

    return ask


def _kept_of(stream: str) -> Callable[[StreamConnection], Coroutine[Any, Any, Kept]]:
    async def ask(connection: StreamConnection) -> Kept:
        # The end first: a deletion in between only narrows the range.
        last = await _last_of(stream)(connection)
        first = None if last is None else await connection.chunk(stream, FIRST)
        if last is None or first is None:
            return Kept(0, 0)
        return Kept(min(first.first, last.stop), last.stop)

    return ask


def _library() -> None:
    try:
        import rstream  # noqa: F401
    except ImportError as error:
        raise InvalidPipeline(
            "the streams of RabbitMQ need a client: pip install 'persistent-monoids[rabbitmq]'"
        ) from error


_GOOD: Final = "Nothing was lost, the last checkpoint is good: "
_REACH: Final = (
    "check servers= (the port of streams, 5552, not that of AMQP; does the broker want TLS? client={'tls': True}), or "
    "start the broker with its plugin (rabbitmq-plugins enable rabbitmq_stream), and run again"
)
_LOGIN: Final = "give valid ones: client={'username': ..., 'password': ...}"
_PERMANENT: Final = {
    "AuthenticationFailure": ("it refuses the user or the password", _LOGIN),
    "SASLError": ("it refuses the login", _LOGIN),
    "SASLChallenge": ("it refuses the login", _LOGIN),
    "SASLMechanismNotSupported": ("it accepts no user with a password", "let it accept PLAIN"),
    "SASLAuthenticationFailureLoopback": (
        "it accepts this user only from its own machine",
        "give another user: client={'username': ..., 'password': ...}",
    ),
    "VirtualHostAccessFailure": (
        "this user has no access to the virtual host, or it does not exist",
        "correct client={'vhost': ...}, or give the user its permissions",
    ),
    "AccessRefused": (
        "this user may not do that",
        "give it the permission to read the stream, and for a sink to write and configure",
    ),
    "PreconditionFailed": ("the request contradicts what exists", "look into the log of the broker"),
}


def stream_failure(error: BaseException, redacted: Callable[[str], str] = str) -> StoreFailure:
    """The meaning of an error. ``redacted``: removes secrets from foreign texts; our own have none."""
    name = type(error).__name__
    if name in _PERMANENT:
        cause, remedy = _PERMANENT[name]
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = (
            "give the certificates that sign the broker's, client={'ca': 'ca.pem'}, and the name in its certificate"
        )
        cause = f"its certificate is refused: {redacted(str(getattr(error, 'verify_message', error)))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLError):
        remedy = "check servers= (a port with TLS is 5551) and the certificates in client="
        cause = f"TLS fails: {redacted(str(getattr(error, 'reason', None) or error))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if name in ("StreamNotAvailable", "LeaderNotAvailable", "StreamDoesNotExist"):
        is_known = name != "StreamDoesNotExist"
        cause = "the stream has no leader at the moment" if is_known else "it knows no stream of that name"
        return StoreFailure(FaultKind.UNANSWERED, cause, _GOOD + "check the broker, and run again")
    if isinstance(error, StorageError | Lost | NotTaken | OSError):
        text = redacted(str(error)) or "it does not answer"
        return StoreFailure(FaultKind.UNANSWERED, text, _GOOD + _REACH)
    return StoreFailure(FaultKind.UNANSWERED, f"{name}: {redacted(str(error))}" if str(error) else name, _GOOD + _REACH)
