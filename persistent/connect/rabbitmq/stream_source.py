"""A source of RabbitMQ streams: a stream is a partition, and the checkpoint holds the next offset of each.

Workers read their splits from the broker directly. Offsets without a record (the broker's own entries) are skipped, and
are not a gap. A broker has no id that distinguishes a stream from a new one with the same name, so the checkpoint
records a chunk of each: if that chunk has changed, it is another stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from persistent.connect import options
from persistent.connect.formats.message_columns import DEAD_BYTES_MAX, SAMPLE_ROWS, MessageColumns, metadata_fields
from persistent.connect.formats.values import MessageValue, value_format
from persistent.connect.offsets import ON_GAP, Kept, OffsetPlans, reached, require_skew, starts
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq.amqp_body import body_of
from persistent.connect.rabbitmq.stream_client import StreamClient
from persistent.connect.rabbitmq.stream_connection import OFFSET, Chunk
from persistent.connect.rabbitmq.stream_settings import check_stream, stream_access
from persistent.connect.source import (
    Budget,
    DeadRecord,
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
from persistent.time.clock import Duration, Instant, bare, option_ms

_ENCODINGS: Final = ("amqp", "raw")
_TIME: Final = "_timestamp"
_BATCH_ROWS: Final = 50_000
_BATCH_BYTES: Final = 64 << 20


class RabbitStreamSource(Source):
    """The records of a stream, or of several.

    ``servers``: "host:port" of the stream plugin, several separated by commas. ``stream``: a name, or a list of names;
    for a super stream, those of its partitions. ``encoding``: "amqp", the body of an AMQP 1.0 message; "raw", the bytes
    of the record. ``format``: "json", one object per value; "bytes", one column ``value``. ``schema``: the columns to
    read of a JSON value, as in ``FileSource``; by default those of the first records. The source adds ``_timestamp``,
    when the broker wrote the record.

    ``timestamp``: the column with the event time, by default ``_timestamp``; ``timestamp_unit``, as in ``FileSource``.
    ``start``: where a new checkpoint begins: "earliest", "latest", or a point in time by the broker's clock.
    ``on_gap``: if the broker has deleted records before they were read: "fail" with RetentionGap, or continue with the
    "earliest" or "latest" offset and count the skipped ones as ``skipped``.
    ``idle_timeout``: the watermark does not wait for a stream at whose end the driver has been for this long; None: it
    always waits. ``max_out_of_orderness``: how far, in event time, a record of a stream can come behind a later one.
    ``max_skew``: how far the event time of a record can be ahead of the broker's clock, which is how far back
    ``persistent restart`` looks. Without meaning for ``_timestamp`` itself.

    ``connect_timeout``: how long to wait for a broker at the start of a run; ``server_away``: how long during it.
    ``client``: {"username": ..., "password": ..., "vhost": ..., "tls": True, "ca": ..., "certificate": ..., "key": ...,
    "heartbeat": seconds}.

    ``step_rows`` counts offsets, with or without a record.
    """

    finds_times = True
    forgets = True

    kind: str = "RabbitStreamSource"
    codec: str = "offset/1"

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
        options.require_choice("on_gap", on_gap, ON_GAP)
        self._access = stream_access(servers, client, connect_timeout, server_away)
        self.servers = servers
        self.timestamp = timestamp
        self.address = f"{self._access.text} streams {', '.join(self.streams)}"
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        self._encoding = encoding
        values = value_format(format, infers=schema is None)
        time = timestamp, timestamp_unit
        self._columns = MessageColumns(repr(self), values, schema, metadata_fields([_TIME]), time)
        self._start = options.start_of(start)
        self._skew_ms = 0 if timestamp == _TIME else option_ms(max_skew, "max_skew")
        idle_ms = None if idle_timeout is None else option_ms(idle_timeout, "idle_timeout")
        self._plans = OffsetPlans(repr(self), on_gap=on_gap, idle_timeout_ms=idle_ms)
        self._own_client: StreamClient | None = None
        self._last_kept: Mapping[str, Kept] = {}

    def __repr__(self) -> str:
        streams = self.streams[0] if len(self.streams) == 1 else list(self.streams)
        return f"RabbitStreamSource({self.servers!r}, {streams!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own_client": None}

    @property
    def _client(self) -> StreamClient:
        if self._own_client is None:
            self._own_client = StreamClient(self._access)
        return self._own_client

    # -- plans ---------------------------------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        """Empty: all partitions join with a plan, so a checkpoint can be read without the broker."""
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next of each stream, in shares as equal as the remaining offsets allow."""
        self._require_recorded(state.recorded)
        kept = self._kept(state.recorded)
        plan = self._plans.plan(state, budget, kept, self._begins)
        recorded = {**plan.recorded, "chunks": self._newest()}
        return replace(plan, recorded=recorded | self._described(state.recorded, plan))

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same messages, decoded by the present options. None if they are of another stream."""
        self._require_recorded(state.recorded)
        if not put.end.keys() <= {*self.streams}:
            return None
        self._kept(put.recorded)
        return replace(put, recorded={**put.recorded, **self._described(state.recorded, put)})

    def _described(self, recorded: Mapping[str, Any], plan: SourcePlan) -> dict[str, Any]:
        """What a plan records about the values. ``recorded``: what the checkpoint has recorded."""
        samples = partial(self._samples, {**plan.end, **starts(plan.splits)})
        return {**self._facts(), **self._columns.described(recorded, bool(plan.splits), samples)}

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if a stream that was read is not the one that was planned."""
        for stream, chunk in recorded.get("chunks", {}).items():
            self._require_same(stream, chunk)

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan are gone, and may be skipped. False if they are of another stream."""
        is_ours = {*recorded.get("chunks", {}), *(split.partition for split in splits)} <= {*self.streams}
        return is_ours and self._plans.has_forgotten(splits, self._kept(recorded))

    def position_at(self, partition: str, clock: int) -> int:
        """An offset before which no record has an event time of ``clock`` or later, provided ``max_skew`` is right."""
        return self._client.at_time(partition, clock - self._skew_ms)

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        """The positions of a clock in the present streams, which can be others; fields and times stay."""
        at = {stream: self.position_at(stream, clock) for stream in self.streams}
        # The kept offsets come last: a record that is deleted in between is a gap, and is noticed.
        kept = self._client.kept(self.streams)
        carried = {name: recorded[name] for name in (*self._facts(), "schema") if name in recorded}
        if "schema" in recorded:
            require_skew(repr(self), at, kept, (clock, self._skew_ms), lambda split: self.read(split, recorded))
        begins = self._plans.from_clock(kept, at, utc_text(clock - self._skew_ms))
        return SourceState(at, {**carried, **begins, "chunks": self._newest()})

    def reached(self, state: SourceState) -> Reached:
        """How many of the offsets found by the last plan have been read."""
        return reached(state, self._last_kept)

    def guarantee(self) -> Promise:
        """Exactly-once, whatever offset the broker has stored for a consumer."""
        return Promise(EXACTLY_ONCE, "offsets are in the checkpoint, and only confirmed records are read")

    def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the broker keeps records by its own retention."""

    def _kept(self, recorded: Mapping[str, Any]) -> Mapping[str, Kept]:
        self.confirm(recorded)
        self._last_kept = self._client.kept(self.streams)
        return self._last_kept

    def _begins(self, streams: Sequence[str]) -> Mapping[str, int]:
        if isinstance(self._start, int):
            return {stream: self._client.at_time(stream, self._start) for stream in streams}
        return {
            stream: self._last_kept[stream].first if self._start == "earliest" else self._last_kept[stream].stop
            for stream in streams
        }

    # -- identity of streams --------------------------------------------------------------------------------------

    def _newest(self) -> dict[str, Any]:
        """A chunk of each non-empty stream that identifies it: the newest, which is deleted last."""
        chunks = {stream: self._client.last(stream) for stream in self.streams}
        return {stream: _identity(chunk) for stream, chunk in chunks.items() if chunk is not None}

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

    # -- columns -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self._require_recorded(recorded)
        return self._columns.schema(recorded)

    def _facts(self) -> dict[str, Any]:
        return {**self._columns.times(), "encoding": self._encoding}

    def _require_recorded(self, recorded: Mapping[str, Any]) -> None:
        self._columns.require_recorded(recorded)
        options.require_recorded(recorded, self._facts(), {"encoding": "its state was decoded by that"})

    def _samples(self, at: Mapping[str, int]) -> Iterator[list[MessageValue]]:
        """The first values of each stream."""
        for stream in sorted(at):
            sample = _Gathered()
            for batch in self._gathered(stream, at[stream], self._last_kept[stream].stop):
                sample.add(batch)
                if len(sample.values) >= SAMPLE_ROWS:
                    break
            if sample.dead and not sample.values:
                raise SourceError(f"{self!r}, offset {sample.dead[0].offset:,}: {sample.dead[0].reason}")
            yield sample.values[:SAMPLE_ROWS]

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            gathered = _Gathered()
            for batch in self._gathered(split.partition, span.start, span.stop):
                gathered.add(batch)
                if len(gathered.values) >= _BATCH_ROWS or gathered.size >= _BATCH_BYTES:
                    yield self._columns.records(gathered, recorded, gathered.dead)
                    gathered = _Gathered()
            if gathered.values or gathered.dead:
                yield self._columns.records(gathered, recorded, gathered.dead)

    def _gathered(self, stream: str, start: int, stop: int) -> Iterator[_Gathered]:
        """The records ``start <= offset < stop``."""
        look = partial(self._require_there, stream, stop)
        for chunks in self._client.chunks(stream, start, stop, look):
            batch = _Gathered()
            for chunk in chunks:
                if start >= stop:
                    break
                if chunk.first > start:
                    self._require_no_gap(stream, start)
                try:
                    batch.take(chunk, start, stop, self._encoding == "amqp")
                except ValueError as error:
                    raise SourceError(
                        f"{self!r}: stream {stream!r}, offsets {chunk.first:,} to {chunk.stop - 1:,}: {error}. Can "
                        "rstream read it? A producer's batch may have an unsupported compression"
                    ) from error
                start = max(start, chunk.stop)
            yield batch

    def _require_no_gap(self, stream: str, offset: int) -> None:
        """Raise RetentionGap if the broker has skipped records from this offset on: it silently begins with the first
        that it still has."""
        first = self._client.kept([stream])[stream].first
        if first > offset:
            raise RetentionGap(
                f"{self!r}, stream {stream!r}: offset {offset:,} no longer exists, the first is {first:,}: the broker "
                "has deleted it since the step was planned. The next run plans the step again, according to on_gap="
            )

    def _require_there(self, stream: str, stop: int, offset: int) -> None:
        """Raise if the rest of a split is gone for good."""
        kept = self._client.kept([stream])[stream]
        if kept.stop < stop:
            raise SourceChanged(
                f"{self!r}, stream {stream!r}: a step was planned up to offset {stop:,}, but the stream ends at "
                f"{kept.stop:,}: its end was truncated, or it was deleted and created again"
            )
        self._require_no_gap(stream, offset)


