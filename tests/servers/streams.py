"""Streams of a RabbitMQ as other programs see them: with rstream alone, and none of our code."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rstream import schema
from rstream.client import Client
from rstream.constants import OffsetType

from tests.servers.processes import START_SECONDS
from tests.servers.rabbit import PASSWORD, USER, RabbitServer

T = TypeVar("T")
_AT_ONCE = 500
LOGIN = {"username": USER, "password": PASSWORD}


class Streams:
    """The streams of one broker, at the address that the test names."""

    def __init__(self, rabbit: RabbitServer) -> None:
        self.rabbit = rabbit
        self.address = f"127.0.0.1:{rabbit.stream_port}"

    def create(self, name: str | None = None, **arguments: Any) -> str:
        """A new stream; its name."""
        name = name or f"s-{uuid.uuid4().hex[:12]}"
        said = {key.replace("_", "-"): str(value) for key, value in arguments.items()}
        self._ask(lambda client: client.create_stream(name, said))
        return name

    def delete(self, name: str) -> None:
        """Delete a stream."""
        self._ask(lambda client: client.delete_stream(name))

    def append(
        self,
        name: str,
        messages: Sequence[bytes],
        *,
        at_once: int = _AT_ONCE,
        publisher: str | None = None,
        first: int = 1,
    ) -> None:
        """Append records, as AMQP messages with one section of data, so many in a chunk at most."""
        self.append_raw(name, [_message(one) for one in messages], at_once=at_once, publisher=publisher, first=first)

    def append_raw(
        self,
        name: str,
        records: Sequence[bytes],
        *,
        at_once: int = _AT_ONCE,
        publisher: str | None = None,
        first: int = 1,
    ) -> None:
        """Append records as they are, and wait until all are confirmed."""

        async def act(client: Client) -> None:
            left, done = len(records), asyncio.Event()

            def hear(frame: Any) -> None:
                nonlocal left
                left -= len(frame.publishing_ids)
                if left <= 0:
                    done.set()

            client.add_handler(schema.PublishConfirm, hear, name="confirm")
            await client.declare_publisher(name, publisher, 1)
            for start in range(0, len(records), at_once):
                rows = enumerate(records[start : start + at_once], first + start)
                await client.send_publish_frame(schema.Publish(1, [schema.Message(id, None, one) for id, one in rows]))
            if records:
                await asyncio.wait_for(done.wait(), START_SECONDS)
            await client.delete_publisher(1)

        self._ask(act)

    def note_offset(self, name: str, consumer: str, offset: int) -> None:
        """Let the broker note how far a consumer has read, which takes an offset of the stream."""

        async def act(client: Client) -> None:
            await client.store_offset(name, consumer, offset)
            while await client.query_offset(name, consumer) != offset:
                await asyncio.sleep(0.01)

        self._ask(act)

    def records(self, name: str) -> list[tuple[int, bytes]]:
        """The offset and the bytes of each record that a reader from the first on sees."""

        async def act(client: Client) -> list[tuple[int, bytes]]:
            frames: asyncio.Queue[Any] = asyncio.Queue()
            await client.run_queue_listener_task(1, frames.put)
            client.add_handler(schema.Deliver, frames.put, name="1")
            await client.subscribe(name, 1, schema.OffsetSpec(OffsetType.FIRST), 10)
            # What is there is sent before the next question is answered, as far as the credit goes.
            found: list[tuple[int, bytes]] = []
            while True:
                await client.stream_exists(name)
                if frames.empty():
                    return found
                while not frames.empty():
                    frame = frames.get_nowait()
                    found += enumerate(frame.get_messages(), frame.chunk_first_offset)
                    await client.credit(1, 1)

        return self._ask(act)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The JSON objects of the messages, as a reader with rstream decodes them."""
        from rstream import amqp_decoder

        found = []
        for _, record in self.records(name):
            body = amqp_decoder(record).body
            found.append(json.loads(body if isinstance(body, bytes) else b"".join(body)))
        return found

    def sequence(self, name: str, publisher: str) -> int:
        """The last publishing id of a publisher."""
        return self._ask(lambda client: client.query_publisher_sequence(name, publisher))

    def _ask(self, act: Callable[[Client], Awaitable[T]]) -> T:
        async def run() -> T:
            client = Client(
                "127.0.0.1",
                self.rabbit.stream_port,
                frame_max=1 << 20,
                heartbeat=60,
                connection_closed_handler=lambda info: None,
            )
            await client.start()
            try:
                await client.authenticate("/", USER, PASSWORD)
                return await asyncio.wait_for(act(client), START_SECONDS)
            finally:
                await client.close()

        return asyncio.run(run())


def _message(body: bytes) -> bytes:
    from rstream import AMQPMessage

    return bytes(AMQPMessage(body=body))
