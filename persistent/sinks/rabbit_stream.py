"""A sink of RabbitMQ streams appends the outputs to a stream. Each row has one publishing id for good, so a row that is
sent again after a crash is stored once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from persistent.clients.stream_settings import check_stream, stream_access
from persistent.clock import Duration
from persistent.errors import InvalidPipeline, SinkMismatch
from persistent.promises import EXACTLY_ONCE, Promise
from persistent.sinks.json_lines import check_texts, json_rows, with_shortest_decimals
from persistent.sinks.marks import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.sinks.message_rows import most_bytes, row_text, with_revision
from persistent.sinks.protocol import Claim, OutputBatch, Retreat
from persistent.sinks.publishing_ids import batch_of, row_id
from persistent.sinks.rabbit_stream_place import PlaceMark, Rows, StreamPlace
from persistent.text.spelling import spelled


class RabbitStreamSink:
    """Appends to ``stream``, which must exist: a message for each row, whose body is a JSON object, with the number of
    its batch as ``revision``.

    ``servers``: "host:port" of the stream plugin, several separated by commas. ``connect_timeout``: how long to wait
    for a broker at the start of a run; ``server_away``: how long during it. ``client``: {"username": ..., "password":
    ..., "vhost": ..., "tls": True, "ca": ..., "certificate": ..., "key": ..., "heartbeat": seconds}. The sink creates
    the stream ``<stream>-persistent-marks``, which records what has been published: do not change it.
    """

    @spelled
    def __init__(
        self,
        servers: str,
        stream: str,
        *,
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        client: Mapping[str, Any] | None = None,
    ) -> None:
        check_stream(stream)
        self._access = stream_access(servers, client, connect_timeout, server_away)
        self.servers = servers
        self.stream = stream
        self.address = f"{self._access.text} streams {stream}"
        self._max_bytes: int | None = None
        self._own_place: StreamPlace | None = None

    def __repr__(self) -> str:
        return f"RabbitStreamSink({self.servers!r}, {self.stream!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own_place": None}

    @property
    def _place(self) -> StreamPlace:
        if self._own_place is None:
            self._own_place = StreamPlace(self._access, self.stream)
        return self._own_place

    def guarantee(self) -> Promise:
        """Exactly-once, for every reader of the stream."""
        return Promise(EXACTLY_ONCE, "a row has one publishing id, and the broker ignores an id that it has seen")

    def claim(self, claim: Claim) -> None:
        """Claim the stream for a job. SinkMismatch, StorageError."""
        place = self._place
        self._max_bytes = place.prepare()
        found = place.mark()
        mark = claimed(None if found is None else found.mark, claim, repr(self))
        if found is not None and mark == found.mark:
            return
        sequence = place.sequence()
        if found is None and sequence:
            raise SinkMismatch(
                f"{self!r}: the stream has rows of a job, up to batch {batch_of(sequence)}, but its mark in "
                f"{place.marks!r} is gone. Restore it, or give this job a stream of its own"
            )
        stands = place.note(PlaceMark(mark, sequence, 0 if found is None else found.claims + 1))
        if stands.mark != mark:
            claimed(stands.mark, claim, repr(self))

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest message, or a time without a text."""
        check_texts(outputs, repr(self))
        if self._max_bytes is None or most_bytes(outputs) <= self._max_bytes:
            return
        row = 0
        for bodies in _bodies(outputs, key, 0):
            for body in bodies:
                if len(body) > self._max_bytes:
                    raise InvalidPipeline(
                        f"{self!r}: {row_text(outputs, row, key)} is a message of {len(body):,} bytes, and the broker "
                        f"accepts at most {self._max_bytes:,}. Raise stream.frame_max of the broker, up to 1 MiB, or "
                        "make the value smaller"
                    )
                row += 1

    def deliver(self, batch: OutputBatch) -> None:
        """Append the rows of a batch, then its mark. Fenced, StagedMissing, StorageError."""
        found = self._there(batch.url)
        if not is_published(found.mark, batch, repr(self)):
            self._write(batch, found)

    def resume(self, retreat: Retreat) -> None:
        """Continue after a rollback: rows appended since stay. Fenced, StorageError."""
        found = self._there(retreat.url)
        for batch in retreat.staged:
            if not is_settled(found.mark, batch, repr(self)):
                found = self._write(batch, found)
        if not has_retreated(found.mark, retreat, repr(self)):
            mark = SinkMark(retreat.job, retreat.number)
            found = self._place.note(PlaceMark(mark, self._sequence(found)))
            has_retreated(found.mark, retreat, repr(self))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        self._place.prepare()
        found = self._place.mark()
        return found.mark.number if found is not None and found.mark.job == job else -1

    def close(self) -> None:
        """Close the connection."""
        if self._own_place is not None:
            self._own_place.close()
            self._own_place = None

    # -- with the mark -------------------------------------------------------------------------------------------

    def _there(self, url: str) -> PlaceMark:
        found = self._place.mark()
        if found is None:
            raise SinkMismatch(
                f"{self!r}: the mark of this job is gone: the stream {self._place.marks!r} was deleted during the run. "
                f"Restore it; or begin a new checkpoint, with start_from={url!r}"
            )
        return found

    def _write(self, batch: OutputBatch, found: PlaceMark) -> PlaceMark:
        """Append the rows of a batch that the broker has not received; returns the resulting mark."""
        number = batch_of(self._sequence(found))
        if number > found.mark.number:
            # Part of a batch can be stored: of this one, or we have been passed.
            is_published(SinkMark(batch.job, number), batch, repr(self))
        last = found.sequence
        if batch.rows:
            self._place.append(lambda: self._rows(batch))
            last = row_id(batch.number, batch.rows - 1)
        noted = self._place.note(PlaceMark(SinkMark(batch.job, batch.number), last))
        is_published(noted.mark, batch, repr(self))
        return noted

    def _sequence(self, found: PlaceMark) -> int:
        """The last publishing id. SinkMismatch if confirmed rows are missing."""
        sequence = self._place.sequence()
        if sequence < found.sequence:
            raise SinkMismatch(
                f"{self!r}: the stream ends with batch {batch_of(sequence)}, but rows up to batch "
                f"{batch_of(found.sequence)} were confirmed: it was deleted and created again, or a broker has lost "
                "its newest records. Give the job another stream and a new checkpoint, with start_from="
            )
        return sequence

    def _rows(self, batch: OutputBatch) -> Rows:
        row = 0
        for table in batch.tables():
            # The limit of the broker can have been lowered since they were staged.
            self.check(table, batch.key)
            for bodies in _bodies(table, batch.key, batch.number):
                yield [row_id(batch.number, row + at) for at in range(len(bodies))], bodies
                row += len(bodies)


def _bodies(table: pa.Table, key: Sequence[str], number: int) -> Iterator[list[bytes]]:
    """The rows as JSON objects, in batches."""
    return json_rows(with_revision(with_shortest_decimals(table, set(key)), number))
