"""A sink of RabbitMQ streams appends the outputs to a stream. Each row has one publishing id for good, so a row that is
sent again after a crash is stored once.

A place in RabbitMQ streams is a stream of rows, with a stream of marks beside it.

Rows have publishing ids under the name ``persistent``: the number of a batch and of a row in it, in one integer. The
broker ignores a record whose id is not above the last, from any writer, and confirms it. So a row has one id for good,
and ids never go back. Rows are numbered in the order of the staged files of the batch, which is the same after a
crash. A writer sends the rows of a batch in order, from the first one each time it connects, so the stored rows are
always the first ones. When all are confirmed, the mark is appended to ``<stream>-persistent-marks``, under an id of its
own. There an older mark is ignored, and of two equal ones the first is kept; the writer learns which by reading the
newest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa

from persistent.connect.formats.json_rows import (
    json_rows,
    large_keys_refused,
    most_bytes,
    row_text,
    with_revision,
    with_shortest_decimals,
)
from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq.amqp_body import body_of, message_of
from persistent.connect.rabbitmq.stream_client import StreamClient
from persistent.connect.rabbitmq.stream_connection import NotTaken, StreamConnection
from persistent.connect.rabbitmq.stream_settings import StreamAccess, check_stream, stream_access
from persistent.connect.sink import BatchSink, Claim, OutputBatch, RefusedKeys, Retreat
from persistent.errors import InvalidPipeline, SinkMismatch, StorageError
from persistent.text.spelling import spelled
from persistent.time.clock import Duration


class RabbitStreamSink(BatchSink):
    """Appends to ``stream``, which must exist: a message for each row, whose body is a JSON object, with the number of
    its batch as ``revision``.

    ``servers``: "host:port" of the stream plugin, several separated by commas. ``connect_timeout``: how long to wait
    for a broker at the start of a run; ``server_away``: how long during it. ``client``: {"username": ..., "password":
    ..., "vhost": ..., "tls": True, "ca": ..., "certificate": ..., "key": ..., "heartbeat": seconds}. The sink creates
    the stream ``<stream>-persistent-marks``, which records what has been published: do not change it.
    """

    limits_keys = True
    abilities = frozenset({"newest", "undo"})

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
        place_mark = place.mark()
        mark = claimed(None if place_mark is None else place_mark.mark, claim, repr(self))
        if place_mark is not None and mark == place_mark.mark:
            return
        sequence = place.sequence()
        if place_mark is None and sequence:
            raise SinkMismatch(
                f"{self!r}: the stream has rows of a job, up to batch {batch_of(sequence)}, but its mark in "
                f"{place.marks!r} is gone. Restore it, or give this job a stream of its own"
            )
        stands = place.note(PlaceMark(mark, sequence, 0 if place_mark is None else place_mark.claims + 1))
        if stands.mark != mark:
            claimed(stands.mark, claim, repr(self))

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest message."""
        if self._max_bytes is None or most_bytes(outputs) <= self._max_bytes:
            return
        for row, size in enumerate(_sizes(outputs, key)):
            if size > self._max_bytes:
                raise InvalidPipeline(
                    f"{self!r}: {row_text(outputs, row, key)} is a message of {size:,} bytes, and the broker "
                    f"accepts at most {self._max_bytes:,}. Raise stream.frame_max of the broker, up to 1 MiB, or "
                    "make the value smaller"
                )

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A key that is larger than the largest message."""
        if self._max_bytes is not None:
            sizes = partial(_sizes, keys, tuple(keys.column_names))
            remedy = "; or raise stream.frame_max of the broker, up to 1 MiB"
            yield from large_keys_refused(keys, self._max_bytes, sizes, repr(self), remedy)

    def deliver(self, batch: OutputBatch) -> None:
        """Append the rows of a batch, then its mark. Fenced, StagedMissing, StorageError."""
        place_mark = self._there(batch.url)
        if not is_published(place_mark.mark, batch, repr(self)):
            self._write(batch, place_mark)

    def undo(self, retreat: Retreat) -> None:
        """Append rows that take back those appended since the target of a rollback; none if the outputs stay."""
        place_mark = self._there(retreat.url)
        for batch in retreat.staged:
            if not is_settled(place_mark.mark, batch, repr(self)):
                place_mark = self._write(batch, place_mark)
        if not has_retreated(place_mark.mark, retreat, repr(self)) and retreat.undoing is not None:
            self._write(retreat.undoing(place_mark.mark.number), place_mark)
        elif not has_retreated(place_mark.mark, retreat, repr(self)):
            mark = SinkMark(retreat.job, retreat.number)
            place_mark = self._place.note(PlaceMark(mark, self._sequence(place_mark)))
            has_retreated(place_mark.mark, retreat, repr(self))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        self._place.prepare()
        place_mark = self._place.mark()
        return place_mark.mark.number if place_mark is not None and place_mark.mark.job == job else -1

    def close(self) -> None:
        """Close the connection."""
        if self._own_place is not None:
            self._own_place.close()
            self._own_place = None

    def _there(self, url: str) -> PlaceMark:
        place_mark = self._place.mark()
        if place_mark is None:
            raise SinkMismatch(
                f"{self!r}: the mark of this job is gone: the stream {self._place.marks!r} was deleted during the run. "
                f"Restore it; or begin a new checkpoint, with start_from={url!r}"
            )
        return place_mark

    def _write(self, batch: OutputBatch, place_mark: PlaceMark) -> PlaceMark:
        """Append the rows of a batch that the broker has not received; returns the resulting mark."""
        number = batch_of(self._sequence(place_mark))
        if number > place_mark.mark.number:
            # Part of a batch can be stored: of this one, or we have been passed.
            is_published(SinkMark(batch.job, number), batch, repr(self))
        last = place_mark.sequence
        if batch.rows:
            self._place.append(lambda: self._rows(batch))
            last = row_id(batch.number, batch.rows - 1)
        noted = self._place.note(PlaceMark(SinkMark(batch.job, batch.number), last))
        is_published(noted.mark, batch, repr(self))
        return noted

    def _sequence(self, place_mark: PlaceMark) -> int:
        """The last publishing id. SinkMismatch if confirmed rows are missing."""
        sequence = self._place.sequence()
        if sequence < place_mark.sequence:
            raise SinkMismatch(
                f"{self!r}: the stream ends with batch {batch_of(sequence)}, but rows up to batch "
                f"{batch_of(place_mark.sequence)} were confirmed: it was deleted and created again, or a broker has "
                "lost its newest records. Give the job another stream and a new checkpoint, with start_from="
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


def _sizes(table: pa.Table, key: Sequence[str]) -> Iterator[int]:
    """The bytes of each row as a message."""
    return map(len, chain.from_iterable(_bodies(table, key, 0)))


def _bodies(table: pa.Table, key: Sequence[str], number: int) -> Iterator[list[bytes]]:
    """The rows as JSON objects, in batches."""
    return json_rows(with_revision(with_shortest_decimals(table, set(key)), number))


T = TypeVar("T")

PUBLISHER: Final = "persistent"
_MARKS: Final = {"max-length-bytes": "20000000", "stream-max-segment-size-bytes": "5000000"}
_FRAME_BYTES: Final = 256 << 10
_FRAME_OVERHEAD: Final = 64
_ROW_OVERHEAD: Final = 12
"""The size of a frame, and of a row in it, beside the message."""
_UNCONFIRMED_MAX: Final = 20_000
_CALL_SECONDS: Final = 30.0

Rows = Iterable[tuple[Sequence[int], Sequence[bytes]]]
"""Publishing ids and bodies, in batches and in ascending order."""


@dataclass(frozen=True)
class PlaceMark:
    """The mark of a place. ``sequence``: the last publishing id of rows when it was appended; ``claims``: how many jobs
    have claimed the place at this number, one after the other."""

    mark: SinkMark
    sequence: int = 0
    claims: int = 0


class StreamPlace:
    """The place of one stream, as seen by one process."""

    frame_rows = 2_000

    def __init__(self, access: StreamAccess, stream: str) -> None:
        self.client = StreamClient(access, StorageError)
        self.stream = stream
        self._refused_id: int | None = None

    @property
    def marks(self) -> str:
        """The stream of the marks."""
        return f"{self.stream}-persistent-marks"

    def prepare(self) -> int:
        """Create the stream of marks, unless it exists. Returns the maximum size of the body of a row, in bytes.
        StorageError if the stream does not exist."""

        async def ask(connection: StreamConnection) -> int:
            if not await connection.exists(self.marks):
                await connection.create(self.marks, _MARKS)
            return connection.frame_max - _FRAME_OVERHEAD - _ROW_OVERHEAD - len(message_of(b""))

        return self.client.asked(f"prepare {self.marks!r} of", self.stream, ask)

    def mark(self) -> PlaceMark | None:
        """The mark; None if there is none."""
        chunk = self.client.last(self.marks)
        return None if chunk is None else _decoded(chunk.messages()[-1], self.marks)

    def note(self, mark: PlaceMark) -> PlaceMark:
        """Append a mark, unless a newer one, or another with its id, exists. Returns the mark in force."""
        fields = {"job": mark.mark.job, "number": mark.mark.number, "sequence": mark.sequence, "claims": mark.claims}
        body = json.dumps({**fields, "stream": self.stream}).encode()
        id = mark_id(mark.mark.number, mark.claims)
        self._sent("note the mark of", self.marks, lambda: iter([([id], [body])]))
        newest = self.mark()
        if newest is None:
            raise SinkMismatch(
                f"the mark in stream {self.marks!r} was confirmed and is gone: another program deletes it"
            )
        return newest

    def sequence(self) -> int:
        """The last publishing id of a row, 0 if there is none."""
        what = f"ask for the last row of {self.stream!r} of"
        return self.client.asked(what, self.stream, lambda connection: connection.sequence(self.stream, PUBLISHER))

    def append(self, rows: Callable[[], Rows]) -> None:
        """Append rows, and return when all are confirmed. ``rows`` is called for each attempt, and returns the same
        each time. StorageError."""
        self._refused_id = None
        self._sent("append to", self.stream, rows)

    def close(self) -> None:
        """End the connections."""
        self.client.close()

    def _sent(self, what: str, stream: str, rows: Callable[[], Rows]) -> None:
        self.client.repeated(f"{what} stream {stream!r} of", lambda: self._try(stream, rows()), stream)

    def _try(self, stream: str, rows: Rows) -> None:
        with self.client.connection(stream) as (connection, wait):
            refused = self._refused_id
            if refused is not None and wait(connection.sequence(stream, PUBLISHER), _CALL_SECONDS) >= refused:
                # Sent again, the refused row would be ignored.
                raise SinkMismatch(
                    f"stream {self.stream!r} has refused a row and accepted a later one: the row with the publishing "
                    f"id {refused} is missing there. Check the log of the broker; then begin a new stream"
                )
            wait(connection.declare(stream, PUBLISHER), _CALL_SECONDS)
            left = 0
            try:
                for ids, messages in self._frames(rows):
                    self.send(connection, wait, ids, messages)
                    left += len(ids)
                    while left > _UNCONFIRMED_MAX:
                        left -= wait(connection.confirmed(_CALL_SECONDS), 2 * _CALL_SECONDS)
                while left > 0:
                    left -= wait(connection.confirmed(_CALL_SECONDS), 2 * _CALL_SECONDS)
            except NotTaken as error:
                self._refused_id = error.id if stream == self.stream else None
                raise
            wait(connection.retire(), _CALL_SECONDS)

    def send(
        self, connection: StreamConnection, wait: Callable[..., object], ids: Sequence[int], messages: Sequence[bytes]
    ) -> None:
        """Send a frame, without waiting for its confirmation."""
        wait(connection.publish(ids, messages), _CALL_SECONDS)

    def _frames(self, rows: Rows) -> Iterator[tuple[list[int], list[bytes]]]:
        """Rows as messages, as many at a time as fit a frame."""
        ids: list[int] = []
        messages: list[bytes] = []
        size = 0
        for row_ids, bodies in rows:
            for id, body in zip(row_ids, bodies):
                message = message_of(body)
                if ids and (len(ids) >= self.frame_rows or size + len(message) > _FRAME_BYTES):
                    yield ids, messages
                    ids, messages, size = [], [], 0
                ids.append(id)
                messages.append(message)
                size += len(message) + _ROW_OVERHEAD
        if ids:
            yield ids, messages


def _decoded(message: bytes, marks: str) -> PlaceMark:
    try:
        fields = json.loads(body_of(message) or b"")
        mark = SinkMark(str(fields["job"]), int(fields["number"]))
        return PlaceMark(mark, int(fields["sequence"]), int(fields["claims"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SinkMismatch(
            f"stream {marks!r} has a record that is not a mark: something else writes there. Delete that stream only "
            "together with the results, and begin a new checkpoint"
        ) from error


_ROW_BITS: Final = 30
_ID_BITS: Final = 63
"""Clients have signed 64-bit integers."""
_CLAIM_BITS: Final = 12
ROWS_MAX: Final = 1 << _ROW_BITS
NUMBER_MAX: Final = 1 << _ID_BITS - _ROW_BITS


def row_id(number: int, row: int) -> int:
    """The id of a row of a batch, both from 0 on. SinkMismatch beyond what an id can hold.

    >>> row_id(1, 0), row_id(1, 5) - row_id(1, 0), batch_of(row_id(7, 5))
    (1073741824, 5, 7)
    """
    _require(number)
    if not 0 <= row < ROWS_MAX:
        raise SinkMismatch(f"a batch has more than {ROWS_MAX:,} rows for one stream: make the steps shorter")
    return number << _ROW_BITS | row


def batch_of(id: int) -> int:
    """The number of the batch of the row with this id; 0 for the id 0, which no row has."""
    return id >> _ROW_BITS


def mark_id(number: int, claims: int) -> int:
    """The id of the mark of batch ``number`` after ``claims`` successive claims by jobs. Of two marks with one id the
    first is kept.

    >>> mark_id(0, 0), mark_id(0, 1), mark_id(1, 0) > mark_id(0, 4_000)
    (1, 2, True)
    """
    _require(number)
    if not 0 <= claims < (1 << _CLAIM_BITS) - 1:
        raise SinkMismatch("too many jobs have started from one savepoint, one after the other, and published nothing")
    return (number << _CLAIM_BITS | claims) + 1


def _require(number: int) -> None:
    if not 0 <= number < NUMBER_MAX:
        raise SinkMismatch(f"batch {number:,} is beyond {NUMBER_MAX:,}, the last that an id of a stream can name")
