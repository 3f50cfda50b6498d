"""A source of a RabbitMQ queue reads the journal to which a pump writes the messages of the queue.

A queue forgets acknowledged messages and can deliver the others in another order, so it cannot be read twice. Its
journal can. Positions are the numbers of its records. If the journal is lost while messages are acknowledged only by
checkpoints, another journal replaces it as a new partition: the broker still has all messages that no checkpoint has
counted.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect import options
from persistent.connect.formats.values import MessageValue
from persistent.connect.offset_source import OffsetSource
from persistent.connect.offsets import UNCONFIRMED, Kept
from persistent.connect.promises import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Promise
from persistent.connect.rabbitmq import pump as rabbit_pump
from persistent.connect.rabbitmq.frames import JournaledMessages
from persistent.connect.rabbitmq.journal import QueueJournal, QueueMark, partition_of
from persistent.connect.rabbitmq.link import PumpOrder, QueueEvent, RabbitPlace, patience
from persistent.connect.rabbitmq.pump import Pump
from persistent.connect.rabbitmq.topology import Queue, Topology, checked_queue, checked_topology
from persistent.connect.source import Budget, Reached, Records, SourcePlan, SourceState, Split
from persistent.errors import InvalidPipeline
from persistent.messaging.log.segmented import SegmentedLog
from persistent.storage.protocol import Storage
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, option_ms

_MODES: Final = (rabbit_pump.JOURNAL, rabbit_pump.CHECKPOINT, rabbit_pump.AT_MOST_ONCE)
_PREFETCH_MAX: Final = 65_535


class RabbitQueueSource(OffsetSource):
    """The messages of a queue, through the journal at ``journal``: a path or URL, or a ``SegmentedLog``.

    ``url``: "amqp://user:password@host:5672/virtual-host". ``queue``: the name of an existing queue, or a ``Queue`` to
    declare; ``topology``: what else to declare.

    ``acknowledge``: when to acknowledge a message: "journal", once it is journaled; "checkpoint", once a checkpoint has
    counted it, so a lost journal loses nothing; or "at-most-once": before it is journaled, and redelivered messages are
    dropped. ``prefetch``: the most messages that can be delivered but unacknowledged.

    ``format``, ``schema``: of the bodies, as in ``KafkaSource``. The source adds ``_message_id``, ``_routing_key``,
    ``_sent`` (the publisher's time), ``_timestamp`` (when it was journaled), and the ``headers``, a mapping of header
    names to types.

    ``timestamp``, ``timestamp_unit``, ``max_out_of_orderness``, ``connect_timeout``, ``server_away``: as in
    ``KafkaSource``; a lost connection is made again every ``recovery_interval``. ``consumer_timeout``: the setting of
    the broker. ``on_oversized``: a message of more than 16 MiB stops the run, "fail"; or is a "dead-letter", of which
    only the first MiB is kept. ``on_event`` is called, in a thread of its own, with a ``QueueEvent`` when the
    connection is made, lost or recovered.
    """

    kind: str = "RabbitQueueSource"
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
        timestamp: str = "_timestamp",
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
        self._may_drop = acknowledge == rabbit_pump.AT_MOST_ONCE
        named = checked_queue(queue, may_drop=self._may_drop)
        self.journal = options.checked_journal(journal)
        self.reach = self.journal.reach
        self._order = PumpOrder(
            place=RabbitPlace(url),
            queue=named,
            declared=isinstance(queue, Queue),
            topology=checked_topology(topology),
            acknowledge=acknowledge,
            prefetch=prefetch,
            patience=patience(connect_timeout, server_away, recovery_interval),
            consumer_timeout_ms=option_ms(consumer_timeout, "consumer_timeout"),
            on_event=on_event,
            cuts=on_oversized == "dead-letter",
        )
        self.address = repr(self._order)
        owner, replaces = QueueMark(named.name, self._order.place.virtual_host), acknowledge == rabbit_pump.CHECKPOINT
        self._owned = QueueJournal(repr(self), self.journal, owner, replaces=replaces)
        time = timestamp, timestamp_unit
        self._messages = JournaledMessages(repr(self), self.journal, format, schema, headers, time)
        super().__init__(self._messages, timestamp=timestamp, max_out_of_orderness=max_out_of_orderness)
        self._journals: list[str] = []
        self._pump: Pump | None = None

    def __repr__(self) -> str:
        return f"RabbitQueueSource({self._order.place.said!r}, {self._order.queue.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pump": None, "_order": replace(self._order, on_event=None)}

    # -- plans ---------------------------------------------------------------------------------------------------

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next: the journaled messages; without ``follow``, once the queue is empty. For no job: only the
        journaled messages."""
        self.require_recorded(state.recorded)
        journals = self._pumped(state, budget, follow=follow) if state.job else self._owned.look(state)
        self._journals, current = journals, partition_of(len(journals))
        plan = super().plan(state, budget, follow=follow)
        lost, end = plan.end.keys() - {current}, plan.end[current]
        confirmed = self._pump and self._pump.confirmed
        facts = {UNCONFIRMED: 0, **plan.recorded}
        if confirmed and end >= confirmed[0]:
            facts[UNCONFIRMED] = confirmed[1]
        return replace(
            plan,
            recorded=self._owned.recorded(facts, journals, state, end),
            cap={partition: cap for partition, cap in plan.cap.items() if partition not in lost},
            idle=tuple(sorted({*plan.idle, *lost})),
            held=self._pump is not None and self._pump.is_held_back,
        )

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same messages, decoded by the present options. SourceChanged if they are in another journal."""
        self._journals = self._owned.look(state)
        self._owned.require_same(put.recorded)
        return super().corrected(state, put)

    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        """The present journal, and the lost ones, which are read."""
        current, ends = partition_of(len(self._journals) or 1), self.journal.ends()
        lost = {partition: Kept(at, at) for partition, at in read.items() if partition != current}
        return {**lost, current: Kept(ends.first_number, ends.next_number)}

    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        return {}

    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        return self._messages.sample(start) if partition == partition_of(len(self._journals)) else ()

    def _begins(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(partitions, 0)

    def _pumped(self, state: SourceState, budget: Budget, *, follow: bool) -> list[str]:
        """The ids of the journals, once the present one has what the queue has."""
        if self._pump is not None:
            self._pump.check()
        journals = self._owned.open(state)
        counted = state.positions.get(partition_of(len(journals)), 0)
        if self._pump is None:
            assert self._owned.writer is not None
            is_first = len(journals) == 1 and not self._owned.writer.number
            self._pump = Pump(self._order, self._owned.writer, is_first=is_first)
            weakref.finalize(self, self._pump.stop)
            self._pump.start()
        if follow:
            self._pump.wait_until_ready(counted)
        else:
            self._pump.wait_until_drained(counted, counted + max(budget.rows, 1))
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
        if self._may_drop:
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
        if self._may_drop:
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

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self._owned.require_same(recorded)
        return self._messages.read(split, recorded)
