"""A mark in a sink records the last published batch and its job. This module decides every move of a mark.

A marked sink reads the mark, decides, and moves the mark from that value in the transaction that writes the rows. If
another writer has moved it meanwhile, the sink reads and decides again. A mark never decreases.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from persistent.connect.sink import BatchSink, Claim, OutputBatch, Retreat
from persistent.errors import Fenced, SinkMismatch
from persistent.text.figures import shell_word

P = TypeVar("P")
"""Where the transactions of a sink read and write: a connection, or a writer."""
T = TypeVar("T")


@dataclass(frozen=True)
class SinkMark:
    """The last published batch of ``job`` has this ``number``; 0: none yet."""

    job: str
    number: int


M = TypeVar("M", bound=SinkMark)


class Moved(Exception):
    """Another writer has moved the mark since it was read: the transaction begins again."""


class MarkedSink(BatchSink, Generic[P, M]):
    """A sink that writes rows and a mark in one transaction. A system says how it reads the mark, moves it, writes, and
    takes back; the sink decides which of them, and when."""

    @abstractmethod
    def _transact(self, what: str, act: Callable[[P], T]) -> T:
        """``act`` in a transaction, which begins again after ``Moved``. ``what``: for errors."""

    @abstractmethod
    def _mark(self, place: P, batch: OutputBatch | None = None) -> M | None:
        """The mark, which stays until this transaction ends. If ``batch`` comes next, the mark may also be an older
        one from which this writer can publish the batch, as long as a move from it then fails."""

    @abstractmethod
    def _move(self, place: P, prior: M | None, mark: SinkMark) -> None:
        """Move the mark from ``prior``."""

    @abstractmethod
    def _write(self, place: P, prior: M | None, batch: OutputBatch) -> None:
        """Write the rows of a batch, and move the mark from ``prior`` to its number."""

    @abstractmethod
    def _take_back(self, place: P, prior: M | None, retreat: Retreat) -> None:
        """Take back the batches from ``retreat.first`` on, and move the mark from ``prior`` to ``retreat.number``."""

    @abstractmethod
    def _seen(self) -> SinkMark | None:
        """The mark, which another writer may move at any time."""

    def _required(self, mark: M | None, url: str) -> M | None:
        """The mark during a run. SinkMismatch if this sink cannot continue without it. ``url``: of the checkpoint."""
        return mark

    def claim(self, claim: Claim) -> None:
        """Claim the place for a job. SinkMismatch, StorageError."""

        def act(place: P) -> None:
            prior = self._mark(place)
            mark = claimed(prior, claim, repr(self))
            if mark != prior:
                self._move(place, prior, mark)

        self._transact("claim", act)

    def deliver(self, batch: OutputBatch) -> None:
        """Write the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""
        self._publish(batch, is_published)

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        mark = self._seen()
        return mark.number if mark is not None and mark.job == job else -1

    def _publish(self, batch: OutputBatch, is_done: Callable[[SinkMark | None, OutputBatch, str], bool]) -> None:
        def act(place: P) -> None:
            mark = self._required(self._mark(place, batch), batch.url)
            if not is_done(mark, batch, repr(self)):
                self._write(place, mark, batch)

        self._transact("publish to", act)

    def _retreat(self, retreat: Retreat) -> None:
        """Publish what the rollback keeps, then take back the rest."""
        for batch in retreat.staged:
            self._publish(batch, is_settled)

        def act(place: P) -> None:
            mark = self._required(self._mark(place), retreat.url)
            if not has_retreated(mark, retreat, repr(self)):
                self._take_back(place, mark, retreat)

        self._transact("take back from", act)


