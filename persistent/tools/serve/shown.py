"""A shown job is a checkpoint folder, with what was read of it: a manifest never changes, so it is read once.

A look lists the manifests of the folder. If the list has changed, or some seconds have passed, the look also reads the
newest manifest and the marks of the drivers: the folder may belong to another job by then. All open pages share one
look for a second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from persistent.checkpoint.copies import check_kept, newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, total
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.running import Mark, marks
from persistent.checkpoint.successor import Entry
from persistent.driver.commit import first_manifest
from persistent.driver.same_job import check_same_task
from persistent.errors import CorruptCheckpoint, OtherJob, PersistentError, StorageError, UnknownCheckpoint
from persistent.pipeline import Pipeline
from persistent.reading import ClockReading, Furthest, Place, clock_reading, furthest
from persistent.storage.places import numbered, short_name
from persistent.storage.protocol import Storage
from persistent.time.clock import monotonic_s
from persistent.tools.serve.partly_late import Partly, PartlyLate
from persistent.tools.serve.wording import corrections_words, place_text

_LOOK_S = 1.0
_READ_S = 4.0
_WAIT_S = 20.0
_RECENT_S = 0.05
_MANIFESTS_MAX = 256
_FACTS_MAX = 50_000

CheckpointFacts = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What a folder holds at a moment: the ids of all manifests, the newest manifest, and the marks of the drivers that
    are not fenced."""

    ids: tuple[int, ...]
    newest: Entry
    marks: tuple[Mark, ...]

    def has(self, id: int) -> bool:
        """Whether that manifest is there, and kept."""
        place = bisect_left(self.ids, id)
        return self.ids[place : place + 1] == (id,) and self.newest.manifest.keeps(id)

    @property
    def version(self) -> str:
        """A text that differs after each change of the folder."""
        drivers = [f"{mark.epoch}{mark.process.lives}" for mark in self.marks]
        return f"{self.newest.manifest.nonce}/{len(self.ids)}/{drivers}"


