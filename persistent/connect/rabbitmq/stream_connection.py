"""A connection to RabbitMQ streams: it requests chunks, and appends with publishing ids.

A *chunk* is the unit in which a broker keeps a stream: consecutive records that arrived together, with the time of the
broker's clock. It never changes, so a changed chunk means another stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

from persistent.connect.rabbitmq.stream_settings import Address, StreamAccess

T = TypeVar("T")
logger = logging.getLogger("persistent.clients")

FIRST: Final = "FIRST"
LAST: Final = "LAST"
OFFSET: Final = "OFFSET"
TIMESTAMP: Final = "TIMESTAMP"
FRAME_MAX: Final = 1 << 20
_IDS: Final = 200
_OURS: Final = 1 << 24
"""Where the numbers of our own requests begin; those of the client begin at 1."""


class Lost(Exception):
    """The connection is gone or answers nonsense. Another one can succeed."""


class NotTaken(Exception):
    """The broker did not accept records. ``id``: the first of their publishing ids, None if unknown."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


@dataclass(frozen=True)
class Chunk:
    """The records ``first <= offset < stop`` of a stream. ``timestamp``: when the broker wrote them, in ms; ``epoch``:
    of the leader that wrote them; ``crc``: of their bytes."""

    first: int
    stop: int
    timestamp: int
    epoch: int
    crc: int
    frame: Any = field(repr=False, compare=False, default=None)

    def messages(self) -> list[bytes]:
        """The bytes of each record. ValueError if they cannot be decoded."""
        try:
            messages: list[bytes] = self.frame.get_messages()
        except Exception as error:
            raise ValueError(f"the records cannot be decoded: {error}") from error
        if len(messages) != self.stop - self.first:
            raise ValueError(f"a chunk claims {self.stop - self.first} records, and has {len(messages)}")
        return messages


