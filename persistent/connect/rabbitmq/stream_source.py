"""A source of RabbitMQ streams: a stream is a partition, and the checkpoint holds the next offset of each.

Workers read their splits from the broker directly. Offsets without a record (the broker's own entries) are skipped, and
are not a gap. A broker has no id that distinguishes a stream from a new one with the same name, so the checkpoint
records a chunk of each: if that chunk has changed, it is another stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from typing import Any, Final

import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect import options
from persistent.connect.formats.message_columns import (
    BATCH_BYTES,
    BATCH_ROWS,
    SAMPLE_ROWS,
    MessageColumns,
    metadata_fields,
)
from persistent.connect.formats.values import MessageValue, value_format
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import Kept
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq.amqp_body import StreamRecords
from persistent.connect.rabbitmq.stream_client import StreamClient
from persistent.connect.rabbitmq.stream_connection import OFFSET, Chunk
from persistent.connect.rabbitmq.stream_settings import check_stream, stream_access
from persistent.connect.source import Records, Split
from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.text.figures import utc_text
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant

_ENCODINGS: Final = ("amqp", "raw")
_TIME: Final = "_timestamp"


class RabbitStreamSource(OffsetSource):
    """The records of a stream, or of several.

    ``servers``: "host:port" of the stream plugin, several separated by commas. ``stream``: a name, or a list of names;
    for a super stream, those of its partitions. ``encoding``: "amqp", the body of an AMQP 1.0 message; "raw", the bytes
    of the record. ``format``: "json", one object per value; "bytes", one column ``value``. ``schema``: the columns to
    read of a JSON value, as in ``FileSource``; by default those of the first records. The source adds ``_timestamp``,
    when the broker wrote the record.

    ``timestamp``, ``timestamp_unit``, ``start``, ``on_gap``, ``idle_timeout``, ``max_out_of_orderness``, ``max_skew``,
    ``connect_timeout``, ``server_away``: as in ``KafkaSource``, where a stream is a partition.
    ``client``: {"username": ..., "password": ..., "vhost": ..., "tls": True, "ca": ..., "certificate": ..., "key": ...,
    "heartbeat": seconds}.

    ``step_rows`` counts offsets, with or without a record.
    """

    finds_times = True

    kind: str = "RabbitStreamSource"

    @spelled
    def __init__(
        self,
        servers: str,
        stream: str | Sequence[str],
        *,
        encoding: str = "amqp",
        format: str = "json",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        timestamp: str = _TIME,
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
        self.streams = _streams(stream)
        options.require_choice("encoding", encoding, _ENCODINGS)
        self._access = stream_access(servers, client, connect_timeout, server_away)
        self.servers = servers
        self.address = f"{self._access.text} streams {', '.join(self.streams)}"
        self._encoding = encoding
        values = value_format(format, infers=schema is None)
        time = timestamp, timestamp_unit
        super().__init__(
            MessageColumns(repr(self), values, schema, metadata_fields([_TIME]), time),
            timestamp=timestamp,
            start=start,
            on_gap=on_gap,
            idle_timeout=idle_timeout,
            max_out_of_orderness=max_out_of_orderness,
            max_skew=max_skew,
        )

    def __repr__(self) -> str:
        streams = self.streams[0] if len(self.streams) == 1 else list(self.streams)
        return f"RabbitStreamSource({self.servers!r}, {streams!r})"

    @cached_property
    def _client(self) -> StreamClient:
        return StreamClient(self._access)

    # -- the streams ---------------------------------------------------------------------------------------------

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        self.confirm(recorded)
        return self._client.kept(self.streams)

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if a stream that was read is not the one that was planned."""
        for stream, chunk in recorded.get("chunks", {}).items():
            self._require_same(stream, chunk)

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        """A chunk of each non-empty stream that identifies it: the newest, which is deleted last."""
        chunks = {stream: self._client.last(stream) for stream in self.streams}
        return {"chunks": {stream: _identity(chunk) for stream, chunk in chunks.items() if chunk is not None}}

    def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
        return {stream: self._client.at_time(stream, ms) for stream in partitions}

    def is_of(self, recorded: Mapping[str, Any], partitions: Iterable[str]) -> bool:
        return {*recorded.get("chunks", {}), *partitions} <= {*self.streams}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "encoding": self._encoding}

    def guarantee(self) -> Promise:
        """Exactly-once, whatever offset the broker has stored for a consumer."""
        return Promise(EXACTLY_ONCE, "offsets are in the checkpoint, and only confirmed records are read")

    def _require_same(self, stream: str, known: Sequence[int]) -> None:
        chunk = self._client.chunk(stream, OFFSET, known[0])
        is_kept = chunk is not None and chunk.first <= known[0]
        if chunk is not None and (_identity(chunk) == list(known) if is_kept else chunk.epoch >= known[3]):
            return
        raise SourceChanged(
            f"stream {stream!r} was deleted and created again, or its end was truncated: the checkpoint has read one "
            f"with a chunk at offset {known[0]:,} of {utc_text(known[2])}, this one has another there, or none. Its "
            "offsets mean other records: continue from a clock with 'persistent restart', or read it into a fresh "
            "checkpoint"
        )

    # -- reading -------------------------------------------------------------------------------------------------

    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        stop = self._last_kept[partition].stop
        sample = next(self._gathered(partition, start, stop, (SAMPLE_ROWS, inf)), StreamRecords())
        if sample.dead and not sample.values:
            raise SourceError(f"{self!r}, offset {sample.dead[0].offset:,}: {sample.dead[0].reason}")
        return sample.values[:SAMPLE_ROWS]

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            for gathered in self._gathered(split.partition, span.start, span.stop, (BATCH_ROWS, BATCH_BYTES)):
                yield self._columns.records(gathered, recorded, gathered.dead)

    def _gathered(self, stream: str, start: int, stop: int, enough: tuple[int, float]) -> Iterator[StreamRecords]:
        """The records ``start <= offset < stop``, in batches of at least this many messages, or bytes."""
        gathered = StreamRecords()
        for chunks in self._client.chunks(stream, start, stop, partial(self._require_there, stream, stop)):
            for chunk in chunks:
                if start >= stop:
                    break
                if chunk.first > start:
                    self._require_no_gap(stream, start)
                try:
                    gathered.take(chunk, start, stop, self._encoding == "amqp")
                except ValueError as error:
                    raise SourceError(
                        f"{self!r}: stream {stream!r}, offsets {chunk.first:,} to {chunk.stop - 1:,}: {error}. Can "
                        "rstream read it? A producer's batch may have an unsupported compression"
                    ) from error
                start = max(start, chunk.stop)
            if len(gathered.values) >= enough[0] or gathered.size >= enough[1]:
                yield gathered
                gathered = StreamRecords()
        if gathered.values or gathered.dead:
            yield gathered

    def _require_no_gap(self, stream: str, offset: int) -> None:
        """Raise RetentionGap if the broker has skipped records from this offset on: it silently begins with the first
        that it still has."""
        first = self._client.kept([stream])[stream].first
        if first > offset:
            raise self.gone(f"stream {stream!r}", offset, first)

    def _require_there(self, stream: str, stop: int, offset: int) -> None:
        """Raise if the rest of a split is gone for good."""
        kept = self._client.kept([stream])[stream]
        if kept.stop < stop:
            raise SourceChanged(
                f"{self!r}, stream {stream!r}: a step was planned up to offset {stop:,}, but the stream ends at "
                f"{kept.stop:,}: its end was truncated, or it was deleted and created again"
            )
        self._require_no_gap(stream, offset)


def _identity(chunk: Chunk) -> list[int]:
    """What distinguishes a chunk from any other. The epoch only grows."""
    return [chunk.first, chunk.stop, chunk.timestamp, chunk.epoch, chunk.crc]


def _streams(stream: Any) -> tuple[str, ...]:
    """The option ``stream=``. InvalidPipeline."""
    names = (stream,) if isinstance(stream, str) else tuple(stream) if isinstance(stream, list | tuple) else ()
    if not names:
        raise InvalidPipeline(f"stream={stream!r}: give the name of a stream, or a list of names, such as ['clicks']")
    for name in names:
        check_stream(name)
    if len(set(names)) < len(names):
        raise InvalidPipeline(f"stream={stream!r} names a stream twice")
    return names
