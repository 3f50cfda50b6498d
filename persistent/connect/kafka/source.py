"""A Kafka source reads a topic: a partition is a sequence of offsets, and the checkpoint holds the next of each.

Workers read their splits from the broker directly. Only records of committed transactions are read. Offsets without a
record (transaction markers, compacted records) are skipped, and are not a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from persistent.connect import options
from persistent.connect.formats.avro import Avro, AvroValues
from persistent.connect.formats.message_columns import (
    SAMPLE_ROWS,
    Gathered,
    MessageColumns,
    checked_metadata,
    metadata_fields,
)
from persistent.connect.formats.values import MessageValue, ValueFormat, value_format
from persistent.connect.kafka.client import KafkaClient, require_same_topic
from persistent.connect.kafka.settings import Connection, check_place, checked_settings
from persistent.connect.offsets import ON_GAP, Kept, OffsetPlans, reached, require_skew, starts
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.registry import Registry
from persistent.connect.source import (
    Budget,
    Positions,
    Reached,
    Records,
    Source,
    SourcePlan,
    SourceState,
    Split,
)
from persistent.errors import InvalidPipeline, RetentionGap, SourceChanged, SourceError
from persistent.text.figures import utc_text
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant, bare, monotonic_s, option_ms

_AT_ONCE: Final = 2_000
_POLL_SECONDS: Final = 0.1
_BATCH_ROWS: Final = 50_000
_BATCH_BYTES: Final = 64 << 20
_LOOK_AGAIN_SECONDS: Final = 3.0


class KafkaSource(Source):
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
    forgets = True

    kind: str = "KafkaSource"
    codec: str = "offset/1"

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
        options.require_type("timestamp", timestamp, str, "'ts'")
        options.require_choice("on_gap", on_gap, ON_GAP)
        self.servers = servers
        self.topic = topic
        self.timestamp = timestamp
        self.address = f"{servers} topic {topic}"
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        self._metadata = checked_metadata(metadata, timestamp)
        self._start = options.start_of(start)
        self._skew_ms = 0 if timestamp == "_timestamp" else option_ms(max_skew, "max_skew")
        self._connection = Connection(
            servers,
            checked_settings(client or {}),
            option_ms(connect_timeout, "connect_timeout"),
            option_ms(server_away, "server_away"),
        )
        self._columns = MessageColumns(
            repr(self),
            _format(format, topic, schema, self._connection),
            schema,
            metadata_fields(self._metadata),
            (timestamp, timestamp_unit),
        )
        idle_ms = None if idle_timeout is None else option_ms(idle_timeout, "idle_timeout")
        self._plans = OffsetPlans(f"topic {topic!r} of Kafka", on_gap=on_gap, idle_timeout_ms=idle_ms)
        self._own_client: KafkaClient | None = None
        self._last_kept: Mapping[str, Kept] = {}

    def __repr__(self) -> str:
        return f"KafkaSource({self.servers!r}, {self.topic!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own_client": None}

    @property
    def _client(self) -> KafkaClient:
        if self._own_client is None:
            self._own_client = KafkaClient(self._connection)
        return self._own_client

    # -- plans ---------------------------------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        """Empty: all partitions join with a plan, so a checkpoint can be read without the broker."""
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next of each partition, in shares as equal as the remaining offsets allow."""
        self._require_recorded(state.recorded)
        kept = self._kept(state.recorded)
        topic_id = self._found.id
        plan = self._plans.plan(state, budget, kept, self._begins)
        recorded = {**plan.recorded, "topic": self.topic, "topic_id": topic_id}
        return replace(plan, recorded=recorded | self._described(state.recorded, plan))

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same messages, decoded by the present options. None if they are of another topic."""
        self._require_recorded(state.recorded)
        if put.recorded["topic"] != self.topic:
            return None
        self._kept(put.recorded)
        return replace(put, recorded={**put.recorded, **self._described(state.recorded, put)})

    def _described(self, recorded: Mapping[str, Any], plan: SourcePlan) -> dict[str, Any]:
        """What a plan records about the values. ``recorded``: what the checkpoint has recorded."""
        samples = partial(self._samples, {**plan.end, **starts(plan.splits)})
        return self._columns.described(recorded, bool(plan.splits), samples)

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the topic that was read is not the one that was planned."""
        require_same_topic(self.topic, recorded.get("topic_id"), self._client.topic(self.topic))

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan are gone, and may be skipped. False if they are of another topic."""
        return recorded.get("topic") == self.topic and self._plans.has_forgotten(splits, self._kept(recorded))

    def position_at(self, partition: str, clock: int) -> int:
        """An offset before which no record has an event time of ``clock`` or later, provided ``max_skew`` is right."""
        offsets = self._client.at_time(self.topic, [partition], clock - self._skew_ms)
        return offsets[partition]

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        """The positions of a clock in the present topic, which can be another one; fields and times stay."""
        topic = self._client.topic(self.topic)
        at = self._client.at_time(self.topic, topic.partitions, clock - self._skew_ms)
        # The kept offsets come last: a record that is deleted in between is a gap, and is noticed.
        kept = self._client.kept(self.topic, topic.partitions)
        same = ("writers",) if topic.id == recorded.get("topic_id") else ()
        carried = {
            name: recorded[name] for name in (*self._columns.times(), "schema", "reader", *same) if name in recorded
        }
        if "schema" in recorded:
            require_skew(repr(self), at, kept, (clock, self._skew_ms), lambda split: self.read(split, recorded))
        begins = self._plans.from_clock(kept, at, utc_text(clock - self._skew_ms))
        return SourceState(at, {**carried, **begins, "topic": self.topic, "topic_id": topic.id})

    def reached(self, state: SourceState) -> Reached:
        """How many of the offsets found by the last plan have been read."""
        return reached(state, self._last_kept)

    def guarantee(self) -> Promise:
        """Exactly-once, whatever a consumer group has committed."""
        return Promise(EXACTLY_ONCE, "offsets are in the checkpoint, and only committed transactions are read")

    def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the broker keeps records by its own retention."""

    def _kept(self, recorded: Mapping[str, Any]) -> Mapping[str, Kept]:
        self._found = self._client.topic(self.topic)
        require_same_topic(self.topic, recorded.get("topic_id"), self._found)
        self._last_kept = self._client.kept(self.topic, self._found.partitions)
        return self._last_kept

    def _begins(self, partitions: Sequence[str]) -> Mapping[str, int]:
        if isinstance(self._start, int):
            return self._client.at_time(self.topic, partitions, self._start)
        return {
            name: self._last_kept[name].first if self._start == "earliest" else self._last_kept[name].stop
            for name in partitions
        }

    # -- columns -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self._require_recorded(recorded)
        return self._columns.schema(recorded)

    def _require_recorded(self, recorded: Mapping[str, Any]) -> None:
        self._columns.require_recorded(recorded)
        if recorded.get("topic") not in (None, self.topic):
            raise SourceChanged(
                f"{self!r}: the checkpoint has read topic {recorded['topic']!r}: give the source that topic, "
                "or the job a new checkpoint and sink"
            )

    def _samples(self, at: Mapping[str, int]) -> Iterator[list[MessageValue]]:
        return (self._sample(partition, at[partition]) for partition in sorted(at))

    def _sample(self, partition: str, start: int) -> list[MessageValue]:
        values: list[MessageValue] = []
        for messages in self._messages(partition, start, self._last_kept[partition].stop, self._found.id):
            values += [message.value() for message in messages[: SAMPLE_ROWS - len(values)]]
            if len(values) == SAMPLE_ROWS:
                break
        return values

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            gathered = Gathered(self._metadata)
            for messages in self._messages(split.partition, span.start, span.stop, recorded.get("topic_id")):
                gathered.add(messages)
                if len(gathered) >= _BATCH_ROWS or gathered.size >= _BATCH_BYTES:
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
            raise RetentionGap(
                f"{self!r}, partition {partition}: offset {start} no longer exists: the broker has deleted it since "
                "the step was planned. The next run plans the step again, according to on_gap="
            )
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
            raise RetentionGap(
                f"{self!r}, partition {partition}: offset {start} no longer exists, the first is "
                f"{kept.first}: the broker has deleted it since the step was planned. The next run plans the step "
                "again, according to on_gap="
            )


def _format(format: str | Avro, topic: str, schema: Any, connection: Connection) -> ValueFormat:
    if isinstance(format, Avro):
        if schema is not None:
            raise InvalidPipeline(
                "schema= is for values without one; to choose columns of Avro give Avro(..., reader=)"
            )
        registry = Registry(format.access, connection.connect_timeout_ms, connection.server_away_ms)
        return AvroValues(format, f"{topic}-value", registry)
    if format == "avro":
        raise InvalidPipeline('format="avro": Avro needs its registry: format=Avro("http://localhost:8081")')
    return value_format(format, infers=schema is None)
