"""Verifying the sinks compares what each holds with what the checkpoint has published there.

A sink with a mark must be at the newest batch that was published, or at one that is being published. A sink that can
``look`` reads what it holds. What a sink cannot tell is not looked at, and a note says so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from persistent.checkpoint.copies import OnProgress, newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.successor import Entry
from persistent.connect.sink import BatchSink, Known, Looked
from persistent.driver.output_batches import batches_of, claim_of, part_of
from persistent.errors import CorruptCheckpoint, PersistentError, StagedMissing
from persistent.pipeline import Pipeline
from persistent.verify.findings import Checked, Verification

_NOT = "not looked at"


def verify_sinks(pipeline: Pipeline, *, on_progress: OnProgress | None = None) -> Verification:
    """Compare the sinks of a pipeline with the newest checkpoint.

    A fault names what a sink lacks, or holds with other bytes; a warning, what may be lost; a note, what was not looked
    at. It changes nothing, and the job can run meanwhile. ``on_progress`` receives how many lists of a folder or
    records of a log were looked at, and of how many.
    """
    job, log = pipeline.job(), Log(pipeline.storage)
    verification = Verification(pipeline.storage.url)
    try:
        newest = newest_of(log).manifest
    except CorruptCheckpoint:
        verification.note("sinks", "sinks", f"{_NOT}: the newest checkpoint cannot be read")
        return verification
    verification.newest = newest.id
    for name in job.all_sinks:
        _Comparison(pipeline, log, verification, name, newest_of(log)).compare(on_progress or _ignore)
    for name in sorted(newest.sinks.keys() - job.all_sinks.keys()):
        verification.note(f"sink {name}", f"sink {name}", f"{_NOT}: the pipeline does not have it")
    return verification


def _ignore(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class _Comparison:
    """Compares the sink called ``name`` with the ``newest`` checkpoint, which was read before the sink."""

    pipeline: Pipeline
    log: Log
    found: Verification
    name: str
    newest: Entry

    @property
    def part(self) -> str:
        return f"sink {self.name}"

    @property
    def place(self) -> str:
        return repr(self.pipeline.job().all_sinks[self.name])

    def fault(self, text: str) -> None:
        self.found.fault(self.part, self.place, text)

    def note(self, text: str) -> None:
        self.found.note(self.part, self.place, text)

    def compare(self, on_progress: OnProgress) -> None:
        """Look at the sink, and add the findings."""
        job, manifest = self.pipeline.job(), self.newest.manifest
        part, sink = part_of(manifest, self.name), job.all_sinks[self.name]
        self.found.parts.setdefault(self.part, Checked())
        if part.last is None and not part.unpublished:
            self.note(f"{_NOT}: nothing is known to be published there yet")
            return
        try:
            newest = job.all_outlets()[self.name].newest(manifest.job, manifest.revision_base)
            number = None if newest is None else newest + manifest.revision_base
            self._compare_number(number)
            known, looks = self._known(), "look" in sink.abilities
            for looked in sink.look(known, on_progress):
                self._add(looked)
            if looks and number is not None and not isinstance(sink, BatchSink):
                self._compare_published(number, known)
            if not looks and (number is None or (number < 0 and not isinstance(sink, BatchSink))):
                self.note(f"{_NOT}: it cannot tell what it holds, or only to the process that publishes there")
        except PersistentError as error:
            self.fault(str(error))
        finally:
            sink.close()

    def _add(self, looked: Looked) -> None:
        if looked.fault:
            self.found.fault(self.part, looked.place, looked.fault)
        if looked.warning:
            self.found.warn(self.part, looked.place, looked.warning)
        if looked.note:
            self.found.note(self.part, looked.place, looked.note)
        if not looked.warning and not looked.note:
            self.found.count(self.part, looked.bytes, looked.rows)

    def _compare_number(self, number: int | None) -> None:
        """Compare the newest number in the sink, which moves only after its checkpoint was committed."""
        after = newest_of(self.log).manifest
        if number is not None and number > after.revision:
            self.fault(
                f"is at batch {number}, beyond the newest checkpoint, {after.id}: the checkpoint is an older copy, or "
                "has lost its newest manifest. Restore it from a newer copy"
            )
        elif isinstance(self.pipeline.job().all_sinks[self.name], BatchSink):
            if number is not None:
                self._compare_mark(number, is_newest=after.id == self.newest.manifest.id)
            self._look_at_waiting(number)

    def _compare_published(self, number: int, known: Known) -> None:
        """Compare the newest number that counts in a sink without a mark, if it lacks nothing: a rollback of a newer
        copy of the checkpoint may have taken back what this copy has published."""
        batch = claim_of(self.pipeline.job(), self.newest.manifest, self.name).shown
        # ``batch`` may also be the number of a rollback, which published nothing.
        is_published = batch - self.newest.manifest.revision_base in known.published
        is_whole = not self.found.faults_of(self.part) and newest_of(self.log).manifest.id == known.newest
        if number < batch and is_published and is_whole:
            self.fault(
                f"is at batch {max(number, 0)}, but batch {batch} is published: a rollback has taken it back that this "
                "checkpoint does not know, because it is an older copy. Restore it from a newer copy, or the sink from "
                "an older one"
            )

    def _compare_mark(self, number: int, *, is_newest: bool) -> None:
        manifest = self.newest.manifest
        claim = claim_of(self.pipeline.job(), manifest, self.name)
        self.found.count(self.part)
        remedy = "Restore it from a copy"
        if number < 0 and claim.began:
            self.fault(
                "has no mark of this job, which has published there: it is another place; or of another job, such as "
                "one that has started from a savepoint of this one, and goes on there; or the mark is lost. Give the "
                "sink the place that it had; if nobody else publishes there, restore it from a copy"
            )
        elif number < claim.shown:
            self.fault(
                f"is at batch {number}, but batch {claim.shown} is published: it is an older copy, or its mark has "
                f"moved. {remedy}"
            )
        elif is_newest and not self._may_be_at(number):
            self.fault(
                f"is at batch {number}, which is none that checkpoint {manifest.id} knows there: its mark has moved. "
                f"{remedy}"
            )

    def _may_be_at(self, number: int) -> bool:
        """Whether the mark may have that number, if no other checkpoint was committed meanwhile."""
        job, manifest = self.pipeline.job(), self.newest.manifest
        outlet = job.all_outlets()[self.name]
        part, batches = part_of(manifest, self.name), batches_of(job, manifest, self.name, outlet.read)
        if manifest.target is not None or any(batch.before is None for batch in part.unpublished):
            # A rollback has yet to move the mark, or the sink had no batch before.
            return True
        numbers = {batch.number for batch in batches} | {batch.before for batch in batches}
        return number in (numbers or {manifest.revision_base + (part.last or 0)})

    def _look_at_waiting(self, number: int | None) -> None:
        """Read the outputs that wait in the checkpoint until the sink, which is at ``number``, has them."""
        job = self.pipeline.job()
        outlet = job.all_outlets()[self.name]
        for batch in batches_of(job, self.newest.manifest, self.name, outlet.read):
            if number is not None and number >= batch.number:
                continue
            try:
                tables = list(batch.tables())
            except (StagedMissing, CorruptCheckpoint) as error:
                if newest_of(self.log).manifest.id == self.newest.manifest.id:
                    self.fault(str(error))
                continue
            if tables and number is not None and number >= batch.before:
                self.note(f"not published yet: the job that runs, or the next run, publishes checkpoint {batch.id}")

    def _known(self) -> Known:
        """What kept checkpoints know of the sink. A batch is open if the newest checkpoint has still to take it back,
        if it was discarded, or if it is so old that the checkpoint that discarded it may not be kept."""
        newest = self.newest.manifest
        now = part_of(newest, self.name)
        owed, open = {batch.id for batch in now.owed}, {batch.id for batch in now.unpublished if not batch.staged}
        taken_back, batches = range(*newest.retract or (0, 0)), {}
        for id in self.log.kept_ids(newest):
            # Unreadable, it is a fault of the checkpoint, or was collected meanwhile.
            with suppress(CorruptCheckpoint):
                for batch in part_of(self.log.read(id).manifest, self.name).unpublished:
                    if batch.staged:
                        batches[batch.id] = batch.staged
                    if not batch.staged or batch.id < newest.oldest or batch.id in taken_back:
                        open.add(batch.id)
        return Known(newest.job, newest.id, batches, owed - open, open)
