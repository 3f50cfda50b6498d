"""A Kafka sink appends the outputs to a topic: the rows of a batch and its mark in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from persistent.connect.formats.json_rows import (
    json_rows,
    large_keys_refused,
    most_bytes,
    row_text,
    with_revision,
    with_shortest_decimals,
)
from persistent.connect.kafka.place import KafkaPlace
from persistent.connect.kafka.settings import Connection, check_place, checked_settings
from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import BatchSink, Claim, OutputBatch, RefusedKeys, Retreat
from persistent.errors import InvalidPipeline, SinkMismatch
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, option_ms

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


class KafkaSink(BatchSink):
    """Appends to ``topic``, which must exist: a JSON object for each row, with the number of its batch as ``revision``.

    ``servers``: "host:port", several separated by commas. ``key``: the columns whose JSON is the key of a message,
    which also selects the partition; by default those of the task's key, without the window. ``connect_timeout``: how
    long to wait for a broker at the start of a run; ``server_away``: how long during it. ``client``: settings of
    librdkafka, such as {"security.protocol": "SASL_SSL", "sasl.username": ...}.

    Readers with ``isolation.level=read_committed`` see each row once. The sink creates the topic
    ``<topic>-persistent-marks``, which records what has been published: do not change it.
    """

    limits_keys = True
    abilities = frozenset({"newest", "undo"})

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
        self._max_bytes: int | None = None
        self._own_place: KafkaPlace | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self.servers!r}, {self.topic!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own_place": None}

    @property
    def _place(self) -> KafkaPlace:
        if self._own_place is None:
            self._own_place = KafkaPlace(self._connection, self.topic, self._settings)
        return self._own_place

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
        place = self._place
        mark = place.look()
        self._max_bytes = place.max_bytes()
        if mark is not None and mark.job == claim.job and mark.number >= claim.shown:
            return
        if mark is not None and mark.job not in (claim.job, *claim.heir_of):
            claimed(mark, claim, repr(self))
        place.change("claim", lambda: self._claim(place, claim))

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest message."""
        if self._max_bytes is None or most_bytes(outputs) <= self._max_bytes:
            return
        for row, size in enumerate(self._sizes(outputs, key)):
            if size > self._max_bytes:
                raise InvalidPipeline(
                    f"{self!r}: {row_text(outputs, row, key)} is a message of {size:,} bytes, but the "
                    f"topic accepts at most {self._max_bytes:,}. Raise max.message.bytes of the topic, or make the "
                    "value smaller"
                )

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A key that is larger than the largest message."""
        if self._max_bytes is not None:
            names = tuple(keys.column_names)
            remedy = "; or raise max.message.bytes of the topic"
            yield from large_keys_refused(keys, self._max_bytes, lambda: self._sizes(keys, names), repr(self), remedy)

    def deliver(self, batch: OutputBatch) -> None:
        """Append the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""
        self._place.change("append to", lambda: self._deliver(batch))

    def undo(self, retreat: Retreat) -> None:
        """Append rows that take back those appended since the target of a rollback; none if the outputs stay. Fenced,
        StagedMissing, StorageError."""
        self._place.change("append to", lambda: self._undo(retreat))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        mark = self._place.look()
        return mark.number if mark is not None and mark.job == job else -1

    def close(self) -> None:
        """Close the connection."""
        if self._own_place is not None:
            self._own_place.close()
            self._own_place = None

    def _claim(self, place: KafkaPlace, claim: Claim) -> None:
        old_mark = place.fenced()
        mark = claimed(old_mark, claim, repr(self))
        if mark != old_mark:
            place.make_marks()
            place.write((), mark)

    def _deliver(self, batch: OutputBatch) -> None:
        mark = self._there(self._place.fenced(SinkMark(batch.job, batch.before)), batch.url)
        if not is_published(mark, batch, repr(self)):
            self._write(batch)

    def _undo(self, retreat: Retreat) -> None:
        mark = self._there(self._place.fenced(), retreat.url)
        for batch in retreat.staged:
            if not is_settled(mark, batch, repr(self)):
                mark = self._write(batch)
        if has_retreated(mark, retreat, repr(self)):
            return
        if retreat.undoing is None:
            self._place.write((), SinkMark(retreat.job, retreat.number))
        else:
            self._write(retreat.undoing(mark.number))

    def _there(self, mark: SinkMark | None, url: str) -> SinkMark:
        if mark is None:
            raise SinkMismatch(
                f"{self!r}: the mark of this job is gone: the topic, or {self._place.marks!r}, was deleted during the "
                f"run. Restore both; or begin a new checkpoint, with start_from={url!r}"
            )
        return mark

    def _write(self, batch: OutputBatch) -> SinkMark:
        mark = SinkMark(batch.job, batch.number)
        self._place.write(self._rows(batch), mark)
        return mark

    def _rows(self, batch: OutputBatch) -> Iterator[tuple[list[bytes] | list[None], list[bytes]]]:
        for table in batch.tables():
            # The limit of the topic can have been lowered since they were staged.
            self.check(table, batch.key)
            yield from self._messages(table, batch.key, batch.number)

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


_ROWS: Final = 65_536
