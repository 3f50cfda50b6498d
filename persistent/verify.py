"""To verify a checkpoint is to read every byte that a kept manifest names, and hold it against every law it must keep.

    FORMAT     there, of a format and hash known here, of the job of the manifests
    chain      every manifest decodes, names its parent by id and SHA-256, and follows it by the laws of the log
    account    read = processed + late + dead + duplicate, and the late rows and dead letters kept are those counted
    runs       every run named is there, whole, sorted, and of the keys, panes and key groups said of it
    sums       of every key group, the delta of each checkpoint counts once
    plans      decode, and start where their checkpoint stands

It needs no code of the user's, changes nothing, and may look on while a run works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from monoids.hashing import VERSION as HASH_VERSION
from persistent.checkpoint.log import Entry, Log, manifest_name, plan_name
from persistent.checkpoint.manifest import Manifest, check_format
from persistent.checkpoint.plan import StepPlan
from persistent.codec import KEY_GROUPS, Run, decode_document, decode_table
from persistent.errors import CorruptCheckpoint, PersistentError
from persistent.publish import aside_name
from persistent.sinks.protocol import Staged
from persistent.storage import Storage
from persistent.verify_laws import differences, manifest_faults, step_faults, sum_faults
from persistent.verify_rows import index_faults, state_faults

FAULT, WARNING = "fault", "warning"
_DIGITS = 20
_MISSING = "missing"
_UNREADABLE = (CorruptCheckpoint, pa.ArrowException, ValueError, KeyError, TypeError, IndexError)
"""What decoding damaged bytes may raise."""


@dataclass(frozen=True)
class Finding:
    """What is not as it should be.

    A ``fault``: something committed is lost or wrong. A ``warning``: something lies there that is no part of it.
    """

    severity: str
    part: str
    place: str
    text: str


@dataclass
class Part:
    """How much of one kind was looked at."""

    checked: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass
class Verification:
    """What was looked at, what was found, and ``newest_good``: the newest checkpoint that no fault touches."""

    url: str
    parts: dict[str, Part] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    newest: int | None = None
    newest_good: int | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return not any(finding.severity == FAULT for finding in self.findings)

    def count(self, part: str, bytes: int = 0, rows: int = 0) -> None:
        one = self.parts.setdefault(part, Part())
        one.checked, one.bytes, one.rows = one.checked + 1, one.bytes + bytes, one.rows + rows

    def fault(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Part())
        # An error text begins with the place it is about.
        text = text.removeprefix(f"{self.url}/{place}").removeprefix(": ")
        self.findings.append(Finding(FAULT, part, place, text))

    def warn(self, part: str, place: str, text: str) -> None:
        self.findings.append(Finding(WARNING, part, place, text))

    def faults_of(self, part: str) -> int:
        return sum((finding.severity, finding.part) == (FAULT, part) for finding in self.findings)


def verify(storage: Storage) -> Verification:
    """Look at everything that is kept. What a run that works meanwhile collects under our eyes is not missed."""
    log = Log(storage)
    ids = log.ids()
    found = _Look(storage, log, ids).look()
    if not found.ok and log.ids() != ids:
        _forgive_collected(found, log)
    return found


def _forgive_collected(found: Verification, log: Log) -> None:
    """Take back the faults of files that are missing and that by now no kept manifest names."""
    kept: list[Manifest] = []
    for id in reversed(log.ids()):
        if kept and id < kept[0].oldest:
            break
        # One that cannot be read is collected too, or a fault of its own.
        with suppress(CorruptCheckpoint):
            kept.append(log.read(id).manifest)
    if not kept:
        return
    oldest = kept[0].oldest
    named = {name for one in kept for name in one.files()} | {name for out in kept[0].outputs for name in out.names()}

    def is_collected(finding: Finding) -> bool:
        folder, _, name = finding.place.rpartition("/")
        if finding.text != _MISSING or finding.place in named:
            return False
        return folder.startswith("d/") or (folder in ("m", "p") and int(name[:_DIGITS]) < oldest)

    found.findings = [finding for finding in found.findings if not is_collected(finding)]


class _Look:
    """One look at a checkpoint whose log holds ``ids``."""

    def __init__(self, storage: Storage, log: Log, ids: list[int]) -> None:
        self.storage = storage
        self.log = log
        self.ids = ids
        self.job: str | None = None
        self.found = Verification(storage.url)
        self.entries: dict[int, Entry] = {}
        self.bad_ids: set[int] = set()
        self.bad_runs: set[str] = set()

    def look(self) -> Verification:
        self._format()
        self._chain()
        if self.entries:
            for name, (run, of) in self._runs().items():
                self._run(name, run, of)
            self._sums()
            self._outputs()
            self._plans()
            self._strays()
        good = [entry.manifest for id, entry in self.entries.items() if id not in self.bad_ids]
        whole = [one.id for one in good if one.kind == "checkpoint" and not one.files() & self.bad_runs]
        self.found.newest = max(self.ids, default=None)
        self.found.newest_good = max(whole, default=None)
        return self.found

    @property
    def newest(self) -> Manifest:
        """The newest manifest that can be read."""
        return self.entries[max(self.entries)].manifest

    # -- the log -------------------------------------------------------------------------------------------------

    def _format(self) -> None:
        data = self._read("FORMAT", "FORMAT")
        if data is None:
            return
        try:
            body = decode_document(data.to_pybytes(), "FORMAT")
            check_format(body, "FORMAT")
        except CorruptCheckpoint as error:
            self.found.fault("FORMAT", "FORMAT", str(error))
            return
        if (body.get("key_groups"), body.get("hash")) != (KEY_GROUPS, HASH_VERSION):
            self.found.fault("FORMAT", "FORMAT", f"key groups {body.get('key_groups')}, hash {body.get('hash')}")
        self.job = body.get("job")

    def _chain(self) -> None:
        if not self.ids:
            self.found.fault("manifests", "m", "no manifest: this is no checkpoint, or its log is lost")
        for id in reversed(self.ids):
            if self.entries and id < self.newest.oldest:
                # Nothing below is kept: what still lies there waits to be collected.
                break
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
            elif id - 1 not in self.ids and id > self.newest.oldest:
                self._bad(id, f"its parent {id - 1} is not there")

    def _bad(self, id: int, text: str) -> None:
        self.bad_ids.add(id)
        self.found.fault("manifests", manifest_name(id), text)

    # -- runs ----------------------------------------------------------------------------------------------------

    def _runs(self) -> dict[str, tuple[Run, Manifest]]:
        """Every run that a kept manifest names, with the newest that does. All must say the same of it."""
        named: dict[str, tuple[Run, Manifest]] = {}
        for manifest in (entry.manifest for entry in self.entries.values()):
            for run in _all_runs(manifest):
                before = named.get(run.name)
                if before is not None and (said := differences(before[0], run)):
                    self._bad(manifest.id, f"says of {run.name} another {said} than manifest {before[1].id}")
                named[run.name] = run, manifest
        return named

    def _run(self, name: str, run: Run, manifest: Manifest) -> None:
        operator = next((one for one in manifest.operators.values() if any(r.name == name for r in one.runs)), None)
        part = "index runs" if operator is None else "state runs"
        data = self._read(name, part)
        if data is None:
            self.bad_runs.add(name)
            return
        self.found.count(part, data.size, run.rows)
        try:
            if operator is None:
                faults = list(index_faults(data, run, name))
            else:
                faults = list(state_faults(data, run, name, operator.key_names, operator.key_types))
        except _UNREADABLE as error:
            faults = [str(error)]
        for text in dict.fromkeys(faults):
            self.bad_runs.add(name)
            self.found.fault(part, name, text)

    def _sums(self) -> None:
        for id, entry in self.entries.items():
            for name, operator in entry.manifest.operators.items():
                for text in sum_faults(operator.runs, id):
                    self._bad(id, f"{name}: {text}")

    # -- outputs -------------------------------------------------------------------------------------------------

    def _outputs(self) -> None:
        """Late rows and dead letters: published, or staged by the newest checkpoint; as many as the account says."""
        for folder, part in (("late", "late rows"), ("dead", "dead letters")):
            named = self._named_aside(folder)
            published = [f"{folder}/{name}" for name in self.storage.list(folder) if self._is_known(name)]
            counted = sum(self._aside(name, part, named.get(name)) for name in published)
            unpublished = [name for name in named if name not in published]
            counted += sum(self._unpublished(name, named[name], part) for name in unpublished)
            accounts = self.newest.ledger.values()
            expected = sum(account.late if folder == "late" else account.dead for account in accounts)
            if counted != expected:
                self.found.warn(
                    part, folder, f"holds {counted:,} {part}, the account says {expected:,}: were files deleted?"
                )

    def _named_aside(self, folder: str) -> dict[str, Staged]:
        """What kept manifests staged, by the name under which it is published."""
        return {
            aside_name(folder, outputs.id, staged): staged
            for entry in self.entries.values()
            for outputs in entry.manifest.outputs
            for staged in getattr(outputs, folder)
        }

    def _is_known(self, name: str) -> bool:
        """Whether a published file is not of a checkpoint newer than those we look at."""
        return not name[:_DIGITS].isdigit() or int(name[:_DIGITS]) <= self.newest.id

    def _unpublished(self, name: str, staged: Staged, part: str) -> int:
        if all(staged.name not in outputs.names() for outputs in self.newest.outputs):
            self.found.fault(part, staged.name, "was published, and is gone")
            return 0
        folder, _, published = name.partition("/")
        if staged.name.rpartition("/")[2] in self.storage.list(staged.name.rpartition("/")[0]):
            return self._aside(staged.name, part, staged)
        # Published since we listed the folder, or lost.
        return self._aside(name if published in self.storage.list(folder) else staged.name, part, staged)

    def _aside(self, name: str, part: str, staged: Staged | None) -> int:
        """How many records of the account a file of late rows or dead letters holds."""
        data = self._read(name, part)
        if data is None:
            return 0
        try:
            table = decode_table(data, staged.sha256 if staged else None, name)
            partly = pc.sum(pc.equal(table["reason"], "partly-late")).as_py() or 0
        except _UNREADABLE as error:
            self.found.fault(part, name, str(error))
            return 0
        self.found.count(part, data.size, table.num_rows)
        return int(table.num_rows - partly)

    # -- plans and strays ----------------------------------------------------------------------------------------

    def _plans(self) -> None:
        for name in self.storage.list("p"):
            if not name[:_DIGITS].isdigit() or int(name[:_DIGITS]) < self.newest.oldest:
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
        if base is None:
            return
        if (plan.job, dict(plan.start)) != (base.manifest.job, dict(base.manifest.source.positions)):
            yield f"does not start where checkpoint {plan.base} stands"
        if plan.base == self.newest.base:
            for run in plan.appended:
                if run.name not in self.newest.files():
                    self._run(run.name, run, self.newest)

    def _strays(self) -> None:
        known = {name for entry in self.entries.values() for name in entry.manifest.files()}
        known |= {name for outputs in self.newest.outputs for name in outputs.names()}
        pending = self._pending()
        known |= {run.name for run in pending.appended} if pending else set()
        operators = {name for entry in self.entries.values() for name in entry.manifest.operators}
        for folder in sorted({f"d/{name}" for name in (*operators, self.newest.source.kind)}):
            strays = [name for name in self.storage.list(folder) if f"{folder}/{name}" not in known]
            self._tell(folder, strays, "no kept manifest names it: left by a run that was cut off, or by one at work")
        self._tell("", [name for name in self.storage.list("") if name != "FORMAT"], "is no part of a checkpoint")
        for folder in ("m", "p"):
            names = self.storage.list(folder)
            strays = [name for name in names if not (name[:_DIGITS].isdigit() and name.endswith(".json"))]
            self._tell(folder, strays, "is no part of a checkpoint")

    def _tell(self, folder: str, names: Iterable[str], text: str) -> None:
        for name in names:
            self.found.warn("strays", f"{folder}/{name}".lstrip("/"), text)

    def _pending(self) -> StepPlan | None:
        try:
            return self.log.plan(self.newest.base, self.newest.replan)
        except CorruptCheckpoint:
            # Told already, with the plans.
            return None

    def _read(self, name: str, part: str) -> pa.Buffer | None:
        try:
            return self.storage.read(name)
        except FileNotFoundError:
            self.found.fault(part, name, _MISSING)
        except PersistentError as error:
            self.found.fault(part, name, str(error))
        return None


def _all_runs(manifest: Manifest) -> Iterator[Run]:
    for operator in manifest.operators.values():
        yield from operator.runs
    yield from manifest.source.index
