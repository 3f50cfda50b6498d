"""A source of a RabbitMQ queue reads the journal to which a pump writes the messages of the queue.

A queue forgets acknowledged messages and can deliver the others in another order, so it cannot be read twice. Its
journal can. Positions are the numbers of its records. If the journal is lost while messages are acknowledged only by
checkpoints, another journal replaces it as a new partition: the broker still has all messages that no checkpoint has
counted.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from persistent.clients.kept import Kept
from persistent.clients.rabbit_link import RabbitPlace, patience
from persistent.clients.rabbit_topology import Queue, Topology
from persistent.clock import Duration, bare, duration_ms
from persistent.errors import InvalidPipeline, RetentionGap, SourceChanged
from persistent.log import SegmentedLog
from persistent.promises import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Promise
from persistent.sources import options, rabbit_pump
from persistent.sources.offsets import OffsetPlans
from persistent.sources.protocol import (
    Budget,
    Positions,
    Reached,
    Records,
    SourcePlan,
    SourceState,
    Split,
)
from persistent.sources.rabbit_messages import TIME, JournaledMessages
from persistent.sources.rabbit_pump import Pump, PumpOrder, QueueEvent
from persistent.storage import Storage
from persistent.storage.places import Reach
from persistent.text.spelling import spelled

_PARTITION: Final = "journal"
_MODES: Final = (rabbit_pump.JOURNAL, rabbit_pump.CHECKPOINT, rabbit_pump.AT_MOST_ONCE)
_PREFETCH_MAX: Final = 65_535


class RabbitQueueSource:
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
    ``recovery_interval``. ``consumer_timeout``: the setting of the broker. ``on_event`` is called, in a thread of its
    own, with a ``QueueEvent`` when the connection is made, lost or recovered.
    """

    kind: str = "RabbitQueueSource"
    codec: str = "offset/1"

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
        on_event: Callable[[QueueEvent], None] | None = None,
    ) -> None:
        options.require_choice("acknowledge", acknowledge, _MODES)
        if not isinstance(prefetch, int) or isinstance(prefetch, bool) or not 1 <= prefetch <= _PREFETCH_MAX:
            raise InvalidPipeline(f"prefetch={prefetch!r}: give 1 to {_PREFETCH_MAX:,} messages")
        named = _checked_queue(queue, acknowledge)
        self.journal = options.checked_journal(journal)
        storage = self.journal.storage
        self.reach = Reach.NETWORK if not storage.local else Reach.MACHINE if storage.shared else Reach.PROCESS
        self.max_out_of_orderness: int = options.disorder_ms(max_out_of_orderness)
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)
        self._order = PumpOrder(
            place=RabbitPlace(url),
            queue=named,
            declared=isinstance(queue, Queue),
            topology=_checked_topology(topology),
            journal=self.journal,
            acknowledge=acknowledge,
            prefetch=prefetch,
            patience=patience(connect_timeout, server_away, recovery_interval),
            consumer_timeout_ms=_milliseconds(consumer_timeout, "consumer_timeout"),
            on_event=on_event,
        )
        self.address = repr(self._order)
        self._acknowledge = acknowledge
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
        """What to read next: the journaled messages; without ``follow``, once the queue is empty."""
        self._messages.require_recorded(state.recorded)
        journals = self._journals(state)
        current = _partition(len(journals) or 1)
        begin = state.positions.get(current, 0)
        pump = self._running()
        pump.committed(begin)
        pump.wait_until_ready() if follow else pump.wait_until_drained(begin + max(budget.rows, 1))
        journals = journals or [self.journal.id]
        ends = self.journal.ends()
        lost = {one: Kept(at, at) for one, at in state.positions.items() if one != current}
        kept = {**lost, current: Kept(ends.first_number, max(ends.next_number, min(begin, ends.whole_number)))}
        if begin < ends.first_number:
            raise self._gap(f"a checkpoint at record {begin:,}", f"begins with record {ends.first_number:,}")
        plan = self._plans.plan(state, budget, kept, lambda new: dict.fromkeys(new, 0))
        columns = self._messages.columns(state.recorded, plan.splits)
        recorded = {**plan.recorded, **columns, "journals": journals, "log": journals[-1]}
        waits = {one: cap for one, cap in plan.cap.items() if one not in lost}
        return replace(plan, recorded=recorded, cap=waits, idle=tuple(sorted({*plan.idle, *lost})))

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the journal that was read is not the one that was planned."""
        self._require_same(recorded)

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether a plan reads a lost journal, and the broker still has all that no checkpoint has counted."""
        journals = recorded.get("journals") or [""]
        is_lost = bool(splits) and self.journal.id != journals[-1]
        return is_lost and self._acknowledge == rabbit_pump.CHECKPOINT and self._is_next(journals, self.journal.id)

    def reached(self, state: SourceState) -> Reached:
        """How many of the journaled records have been read."""
        current = _partition(len(state.recorded.get("journals", ())) or 1)
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
        held = [one for one in positions if one == _PARTITION or one.startswith(f"{_PARTITION}-")]
        number = positions[max(held, key=_index)] if held else 0
        ends = self.journal.ends()
        if self._pump is not None and ends.first_number < number <= ends.next_number:
            self.journal.truncate(self.journal.position_of(number))

    def close(self) -> None:
        """Close the connection: unacknowledged messages return to the queue."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None

    def _running(self) -> Pump:
        if self._pump is None:
            self._pump = Pump(self._order)
            weakref.finalize(self, self._pump.stop)
            self._pump.start()
        return self._pump

    # -- which journal -------------------------------------------------------------------------------------------

    def _journals(self, state: SourceState) -> list[str]:
        """The ids of the journals that this job has read; the last one is the present journal."""
        known: list[str] = list(state.recorded.get("journals", ()))
        found = self.journal.id
        if not found:
            begins = known and self._acknowledge == rabbit_pump.CHECKPOINT
            self._begin(known, state.positions) if begins or not known else self._raise_lost(known, found)
            found = self.journal.id
        if found == (known or [found])[-1] and (known or not self.journal.mark()):
            if not state.positions.get(_partition(len(known) or 1), 0):
                # A checkpoint that has counted records of this journal has counted all before its beginning.
                self._require_counted(len(known) - 1, state.positions)
            return [*known[:-1], found]
        if not known:
            raise self._gap("a checkpoint without records", "replaced a lost one")
        if self._acknowledge != rabbit_pump.CHECKPOINT or not self._is_next(known, found):
            self._raise_lost(known, found)
        self._require_counted(len(known), state.positions)
        return [*known, found]

    def _require_counted(self, before: int, positions: Positions) -> None:
        """RetentionGap if the present journal replaced the one that is number ``before`` of this job, and more of that
        was counted than this checkpoint has. After a rollback, the recorded journals can be newer than the
        positions."""
        mark = self.journal.mark() if before > 0 else b""
        at, counted = json.loads(mark)["at"] if mark else 0, positions.get(_partition(before), 0)
        if counted < at:
            raise self._gap(
                f"a checkpoint at record {counted:,} of the previous journal",
                f"replaced it when {at:,} records had been counted",
            )

    def _begin(self, known: Sequence[str], positions: Positions) -> None:
        """Make a journal. A replacement records which journals it follows, and how far the last was counted."""
        with self.journal.writer() as writer:
            if known:
                at = positions.get(_partition(len(known)), 0)
                writer.append_many([], mark=json.dumps({"after": list(known), "at": at}).encode())

    def _gap(self, checkpoint: str, journal: str) -> RetentionGap:
        return RetentionGap(
            f"{self!r}: {checkpoint} cannot continue with the journal in {self.journal.storage.url}, which {journal}: "
            "the messages in between are gone, from the queue too. Continue from a later checkpoint; or begin a new "
            "one, with a new journal="
        )

    def _is_next(self, known: Sequence[str], found: str) -> bool:
        mark = self.journal.mark() if found else b""
        return not found or (bool(mark) and json.loads(mark).get("after") == list(known))

    def _raise_lost(self, known: Sequence[str], found: str) -> None:
        raise SourceChanged(
            f"{self!r}: the checkpoint has read the journal {known[-1]}, but {self.journal.storage.url} holds "
            f"{found or 'none'}. Give the source that journal, journal=; acknowledged messages exist only "
            "there, unless "
            'acknowledge="checkpoint" was set from the beginning'
        )

    def _require_same(self, recorded: Mapping[str, Any]) -> None:
        known = recorded.get("journals") or [""]
        if self.journal.id != known[-1]:
            self._raise_lost(known, self.journal.id)

    # -- reading -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return self._messages.schema(recorded)

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        self._require_same(recorded)
        return self._messages.read(split, recorded)


def _partition(count: int) -> str:
    """The partition name of the last of ``count`` journals.

    >>> _partition(1), _partition(2)
    ('journal', 'journal-2')
    """
    return _PARTITION if count == 1 else f"{_PARTITION}-{count}"


def _index(partition: str) -> int:
    return int(partition.rpartition("-")[2]) if "-" in partition else 1


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


def _milliseconds(value: Any, name: str) -> int:
    try:
        return duration_ms(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error
