"""A place in RabbitMQ streams is a stream of rows, with a stream of marks beside it.

Rows have publishing ids under the name ``persistent``: the broker ignores ids that it has seen, from any writer,
and confirms them. A writer sends the rows of a batch in order, from the first one each time it connects, so the stored
rows are always the first ones. When all are confirmed, the mark is appended to ``<stream>-persistent-marks``, under an
id of its own. There an older mark is ignored, and of two equal ones the first is kept; the writer learns which by
reading the newest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from persistent.clients.amqp_body import body_of, message_of
from persistent.clients.stream_client import StreamClient
from persistent.clients.stream_connection import NotTaken, StreamConnection
from persistent.clients.stream_settings import StreamAccess
from persistent.errors import SinkMismatch, StorageError
from persistent.sinks.marks import SinkMark
from persistent.sinks.publishing_ids import mark_id

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

    # -- the mark ------------------------------------------------------------------------------------------------

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
        said = {"job": mark.mark.job, "number": mark.mark.number, "sequence": mark.sequence, "claims": mark.claims}
        body = json.dumps({**said, "stream": self.stream}).encode()
        id = mark_id(mark.mark.number, mark.claims)
        self._sent("note the mark of", self.marks, lambda: iter([([id], [body])]))
        found = self.mark()
        if found is None:
            raise SinkMismatch(
                f"the mark in stream {self.marks!r} was confirmed and is gone: another program deletes it"
            )
        return found

    # -- rows ----------------------------------------------------------------------------------------------------

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
            if self._refused_id is not None:
                self._require_prefix(wait(connection.sequence(stream, PUBLISHER), _CALL_SECONDS))
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

    def _require_prefix(self, sequence: int) -> None:
        """SinkMismatch if a row was refused and a later one accepted: sent again, the row would be ignored."""
        if self._refused_id is not None and sequence >= self._refused_id:
            raise SinkMismatch(
                f"stream {self.stream!r} has refused a row and accepted a later one: the row with the publishing id "
                f"{self._refused_id} is missing there. Check the log of the broker; then begin a new stream"
            )

    def _frames(self, rows: Rows) -> Iterator[tuple[list[int], list[bytes]]]:
        """Rows as messages, as many at a time as fit a frame."""
        ids: list[int] = []
        messages: list[bytes] = []
        size = 0
        for some, bodies in rows:
            for id, body in zip(some, bodies):
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
        said = json.loads(body_of(message) or b"")
        mark = SinkMark(str(said["job"]), int(said["number"]))
        return PlaceMark(mark, int(said["sequence"]), int(said["claims"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SinkMismatch(
            f"stream {marks!r} has a record that is not a mark: something else writes there. Delete that stream only "
            "together with the results, and begin a new checkpoint"
        ) from error
