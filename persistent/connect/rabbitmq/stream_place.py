"""A place in RabbitMQ streams is a stream of rows, with a stream of marks beside it.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from persistent.connect.marked import SinkMark
from persistent.connect.rabbitmq.amqp_body import body_of, message_of
from persistent.connect.rabbitmq.stream_client import StreamClient
from persistent.connect.rabbitmq.stream_connection import NotTaken, StreamConnection
from persistent.connect.rabbitmq.stream_settings import StreamAccess
from persistent.errors import SinkMismatch, StorageError

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
class PlaceMark(SinkMark):
    """The mark of a place. ``sequence``: the last publishing id of rows when it was appended; ``claims``: how many jobs
    have claimed the place at this number, one after the other."""

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
        body = json.dumps({**mark.__dict__, "stream": self.stream}).encode()
        id = mark_id(mark.number, mark.claims)
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
        return PlaceMark(str(fields["job"]), int(fields["number"]), int(fields["sequence"]), int(fields["claims"]))
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
