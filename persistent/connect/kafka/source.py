"""A Kafka source reads a topic: a partition is a sequence of offsets, and the checkpoint holds the next of each.

Workers read their splits from the broker directly. Only records of committed transactions are read. Offsets without a
record (transaction markers, compacted records) are skipped, and are not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect.formats.avro import Avro, message_format
from persistent.connect.formats.message_columns import (
    SAMPLE_ROWS,
    Gathered,
    MessageColumns,
    checked_metadata,
    metadata_fields,
)
from persistent.connect.formats.values import MessageValue
from persistent.connect.kafka.client import KafkaClient, require_same_topic
from persistent.connect.kafka.settings import Connection, check_place, checked_settings
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import Kept
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.source import Records, Split
from persistent.errors import SourceChanged, SourceError
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant, monotonic_s, option_ms

_AT_ONCE: Final = 2_000
_POLL_SECONDS: Final = 0.1
_LOOK_AGAIN_SECONDS: Final = 3.0


class KafkaSource(OffsetSource):
    """The records of a topic.

    ``servers``: "host:port", several separated by commas. ``format``: "json", one object per value; "bytes", one column
    ``value``; or ``Avro(registry)``. ``schema``: the columns to read of a JSON value, as in ``FileSource``; by default
    those of the first records. The source adds ``_timestamp``, the broker's timestamp of the message, and those of
    ``_key`` and ``_headers`` that ``metadata`` names.

    ``timestamp``: the column with the event time, by default ``_timestamp``; ``timestamp_unit``, as in ``FileSource``.
    ``start``: where a new checkpoint begins: "earliest", "latest", or a point in time by the broker's timestamps.
    ``on_gap``: if the broker has deleted records before they were read: "fail" with RetentionGap, or continue with the
    "earliest" or "latest" offset and count the skipped ones as ``skipped``. ``idle_timeout``: the watermark does not
    wait for a partition at whose end the driver has been for this long; None: it always waits. A partition that joins
    the topic counts once it has a record. ``max_out_of_orderness``: how far, in event time, a record of a partition can
    come behind a later one. ``max_skew``: how far the event time of a record can be ahead of the broker's timestamp,
    which is how far back ``persistent restart`` looks. Without meaning for ``_timestamp`` itself.

    ``connect_timeout``: how long to wait for a broker at the start of a run; ``server_away``: how long during it.
    ``client``: settings of librdkafka, such as {"security.protocol": "SASL_SSL", "sasl.username": ...}.

    ``step_rows`` counts offsets, with or without a record.
    """

    finds_times = True
    kind: str = "KafkaSource"

    @spelled
    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        format: str | Avro = "json",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        timestamp: str = "_timestamp",
        timestamp_unit: str | None = None,
        start: str | Instant = "earliest",
        on_gap: str = "fail",
        idle_timeout: Duration | None = None,
        max_out_of_orderness: Duration = 0,
        max_skew: Duration = "1 min",
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        client: Mapping[str, Any] | None = None,
    ) -> None:
        check_place(servers, topic, "clicks")
        self.servers = servers
        self.topic = topic
        self.address = f"{servers} topic {topic}"
        self._metadata = checked_metadata(metadata, timestamp)
        timeouts = option_ms(connect_timeout, "connect_timeout"), option_ms(server_away, "server_away")
        self._connection = Connection(servers, checked_settings(client or {}), *timeouts)
        values = message_format(format, f"{topic}-value", schema, *timeouts)
        time = timestamp, timestamp_unit
        super().__init__(
            MessageColumns(repr(self), values, schema, metadata_fields(self._metadata), time),
            place=f"topic {topic!r} of Kafka",
            timestamp=timestamp,
            start=start,
            on_gap=on_gap,
            idle_timeout=idle_timeout,
            max_out_of_orderness=max_out_of_orderness,
            max_skew=max_skew,
        )

    def __repr__(self) -> str:
        return f"KafkaSource({self.servers!r}, {self.topic!r})"

    @cached_property
    def _client(self) -> KafkaClient:
        return KafkaClient(self._connection)

    # -- the topic -----------------------------------------------------------------------------------------------

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        self._described_topic = self._client.topic(self.topic)
        require_same_topic(self.topic, recorded.get("topic_id"), self._described_topic)
        return self._client.kept(self.topic, self._described_topic.partitions)

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the topic that was read is not the one that was planned."""
        require_same_topic(self.topic, recorded.get("topic_id"), self._client.topic(self.topic))

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        return {"topic": self.topic, "topic_id": self._described_topic.id}

    def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
        return self._client.at_time(self.topic, partitions, ms)

    def is_of(self, recorded: Mapping[str, Any], partitions: Iterable[str]) -> bool:
        return recorded.get("topic") == self.topic

    def guarantee(self) -> Promise:
        """Exactly-once, whatever a consumer group has committed."""
        return Promise(EXACTLY_ONCE, "offsets are in the checkpoint, and only committed transactions are read")

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        super().require_recorded(recorded)
        if recorded.get("topic") not in (None, self.topic):
            raise SourceChanged(
                f"{self!r}: the checkpoint has read topic {recorded['topic']!r}: give the source that topic, "
                "or the job a new checkpoint and sink"
            )

    # -- reading -------------------------------------------------------------------------------------------------

    def sample(self, partition: str, start: int) -> list[MessageValue]:
        values: list[MessageValue] = []
        for messages in self._messages(partition, start, self._last_kept[partition].stop, self._described_topic.id):
            values += [message.value() for message in messages[: SAMPLE_ROWS - len(values)]]
            if len(values) == SAMPLE_ROWS:
                break
        return values

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            gathered = Gathered(self._metadata)
            for messages in self._messages(split.partition, span.start, span.stop, recorded.get("topic_id")):
                gathered.add(messages)
                if gathered.is_full:
                    yield self._columns.records(gathered, recorded)
                    gathered = Gathered(self._metadata)
            if len(gathered):
                yield self._columns.records(gathered, recorded)

    def _messages(self, partition: str, start: int, stop: int, topic_id: str | None) -> Iterator[list[Any]]:
        """The messages ``start <= offset < stop``. It ends at a message or partition end at or behind ``stop``: the
        marker of a transaction has an offset, but is never seen."""
        from confluent_kafka import TopicPartition

        client, what = self._client, f"read partition {partition} from offset {start}"
        with client.consumer() as consumer:
            consumer.assign([TopicPartition(self.topic, int(partition), start)])
            silent_since = looked = monotonic_s()
            while start < stop:
                events = consumer.consume(min(_AT_ONCE, stop - start), _POLL_SECONDS)
                errors = [message for message in events if message.error() is not None]
                messages = [message for message in events if message.error() is None] if errors else events
                now = monotonic_s()
                if messages:
                    silent_since = looked = now
                    start = messages[-1].offset() + 1
                    # Behind a marker there can be messages of the next step.
                    yield messages if start <= stop else [message for message in messages if message.offset() < stop]
                for message in errors:
                    if message.error().name() == "_PARTITION_EOF":
                        start = max(start, message.offset())
                    else:
                        self._heard(message.error(), partition, start)
                if not messages:
                    client.check_refused(what)
                    client.require_waiting(what, now - silent_since)
                if not messages and now - looked > _LOOK_AGAIN_SECONDS:
                    # A deleted topic and a truncated partition are silent.
                    looked = now
                    self._require_there(partition, start, stop, topic_id)
                if now - silent_since > client.server_away_s:
                    raise client.away(what, client.reports.cause(), now - silent_since)

    def _heard(self, error: Any, partition: str, start: int) -> None:
        """Raise errors that another poll does not fix."""
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise self.gone(f"partition {partition}", start)
        self._client.reports.hear(error)
        if error.name() in ("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED") or error.fatal():
            raise SourceError(f"{self!r}, partition {partition}: {error.str()}")

    def _require_there(self, partition: str, start: int, stop: int, topic_id: str | None) -> None:
        """Raise if the rest of a split is gone for good."""
        require_same_topic(self.topic, topic_id, self._client.topic(self.topic))
        kept = self._client.kept(self.topic, [partition])[partition]
        if kept.stop < stop:
            raise SourceChanged(
                f"{self!r}, partition {partition}: a step was planned up to offset {stop}, and the partition ends at "
                f"{kept.stop}: its end was truncated, or the topic was created again"
            )
        if kept.first > start:
            raise self.gone(f"partition {partition}", start, kept.first)
