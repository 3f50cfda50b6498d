"""A sink of RabbitMQ streams appends the outputs to a stream. Each row has one publishing id for good, so a row that is
sent again after a crash is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from persistent.connect.appending import AppendingSink
from persistent.connect.formats.json_rows import json_rows, with_revision, with_shortest_decimals
from persistent.connect.marked import Moved, SinkMark, T, is_published
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq.stream_place import PlaceMark, Rows, StreamPlace, batch_of, row_id
from persistent.connect.rabbitmq.stream_settings import check_stream, stream_access
from persistent.connect.sink import Claim, OutputBatch
from persistent.errors import SinkMismatch
from persistent.text.spelling import spelled
from persistent.time.clock import Duration


class RabbitStreamSink(AppendingSink[StreamPlace, PlaceMark]):
    """Appends to ``stream``, which must exist: a message for each row, whose body is a JSON object, with the number of
    its batch as ``revision``.

    ``servers``: "host:port" of the stream plugin, several separated by commas. ``connect_timeout``: how long to wait
    for a broker at the start of a run; ``server_away``: how long during it. ``client``: {"username": ..., "password":
    ..., "vhost": ..., "tls": True, "ca": ..., "certificate": ..., "key": ..., "heartbeat": seconds}. The sink creates
    the stream ``<stream>-persistent-marks``, which records what has been published: do not change it.
    """

    _key_remedy = "; or raise stream.frame_max of the broker, up to 1 MiB"

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

    def __repr__(self) -> str:
        return f"RabbitStreamSink({self.servers!r}, {self.stream!r})"

    def guarantee(self) -> Promise:
        """Exactly-once, for every reader of the stream."""
        return Promise(EXACTLY_ONCE, "a row has one publishing id, and the broker ignores an id that it has seen")

    def claim(self, claim: Claim) -> None:
        """Claim the stream for a job. SinkMismatch, StorageError."""
        self._max_bytes = self._place.prepare()
        super().claim(claim)

    def _opened(self) -> StreamPlace:
        return StreamPlace(self._access, self.stream)

    @property
    def _limit(self) -> str:
        return (
            f"and the broker accepts at most {self._max_bytes:,}. Raise stream.frame_max of the broker, up to 1 MiB, "
            "or make the value smaller"
        )

    @property
    def _loss(self) -> str:
        return f"the stream {self._place.marks!r} was deleted during the run. Restore it"

    def _transact(self, what: str, act: Callable[[StreamPlace], T]) -> T:
        while True:
            try:
                return act(self._place)
            except Moved:
                continue

    def _seen(self) -> SinkMark | None:
        self._place.prepare()
        return self._place.mark()

    def _mark(self, place: StreamPlace, batch: OutputBatch | None = None) -> PlaceMark | None:
        return place.mark()

    def _move(self, place: StreamPlace, prior: PlaceMark | None, mark: SinkMark) -> None:
        if prior is not None:
            claims = prior.claims + 1 if prior.number == mark.number else 0
            self._note(place, PlaceMark(mark.job, mark.number, self._sequence(place, prior), claims))
            return
        sequence = place.sequence()
        if sequence:
            raise SinkMismatch(
                f"{self!r}: the stream has rows of a job, up to batch {batch_of(sequence)}, but its mark in "
                f"{place.marks!r} is gone. Restore it, or give this job a stream of its own"
            )
        self._note(place, PlaceMark(mark.job, mark.number))

    def _write(self, place: StreamPlace, prior: PlaceMark | None, batch: OutputBatch) -> None:
        """Append the rows of a batch that the broker has not received, and its mark."""
        prior = self._required(prior, batch.url)
        number = batch_of(self._sequence(place, prior))
        if number > prior.number:
            # Part of a batch can be stored: of this one, or we have been passed.
            is_published(SinkMark(batch.job, number), batch, repr(self))
        last = prior.sequence
        if batch.rows:
            place.append(lambda: self._rows(batch))
            last = row_id(batch.number, batch.rows - 1)
        self._note(place, PlaceMark(batch.job, batch.number, last))

    def _note(self, place: StreamPlace, mark: PlaceMark) -> None:
        """Append a mark. Moved if another mark is in force."""
        newest = place.note(mark)
        if (newest.job, newest.number) != (mark.job, mark.number):
            raise Moved

    def _sequence(self, place: StreamPlace, prior: PlaceMark) -> int:
        """The last publishing id. SinkMismatch if confirmed rows are missing."""
        sequence = place.sequence()
        if sequence < prior.sequence:
            raise SinkMismatch(
                f"{self!r}: the stream ends with batch {batch_of(sequence)}, but rows up to batch "
                f"{batch_of(prior.sequence)} were confirmed: it was deleted and created again, or a broker has "
                "lost its newest records. Give the job another stream and a new checkpoint, with start_from="
            )
        return sequence

    def _rows(self, batch: OutputBatch) -> Rows:
        row = 0
        for table in self._checked(batch):
            for bodies in self._bodies(table, batch.key, batch.number):
                yield [row_id(batch.number, row + at) for at in range(len(bodies))], bodies
                row += len(bodies)

    def _bodies(self, table: pa.Table, key: tuple[str, ...], number: int) -> Iterator[list[bytes]]:
        return json_rows(with_revision(with_shortest_decimals(table, set(key)), number))