class _Gathered:
    """Records as columns. ``dead``: those that are not messages. ``size``: the bytes of all."""

    def __init__(self) -> None:
        self.values: list[MessageValue] = []
        self.offsets: list[int] = []
        self.dead: list[DeadRecord] = []
        self.size = 0
        self._times: list[int] = []

    def take(self, chunk: Chunk, start: int, stop: int, is_amqp: bool) -> None:
        """Add the records of a chunk from ``start`` to ``stop``. ValueError if it cannot be decoded."""
        messages = chunk.messages()
        low, high = max(start - chunk.first, 0), max(stop - chunk.first, 0)
        messages = messages[low:high]
        values: list[MessageValue] = []
        offsets: list[int] = []
        for offset, message in enumerate(messages, chunk.first + low):
            try:
                values.append(body_of(message) if is_amqp else message)
            except ValueError as error:
                self.dead.append(DeadRecord(0, offset, str(error), message[:DEAD_BYTES_MAX]))
            else:
                offsets.append(offset)
        self.values += values
        self.offsets += offsets
        self._times += [chunk.timestamp] * len(values)
        self.size += sum(map(len, messages))

    def add(self, batch: _Gathered) -> None:
        """Add the later records of another batch."""
        self.values += batch.values
        self.offsets += batch.offsets
        self.dead += batch.dead
        self.size += batch.size
        self._times += batch._times

    def column(self, name: str, rows: Sequence[int]) -> pa.Array:
        """The times at which the broker wrote these rows."""
        times = self._times if len(rows) == len(self._times) else [self._times[row] for row in rows]
        return pa.array(times, pa.timestamp("ms", "UTC"))


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
