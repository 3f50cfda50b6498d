"""A verification holds what was checked in a checkpoint, and the findings.

The laws of the manifest log; each violation is a sentence.

of one manifest             it belongs to this job, its account balances, nothing is closed ahead of the clock
of a manifest and the next  the next names it as its parent, nothing goes back, a fence changes nothing
of the runs in a manifest   in every key group each delta counts once
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import asdict

from persistent.checkpoint.manifest import SETS, Manifest
from persistent.checkpoint.parts import partition_name
from persistent.checkpoint.successor import Entry, broken
from persistent.codec.fields import Run
from persistent.text.figures import shell_word

FAULT, WARNING, NOTE = "fault", "warning", "note"
MISSING = "missing"
"""The finding about a named file that does not exist."""
FORMAT_PART, MANIFESTS = "FORMAT", "manifests"
"""Parts without which no run begins."""


@dataclass(frozen=True)
class Finding:
    """A ``fault``: something committed is lost or wrong. A ``warning``: a file there is not part of the checkpoint, or
    may be lost. A ``note``: something was not looked at, or is gone and may be."""

    severity: str
    part: str
    place: str
    text: str


@dataclass
class Checked:
    """The amount of one kind that was checked."""

    checked: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass
class Verification:
    """What was checked, the findings, the ``newest`` manifest, the ``base`` that it names, if it can be read, and
    ``newest_good``: the newest checkpoint without a fault."""

    url: str
    parts: dict[str, Checked] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    newest: int | None = None
    base: int | None = None
    newest_good: int | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return not any(finding.severity == FAULT for finding in self.findings)

    @property
    def verdict(self) -> str:
        """Which checkpoint is whole, and how to continue from it. Only of a verification with a fault."""
        good, url = self.newest_good, shell_word(self.url)
        back = f"'persistent rollback {url} {good} --outputs=retract'"
        if good is None:
            return "no checkpoint verifies: restore the folder from a copy, or let a new job start from a savepoint"
        if good != self.base:
            return f"checkpoint {good} is the newest that verifies: {back} goes back to it"
        whole = f"checkpoint {good} is the newest, and itself verifies"
        if self.faults_of(FORMAT_PART):
            return f"{whole}: 'persistent show {url}' says how to write FORMAT again"
        if self.faults_of(MANIFESTS):
            return f"{whole}: {back} continues from it without what is lost"
        return whole

    def count(self, part: str, bytes: int = 0, rows: int = 0) -> None:
        amount = self.parts.setdefault(part, Checked())
        amount.checked, amount.bytes, amount.rows = amount.checked + 1, amount.bytes + bytes, amount.rows + rows

    def fault(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Checked())
        # An error text begins with its place, as its reader knew it.
        text = text.removeprefix(f"{self.url}/").removeprefix(f"{place}: ").removeprefix(": ")
        self.findings.append(Finding(FAULT, part, place, text))

    def warn(self, part: str, place: str, text: str) -> None:
        self.findings.append(Finding(WARNING, part, place, text))

    def note(self, part: str, place: str, text: str) -> None:
        self.parts.setdefault(part, Checked())
        self.findings.append(Finding(NOTE, part, place, text))

    def faults_of(self, part: str) -> int:
        return sum((finding.severity, finding.part) == (FAULT, part) for finding in self.findings)

    def add(self, other: Verification, folder: str = "") -> None:
        """Add another verification, of this checkpoint or of one in its ``folder``."""
        before, inside = (f"{folder}: ", f"{folder}/") if folder else ("", "")
        for name, part in other.parts.items():
            one = self.parts.setdefault(f"{before}{name}", Checked())
            one.checked, one.bytes, one.rows = one.checked + part.checked, one.bytes + part.bytes, one.rows + part.rows
        self.findings += [
            Finding(finding.severity, f"{before}{finding.part}", f"{inside}{finding.place}", finding.text)
            for finding in other.findings
        ]


def differences(before: Run, after: Run, manifest: Manifest) -> str:
    """The fields of a run that differ between an earlier manifest and this one. Only ``low`` may change, and only
    upwards: except in a rollback, which names the run as its target does."""
    earlier, later = asdict(before), asdict(after)
    changed = [name for name in earlier if name != "low" and earlier[name] != later[name]]
    goes_back = after.low < before.low and manifest.kind != "rollback"
    return ", ".join([*changed, *(["low"] if goes_back else [])])


def manifest_faults(manifest: Manifest, job: str | None) -> Iterator[str]:
    """The broken laws of one manifest. ``job``: the job in FORMAT, if that is readable."""
    if job is not None and manifest.job != job:
        yield f"has job {manifest.job}, but FORMAT has {job}"
    if manifest.kind in ("checkpoint", "correction", *SETS) and not manifest.is_base:
        yield f"is a {manifest.kind} with base {manifest.base}"
    for partition, account in manifest.accounts.items():
        if not account.balances:
            yield f"{partition}: the account does not balance: {account}"
    for clock in (node.clock for node in manifest.nodes.values()):
        if not 0 <= clock.closed <= clock.watermark:
            yield f"windows are closed up to {clock.closed}, ahead of the clock {clock.watermark}"


def step_faults(manifest: Manifest, parent: Entry) -> Iterator[str]:
    """The broken laws between a manifest and its parent."""
    if manifest.parent != (parent.manifest.id, parent.sha256):
        yield f"names a parent that differs from the present manifest {parent.manifest.id}"
    before, after = parent.manifest, manifest
    for law in broken(after, before):
        yield f"does not follow {before.id}: {law}"
    later = after.accounts
    for partition, account in before.accounts.items() if after.kind not in SETS else ():
        partition = partition if partition in later else _qualified(before, partition, after)
        if not _grows(asdict(account), asdict(later[partition]) if partition in later else {}):
            yield f"{partition}: the account goes back"


def _qualified(before: Manifest, partition: str, after: Manifest) -> str:
    """The name of a single source's partition, after other sources have joined."""
    source, *_ = before.sources
    return partition_name(source, partition, len(after.sources))


def _grows(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    return all(after.get(name, -1) >= value for name, value in before.items() if name != "mix")


def sum_faults(runs: tuple[Run, ...], id: int) -> Iterator[str]:
    """In every key group each delta counts once: the runs follow each other, and none overlaps the next."""
    for run in runs:
        if not 0 <= run.first <= run.last <= id:
            yield f"run {run.name} sums the deltas {run.first} to {run.last}"
    borders = sorted({border for run in runs for border in (run.low, run.high)})
    for low in borders[:-1]:
        there = [run for run in runs if run.low <= low < run.high]
        for run, later in itertools.pairwise(there):
            if run.last > later.first:
                yield f"runs {run.name} and {later.name} both count deltas up to {run.last} in key group {low}"