def claimed(mark: SinkMark | None, claim: Claim, place: str) -> SinkMark:
    """The mark after the claim: the present one, unless this job is the first, or takes over the place of another.

    SinkMismatch if the place belongs to another job, or lacks batches of this one.
    """
    if mark is None or mark.job == claim.job:
        number = 0 if mark is None else mark.number
        if number < claim.shown or (mark is None and claim.began):
            raise _missing(number, claim.shown, claim.url, place)
        return mark or SinkMark(claim.job, 0)
    if mark.job in claim.heir_of and claim.began:
        raise _missing(mark.number, max(claim.shown, claim.inherited + 1), claim.url, place)
    if mark.job in claim.heir_of and mark.number == claim.inherited:
        return SinkMark(claim.job, mark.number)
    if mark.job in claim.heir_of:
        raise SinkMismatch(
            f"{place}: the job that this one starts from is at batch {mark.number} there, but the savepoint at "
            f"{claim.inherited}. {_other_branch(mark, claim)}"
        )
    raise _of_another(mark, claim.job, place)


def is_published(mark: SinkMark | None, batch: OutputBatch, place: str) -> bool:
    """Whether the batch is published. If not, the mark is at ``batch.before``, and the sink moves it to
    ``batch.number``. Fenced if the mark has passed the batch; SinkMismatch if earlier batches are missing, or the place
    belongs to another job."""
    number = _number(mark, batch.job, place)
    if number in (batch.before, batch.number):
        return number == batch.number
    if number > batch.before:
        raise _passed(number, batch.number, batch.url, place)
    raise _missing(number, batch.before, batch.url, place)


def is_settled(mark: SinkMark | None, batch: OutputBatch, place: str) -> bool:
    """Like ``is_published``, for a batch that a rollback publishes first. A mark beyond it is no error here, but
    proves that the batch was published before those that the rollback takes back, which may have left no other proof.
    SinkMismatch as for ``is_published``."""
    return _number(mark, batch.job, place) >= batch.number or is_published(mark, batch, place)


def has_retreated(mark: SinkMark | None, retreat: Retreat, place: str) -> bool:
    """Whether the rollback is done: the mark is at ``retreat.number``. If not, the sink moves it there from its present
    value. Fenced if the mark has passed that number; SinkMismatch if the place belongs to another job."""
    number = _number(mark, retreat.job, place)
    if number > retreat.number:
        raise _passed(number, retreat.number, retreat.url, place)
    return number == retreat.number


def _number(mark: SinkMark | None, job: str, place: str) -> int:
    if mark is not None and mark.job != job:
        raise _of_another(mark, job, place)
    return 0 if mark is None else mark.number


def _of_another(mark: SinkMark, job: str, place: str) -> SinkMismatch:
    return SinkMismatch(
        f"{place} holds the results of job {mark.job}, but this checkpoint is of job {job}. Two jobs write here: give "
        "each its own table. If this is the same pipeline with a new checkpoint, choose another table, or start the "
        "checkpoint from a savepoint of the old one (start_from=)"
    )


def _other_branch(mark: SinkMark, claim: Claim) -> str:
    if mark.number > claim.inherited:
        return "It has continued: start from a newer savepoint in a new checkpoint, or give this job a table of its own"
    return "It has not published all its committed batches: run it once more, then this one"


def _missing(number: int, before: int, url: str, place: str) -> SinkMismatch:
    if number == 0:
        what = f"of the outputs of this job, up to batch {before}" if before else "of this job, which began there"
        return SinkMismatch(
            f"{place} has nothing {what}: its results would lie in two places. Give the sink the place it had; or "
            f"start a new checkpoint from this one (start_from={url!r})"
        )
    return SinkMismatch(
        f"{place} is at batch {number}, and the next comes after batch {before}: those between are missing, as in an "
        f"older copy. Restore it; or go back to a checkpoint at or below {number}: 'persistent rollback "
        f"{shell_word(url)} ID --outputs=retract'"
    )


def _passed(number: int, ours: int, url: str, place: str) -> Fenced:
    return Fenced(
        f"{place} is at batch {number}, beyond our {ours}: another driver has taken over {url}, or a rollback. This "
        "one publishes nothing more. If no other driver runs, a copy of the checkpoint writes here: give it a place of "
        "its own"
    )
