"""A RabbitMQ sink publishes the outputs as messages and waits until the broker has confirmed each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from persistent.clients.rabbit_link import LinkLost, LinkRefused, RabbitPlace, patience
from persistent.clients.rabbit_publisher import Outgoing, Publisher, Unroutable
from persistent.clients.rabbit_topology import Topology
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, StorageError
from persistent.promises import AT_LEAST_ONCE, Promise
from persistent.sinks.json_lines import check_texts, json_rows
from persistent.sinks.message_rows import most_bytes, row_text, with_revision
from persistent.sinks.protocol import Claim, OutputBatch
from persistent.text.spelling import spelled

_ROWS: Final = 65_536
_ROW_BITS: Final = 32
_NUMBER_MAX: Final = (1 << 31) - 1
"""Of a batch: it has the most digits."""


class RabbitQueueSink:
    """Publishes a persistent message for each row, a JSON object with the number of its batch as ``revision``.

    ``url``: "amqp://user:password@host:5672/virtual-host". ``routing_key``: where messages go; in the default exchange
    "", the name of a queue. ``topology``: what to declare first. ``confirm_timeout``: how long to wait for a
    confirmation before a message is sent again; it doubles each time. ``connect_timeout``: how long to wait for a
    broker at the start of a run; ``server_away``: how long during it, with an attempt every ``recovery_interval``.
    ``max_message_bytes``: at most the ``max_message_size`` of the broker, which is 16 MiB since RabbitMQ 4.0. A larger
    row is found before its checkpoint is committed.

    The message id is "<job>-<batch>-<row>", and the headers are ``origin`` (the job) and ``sequence`` (batch and row in
    one growing integer). A message that is sent again has the same ones, so consumers can drop it.
    """

    @spelled
    def __init__(
        self,
        url: str,
        routing_key: str,
        *,
        exchange: str = "",
        topology: Topology | None = None,
        confirm_timeout: Duration = "5 s",
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        recovery_interval: Duration = "1 s",
        max_message_bytes: int = 16 << 20,
    ) -> None:
        if not isinstance(routing_key, str) or not isinstance(exchange, str) or not (routing_key or exchange):
            raise InvalidPipeline(
                f"RabbitQueueSink routing_key={routing_key!r}, exchange={exchange!r}: give the name of a queue, or a "
                "routing key and exchange="
            )
        if topology is not None and not isinstance(topology, Topology):
            raise InvalidPipeline(f"topology={topology!r}: give Topology(exchanges=..., queues=..., bindings=...)")
        try:
            confirm_ms = duration_ms(confirm_timeout, "confirm_timeout")
        except (TypeError, ValueError) as error:
            raise InvalidPipeline(str(error)) from error
        if not isinstance(max_message_bytes, int) or isinstance(max_message_bytes, bool) or max_message_bytes < 1:
            raise InvalidPipeline(f"max_message_bytes={max_message_bytes!r}: give the max_message_size of the broker")
        self.exchange, self.routing_key = exchange, routing_key
        self._max_bytes = max_message_bytes
        waits = patience(connect_timeout, server_away, recovery_interval)
        self._place = RabbitPlace(url)
        self._publisher = Publisher(self._place, exchange, routing_key, topology or Topology(), waits, confirm_ms)
        into = f"queue {routing_key!r}" if not exchange else f"exchange {exchange!r}, key {routing_key!r},"
        self.address = f"{into} at {self._place.said}"

    def __repr__(self) -> str:
        exchange = f", exchange={self.exchange!r}" if self.exchange else ""
        return f"RabbitQueueSink({self._place.said!r}, {self.routing_key!r}{exchange})"

    def guarantee(self) -> Promise:
        """At-least-once: a queue has no mark."""
        return Promise(
            AT_LEAST_ONCE,
            "a message whose confirmation is lost is sent again, with the same message id, by which consumers drop it",
        )

    def claim(self, claim: Claim) -> None:
        """Does nothing: a queue does not record its owner."""

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest message, or a time without a text."""
        check_texts(outputs, repr(self))
        numbered = with_revision(outputs, _NUMBER_MAX)
        if most_bytes(numbered) <= self._max_bytes:
            return
        for row, body in enumerate(chain.from_iterable(json_rows(numbered))):
            if len(body) > self._max_bytes:
                raise InvalidPipeline(
                    f"{self!r}: {row_text(outputs, row, key)} is a message of {len(body):,} bytes, and "
                    f"max_message_bytes={self._max_bytes}. Make the value smaller; or raise max_message_size of the "
                    "broker, and this option with it"
                )

    def deliver(self, batch: OutputBatch) -> None:
        """Publish the rows of a batch, and return when all are confirmed. StagedMissing, StorageError."""
        row = 0
        for rows in self._rows(batch):
            messages = [_message(batch, row + at, body) for at, body in enumerate(rows)]
            row += len(rows)
            try:
                self._publisher.publish(messages)
            except Unroutable as error:
                raise self._failed(batch, f"{error}: no queue accepts it. Create the queue, or bind it") from error
            except LinkRefused as error:
                raise self._failed(batch, str(error)) from error
            except LinkLost as error:
                text = (
                    f"{error}: no broker confirms. Start it, or check whether it blocks publishers or a queue is full"
                )
                raise self._failed(batch, text) from error

    def _failed(self, batch: OutputBatch, text: str) -> StorageError:
        return StorageError(
            f"{self!r}: {text}. The outputs of checkpoint {batch.id} are kept, and the next run publishes them again"
        )

    def _rows(self, batch: OutputBatch) -> Iterator[list[bytes]]:
        for table in batch.tables():
            table = with_revision(table, batch.number)
            for start in range(0, table.num_rows, _ROWS):
                yield from json_rows(table.slice(start, _ROWS))


def _message(batch: OutputBatch, row: int, body: bytes) -> Outgoing:
    headers: dict[str, Any] = {"origin": batch.job, "sequence": batch.number << _ROW_BITS | row}
    return Outgoing(f"{batch.job}-{batch.number}-{row}", body, headers)
