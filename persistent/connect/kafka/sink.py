"""A Kafka sink appends the outputs to a topic: the rows of a batch and its mark in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from persistent.connect.appending import AppendingSink
from persistent.connect.formats.json_rows import json_rows, with_revision, with_shortest_decimals
from persistent.connect.kafka.place import KafkaPlace
from persistent.connect.kafka.settings import Connection, check_place, checked_settings
from persistent.connect.marked import SinkMark, T, claimed
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import Claim, OutputBatch
from persistent.errors import InvalidPipeline
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, option_ms

_ROWS: Final = 65_536
_NOT_OF_THE_KEY: Final = ("window_start", "window_end", "retracted")
_FIXED: Final = {
    "bootstrap.servers": "servers= names them",
    "transactional.id": "it belongs to the topic, so that drivers fence each other",
    "enable.idempotence": "a transaction needs it",
    "acks": "a transaction needs all",
    "message.timeout.ms": "server_away= sets it",
    "isolation.level": "the mark is read like the rows",
    "group.id": "nothing is committed to a group",
}
_PRODUCER: Final = {
    # As in the Java clients: the same key goes to the same partition.
    "partitioner": "murmur2_random",
    # The broker's maximum: the time in which a batch must be written.
    "transaction.timeout.ms": 900_000,
}


class KafkaSink(AppendingSink[KafkaPlace, SinkMark]):
    """Appends to ``topic``, which must exist: a JSON object for each row, with the number of its batch as ``revision``.

    ``servers``: "host:port", several separated by commas. ``key``: the columns whose JSON is the key of a message,
    which also selects the partition; by default those of the task's key, without the window. ``connect_timeout``: how
    long to wait for a broker at the start of a run; ``server_away``: how long during it. ``client``: settings of
    librdkafka, such as {"security.protocol": "SASL_SSL", "sasl.username": ...}.

    Readers with ``isolation.level=read_committed`` see each row once. The sink creates the topic
    ``<topic>-persistent-marks``, which records what has been published: do not change it.
    """

    _key_remedy = "; or raise max.message.bytes of the topic"

    @spelled
    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: Sequence[str] | None = None,
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        client: Mapping[str, Any] | None = None,
    ) -> None:
        check_place(servers, topic, "visits")
        if isinstance(key, str):
            raise InvalidPipeline(f"KafkaSink key={key!r}: give a list of columns, such as [{key!r}]")
        self.servers = servers
        self.topic = topic
        self.address = f"{servers} topic {topic}"
        self.key = None if key is None else tuple(key)
        settings = checked_settings(client or {}, "sink", _FIXED)
        self._settings = {**_PRODUCER, **settings}
        self._connection = Connection(
            servers,
            settings,
            option_ms(connect_timeout, "connect_timeout"),
            option_ms(server_away, "server_away"),
        )

    def __repr__(self) -> str:
        return f"KafkaSink({self.servers!r}, {self.topic!r})"

    def guarantee(self) -> Promise:
        """Exactly-once, for readers of committed transactions."""
        return Promise(
            EXACTLY_ONCE,
            "Kafka commits the rows of a batch and its mark in one transaction, for readers with "
            "isolation.level=read_committed",
        )

    def claim(self, claim: Claim) -> None:
        """Claim the topic for a job. SinkMismatch, StorageError, InvalidPipeline."""
        missing = [name for name in self.key or () if name not in claim.schema.names]
        if missing and claim.schema.names:
            raise InvalidPipeline(
                f"{self!r}: key= names {', '.join(missing)}, but the outputs have {', '.join(claim.schema.names)}"
            )
        mark = self._seen()
        self._max_bytes = self._place.max_bytes()
        if mark is not None and mark.job == claim.job and mark.number >= claim.shown:
            return
        if mark is not None and mark.job not in (claim.job, *claim.heir_of):
            claimed(mark, claim, repr(self))
        super().claim(claim)

    def _opened(self) -> KafkaPlace:
        return KafkaPlace(self._connection, self.topic, self._settings)

    @property
    def _limit(self) -> str:
        return (
            f"but the topic accepts at most {self._max_bytes:,}. Raise max.message.bytes of the topic, or make the "
            "value smaller"
        )

    @property
    def _loss(self) -> str:
        return f"the topic, or {self._place.marks!r}, was deleted during the run. Restore both"

    def _transact(self, what: str, act: Callable[[KafkaPlace], T]) -> T:
        place = self._place
        return place.change("claim" if what == "claim" else "append to", lambda: act(place))

    def _seen(self) -> SinkMark | None:
        return self._place.look()

    def _mark(self, place: KafkaPlace, batch: OutputBatch | None = None) -> SinkMark | None:
        return place.fenced(None if batch is None else SinkMark(batch.job, batch.before))

    def _move(self, place: KafkaPlace, prior: SinkMark | None, mark: SinkMark) -> None:
        place.make_marks()
        place.write((), mark)

    def _write(self, place: KafkaPlace, prior: SinkMark | None, batch: OutputBatch) -> None:
        pieces = (
            messages for table in self._checked(batch) for messages in self._messages(table, batch.key, batch.number)
        )
        place.write(pieces, SinkMark(batch.job, batch.number))

    def _sizes(self, table: pa.Table, key: tuple[str, ...]) -> Iterator[int]:
        """The bytes of each row as a message."""
        for keys, values in self._messages(table, key, 0):
            for key_bytes, value in zip(keys, values):
                yield len(value) + len(key_bytes or b"")

    def _messages(
        self, table: pa.Table, key: tuple[str, ...], number: int
    ) -> Iterator[tuple[list[bytes] | list[None], list[bytes]]]:
        """The keys and values of rows, in batches."""
        names = [name for name in key if name not in _NOT_OF_THE_KEY] if self.key is None else list(self.key)
        names = [name for name in names if name in table.column_names]
        table = with_shortest_decimals(table, {*key, *names})
        keyed = table.select(names)
        table = with_revision(table, number)
        for start in range(0, table.num_rows, _ROWS):
            (values,) = json_rows(table.slice(start, _ROWS))
            yield next(json_rows(keyed.slice(start, _ROWS))) if names else [None] * len(values), values
