"""Queues of the tests' broker: made, filled and looked at by the client alone."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from tests.servers.processes import START_SECONDS
from tests.servers.rabbit import RabbitServer


def fresh_queue(rabbit: RabbitServer, kind: str = "classic", **arguments: Any) -> str:
    """The name of a new queue."""
    name = f"{kind}-{uuid.uuid4().hex[:12]}"
    with closing(rabbit.connect()) as connection:
        connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": kind, **arguments})
    return name


def send(rabbit: RabbitServer, queue: str, messages: Iterable[tuple[str | None, bytes]], **properties: Any) -> None:
    """Persistent messages with these ids, all of them confirmed."""
    import pika

    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for id, body in messages:
            said = pika.BasicProperties(message_id=id, delivery_mode=2, **properties)
            channel.basic_publish("", queue, body, said, mandatory=True)


def send_encoded(rabbit: RabbitServer, queue: str, body: bytes, properties: bytes, exchange: str = "") -> None:
    """A message whose properties, flags and values, are these bytes: what other clients write, and ours does not."""
    import pika

    class Encoded(pika.BasicProperties):
        def encode(self) -> list[bytes]:
            return [properties]

    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, queue, body, Encoded(), mandatory=True)


def send_rows(rabbit: RabbitServer, queue: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as JSON, each with its ``n`` as the message id."""
    send(rabbit, queue, ((str(row["n"]), json.dumps(dict(row)).encode()) for row in rows))


def ready(rabbit: RabbitServer, queue: str) -> int:
    """How many messages wait in the queue, held by nobody."""
    with closing(rabbit.connect()) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def wait_for(look: Any, what: str) -> None:
    """Until it is so."""
    deadline = time.monotonic() + START_SECONDS
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def taken(rabbit: RabbitServer, queue: str) -> list[tuple[Any, bytes]]:
    """All messages, with their properties; they are gone from the queue then."""
    found = []
    with closing(rabbit.connect()) as connection:
        channel = connection.channel()
        # A queue that has just been recovered may have no leader yet, and be empty for a moment.
        for method, properties, body in channel.consume(queue, inactivity_timeout=1.5):
            if method is None:
                break
            found.append((properties, body))
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
    return found