class StreamConnection:
    """One connection, used by one task at a time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: Any = None
        self._closed = asyncio.Event()
        self._subscription = 0
        self._questions = count(_OURS)
        self._frames: asyncio.Queue[Any] = asyncio.Queue()
        self._confirmed: asyncio.Queue[int] = asyncio.Queue()
        self._refused: list[NotTaken] = []

    @staticmethod
    async def opened(access: StreamAccess, address: Address) -> StreamConnection:
        """A connection to this broker. Errors of rstream, OSError, TimeoutError."""
        from rstream.client import Client

        made = StreamConnection(address)
        client: Any = Client(
            *address,
            ssl_context=access.tls(),
            frame_max=FRAME_MAX,
            heartbeat=access.heartbeat_seconds,
            connection_name="persistent",
            connection_closed_handler=made._hear_closed,
        )
        made._client = client
        # The client reports the end of a connection only for its streams.
        client.add_stream("persistent")
        begun: Any = client.start_task
        # Nor does it report that its listener ended with a frame that it cannot decode.
        client.start_task = lambda name, work: begun(name, made._until_it_ends(work))

        async def begin() -> None:
            await client.start()
            await client.authenticate(access.vhost, access.username, access.password)

        try:
            await made._answered(begin())
        except BaseException:
            await made.close()
            raise
        return made

    @property
    def is_alive(self) -> bool:
        return bool(self._client.is_connection_alive()) and not self._closed.is_set()

    @property
    def frame_max(self) -> int:
        """The agreed maximum size of a frame, in bytes."""
        return int(self._client.frame_max) or FRAME_MAX

    @property
    def advertised(self) -> Address | None:
        """The address that this broker advertises, if any."""
        properties = self._client.server_properties or {}
        if "advertised_host" not in properties or "advertised_port" not in properties:
            return None
        return str(properties["advertised_host"]), int(properties["advertised_port"])

    async def close(self) -> None:
        """Close it, whatever its state."""
        with suppress(Exception):
            await self._client.close()

    async def _answered(self, asked: Coroutine[Any, Any, T]) -> T:
        """The answer. Lost as soon as the connection is lost, which the client does not report to waiting callers."""
        answer, closed = asyncio.ensure_future(asked), asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Lost("the connection was lost")
            return answer.result()
        finally:
            answer.cancel()
            closed.cancel()

    async def _until_it_ends(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            logger.debug("a connection to %s:%d ends: %s", *self.address, type(error).__name__)
            self._hear_closed()

    def _hear_closed(self, info: Any = None) -> None:
        self._closed.set()
        self._frames.put_nowait(None)
        self._confirmed.put_nowait(0)

    async def leader(self, stream: str) -> Address:
        """The address of the leader of the stream."""
        leader, _ = await self._answered(self._client.query_leader_and_replicas(stream))
        return str(leader.host), int(leader.port)

    async def exists(self, stream: str) -> bool:
        """Whether a stream of this name exists."""
        return bool(await self._answered(self._client.stream_exists(stream)))

    async def create(self, stream: str, arguments: dict[str, str]) -> None:
        """Create a stream, unless it exists."""
        from rstream.exceptions import StreamAlreadyExists

        try:
            await self._answered(self._client.create_stream(stream, arguments))
        except StreamAlreadyExists:
            return

    async def chunk(self, stream: str, kind: str, value: int | None = None, seconds: float = 0) -> Chunk | None:
        """The chunk where a reader from this place would begin; None if none arrives within ``seconds``.

        A broker sends the chunks of a subscription before it answers the next request.
        """
        await self.subscribe(stream, kind, value, credit=1)
        try:
            await self.exists(stream)
            if self._frames.empty() and seconds:
                chunks = await self.take(seconds)
                return chunks[0] if chunks else None
            return None if self._frames.empty() else _chunk(self._frames.get_nowait())
        finally:
            await self.unsubscribe()

    async def sequence(self, stream: str, name: str) -> int:
        """The last publishing id under this name, 0 if there is none."""
        from rstream import schema

        # The client's own method returns 0 for an error.
        asked = schema.QueryPublisherSequence(next(self._questions), publisher_ref=name, stream=stream)
        wanted = schema.QueryPublisherSequenceResponse
        answer: Any = await self._answered(self._client.sync_request(asked, wanted))
        return int(answer.sequence)

    async def subscribe(self, stream: str, kind: str, value: int | None, credit: int) -> None:
        """Receive chunks from this place on, ``credit`` of them before more are requested."""
        from rstream import schema
        from rstream.constants import OffsetType

        client = self._client
        self._subscription = id = self._subscription % _IDS + 1
        frames: asyncio.Queue[Any] = asyncio.Queue()
        self._frames = frames

        def hear(frame: Any) -> None:
            if frame.subscription_id == id:
                frames.put_nowait(frame)

        await client.run_queue_listener_task(id, hear)
        client.add_handler(schema.Deliver, hear, name=str(id))
        begin = schema.OffsetSpec.from_params(OffsetType[kind], value)
        await self._answered(client.subscribe(stream, id, begin, credit))

    async def unsubscribe(self) -> None:
        """End the subscription."""
        from rstream import schema

        id = self._subscription
        self._client.remove_handler(schema.Deliver, name=str(id))
        await self._client.stop_queue_listener_task(id)
        if self.is_alive:
            await self._answered(self._client.unsubscribe(id))

    async def take(self, seconds: float) -> list[Chunk]:
        """The chunks that have arrived. Without any, wait for the next; empty after ``seconds``. Lost."""
        try:
            frames: list[Any] = [await asyncio.wait_for(self._frames.get(), seconds)]
        except TimeoutError:
            frames = []
        while not self._frames.empty():
            frames.append(self._frames.get_nowait())
        chunks = [_chunk(frame) for frame in frames if frame is not None]
        if not chunks and not self.is_alive:
            raise Lost("the connection was lost")
        return chunks

    async def more(self, count: int) -> None:
        """Request ``count`` more chunks."""
        await self._client.credit(self._subscription, count)

    async def declare(self, stream: str, name: str) -> None:
        """Become a publisher of this name. Others of the same name can exist."""
        from rstream import schema

        self._confirmed, self._refused = asyncio.Queue(), []
        self._client.add_handler(schema.PublishConfirm, self._hear_confirmed, name="confirm")
        self._client.add_handler(schema.PublishError, self._hear_refused, name="error")
        self._client.add_handler(schema.MetadataUpdate, self._hear_moved, name="moved")
        await self._answered(self._client.declare_publisher(stream, name, 1))

    async def retire(self) -> None:
        """Delete the publisher."""
        await self._answered(self._client.delete_publisher(1))

    async def publish(self, ids: Sequence[int], messages: Sequence[bytes]) -> None:
        """Append records under these ids, in one frame. The broker skips records whose id is not above the last."""
        from rstream import schema

        rows = [schema.Message(id, None, message) for id, message in zip(ids, messages)]
        await self._client.send_publish_frame(schema.Publish(publisher_id=1, messages=rows))
        if not self.is_alive:
            raise Lost("the connection was lost")

    async def confirmed(self, seconds: float) -> int:
        """How many records were confirmed since the last call, including those stored before. TimeoutError after
        ``seconds``, Lost, NotTaken."""
        try:
            confirmed = await asyncio.wait_for(self._confirmed.get(), seconds)
        except TimeoutError:
            raise TimeoutError("records are not confirmed") from None
        while not self._confirmed.empty():
            confirmed += self._confirmed.get_nowait()
        if self._refused:
            raise self._refused[0]
        if not confirmed and not self.is_alive:
            raise Lost("the connection was lost")
        return confirmed

    def _hear_confirmed(self, frame: Any) -> None:
        self._confirmed.put_nowait(len(frame.publishing_ids))

    def _hear_refused(self, frame: Any) -> None:
        codes = sorted({error.response_code for error in frame.errors})
        text = f"it did not accept {len(frame.errors)} records (code {', '.join(map(str, codes))})"
        self._refused.append(NotTaken(text, min(error.publishing_id for error in frame.errors)))
        self._confirmed.put_nowait(0)

    def _hear_moved(self, frame: Any) -> None:
        # The broker has forgotten the publisher.
        code = frame.metadata_info.code
        self._refused.append(NotTaken(f"the stream was deleted, or has another leader (code {code})"))
        self._confirmed.put_nowait(0)


def _chunk(frame: Any) -> Chunk:
    first = int(frame.chunk_first_offset)
    stop = first + int(frame.num_records)
    return Chunk(first, stop, int(frame.timestamp), int(frame.epoch), int(frame.chunk_crc), frame)