@dataclass
class Shown:
    """One job on the page. ``name``: unique among those shown. ``pipeline``: to read its state with, if it is given."""

    name: str
    target: str
    storage: Storage
    pipeline: Pipeline | None = None
    _lock: Any = field(default_factory=RLock, repr=False)
    _looked: tuple[float, Look | PersistentError] | None = None
    _read: float = 0.0
    _clock: tuple[str, ClockReading] | None = None
    _furthest: tuple[str, Furthest | None] | None = None
    _entries: OrderedDict[int, Entry] = field(default_factory=OrderedDict, repr=False)
    _facts: dict[int, CheckpointFacts] = field(default_factory=dict, repr=False)
    _partly: PartlyLate | None = field(default=None, repr=False)

    @property
    def log(self) -> Log:
        return Log(self.storage)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets one thread at a time read the folder. StorageError if that thread still waits for the store after
        ``_WAIT_S``: otherwise a store that hangs would take every thread of the page, and block all other jobs."""
        if not self._lock.acquire(timeout=_WAIT_S):
            raise StorageError(
                f"{place_text(self.storage.url)}: the store has not answered for {_WAIT_S:.0f} s. The page goes on as "
                "soon as it does; the job itself does not depend on the page"
            )
        try:
            yield
        finally:
            self._lock.release()

    def look(self) -> Look:
        """What the folder holds, or held at most a second ago. Raises NoCheckpoint, CorruptCheckpoint or StorageError;
        OtherJob if the checkpoint has another task or other sources than the pipeline."""
        with self._locked():
            now = monotonic_s()
            if self._looked is None or now - self._looked[0] >= _LOOK_S:
                before = self._looked[1] if self._looked else None
                self._looked = now, self._look(now, before if isinstance(before, Look) else None)
            look = self._looked[1]
        if isinstance(look, PersistentError):
            raise look.with_traceback(None)
        return look

    def _look(self, now: float, before: Look | None) -> Look | PersistentError:
        try:
            ids = tuple(self.log.ids())
            if before is not None and before.ids == ids and now - self._read < _READ_S:
                return before
            newest = newest_of(self.log)
            self._read = now
            if self.pipeline is not None:
                expected = first_manifest(self.pipeline.job(), "")
                check_same_task(newest.manifest, expected, place_text(self.storage.url))
            running = [mark for mark in marks(self.storage) if mark.epoch >= newest.manifest.epoch]
        except OtherJob as error:
            self._forget()
            return error
        except PersistentError as error:
            return error
        known = before.newest.manifest if before is not None else newest.manifest
        if known.job != newest.manifest.job or known.id > newest.manifest.id:
            # Another job has taken the place of this one.
            self._forget()
        self._keep(newest)
        return Look(ids, newest, tuple(running))

    def entry(self, id: int | None = None) -> Entry:
        """That checkpoint, by default the newest. UnknownCheckpoint if it is not kept."""
        look = self.look()
        newest = look.newest
        if id is None or id == newest.manifest.id:
            return newest
        with self._locked():
            if id in self._entries:
                self._entries.move_to_end(id)
                return self._entries[id]
        if not look.has(id):
            check_kept(self.log, newest.manifest, id)
        try:
            entry = self.log.read(id)
        except CorruptCheckpoint:
            # It was collected since we looked, or is damaged.
            check_kept(self.log, newest_of(self.log).manifest, id)
            raise
        self._keep(entry)
        return entry

    def place(self, id: int | None = None) -> Place:
        """The place of that checkpoint, to read from."""
        return Place(self.storage, self.entry(id), id)

    def facts(self, id: int) -> CheckpointFacts:
        """The summary of checkpoint ``id``. A summary that was read before outlives its checkpoint."""
        with self._locked():
            known = self._facts.get(id)
        if known is not None:
            return known
        try:
            return self._keep(self.entry(id))
        except UnknownCheckpoint:
            raise
        except CorruptCheckpoint as error:
            return {"id": id, "kind": "unreadable", "error": str(error)}

    def clock(self) -> ClockReading:
        """Where the clock of the newest checkpoint stands, and what holds it back."""
        newest = self.look().newest.manifest
        with self._locked():
            known = self._clock
        if known is None or known[0] != newest.nonce:
            known = self._clock = newest.nonce, clock_reading(self.storage, newest)
        return known[1]

    def furthest(self) -> Furthest | None:
        """Where the record with the largest timestamp lies."""
        newest = self.look().newest.manifest
        with self._locked():
            known = self._furthest
        if known is None or known[0] != newest.nonce:
            record = furthest(self.storage, newest, lambda id: self.entry(id).manifest)
            known = self._furthest = newest.nonce, record
        return known[1]

    def partly_late(self) -> Partly:
        """The records that count in some states or windows, and not in all. A call reads files for a moment only; the
        next call reads on."""
        newest = self.look().newest.manifest
        with self._locked():
            self._partly = self._partly or PartlyLate(self.storage)
            return self._partly.count(newest)

    def pending(self) -> StepPlan | None:
        """The plan of the step after the newest checkpoint: a driver at work works on it. None if there is none."""
        newest = self.look().newest.manifest
        with suppress(CorruptCheckpoint):
            return self.log.plan(newest.base, newest.replan)
        return None

    def recent(self, count: int) -> list[CheckpointFacts]:
        """The facts of the last ``count`` checkpoints on the way to the newest, oldest first. Checkpoints
        without a state of their own, and abandoned ones, are left out. A collected checkpoint is there if it was read
        before. A call reads manifests for a moment only, the newest first; the next call reads further back."""
        look = self.look()
        newest = look.newest.manifest
        ids = {id for id in newest.bases if id <= newest.id} | {newest.base}
        with self._locked():
            ids |= {id for id, facts in self._facts.items() if facts["base"] == id}
        line = [id for id in sorted(ids) if not newest.has_left(id)]
        checkpoints, until = list[CheckpointFacts](), monotonic_s() + _RECENT_S
        for id in reversed(line[-count:]):
            if monotonic_s() > until and id not in self._facts:
                break
            try:
                facts = self.facts(id)
            except UnknownCheckpoint:
                continue
            if "error" not in facts:
                if checkpoints and "before" not in checkpoints[0]:
                    checkpoints[0]["before"] = self._before(checkpoints[0])
                checkpoints.insert(0, facts)
        return checkpoints

    def _before(self, facts: CheckpointFacts) -> int | None:
        """The id of the checkpoint with a state of its own that ``facts`` continue; None for the first checkpoint. A
        take-over just before a kept checkpoint is kept too, so a parent that is gone had a state of its own."""
        parent: int | None = facts["parent"]
        if parent is None or (parent not in self._facts and not self.look().has(parent)):
            return parent
        with suppress(UnknownCheckpoint):
            return int(self.facts(parent).get("base", parent))
        return parent

    def _keep(self, entry: Entry) -> CheckpointFacts:
        facts = facts_of(entry)
        with self._locked():
            self._entries[entry.manifest.id] = entry
            self._entries.move_to_end(entry.manifest.id)
            while len(self._entries) > _MANIFESTS_MAX:
                self._entries.popitem(last=False)
            if len(self._facts) >= _FACTS_MAX:
                self._facts.clear()
            self._facts[entry.manifest.id] = facts
        return facts

    def _forget(self) -> None:
        self._entries.clear()
        self._facts.clear()
        self._partly = None


def facts_of(entry: Entry) -> CheckpointFacts:
    """What a checkpoint says of itself, whatever comes after it."""
    manifest = entry.manifest
    runs = manifest.state_runs()
    accounts = list(manifest.accounts.values())
    return {
        "id": manifest.id,
        "kind": manifest.kind,
        "base": manifest.base,
        "epoch": manifest.epoch,
        "parent": manifest.parent[0] if manifest.parent else None,
        "clock_ms": manifest.clock.watermark,
        "closed_ms": closed_of(manifest),
        "end_of_input": manifest.clock.end_of_input,
        "committed_ms": manifest.committed_ms,
        "target": manifest.target,
        "corrections": own_corrections(manifest),
        **total(accounts).fates,
        "balances": all(account.balances for account in accounts),
        "runs": len(runs),
        "state_rows": sum(run.rows_left for run in runs),
        "state_bytes": sum(run.bytes for run in runs),
    }


FATES = tuple(Account().fates)


def has_windows(manifest: Manifest) -> bool:
    """Whether the clock closes windows of any state."""
    return any(node.has_windows for node in manifest.nodes.values())


def closed_of(manifest: Manifest) -> int | None:
    """The clock up to which the windows of every state are closed; None without windows."""
    return min((node.clock.closed for node in manifest.nodes.values() if node.has_windows), default=None)


def own_corrections(manifest: Manifest) -> list[dict[str, Any]]:
    """The correction that a checkpoint has made; empty for a checkpoint of another kind. A job that continues other
    jobs can have corrections of theirs under the same id: the manifest does not tell them apart, so all are listed."""
    corrections = corrections_words(manifest) if manifest.kind == "correction" else []
    return [correction for correction in corrections if correction["checkpoint"] == manifest.id]


def named(targets: Sequence[tuple[str, Storage, Pipeline | None]]) -> dict[str, Shown]:
    """The shown jobs by name. A job has the name of its pipeline, or else the last part of its URL; for a folder
    ``checkpoint``, as in a project of ``persistent init``, the name of the folder around it. A taken name gets a
    number."""
    jobs: dict[str, Shown] = {}
    for target, storage, pipeline in targets:
        pipeline_name = None if pipeline is None else pipeline.name
        name = numbered(pipeline_name, jobs) if pipeline_name else short_name(_without_checkpoint(storage.url), jobs)
        jobs[name] = Shown(name, target, storage, pipeline)
    return jobs


def _without_checkpoint(url: str) -> str:
    around, _, last = url.rstrip("/").rpartition("/")
    return around if last == "checkpoint" and around.strip("./") and not around.endswith(("/", ":")) else url
