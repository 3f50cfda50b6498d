"""A queue journal is the log that holds the messages of one queue for one job. The broker has forgotten them, so the
journal is compared with the checkpoint before anything is taken from the queue.

Its mark says whose it is: the queue, by its virtual host and name, because the address of a broker changes; the job
whose checkpoint has read it, by its id, because folders move; and which lost journals it replaces.

A counted message is acknowledged: only the journal still has it. A rollback, or a start from a savepoint, goes back to
a checkpoint that has not counted it. ``acknowledged`` in the record of a plan says up to which record such a checkpoint
needs the journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from persistent.codec.fields import Positions
from persistent.connect.log.source import LastRecord
from persistent.connect.rabbitmq.frames import taken_apart
from persistent.connect.source import SourceState
from persistent.errors import InvalidPipeline, RetentionGap, SourceChanged
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import LogWriter

_PARTITION: Final = "journal"


@dataclass(frozen=True)
class QueueMark:
    """``queue``, ``host``: of the messages. ``job``: the job whose checkpoint has read them. ``after``: the lost
    journals that this one replaces; ``at``: how many records of the last of them were counted. Empty: none, or not
    known."""

    queue: str = ""
    host: str = ""
    job: str = ""
    after: tuple[str, ...] = ()
    at: int = 0

    def encoded(self) -> bytes:
        return json.dumps({name: value for name, value in asdict(self).items() if value}).encode()

    @staticmethod
    def decoded(data: bytes) -> QueueMark:
        """The mark of a journal. ValueError for that of another log.

        >>> QueueMark.decoded(QueueMark("views", "/", at=3).encoded()), QueueMark.decoded(b"") == QueueMark()
        (QueueMark(queue='views', host='/', job='', after=(), at=3), True)
        """
        fields = json.loads(data or b"{}")
        if not isinstance(fields, dict) or fields.keys() - QueueMark.__dataclass_fields__.keys():
            raise ValueError("the mark of another log")
        return QueueMark(**{**fields, "after": tuple(fields.get("after", ()))})


class QueueJournal:
    """The journal in ``log`` of the queue that ``owner`` names. ``place``: names the source in errors. ``replaces``:
    whether a new journal replaces a lost one, because the broker still has what was not counted. ``writer``: while the
    job runs."""

    def __init__(self, place: str, log: SegmentedLog, owner: QueueMark, *, replaces: bool) -> None:
        self.log = log
        self.writer: LogWriter | None = None
        self._place, self._owner, self._replaces = place, owner, replaces
        self._partition = _PARTITION
        self._taken_over = 0
        self._last = LastRecord(place, log, "Restore the newest copy: acknowledged messages exist only there")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "writer": None}

    def open(self, state: SourceState) -> list[str]:
        """``look``, then open the journal for writing: create it if there is none, and fence earlier writers. The ids,
        as of ``look``."""
        if self.writer is None:
            self.look(state)
            self.writer = self.log.writer()
            self._taken_over = self.writer.number
        ids, mark, known = self.look(state), self._mark(), _known(state.recorded)
        wanted = replace(mark, queue=self._owner.queue, host=self._owner.host)
        if known:
            # A job without a checkpoint may never run again, so its id does not claim the journal.
            wanted = replace(wanted, job=state.job)
        if known and self._is_blank(mark) and ids != known:
            wanted = replace(wanted, after=tuple(known), at=state.positions.get(partition_of(len(known)), 0))
        if wanted != mark:
            self.writer.append_many([], mark=wanted.encoded())
        self._partition = partition_of(len(ids))
        return ids

    def look(self, state: SourceState) -> list[str]:
        """The ids of the journals that the job reads. The last one is the present journal, "" if it does not exist.
        InvalidPipeline, SourceChanged or RetentionGap if the job cannot continue with it; changes nothing."""
        mark = self._mark()
        self._require_own(mark, state)
        ids = self._ids(mark, state)
        self._require_all(ids, mark, state)
        return ids

    def close(self) -> None:
        """End the writer."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()

    def release(self) -> None:
        """Make the journal free for another queue or job."""
        if self.log.id:
            with self.log.writer() as writer:
                mark = replace(self._decoded(writer.mark), queue="", host="", job="")
                writer.append_many([], mark=mark.encoded())

    def cut(self, positions: Positions) -> None:
        """Cut off the records before these positions."""
        number, ends = positions.get(self._partition, 0), self.log.ends()
        if self.writer is not None and ends.first_number < number <= ends.next_number:
            self.log.truncate(self.log.position_of(number))

    # -- what a plan records -------------------------------------------------------------------------------------

    def recorded(self, planned: Mapping[str, Any], ids: list[str], state: SourceState, end: int) -> dict[str, Any]:
        """The record of a plan, which reads the present journal up to ``end``."""
        before, record = state.recorded, {**planned, "journals": ids, "log": ids[-1]}
        known = _known(before)
        if state.job:
            record |= {"job": state.job, "replaces": self._replaces}
        if known and self._taken_over and not _is_sure(state):
            # All that the journal held when it was taken over may have been acknowledged.
            record["acknowledged"] = {**before.get("acknowledged", {}), self._partition: self._taken_over}
        if ids != known:
            before = {}
            record.pop("last", None)
        return {**record, **self._last.recorded(before, end)}

    def require_same(self, recorded: Mapping[str, Any]) -> None:
        """SourceChanged unless the present journal is the one of a plan."""
        known = _known(recorded) or [""]
        if self.log.id != known[-1]:
            self._raise_lost(known)

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """SourceChanged unless the present journal is the one of a plan, and has its last record."""
        self.require_same(recorded)
        self._last.require_same(recorded, recorded.get("last", (-1,))[0] + 1)

    def is_replaced(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the journal of a plan is lost, and the broker still has all that no checkpoint has counted."""
        known, mark = _known(recorded) or [""], self._mark()
        # Another journal may have been begun in its place before a new plan was put.
        is_next = self._is_next(mark, known) or mark.after == tuple(known[:-1])
        return self._replaces and bool(recorded.get("replaces")) and self.log.id != known[-1] and is_next

    # -- whose it is ---------------------------------------------------------------------------------------------

    def _mark(self) -> QueueMark:
        return self._decoded(self.log.mark() if self.writer is None else self.writer.mark)

    def _decoded(self, data: bytes) -> QueueMark:
        try:
            return QueueMark.decoded(data)
        except (ValueError, TypeError) as error:
            raise self._other_log() from error

    def _other_log(self) -> InvalidPipeline:
        return InvalidPipeline(
            f"{self._place}: {self.log.storage.url} is not the journal of a queue: give the source one of its own"
        )

    def _require_own(self, mark: QueueMark, state: SourceState) -> None:
        """InvalidPipeline if the journal belongs to another queue or job."""
        url, done_with = self.log.storage.url, "done with for good, release_journal() of this source makes it free"
        is_other = mark.queue and (mark.queue, mark.host) != (self._owner.queue, self._owner.host)
        if is_other and (mark.job or self.log.ends().whole_number):
            raise InvalidPipeline(
                f"{self._place}: {url} is the journal of the queue {mark.queue!r} in the virtual host {mark.host!r}: "
                f"give this queue a journal of its own. If that queue is {done_with}"
            )
        known = _known(state.recorded)
        heir = state.recorded.get("job", mark.job) if known else ""
        if mark.job and state.job and mark.job not in (state.job, heir):
            raise InvalidPipeline(
                f"{self._place}: the journal in {url} is read by another job ({mark.job}), which may have started from "
                "this one: messages would count in both, or be cut off unread. Give each job a queue and a journal of "
                f"its own. If that job is {done_with}"
            )
        if mark == QueueMark() and not known and not self._is_blank(mark):
            self._require_messages()

    def _require_messages(self) -> None:
        """InvalidPipeline if the first record of a log without a mark is not a message: somebody else writes there."""
        for batch in self.log.read():
            if len(batch):
                try:
                    taken_apart(batch.records[:1].to_pylist())
                except ValueError as error:
                    raise self._other_log() from error
                return

    # -- which journals a job reads ------------------------------------------------------------------------------

    def _ids(self, mark: QueueMark, state: SourceState) -> list[str]:
        known, log_id = _known(state.recorded), self.log.id
        if known[-1:] == [log_id]:
            return known
        if self._is_blank(mark):
            if known and not self._replaces:
                self._raise_lost(known)
            if known and not _is_sure(state):
                raise RetentionGap(
                    f"{self._place}: the journal {known[-1]} is not in {self.log.storage.url}, and no other can take "
                    "its place: this checkpoint started from another one, went back behind lost manifests, or is of an "
                    "earlier release or another acknowledge=, so what was acknowledged since is not known, and only "
                    "that journal has it. Give the source that journal, or a copy of it: journal="
                )
        elif not known and mark.after:
            raise self._gap("a checkpoint without records", "replaced a lost one")
        elif known and not (self._replaces and self._is_next(mark, known)):
            self._raise_lost(known)
        return [*known, log_id]

    def _is_blank(self, mark: QueueMark) -> bool:
        """Whether there is no journal yet: a crash can have left an empty one."""
        return mark == QueueMark() and not self.log.ends().whole_number

    def _is_next(self, mark: QueueMark, known: list[str]) -> bool:
        return mark.after == tuple(known) or self._is_blank(mark)

    def _require_all(self, ids: list[str], mark: QueueMark, state: SourceState) -> None:
        """Raise unless the journals still have all that this checkpoint has not counted."""
        current, ends, positions = partition_of(len(ids)), self.log.ends(), state.positions
        begin, acknowledged = positions.get(current, 0), dict(state.recorded.get("acknowledged", {}))
        if mark.after and not begin:
            # A checkpoint that has counted records of this journal has counted all before its beginning.
            before = partition_of(len(ids) - 1)
            acknowledged[before] = max(acknowledged.get(before, 0), mark.at)
        for partition, at in acknowledged.items():
            if positions.get(partition, 0) < at and (partition != current or ends.whole_number < at):
                raise self._counted_before(positions.get(partition, 0), at, is_present=partition == current)
        if begin < ends.first_number:
            raise self._gap(f"a checkpoint at record {begin:,}", f"begins with record {ends.first_number:,}")
        if begin > ends.whole_number:
            raise SourceChanged(
                f"{self._place}: the checkpoint has read {begin:,} records of the journal {ids[-1]}, but "
                f"{self.log.storage.url} has {ends.whole_number:,}: it is an older copy, or its end is lost. Restore "
                "the newest copy: acknowledged messages exist only there. Nothing was taken from the queue"
            )
        self._last.require_same(state.recorded, begin)

    def _counted_before(self, counted: int, at: int, *, is_present: bool) -> RetentionGap:
        if is_present:
            return self._gap(f"a checkpoint at record {counted:,}", f"lacks some of the {at:,} that had been counted")
        replaced = "replaced it when" if self.log.id else "is missing, and of it"
        return self._gap(
            f"a checkpoint at record {counted:,} of the previous journal", f"{replaced} {at:,} records had been counted"
        )

    def _gap(self, checkpoint: str, journal: str) -> RetentionGap:
        return RetentionGap(
            f"{self._place}: {checkpoint} cannot continue with the journal in {self.log.storage.url}, which {journal}: "
            "the messages in between are gone, from the queue too. Continue from a later checkpoint; or begin a new "
            "one, with a new journal="
        )

    def _raise_lost(self, known: list[str]) -> None:
        raise SourceChanged(
            f"{self._place}: the checkpoint has read the journal {known[-1]}, but {self.log.storage.url} holds "
            f"{self.log.id or 'none'}. Give the source that journal, journal=; acknowledged messages exist only there, "
            'unless acknowledge="checkpoint" was set from the beginning'
        )


def partition_of(count: int) -> str:
    """The partition name of the last of ``count`` journals.

    >>> partition_of(1), partition_of(2)
    ('journal', 'journal-2')
    """
    return _PARTITION if count == 1 else f"{_PARTITION}-{count}"


def _known(recorded: Mapping[str, Any]) -> list[str]:
    return list(recorded.get("journals", ()))


def _is_sure(state: SourceState) -> bool:
    """Whether this checkpoint has counted, or notes in its record, all that was acknowledged: it is of the same job,
    which acknowledges a message only once a checkpoint has counted it."""
    return bool(state.job) and state.recorded.get("job") == state.job and bool(state.recorded.get("replaces"))
