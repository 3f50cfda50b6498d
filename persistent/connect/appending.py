"""A sink that can only append: a JSON object for each row, as a message of limited size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from persistent.connect.formats.json_rows import json_rows, large_keys_refused, most_bytes, row_text, with_revision
from persistent.connect.marked import M, MarkedSink, P, SinkMark
from persistent.connect.sink import BatchSink, OutputBatch, RefusedKeys, Retreat
from persistent.errors import InvalidPipeline, SinkMismatch


class MessageSink(BatchSink):
    """A sink that writes a message for each row: a JSON object, with the number of its batch as ``revision``."""

    limits_keys = True
    _max_bytes: int | None = None
    """The largest message; None if unknown."""
    _message = "message"
    _key_remedy = ""
    """What else to do about a key that is too large, after a semicolon."""

    @property
    @abstractmethod
    def _limit(self) -> str:
        """The limit that a message exceeds, and what to do, for errors."""

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a row that is larger than the largest message."""
        limit = self._max_bytes
        if limit is None or most_bytes(outputs) <= limit:
            return
        for row, size in enumerate(self._sizes(outputs, key)):
            if size > limit:
                raise InvalidPipeline(
                    f"{self!r}: {row_text(outputs, row, key)} is a {self._message} of {size:,} bytes, {self._limit}"
                )

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A key that is larger than the largest message."""
        if self._max_bytes is not None:
            sizes = partial(self._sizes, keys, tuple(keys.column_names))
            yield from large_keys_refused(keys, self._max_bytes, sizes, repr(self), self._key_remedy)

    def _bodies(self, table: pa.Table, key: tuple[str, ...], number: int) -> Iterator[list[bytes]]:
        """The rows of batch ``number`` as JSON objects, in pieces."""
        return json_rows(with_revision(table, number))

    def _sizes(self, table: pa.Table, key: tuple[str, ...]) -> Iterator[int]:
        """The bytes of each row as a message."""
        return map(len, chain.from_iterable(self._bodies(table, key, 0)))

    def _checked(self, batch: OutputBatch) -> Iterator[pa.Table]:
        """The outputs of a batch. The limit can have been lowered since they were staged."""
        for table in batch.tables():
            self.check(table, batch.key)
            yield table


class AppendingSink(MessageSink, MarkedSink[P, M]):
    """A sink with a mark that can only append: rows are taken back by rows that undo them. Its place is opened when it
    is needed, in each process."""

    abilities = frozenset({"newest", "undo"})
    _own_place: P | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own_place": None}

    @abstractmethod
    def _opened(self) -> P: ...

    @property
    def _place(self) -> P:
        if self._own_place is None:
            self._own_place = self._opened()
        return self._own_place

    @property
    @abstractmethod
    def _loss(self) -> str:
        """What was deleted if the mark is gone, and what to restore, for errors."""

    def undo(self, retreat: Retreat) -> None:
        """Append rows that take back those appended since the target of a rollback; none if the outputs stay. Fenced,
        StagedMissing, StorageError."""
        self._retreat(retreat)

    def close(self) -> None:
        """Close the connection."""
        place: Any = self._own_place
        self._own_place = None
        if place is not None:
            place.close()

    def _required(self, mark: M | None, url: str) -> M:
        if mark is None:
            raise SinkMismatch(
                f"{self!r}: the mark of this job is gone: {self._loss}; or begin a new checkpoint, with "
                f"start_from={url!r}"
            )
        return mark

    def _take_back(self, place: P, prior: M | None, retreat: Retreat) -> None:
        if retreat.undoing is None:
            self._move(place, prior, SinkMark(retreat.job, retreat.number))
        else:
            self._write(place, prior, retreat.undoing(self._required(prior, retreat.url).number))
