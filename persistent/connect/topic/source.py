"""A topic source reads a topic through a journal, so that it can be replayed.

Positions are the numbers of records in the journal. A record of a loss is a dead letter.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect import options
from persistent.connect.formats.message_columns import SAMPLE_ROWS, MessageColumns, WholeColumns
from persistent.connect.formats.values import MessageValue, value_format
from persistent.connect.log.source import LogSource
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import Kept
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.source import Budget, DeadRecord, Reached, Records, SourcePlan, SourceState, Split
from persistent.connect.topic.journal import TopicJournal, TopicRecord, decode_record
from persistent.errors import InvalidPipeline, SourceChanged
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.topic.options import JoinOptions, checked_address, checked_topic
from persistent.storage.protocol import Storage
from persistent.text.spelling import spelled
from persistent.time.clock import Duration

_TIME: Final = "_timestamp"
_OWN: Final = pa.schema(
    [
        ("_session", pa.string()),
        ("_number", pa.int64()),
        ("_delivery", pa.string()),
        (_TIME, pa.timestamp("ms", "UTC")),
    ]
)


class TopicSource(OffsetSource):
    """The messages of ``topic`` from the ``TopicSender`` at ``address``, through the journal at ``journal``: a path or
    URL, or a ``SegmentedLog``.

    ``join``: how to join, and to recover missing messages. ``format``: "json", one object per message; or "bytes", one
    column ``value``. ``schema``: the columns to read of a JSON object, as in ``FileSource``; by default those of the
    first messages. The source adds ``_session``, ``_number``, ``_delivery``, and ``_timestamp``, the time of
    publication by the sender's clock. ``timestamp``, ``timestamp_unit``,
    ``max_out_of_orderness``: as in ``KafkaSource``.
    """

    kind: str = "TopicSource"
    begins_again: bool = False
    """Its journal is cut off where no checkpoint needs it, and nothing else has the messages."""

    @spelled
    def __init__(
        self,
        address: str,
        topic: str,
        *,
        journal: str | os.PathLike[str] | Storage | SegmentedLog,
        join: JoinOptions | None = None,
        format: str = "json",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        timestamp: str = _TIME,
        timestamp_unit: str | None = None,
        max_out_of_orderness: Duration = 0,
    ) -> None:
        checked_address(address)
        if join is not None and not isinstance(join, JoinOptions):
            raise InvalidPipeline(f"join={join!r}: give JoinOptions(...), or None")
        self._address, self._topic, self._join = address, checked_topic(topic), join or JoinOptions()
        self._log = options.checked_journal(journal)
        self._records = LogSource(self._log, format="bytes")
        self.address = self._records.address
        self.reach = self._records.reach
        values = value_format(format, infers=schema is None)
        time = timestamp, timestamp_unit
        columns = MessageColumns(repr(self), values, schema, _OWN, time, noun="message", waits=True)
        super().__init__(columns, timestamp=timestamp, max_out_of_orderness=max_out_of_orderness)
        self._journal: TopicJournal | None = None
        self._stops: weakref.finalize[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"TopicSource({self._address!r}, {self._topic!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_journal": None, "_stops": None}

    # -- plans ---------------------------------------------------------------------------------------------------

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next: the journaled messages. Without ``follow``, those that were published when the run began,
        once they are journaled: with later ones a run would not end while somebody publishes. With ``follow``, a topic
        whose sender does not answer is not at its end."""
        self.require_recorded(state.recorded)
        journal = self._running()
        if follow:
            self._records.until = None
        elif self._records.until is None:
            while not journal.wait_until_even("1 s"):
                pass
            self._records.until = self._log.ends().next_number
        plan = self._records.plan(replace(state, recorded=_inner(state.recorded)), budget, follow=follow)
        if not plan.splits:
            journal.check(ends=budget.ends)
        is_searching = follow and journal.is_searching
        recorded = {"records": plan.recorded, "topic": self._topic}
        return self._described(state, replace(plan, recorded=recorded, held=plan.held or is_searching))

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        self.confirm(recorded)
        return self._records.kept({}, read)

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        return {"topic": self._topic}

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the journal that was read is not the one that was planned."""
        self._records.confirm(_inner(recorded))

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """False: a journal is only cut off where no checkpoint needs it."""
        return False

    def reached(self, state: SourceState) -> Reached:
        """How many of the journaled records have been read."""
        return self._records.reached(replace(state, recorded=_inner(state.recorded)))

    def guarantee(self) -> Promise:
        """Exactly-once, for all received messages."""
        return Promise(
            EXACTLY_ONCE,
            "a message is journaled once, with the place behind it; messages lost before are a dead letter, by range",
        )

    def warnings(self) -> tuple[str, ...]:
        """Warnings of the journal: that the beginning of the topic was missing."""
        return () if self._journal is None else self._journal.warnings

    def acknowledge(self, positions: Positions) -> None:
        """Cut off the journal before these positions."""
        ends = self._log.ends()
        number = max(positions.values(), default=0)
        if self._journal is not None and ends.first_number < number <= ends.next_number:
            self._log.truncate(self._log.position_of(number))

    def close(self) -> None:
        """Leave the topic. The next run resumes where the journal ends."""
        if self._journal is not None:
            self._journal.stop()
            if self._stops is not None:
                # Otherwise the finalizer would keep the journal of every run, with its receiver.
                self._stops.detach()
            self._journal = self._stops = self._records.until = None

    def _running(self) -> TopicJournal:
        if self._journal is None:
            self._journal = TopicJournal(self._log, self._address, self._topic, self._join)
            self._stops = weakref.finalize(self, self._journal.stop)
            self._journal.start()
        return self._journal

    # -- reading -------------------------------------------------------------------------------------------------

    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        """The first messages; nothing if there are only losses."""
        values: list[MessageValue] = []
        for batch in self._log.read(self._log.position_of(start)):
            records = self._decoded(batch.records.to_pylist())
            values += [record.payload for record in records if record.payload is not None]
            if len(values) >= SAMPLE_ROWS:
                break
        return values[:SAMPLE_ROWS]

    def _decoded(self, records: Sequence[bytes]) -> list[TopicRecord]:
        try:
            return [decode_record(record) for record in records]
        except ValueError as error:
            raise SourceChanged(
                f"{self!r}: {self._log.storage.url} holds {error}. Give the source its own journal"
            ) from error

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for records in self._records.read(split, _inner(recorded)):
            yield self._read(records, {"schema": [], **recorded})

    def _read(self, records: Records, recorded: Mapping[str, Any]) -> Records:
        """The messages of some records of the journal, and the losses between them."""
        entries = self._decoded(records.batch.column("value").to_pylist())
        there = [row for row, entry in enumerate(entries) if entry.payload is not None]
        messages = [entries[row] for row in there]
        added = {
            "_session": pa.array([message.session for message in messages], pa.string()),
            "_number": pa.array([message.number for message in messages], pa.int64()),
            "_delivery": pa.array([message.delivery for message in messages], pa.string()),
            _TIME: pa.array([message.time for message in messages], pa.int64()).cast(_OWN.field(_TIME).type),
        }
        payloads = WholeColumns([one.payload for one in messages], records.offsets[np.asarray(there, np.int64)], added)
        lost = [
            DeadRecord(0, int(records.offsets[row]), entry.why, b"")
            for row, entry in enumerate(entries)
            if entry.payload is None
        ]
        return self._columns.records(payloads, recorded, lost)


def _inner(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of the journal's own source."""
    inner: Mapping[str, Any] = recorded.get("records", {})
    return inner
