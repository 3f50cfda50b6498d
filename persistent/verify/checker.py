"""The checker verifies a checkpoint: log, runs, outputs, plans, and stray files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from monoids.hashing import VERSION as HASH_VERSION
from persistent.checkpoint.copies import OnProgress
from persistent.checkpoint.log import FormatFile, Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import undoable
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.set_aside import aside_names
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.sealed import decode_table
from persistent.errors import CorruptCheckpoint, PersistentError
from persistent.names import (
    CLAIM,
    DOCTOR,
    DRIVERS,
    FORMAT_NAME,
    STAGED,
    Staged,
    aside_name,
    driver_epoch,
    entry_id,
    manifest_name,
    plan_name,
    published_id,
)
from persistent.storage.protocol import Storage
from persistent.verify.findings import (
    MISSING,
    Finding,
    Verification,
    differences,
    manifest_faults,
    step_faults,
    sum_faults,
)
from persistent.verify.runs import UNREADABLE, check_runs

_ROOT = (FORMAT_NAME, CLAIM, DOCTOR)
_MARK = re.compile(r"e\d+-[0-9a-f]{32}\.json")


def verify(storage: Storage, *, on_progress: OnProgress | None = None) -> Verification:
    """Check everything that is kept. Files that a running job collects meanwhile are not faults.

    ``on_progress`` receives the bytes of runs checked and the total bytes.
    """
    log = Log(storage)
    ids = log.ids()
    verification = _Checker(storage, log, ids).check(on_progress)
    if not verification.ok and log.ids() != ids:
        _forgive_collected(verification, log)
    return verification


def _forgive_collected(verification: Verification, log: Log) -> None:
    """Drop the faults of missing files that no kept manifest names any more."""
    kept: list[Manifest] = []
    for id in reversed(log.ids()):
        if kept and not kept[0].keeps(id):
            continue
        # An unreadable manifest is collected, or is a fault by itself.
        with suppress(CorruptCheckpoint):
            kept.append(log.read(id).manifest)
    if not kept:
        return
    named = {name for one in kept for name in (*one.files(), *undoable(one.sinks))} | kept[0].unpublished()

    def is_collected(finding: Finding) -> bool:
        folder, _, name = finding.place.rpartition("/")
        if not finding.text.startswith(MISSING) or finding.place in named:
            return False
        return folder.startswith("d/") or (folder in ("m", "p") and not kept[0].keeps(published_id(name)))

    verification.findings = [finding for finding in verification.findings if not is_collected(finding)]


class _Checker:
    """Checks a checkpoint whose log holds ``ids``."""

    def __init__(self, storage: Storage, log: Log, ids: list[int]) -> None:
        self.storage = storage
        self.log = log
        self.ids = ids
        self.job: str | None = None
        self.found = Verification(storage.url)
        self.entries: dict[int, Entry] = {}
        self.bad_ids: set[int] = set()
        self.bad_runs: set[str] = set()

    def check(self, on_progress: OnProgress | None) -> Verification:
        self.found.newest = max(self.ids, default=None)
        self._format()
        self._chain()
        if self.entries:
            self._lost()
            self._check(self._runs(), on_progress)
            self._sums()
            self._outputs()
            self._plans()
            self._strays()
        good = [entry.manifest for id, entry in self.entries.items() if id not in self.bad_ids]
        whole = [manifest.id for manifest in good if manifest.is_base and not manifest.files() & self.bad_runs]
        self.found.newest_good = max(whole, default=None)
        self.found.base = next((manifest.base for manifest in good if manifest.id == self.found.newest), None)
        return self.found

    @property
    def newest(self) -> Manifest:
        """The newest manifest that can be read."""
        return self.entries[max(self.entries)].manifest

    # -- the log -------------------------------------------------------------------------------------------------

    def _format(self) -> None:
        if FORMAT_NAME not in self.storage.list("") and self.ids == [0]:
            # It is put after the first manifest and before any other.
            self.found.warn("FORMAT", FORMAT_NAME, "not written yet: the first run ended before it, the next writes it")
            return
        data = self._read("FORMAT", "FORMAT")
        if data is None:
            return
        try:
            body = FormatFile.decode(data.to_pybytes(), "FORMAT")
        except CorruptCheckpoint as error:
            self.found.fault("FORMAT", "FORMAT", str(error))
            return
        if (body.key_groups, body.hash) != (KEY_GROUPS, HASH_VERSION):
            self.found.fault("FORMAT", "FORMAT", f"key groups {body.key_groups}, hash {body.hash}")
        self.job = body.job

    def _chain(self) -> None:
        if not self.ids:
            self.found.fault("manifests", "m", "no manifest: this is not a checkpoint, or its log is lost")
        for id in reversed(self.ids):
            if self.entries and not self.newest.keeps(id):
                # It awaits collection.
                continue
            try:
                self.entries[id] = self.log.read(id)
            except CorruptCheckpoint as error:
                self._bad(id, str(error))
            else:
                self.found.count("manifests", self.entries[id].bytes)
        self.entries = dict(sorted(self.entries.items()))
        for id, entry in self.entries.items():
            for text in manifest_faults(entry.manifest, self.job):
                self._bad(id, text)
            if id - 1 in self.entries:
                for text in step_faults(entry.manifest, self.entries[id - 1]):
                    self._bad(id, text)
        for id in sorted(self._expected() - set(self.ids)):
            # Checkpoints are collected from the oldest on.
            is_first = id < min(self.ids)
            self._bad(id, f"{MISSING}: deleted, or collected after a newer one, which is lost" if is_first else MISSING)

    def _expected(self) -> set[int]:
        """The ids that must exist. After a rollback behind unreadable manifests, it is unknown which fences their
        driver had collected."""
        if not self.entries:
            return set()
        newest = self.newest
        fences = () if newest.burnt else range(newest.oldest, newest.id)
        return {id for id in (*newest.bases, *fences) if newest.keeps(id)}

    def _lost(self) -> None:
        newest, top = self.newest, self.ids[-1]
        lost = self.log.lost(newest.base if newest.id == top else top, top)
        if lost is not None and newest.target is None:
            self.found.newest = max(lost.id, top)
            place = lost.place.removeprefix(f"{self.storage.url}/")
            self.found.fault("manifests", place, f"left by checkpoint {lost.id}, whose manifest is lost")

    def _bad(self, id: int, text: str) -> None:
        self.bad_ids.add(id)
        self.found.fault("manifests", manifest_name(id), text)

    # -- runs ----------------------------------------------------------------------------------------------------

    def _runs(self) -> dict[str, tuple[Run, Manifest]]:
        """Every run that kept manifests name, with the newest manifest that names it. All must describe it alike."""
        named: dict[str, tuple[Run, Manifest]] = {}
        for manifest in (entry.manifest for entry in self.entries.values()):
            for run in manifest.all_runs():
                before = named.get(run.name)
                if before is not None and (changed := differences(before[0], run, manifest)):
                    self._bad(
                        manifest.id, f"describes {run.name} with a {changed} that differs from manifest {before[1].id}"
                    )
                named[run.name] = run, manifest
        return named

    def _check(self, runs: dict[str, tuple[Run, Manifest]], on_progress: OnProgress | None = None) -> None:
        threads = os.cpu_count() or 1
        self.bad_runs |= check_runs(self.storage, runs, self.found, threads=threads, on_progress=on_progress)

    def _sums(self) -> None:
        for id, entry in self.entries.items():
            for name, source in entry.manifest.sources.items():
                for text in sum_faults(source.seen.runs, id) if source.seen else ():
                    self._bad(id, f"seen records of {name}: {text}")
            for name, node in entry.manifest.nodes.items():
                for text in sum_faults(node.runs, id):
                    self._bad(id, f"{name}: {text}")

    # -- outputs -------------------------------------------------------------------------------------------------

    def _outputs(self) -> None:
        """Compare the late rows and dead letters, published or staged by the newest checkpoint, with the account."""
        for folder, part in (("late", "late rows"), ("dead", "dead letters")):
            named = self._named_aside(folder)
            published = [f"{folder}/{name}" for name in aside_names(self.storage, folder) if self._is_known(name)]
            counted = sum(self._aside(name, part, named.get(name)) for name in published)
            unpublished = [name for name in named if name not in published and not self._is_taken_back(name)]
            counted += sum(self._unpublished(name, named[name], part) for name in unpublished)
            accounts = self.newest.accounts.values()
            expected = sum(account.late if folder == "late" else account.dead for account in accounts)
            if counted > expected and not self._has_restarted():
                self.found.warn(part, folder, f"{_said(counted, part, expected)}: a rollback published some again?")
            elif counted < expected and self.newest.origin is None:
                # A job started from a savepoint continues its account; the rows stayed with the old job.
                self.found.warn(part, folder, f"{_said(counted, part, expected)}: were files deleted?")

    def _has_restarted(self) -> bool:
        """Whether the account began again at a clock; what was set aside before stays."""
        return any(source.since is not None for source in self.newest.sources.values())

    def _named_aside(self, folder: str) -> dict[str, Staged]:
        """The files that kept manifests staged, by their published names."""
        return {
            aside_name(folder, aside.id, staged): staged
            for id, entry in self.entries.items()
            for aside in entry.manifest.aside
            for staged in (aside.late if folder == "late" else aside.dead)
            if id >= self.newest.oldest
        }

    def _is_known(self, name: str) -> bool:
        """Whether a published file counts: its checkpoint is not newer than this check, and is not about to be
        retracted."""
        id = published_id(name)
        first, stop = self.newest.retract or (0, 0)
        return id < 0 or (id <= self.newest.id and not first <= id < stop)

    def _is_taken_back(self, name: str) -> bool:
        """Whether a rollback retracted a published file."""
        id = published_id(name)
        ranges = [entry.manifest.retract for entry in self.entries.values() if entry.manifest.retract]
        return any(first <= id < stop for first, stop in ranges)

    def _unpublished(self, name: str, staged: Staged, part: str) -> int:
        if staged.name not in self.newest.unpublished():
            self.found.fault(part, staged.name, "was published, but no longer exists")
            return 0
        folder, _, published = name.partition("/")
        if staged.name.rpartition("/")[2] in self.storage.list(staged.name.rpartition("/")[0]):
            return self._aside(staged.name, part, staged)
        # It was published after the folder was listed, or is lost.
        return self._aside(name if published in self.storage.list(folder) else staged.name, part, staged)

    def _aside(self, name: str, part: str, staged: Staged | None) -> int:
        """The number of accounted records in a file of late rows or dead letters."""
        data = self._read(name, part)
        if data is None:
            return 0
        try:
            table = decode_table(data, staged.sha256 if staged else None, name)
            partly = pc.sum(pc.starts_with(table["reason"], "partly-late")).as_py() or 0
            partly = partly if part == "late rows" else 0
            results = table["offset"].null_count
        except UNREADABLE as error:
            self.found.fault(part, name, str(error))
            return 0
        self.found.count(part, data.size, table.num_rows)
        return int(table.num_rows - partly - results)

    # -- plans and strays ----------------------------------------------------------------------------------------

    def _plans(self) -> None:
        for name in self.storage.list("p"):
            id = entry_id(name)
            if id is None or not self.newest.keeps(id):
                continue
            data = self._read(f"p/{name}", "plans")
            if data is None:
                continue
            self.found.count("plans", data.size)
            try:
                plan = StepPlan.decode(data.to_pybytes(), f"p/{name}")
            except CorruptCheckpoint as error:
                self.found.fault("plans", f"p/{name}", str(error))
                continue
            for text in self._plan_faults(name, plan):
                self.found.fault("plans", f"p/{name}", text)

    def _plan_faults(self, name: str, plan: StepPlan) -> Iterator[str]:
        if f"p/{name}" != plan_name(plan.base, plan.number):
            yield f"is the plan number {plan.number} of checkpoint {plan.base}"
        base = self.entries.get(plan.base)
        if base is None or not base.manifest.is_base:
            # A fence may have the id of a lost checkpoint, whose plan never runs.
            return
        manifest = base.manifest
        if plan.job != manifest.job or not plan.starts_at(manifest.sources):
            yield f"does not start at the positions of checkpoint {plan.base}"
        if plan.base == self.newest.base:
            known = self.newest.files()
            appended = [run for source in plan.sources.values() for run in source.appended]
            self._check({run.name: (run, self.newest) for run in appended if run.name not in known})

    def _strays(self) -> None:
        kept = [entry.manifest for entry in self.entries.values()]
        known = {name for one in kept for name in (*one.files(), *undoable(one.sinks))} | self.newest.unpublished()
        pending = self._pending()
        known |= pending.files() if pending else set()
        folders = {folder for entry in self.entries.values() for folder in entry.manifest.folders()}
        for folder in sorted(folders | self.newest.index_folders() | {STAGED}):
            strays = [name for name in self.storage.list(folder) if f"{folder}/{name}" not in known]
            self._warn_strays(
                folder, strays, "no kept manifest names it: left by an interrupted run, or written by a running one"
            )
        self._warn_strays(
            "", [name for name in self.storage.list("") if name not in _ROOT], "is not part of a checkpoint"
        )
        self._warn_strays(
            DRIVERS,
            [name for name in self.storage.list(DRIVERS) if driver_epoch(name) is None],
            "is not a mark of a run",
        )
        for folder in ("m", "p"):
            names = self.storage.list(folder)
            strays = [name for name in names if entry_id(name) is None]
            self._warn_strays(folder, strays, "is not part of a checkpoint")

    def _warn_strays(self, folder: str, names: Iterable[str], text: str) -> None:
        for name in names:
            self.found.warn("strays", f"{folder}/{name}".lstrip("/"), text)

    def _pending(self) -> StepPlan | None:
        try:
            return self.log.plan(self.newest.base, self.newest.replan)
        except CorruptCheckpoint:
            # Already reported with the plans.
            return None

    def _read(self, name: str, part: str) -> pa.Buffer | None:
        try:
            return self.storage.read(name)
        except FileNotFoundError:
            self.found.fault(part, name, MISSING)
        except PersistentError as error:
            self.found.fault(part, name, str(error))
        return None


def _said(counted: int, part: str, expected: int) -> str:
    return f"holds {counted:,} {part}, but the account says {expected:,}"
