"""A source of a RabbitMQ queue reads the journal to which a pump writes the messages of the queue.

A queue forgets acknowledged messages and can deliver the others in another order, so it cannot be read twice. Its
journal can. Positions are the numbers of its records. If the journal is lost while messages are acknowledged only by
checkpoints, another journal replaces it as a new partition: the broker still has all messages that no checkpoint has
counted.

Journaled messages as columns: those of their bodies, and beside them the broker's facts about each.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.connect import options
from persistent.connect.formats.message_columns import DEAD_BYTES_MAX, MessageColumns, WholeColumns, first_records
from persistent.connect.formats.schemas import from_option
from persistent.connect.formats.values import MessageValue, value_format
from persistent.connect.offsets import UNCONFIRMED, Kept, OffsetPlans
from persistent.connect.promises import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq import pump as rabbit_pump
from persistent.connect.rabbitmq.frames import FIXED, columns_of, taken_apart
from persistent.connect.rabbitmq.journal import QueueJournal, QueueMark, partition_of
from persistent.connect.rabbitmq.link import PumpOrder, QueueEvent, RabbitPlace, patience
from persistent.connect.rabbitmq.pump import Pump
from persistent.connect.rabbitmq.topology import Queue, Topology
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
from persistent.errors import InvalidPipeline, SourceChanged
from persistent.messaging.log.cursor import LogBatch, grouped
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage import Storage
from persistent.storage.places import Reach
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, bare, option_ms

TIME: Final = pa.field("_timestamp", pa.timestamp("ms", "UTC"))


@dataclass
class JournaledMessages:
    """The messages in ``journal``, read by the source's options. ``place``: names the source in errors."""

    place: str
    journal: SegmentedLog
    format: str
    schema_option: pa.Schema | Mapping[str, Any] | None
    headers: pa.Schema | Mapping[str, Any] | None
    timestamp: str
    timestamp_unit: str | None

    def __post_init__(self) -> None:
        self._headers = pa.schema([]) if self.headers is None else from_option(self.headers)
        self._added = pa.schema([*(pa.field(name, kind) for name, kind in FIXED.items()), *self._headers, TIME])
        values = value_format(self.format, infers=self.schema_option is None)
        time = self.timestamp, self.timestamp_unit
        self._columns = MessageColumns(self.place, values, self.schema_option, self._added, time, noun="message")

    def columns(self, recorded: Mapping[str, Any], splits: Sequence[Split]) -> dict[str, Any]:
        """The column facts that a plan with these splits records."""
        return self._columns.described(recorded, bool(splits), partial(self._samples, splits))

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns, from the record of a plan: of the bodies, then of the messages."""
        self.require_recorded(recorded)
        return self._columns.schema(recorded)

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        """InvalidPipeline for options that a job must not change."""
        self._columns.require_recorded(recorded)

    def _samples(self, splits: Sequence[Split]) -> Iterator[list[MessageValue]]:
        """The first bodies, however large the step and however many its workers."""
        yield [*self._taken_apart(first_records(self.journal, splits[0].spans[0].start))[1]]

    def _taken_apart(self, frames: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
        try:
            return taken_apart(frames)
        except ValueError as error:
            raise SourceChanged(
                f"{self.place}: {self.journal.storage.url} is another log: {error}. Give the source a journal "
                "of its own"
            ) from error

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        """The records of a split."""
        for span in split.spans:
            for batches in grouped(self._batches(span.start, span.stop)):
                yield self._records(batches, recorded)

    def _batches(self, start: int, stop: int) -> Iterator[LogBatch]:
        """The records ``start <= number < stop``, cut from their entries."""
        for batch in self.journal.read(self.journal.position_of(start), whole=True) if start < stop else ():
            if len(batch):
                yield batch[: stop - batch.number]
                start = batch.number + len(batch)
            if start >= stop:
                return
        if start < stop:
            raise SourceChanged(
                f"{self.place}: a step was planned up to record {stop:,}, but the journal ends at {start:,}"
            )

    def _records(self, batches: Sequence[LogBatch], recorded: Mapping[str, Any]) -> Records:
        messages, bodies = self._taken_apart(pa.concat_arrays([batch.records for batch in batches]).to_pylist())
        first = batches[0].number
        times = np.concatenate([batch.times for batch in batches])
        alive = np.array([row for row, message in enumerate(messages) if "dead" not in message], np.int64)
        columns = columns_of([messages[row] for row in alive.tolist()], self._headers)
        journaled = pa.array(times[alive], pa.int64()).cast(TIME.type)
        added = dict(zip(self._added.names, [*columns, journaled], strict=True))
        gathering = WholeColumns([bodies[row] for row in alive.tolist()], first + alive, added)
        dead = [
            DeadRecord(0, first + row, message["dead"], bodies[row][:DEAD_BYTES_MAX])
            for row, message in enumerate(messages)
            if "dead" in message
        ]
        return self._columns.records(gathering, recorded, dead)


_MODES: Final = (rabbit_pump.JOURNAL, rabbit_pump.CHECKPOINT, rabbit_pump.AT_MOST_ONCE)
_PREFETCH_MAX: Final = 65_535


class RabbitQueueSource(Source):
    """The messages of a queue, through the journal at ``journal``: a path or URL, or a ``SegmentedLog``.

    ``url``: "amqp://user:password@host:5672/virtual-host". ``queue``: the name of an existing queue, or a ``Queue`` to
    declare; ``topology``: what else to declare.

    ``acknowledge``: when to acknowledge a message: "journal", once it is journaled; "checkpoint", once a checkpoint has
    counted it, so a lost journal loses nothing; or "at-most-once": before it is journaled, and redelivered messages are
    dropped. ``prefetch``: the most messages that can be delivered but unacknowledged.

    ``format``, ``schema``: of the bodies, as in ``KafkaSource``. The source adds ``_message_id``, ``_routing_key``,
    ``_sent`` (the publisher's time), ``_timestamp`` (when it was journaled), and the ``headers``, a mapping of header
    names to types.

    ``timestamp``: the column with the event time, by default ``_timestamp``; ``timestamp_unit``, as in ``FileSource``.
    ``max_out_of_orderness``: how far, in event time, a message can come behind a later one. ``connect_timeout``: how
    long to wait for a broker at the start of a run; ``server_away``: how long during it, with an attempt every
    ``recovery_interval``. ``consumer_timeout``: the setting of the broker. ``on_oversized``: a message of more than
    16 MiB stops the run, "fail"; or is a "dead-letter", of which only the first MiB is kept. ``on_event`` is called, in
    a thread of its own, with a ``QueueEvent`` when the connection is made, lost or recovered.
    """

    forgets = True

    kind: str = "RabbitQueueSource"
    codec: str = "offset/1"
    begins_again: bool = False
    """Its journal is cut off where no checkpoint needs it, and nothing else has the messages."""

    @spelled
    def __init__(
        self,
        url: str,
        queue: str | Queue,
        *,
        journal: str | os.PathLike[str] | Storage | SegmentedLog,
        acknowledge: str = rabbit_pump.JOURNAL,
        topology: Topology | None = None,
        prefetch: int = 1_000,
        format: str = "json",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        headers: pa.Schema | Mapping[str, Any] | None = None,
        timestamp: str = TIME.name,
        timestamp_unit: str | None = None,
        max_out_of_orderness: Duration = 0,
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        recovery_interval: Duration = "5 s",
        consumer_timeout: Duration = "30 min",
        on_oversized: str = "fail",
        on_event: Callable[[QueueEvent], None] | None = None,
    ) -> None:
        options.require_choice("acknowledge", acknowledge, _MODES)
        options.require_choice("on_oversized", on_oversized, ("fail", "dead-letter"))
        if not isinstance(prefetch, int) or isinstance(prefetch, bool) or not 1 <= prefetch <= _PREFETCH_MAX:
            raise InvalidPipeline(f"prefetch={prefetch!r}: give 1 to {_PREFETCH_MAX:,} messages")
        named = _checked_queue(queue, acknowledge)
        self.journal = options.checked_journal(journal)
        storage = self.journal.storage
        self.reach = Reach.NETWORK if not storage.local else Reach.MACHINE if storage.shared else Reach.PROCESS
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        self._order = PumpOrder(
            place=RabbitPlace(url),
            queue=named,
            declared=isinstance(queue, Queue),
            topology=_checked_topology(topology),
            acknowledge=acknowledge,
            prefetch=prefetch,
            patience=patience(connect_timeout, server_away, recovery_interval),
            consumer_timeout_ms=option_ms(consumer_timeout, "consumer_timeout"),
            on_event=on_event,
            cuts=on_oversized == "dead-letter",
        )
        self.address = repr(self._order)
        self._acknowledge = acknowledge
        owner = QueueMark(named.name, self._order.place.virtual_host)
        replaces = acknowledge == rabbit_pump.CHECKPOINT
        self._owned = QueueJournal(repr(self), self.journal, owner, replaces=replaces)
        self._messages = JournaledMessages(repr(self), self.journal, format, schema, headers, timestamp, timestamp_unit)
        self._plans = OffsetPlans(repr(self), on_gap="fail", idle_timeout_ms=None)
        self._pump: Pump | None = None

    def __repr__(self) -> str:
        return f"RabbitQueueSource({self._order.place.said!r}, {self._order.queue.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pump": None, "_order": replace(self._order, on_event=None)}

    # -- plans ---------------------------------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        """Empty: a journal joins with the first plan."""
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next: the journaled messages; without ``follow``, once the queue is empty. For no job: only the
        journaled messages."""
        self._messages.require_recorded(state.recorded)
        journals = self._pumped(state, budget, follow=follow) if state.job else self._owned.look(state)
        current, ends = partition_of(len(journals)), self.journal.ends()
        lost = {partition: Kept(at, at) for partition, at in state.positions.items() if partition != current}
        kept = {**lost, current: Kept(ends.first_number, ends.next_number)}
        plan = self._plans.plan(state, budget, kept, lambda new: dict.fromkeys(new, 0))
        columns = self._messages.columns(state.recorded, plan.splits)
        confirmed = self._pump and self._pump.confirmed
        if confirmed and plan.end[current] >= confirmed[0]:
            columns[UNCONFIRMED] = confirmed[1]
        facts = {UNCONFIRMED: 0, **plan.recorded, **columns}
        recorded = self._owned.recorded(facts, journals, state, plan.end[current])
        waits = {partition: cap for partition, cap in plan.cap.items() if partition not in lost}
        is_held_back = self._pump is not None and self._pump.is_held_back
        return replace(plan, recorded=recorded, cap=waits, idle=tuple(sorted({*plan.idle, *lost})), held=is_held_back)

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same messages, decoded by the present options. SourceChanged if they are in another journal."""
        self._messages.require_recorded(state.recorded)
        self._owned.look(state)
        self._owned.require_same(put.recorded)
        return replace(put, recorded={**put.recorded, **self._messages.columns(state.recorded, put.splits)})

    def _pumped(self, state: SourceState, budget: Budget, *, follow: bool) -> list[str]:
        """The ids of the journals, once the present one has what the queue has."""
        if self._pump is not None:
            self._pump.check()
        journals = self._owned.open(state)
        counted = state.positions.get(partition_of(len(journals)), 0)
        pump = self._running(is_first=len(journals) == 1)
        if follow:
            pump.wait_until_ready(counted)
        else:
            pump.wait_until_drained(counted, counted + max(budget.rows, 1))
        return journals

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the journal that was read is not the one that was planned."""
        self._owned.confirm(recorded)

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether a plan reads a lost journal, and the broker still has all that no checkpoint has counted."""
        return bool(splits) and self._owned.is_replaced(recorded)

    def reached(self, state: SourceState) -> Reached:
        """How many of the journaled records have been read."""
        current = partition_of(len(state.recorded.get("journals", ())) or 1)
        done = sum(state.positions.values())
        return Reached(done, done - state.positions.get(current, 0) + self.journal.ends().next_number, "rows")

    def guarantee(self) -> Promise:
        """At-least-once, or at-most-once: a redelivered message cannot be recognised."""
        if self._acknowledge == rabbit_pump.AT_MOST_ONCE:
            return Promise(
                AT_MOST_ONCE, "a message is acknowledged before it is journaled, and dropped if it is redelivered"
            )
        return Promise(
            AT_LEAST_ONCE,
            "a message is journaled twice if its acknowledgement is lost; exactly-once with "
            "dedupe=Dedupe.by_id('_message_id'), if publishers give each message an id",
        )

    def guarantee_deduplicated(self) -> Promise:
        """With ``dedupe``: exactly-once, unless the source can lose messages."""
        if self._acknowledge == rabbit_pump.AT_MOST_ONCE:
            return self.guarantee()
        return Promise(EXACTLY_ONCE, "messages are journaled before they are acknowledged, and copies are recognised")

    def warnings(self) -> tuple[str, ...]:
        """Warnings about the queue."""
        pump = self._pump
        if pump is None:
            return ()
        dropped = f"{self!r}: {pump.dropped:,} redelivered messages were dropped (at-most-once)"
        return (*pump.warnings.values(), *([dropped] if pump.dropped else []))

    def acknowledge(self, positions: Positions) -> None:
        """Cut off the journal before these positions."""
        self._owned.cut(positions)

    def release_journal(self) -> None:
        """Make the journal free for another queue or job, when the one that it belongs to is done with for good."""
        self._owned.release()

    def close(self) -> None:
        """Close the connection: unacknowledged messages return to the queue."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None
        self._owned.close()

    def _running(self, *, is_first: bool) -> Pump:
        if self._pump is None:
            assert self._owned.writer is not None
            self._pump = Pump(self._order, self._owned.writer, is_first=is_first and not self._owned.writer.number)
            weakref.finalize(self, self._pump.stop)
            self._pump.start()
        return self._pump

    # -- reading -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return self._messages.schema(recorded)

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self._owned.require_same(recorded)
        return self._messages.read(split, recorded)


def _checked_queue(queue: Any, acknowledge: str) -> Queue:
    if isinstance(queue, str) and queue:
        return Queue(queue)
    if not isinstance(queue, Queue):
        raise InvalidPipeline(f"queue={queue!r}: give the name of an existing queue, or Queue(...) to declare one")
    if not queue.name and acknowledge != rabbit_pump.AT_MOST_ONCE:
        raise InvalidPipeline(
            f"{queue!r} is deleted with its connection, and its messages are lost: give it a name; or give "
            'acknowledge="at-most-once"'
        )
    if queue.drops and acknowledge != rabbit_pump.AT_MOST_ONCE:
        raise InvalidPipeline(
            f"queue {queue.name!r}: delivery_limit={queue.said['x-delivery-limit']} deletes messages for good when "
            "runs die that often: give it a dead_letter_exchange=, or omit the limit"
        )
    return queue


def _checked_topology(topology: Any) -> Topology:
    if topology is not None and not isinstance(topology, Topology):
        raise InvalidPipeline(f"topology={topology!r}: give Topology(exchanges=..., queues=..., bindings=...)")
    return topology or Topology()
